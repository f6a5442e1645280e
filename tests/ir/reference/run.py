"""What a record means on arrays: its tensor expression evaluated, or its decomposition folded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plica.core.fold import post_order
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.graph.expression import Apply, Const, Project, Tuple, Var
from plica.ir.interpret.evaluate import evaluate
from plica.ir.loop.tensor import Compute, buffer
from plica.ir.op import Mismatch, Operator, find
from plica.ir.type.dtype import dtype
from plica.ir.type.term import TensorType, TupleType, Type, static_shape, tensor

Array = np.ndarray[Any, Any]


def attributes(record: Operator, given: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes in canonical form, defaults filled in."""
    count = 1 if record.variadic else len(record.inputs)
    args: list[Any] = [[0.0]] if record.variadic else [0.0] * count
    return dict(record.bind(args, given)[1])


def types_of(arrays: Sequence[Array]) -> list[TensorType]:
    """The types of arrays."""
    return [tensor(each.shape, dtype(each.dtype)) for each in arrays]


def run(record: Operator, arrays: Sequence[Array], given: Mapping[str, Any]) -> tuple[Array, ...]:
    """The results on arrays; that they have the type of the relation is checked."""
    return apply(record, arrays, attributes(record, given))


def apply(record: Operator, arrays: Sequence[Array], attrs: dict[str, Any]) -> tuple[Array, ...]:
    """The results on arrays with attributes in canonical form."""
    types = types_of(arrays)
    found = record.relation(attrs, *types)
    assert not isinstance(found, Mismatch), found
    results = _decomposed(record, attrs, arrays, types)
    wanted = outputs(found)
    assert len(results) == len(wanted)
    for result, type_ in zip(results, wanted, strict=True):
        assert result.shape == static_shape(type_)
        assert result.dtype == type_.dtype.numpy
    return results


def outputs(of: Type) -> list[TensorType]:
    """The types of the results."""
    items = of.items if isinstance(of, TupleType) else (of,)
    assert all(isinstance(each, TensorType) for each in items)
    return [each for each in items if isinstance(each, TensorType)]


def _decomposed(
    record: Operator, attrs: dict[str, Any], arrays: Sequence[Array], types: list[TensorType]
) -> tuple[Array, ...]:
    if record.compute is not None:
        names = [buffer(f"x{i}", each.shape, each.dtype) for i, each in enumerate(types)]
        computed = record.compute(attrs, *names)
        parts = (computed,) if isinstance(computed, Compute) else computed
        return tuple(evaluate(each, arrays) for each in parts)
    assert record.decompose is not None
    params = [Var(Name("x", i), each) for i, each in enumerate(types)]
    body = record.decompose(attrs, *params)
    values: dict[Term, Any] = dict(zip(params, arrays, strict=True))
    for node in post_order(body):
        match node:
            case Const():
                values[node] = node.numpy()
            case Apply(name, args, inner):
                other = find(name)
                assert other is not None
                several = apply(other, [values[each] for each in args], dict(inner))
                values[node] = several[0] if len(several) == 1 else several
            case Tuple(items):
                values[node] = tuple(values[each] for each in items)
            case Project(value, at):
                values[node] = values[value][at]
            case _:
                continue
    result = values[body]
    return result if isinstance(result, tuple) else (result,)
