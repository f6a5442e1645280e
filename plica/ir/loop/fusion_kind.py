"""Fusion kinds: how an operator reads its arguments, derived from its tensor expression.

    elementwise          each element is read from the same place of every argument
    broadcast            likewise, where arguments may be repeated along axes
    injective            each element is read from some place: no sums
    reduction            axes are folded away, and each argument's element is used once
    complex-out-fusable  a sum in which elements are used again (convolution, matmul, pools), or a
                         prefix sum; what follows elementwise can be computed with its result
    opaque               nothing of the kind; composite operators are, until they are decomposed

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import buffer, compute, reduce
>>> x = buffer("x", (2, 3), f32)
>>> kind_of(compute((x,), (3, 2), lambda i, j: x[j, i]))
'injective'
>>> kind_of(compute((x,), (2,), lambda i: reduce("sum", (3,), lambda k: x[i, k])))
'reduction'
"""

from __future__ import annotations

from typing import Final, Literal

from plica.core import Name, all_of
from plica.ir.graph.operator import Operator, Values
from plica.ir.loop.scalar import Buffer, Lit, Load, Reduce, Scalar, ScalarVar
from plica.ir.loop.tensor import Compute, Prefix
from plica.ir.type import TensorType, known, same_dim

Kind = Literal[
    "elementwise", "broadcast", "injective", "reduction", "complex-out-fusable", "opaque"
]
KINDS: Final[tuple[Kind, ...]] = (
    "elementwise", "broadcast", "injective", "reduction", "complex-out-fusable", "opaque",
)  # fmt: skip
"""From the easiest to fuse to the hardest."""


def kind(record: Operator, attrs: Values, *types: TensorType) -> Kind:
    """The kind of an operator at the given types; of several results the hardest."""
    if record.compute is None:
        return "opaque"
    buffers = [Buffer(Name("x", i), tensor.shape, tensor.dtype) for i, tensor in enumerate(types)]
    found = record.compute(attrs, *buffers)
    parts = (found,) if isinstance(found, Compute) else found
    return max((kind_of(part) for part in parts), key=KINDS.index, default="elementwise")


def kind_of(compute: Compute) -> Kind:
    """The kind of one tensor expression."""
    if all_of(Prefix, compute.body):
        return "complex-out-fusable"
    folds = all_of(Reduce, compute.body)
    if not folds:
        loads = all_of(Load, compute.body)
        return max((_reading(load, compute) for load in loads), key=KINDS.index, default=KINDS[0])
    if len(folds) > 1:
        return "opaque"
    (fold,) = folds
    inside = all_of(Load, fold.body)
    once = all(_reads_once(load, compute, fold) for load in inside)
    return "reduction" if once else "complex-out-fusable"


def _reading(load: Load, compute: Compute) -> Kind:
    """How a load without a sum around it reads."""
    shape = load.buffer.shape
    if load.indices == compute.axes and all(map(same_dim, shape, compute.shape)):
        return "elementwise"
    order = {axis: at for at, axis in enumerate(compute.axes)}
    last = -1
    for index, size in zip(load.indices, shape, strict=True):
        if known(index) == 0 and known(size) == 1:
            continue
        at = order.get(index, -1) if isinstance(index, ScalarVar) else -1
        if at <= last:
            return "injective"
        last = at
    return "broadcast"


def _reads_once(load: Load, compute: Compute, fold: Reduce) -> bool:
    """Whether each element is read for one index only: every axis occurs as an index by itself."""
    axes: list[tuple[ScalarVar, Scalar]] = [
        *zip(compute.axes, compute.shape, strict=True),
        *zip(fold.axes, fold.extents, strict=True),
    ]
    plain = [index for index in load.indices if isinstance(index, ScalarVar)]
    simple = all(isinstance(index, ScalarVar | Lit) for index in load.indices)
    return simple and all(axis in plain for axis, size in axes if known(size) != 1)
