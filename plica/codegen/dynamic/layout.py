"""Layout: how values of the graph language lie in registers and objects.

A tensor is one object and a value of a data type is one; a tuple is none: its parts stand side by
side, in registers and in the fields of objects alike.  So every type has *leaves*, its tensors and
data from left to right.

>>> from plica.ir.type.term import TupleType, tensor
>>> x, y = tensor((2,), "f32"), tensor((), "i64")
>>> [str(each) for each in leaves(TupleType((x, TupleType((y, x)))))]
['Tensor[(2,), f32]', 'Tensor[(), i64]', 'Tensor[(2,), f32]']
>>> span(TupleType((x, TupleType((y, x)))), 1)
(1, 3)
"""

from __future__ import annotations

from plica.core import CompilerBug
from plica.ir.graph.module import Module
from plica.ir.interpret.value import field_types
from plica.ir.type import DataType, TensorType, TupleType, Type


def leaves(of: Type | None) -> list[Type]:
    """The tensors and data of a type, from left to right."""
    found: list[Type] = []
    stack = [of]
    while stack:
        each = stack.pop()
        match each:
            case TupleType(items):
                stack.extend(reversed(items))
            case TensorType() | DataType():
                found.append(each)
            case _:
                raise CompilerBug(f"A value of type {each} has no place in memory.")
    return found


def width(of: Type | None) -> int:
    """How many leaves a type has."""
    return len(leaves(of))


def span(of: Type | None, index: int) -> tuple[int, int]:
    """Where among the leaves of a tuple those of one item are: from, and up to."""
    if not isinstance(of, TupleType):
        raise CompilerBug(f"An item is taken out of a value of type {of}.")
    start = sum(width(item) for item in of.items[:index])
    return start, start + width(of.items[index])


def fields(of: DataType, tag: int, module: Module) -> tuple[Type, ...]:
    """The declared field types of a constructor."""
    if (found := field_types(of, tag, module)) is None:
        raise CompilerBug(f"The data type {of} has no constructor {tag}.")
    return found
