"""Work: the number of innermost iterations of an operator, from its tensor definition.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import buffer, compute, reduce
>>> x = buffer("x", (2, 3), f32)
>>> steps_of(compute((x,), (2,), lambda i: reduce("sum", (3,), lambda k: x[i, k])))
6

Sizes that are not known have no number of steps: the answer is None.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from plica.core import Name, Term, fold
from plica.ir.graph.expression import Apply, Attrs, Var
from plica.ir.loop import Buffer, Compute, Reduce, Scalar
from plica.ir.op import find
from plica.ir.type import TensorType, Type, infer_expr, shape_of, type_of
from plica.rewrite.graph.walk import expressions


@lru_cache(maxsize=4096)
def steps(op: str, attributes: Attrs, types: tuple[Type, ...]) -> int | None:
    """The steps of an operator at arguments of these types."""
    record = find(op)
    tensors = [each for each in types if isinstance(each, TensorType)]
    if record is None or len(tensors) < len(types):
        return None
    if record.decompose is not None:
        params = [Var(Name("x", i), each) for i, each in enumerate(types)]
        body = infer_expr(record.decompose(dict(attributes), *params))
        return _total(
            [
                steps(each.op, each.attrs, tuple([type_of(arg) for arg in each.args]))
                for each in expressions(body)
                if isinstance(each, Apply)
            ]
        )
    assert record.compute is not None  # an operator has one or the other
    buffers = [Buffer(Name("x", i), each.shape, each.dtype) for i, each in enumerate(tensors)]
    made = record.compute(dict(attributes), *buffers)
    return _total([steps_of(each) for each in ((made,) if isinstance(made, Compute) else made)])


def steps_of(compute: Compute) -> int | None:
    """The elements of a tensor expression, times the boxes it reduces over, one in the other."""

    def algebra(node: Term, kids: tuple[int | None, ...]) -> int | None:
        if None in kids:
            return None
        inside = max([each for each in kids if each is not None], default=1)
        return _times(node.extents, inside) if isinstance(node, Reduce) else inside

    return _times(compute.shape, fold(algebra, compute.body))


def _times(shape: tuple[Scalar, ...], inside: int | None) -> int | None:
    sizes = shape_of(shape, {})
    return None if sizes is None or inside is None else prod(sizes) * inside


def _total(parts: list[int | None]) -> int | None:
    found = [each for each in parts if each is not None]
    return sum(found) if len(found) == len(parts) else None
