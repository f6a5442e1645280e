"""Transforms: a tensor brought from one layout into another, as a term.

    before:  x in NCHW
    after:   transpose(reshape(x, (N, C / 4, 4, H, W)), (0, 1, 3, 4, 2)) in NCHW4c

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> from plica.ir.loop.layout import as_it_is, permuted
>>> x = Var(Name("x"), tensor((1, 8, 5, 5), "f32"))
>>> moved = transform(x, as_it_is(4), permuted((0, 2, 3, 1)), shape_of(x))
>>> moved.op, dict(moved.attrs)["axes"]
('transpose', (0, 2, 3, 1))
>>> transform(moved, permuted((0, 2, 3, 1)), as_it_is(4), shape_of(x)).op
'transpose'

Law: interpreting `transform(x, a, b, s)` where x holds `a.pack(v)` gives `b.pack(v)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from attrs import frozen

from plica.core import CompilerBug, IllTyped, Name, substitute
from plica.core.deferred import unobserved
from plica.ir.graph.expression import Const, Expr, Var, const
from plica.ir.graph.provenance import derived_const
from plica.ir.loop.layout import Layout, show_layout
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op import Operator, find
from plica.ir.op.relation import shown
from plica.ir.type import TensorType, known, product, quotient, type_of
from plica.runtime.error import Diagnostic

_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def operator(name: str) -> Operator:
    """The record of an operator that exists."""
    if (found := find(name)) is None:
        raise CompilerBug(f"There is no operator {name}.")
    return found


def shape_of(value: Expr) -> tuple[Scalar, ...]:
    """The shape of a tensor."""
    found = type_of(value)
    if not isinstance(found, TensorType):
        raise CompilerBug(f"A {type(found).__name__} has no layout.")
    return found.shape


def transform(x: Expr, source: Layout, target: Layout, logical: Sequence[Scalar]) -> Expr:
    """`x`, which holds a tensor of shape `logical` in `source`, converted to `target`."""
    if source is target:
        return x
    if isinstance(x, Const):
        sizes = [known(size) or 0 for size in logical]
        with unobserved():
            constant = const(target.pack(source.unpack(x.numpy(), sizes)), x.dtype)
        like = Var(Name("x"), type_of(x))
        origin = substitute(transform(like, source, target, logical), {like: x})
        return derived_const(origin, constant)
    changed = [a for a in range(source.rank) if source.blocks(a) != target.blocks(a)]
    order = target.order if any(source.blocks(a) for a in changed) else source.order
    parts = [at for axis in order for at in source.positions(axis)]
    x = transpose(x, parts)
    if changed:
        x = _reblocked(x, _Cutting(source, target, tuple(order), logical))
    where = [at for axis in order for at in target.positions(axis)]
    return transpose(x, [where.index(at) for at in range(len(where))])


def transpose(x: Expr, order: Sequence[int]) -> Expr:
    """The axes in another order; a reshape where that moves nothing."""
    if list(order) == list(range(len(order))):
        return x
    shape = shape_of(x)
    wide = [at for at in order if known(shape[at]) != 1]
    if wide == sorted(wide):
        return reshape(x, [shape[at] for at in order])
    return operator("transpose")(x, tuple(order))


def reshape(x: Expr, shape: Sequence[Scalar]) -> Expr:
    """The elements in another shape; itself where it has that shape."""
    if isinstance(x, Const):
        with unobserved():
            constant = const(x.numpy().reshape([known(size) or 0 for size in shape]), x.dtype)
        return derived_const(operator("reshape")(x, tuple(shape)), constant)
    return x if shape_of(x) == tuple(shape) else operator("reshape")(x, tuple(shape))


@frozen
class _Cutting:
    """From which blocks into which, in which order of the logical axes, of which sizes."""

    source: Layout
    target: Layout
    order: tuple[int, ...]
    logical: Sequence[Scalar]

    def keeps(self, axis: int) -> bool:
        """Whether the blocks of an axis are unchanged."""
        return self.source.blocks(axis) == self.target.blocks(axis)


def _reblocked(x: Expr, cutting: _Cutting) -> Expr:
    """Axes cut into other blocks; the parts of each axis stand together."""
    source, target, logical = cutting.source, cutting.target, cutting.logical
    shape = shape_of(x)
    whole: list[Scalar] = []  # the axes that change in one piece, the others in their parts
    cut: list[Scalar] = []
    grow: list[tuple[int, int]] = []
    stops: dict[int, Scalar] = {}
    at = 0
    for axis in cutting.order:
        parts = shape[at : at + len(source.blocks(axis)) + 1]
        at += len(parts)
        if cutting.keeps(axis):
            whole += parts
            cut += parts
            grow += [(0, 0)] * len(parts)
            continue
        held = product(parts)
        if held is not logical[axis] and known(held) != known(logical[axis]):
            stops[len(whole)] = logical[axis]
        block = math.prod(target.blocks(axis))
        outer, missing = _outer(logical[axis], block, target)
        whole.append(held)
        grow.append((0, missing))
        cut += [outer, *map(index, target.blocks(axis))]
    if stops or any(after for _, after in grow):
        x = reshape(x, whole)
        if stops:
            starts, axes = (0,) * len(stops), tuple(stops)
            x = operator("slice")(x, starts, tuple(stops.values()), axes=axes)
        if any(after for _, after in grow):
            x = operator("pad")(x, tuple(grow))
    return reshape(x, cut)


def _outer(size: Scalar, block: int, target: Layout) -> tuple[Scalar, int]:
    """How many blocks an axis has, and how many elements it lacks for that."""
    if (scalar := quotient(size, index(block))) is not None:
        return scalar, 0
    if (number := known(size)) is None:
        word = show_layout(target, _LETTERS)
        message = f"An axis of unknown size cannot be cut into the blocks of {word}."
        raise IllTyped(
            Diagnostic("bad-layout", message, None, f"a multiple of {block}", shown((size,)))
        )
    return index(-(-number // block)), -number % block
