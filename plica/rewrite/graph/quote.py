"""Quoting: a value of the interpreter as the expression that has it.

>>> import numpy as np
>>> from plica.ir.type.term import tensor
>>> quote(np.float32([1, 2]), tensor((2,), "f32"), {}, 1 << 20)
Const(DType('f32'), (2), <8 bytes>)

Functions, and values larger than the limit, cannot be quoted: the result is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from plica.core import Term, substitute
from plica.ir.graph.expression import Call, Constructor, Expr, Tuple, own_const
from plica.ir.graph.module import DataDef, constructors
from plica.ir.interpret.value import DataValue
from plica.ir.type import DataType, TensorType, TupleType, Type


def quote(value: Any, of: Type, table: Mapping[Term, Any], limit: int) -> Expr | None:
    """The expression of a value of a type; `table` has the data types of the module.

    `limit` is how many bytes the constants in it may take together.
    """
    done: list[Expr] = []
    stack: list[tuple[Any, Any]] = [(value, of)]  # a value and its type, or what to build of parts
    while stack:
        value, of = stack.pop()
        if of is None:
            build, count = value
            parts = tuple(done[len(done) - count :])
            del done[len(done) - count :]
            done.append(build(parts))
        elif isinstance(of, TensorType) and isinstance(value, np.ndarray | np.generic):
            limit -= value.nbytes
            if limit < 0:
                return None
            done.append(own_const(np.asarray(value), of.dtype))
        elif isinstance(of, TupleType) and isinstance(value, tuple):
            stack.append(((Tuple, len(value)), None))
            stack.extend(reversed(list(zip(value, of.items, strict=True))))
        elif isinstance(of, DataType) and isinstance(value, DataValue):
            definition = table[of.data]
            assert isinstance(definition, DataDef)
            way = constructors(of.data, definition)[value.index]
            at = dict(zip(definition.types, of.args, strict=True))
            fields = [substitute(each, at) for each in definition.constructors[value.index].fields]
            stack.append(((_construct(way, of.args), len(fields)), None))
            stack.extend(reversed(list(zip(value.fields, fields, strict=True))))
        else:
            return None
    return done[0]


def _construct(way: Constructor, types: tuple[Type, ...]) -> Any:
    return lambda parts: Call(way, parts, types)
