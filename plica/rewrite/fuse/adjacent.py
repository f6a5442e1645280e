"""Adjacent parts: tensors that are consecutive in the memory of their concatenation.

    concat, stack    at the outermost axis that is longer than 1: each part is a range of the result
    slice, split     along that axis: the result is a range of what it is cut out of

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Apply, Var
>>> from plica.ir.type.term import tensor
>>> from plica.rewrite.fuse.reading import reading
>>> x, y = (Var(Name(name), tensor((1, size, 4), "f32")) for name, size in (("x", 2), ("y", 3)))
>>> pieces(reading(Apply("concat", (x, y), (("axis", 1),))))
(Piece(operand=0, start=0, count=8), Piece(operand=1, start=8, count=12))
>>> pieces(reading(Apply("concat", (x, x), (("axis", 2),)))) is None
True
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod

from attrs import frozen

from plica.core import substitute
from plica.ir.graph.expression import Call, Expr, Function, attr
from plica.ir.loop import scalar as sc
from plica.ir.type import known, normal_dim
from plica.rewrite.fuse.reading import AccessPattern, Index, count, parts, reading, reads_data


@frozen
class Piece:
    """The elements of a result, from `start` on, that are those of an operand in their order."""

    operand: int
    start: int
    count: int


@lru_cache(maxsize=4096)
def pieces(of: AccessPattern) -> tuple[Piece, ...] | None:
    """The operands whose elements form a result one after another, or None.

    Each piece is a whole operand, and together they are all of the result.
    """
    compute = of.compute
    sizes = [known(size) for size in compute.shape]
    if None in sizes or not isinstance(compute.body, sc.Select):
        return None
    shape = [size for size in sizes if size is not None]
    at = next((n for n, size in enumerate(shape) if size != 1), None)
    if at is None:
        return None
    axis, inner = compute.axes[at], prod(shape[at + 1 :])
    here = _flat(of.identity, compute.shape)
    rest: sc.Scalar | None = compute.body
    low, found = 0, list[Piece]()
    while rest is not None:
        other: sc.Scalar | None = None
        match rest:
            case sc.Select(sc.Lt(left, right), then, other) if left is axis:
                high = known(right)
            case sc.Select(sc.Eq(left, right), then, other) if left is axis and known(right) == low:
                high = low + 1
            case sc.Load():
                high, then = shape[at], rest
            case _:
                return None
        if high is None or not low <= high <= shape[at] or not isinstance(then, sc.Load):
            return None
        apart = here - _flat(then.indices, then.buffer.shape)
        if high - low == 1:
            apart = substitute(apart, {axis: sc.index(low)})
        piece = Piece(of.operands.index(then.buffer), low * inner, (high - low) * inner)
        if not _is_whole(then, piece, of, apart):
            return None
        if piece.count:
            found.append(piece)
        low, rest = high, other
    return tuple(found)


def _is_whole(load: sc.Load, piece: Piece, of: AccessPattern, apart: sc.Scalar) -> bool:
    """Whether a piece is a whole operand in its order, so far behind its beginning."""
    if reads_data(load.indices) or load.buffer.dtype is not of.compute.dtype:
        return False
    if count(load.buffer.shape) != piece.count:
        return False
    return not piece.count or known(normal_dim(apart)) == piece.start


@lru_cache(maxsize=4096)
def window(of: AccessPattern) -> int | None:
    """Which element of its one operand is the first of a result that is a range of it."""
    body = of.compute.body
    if not isinstance(body, sc.Load) or reads_data(body.indices):
        return None
    size, whole = count(of.compute.shape), count(body.buffer.shape)
    if not size or whole is None or size >= whole or body.buffer.dtype is not of.compute.dtype:
        return None
    apart = _flat(body.indices, body.buffer.shape) - _flat(of.identity, of.compute.shape)
    return known(normal_dim(apart))


def _flat(place: Index, shape: tuple[sc.Scalar, ...]) -> sc.Scalar:
    """The number of an element in memory."""
    whole: sc.Scalar = sc.index(0)
    for at, size in zip(place, shape, strict=True):
        whole = whole * size + at
    return whole


# --- whether it pays -----------------------------------------------------------------------------

Users = Mapping[Expr, Mapping[Expr, None]]


def pays(value: Expr, of: AccessPattern, users: Users) -> bool:
    """Whether parts should be written into the memory of the value that joins them.

    If its users can compute it on reading, they read the parts themselves: that costs no time and
    needs no memory for the whole.
    """
    if (found := pieces(of)) is None:
        return False
    args = parts(value)
    assert args is not None
    stored = copied = 0
    for piece in found:
        part = _shown(args[piece.operand])
        if not _is_placeable(part, users):
            copied += piece.count
        elif _is_stored(part, value, users):
            stored += piece.count
    return 0 < stored >= copied


def _shown(value: Expr) -> Expr:
    """The holder of a value's elements: itself, or the value it is a view of."""
    while (of := reading(value)) is not None and of.is_view:
        args = parts(value)
        assert args is not None
        value = args[of.viewed]
    return value


def _is_placeable(part: Expr, users: Users) -> bool:
    """Whether a kernel of this graph produces a value, and nothing else fixes its place."""
    return _is_made(part) and all(map(_is_made, users[part]))


def _is_made(value: Expr) -> bool:
    """Whether an operator makes a value, or a function that was fused before."""
    return parts(value) is not None or _is_fused(value)


def _is_fused(value: Expr) -> bool:
    """Whether a value is the result of a fused function: earlier decisions are kept."""
    if not isinstance(value, Call) or not isinstance(value.callee, Function):
        return False
    return bool(attr(value.callee, "primitive"))


def _is_stored(part: Expr, joined: Expr, users: Users) -> bool:
    """Whether a value is in memory even if it is not joined there: others use it, or it is made of
    something that a kernel reduces for it alone."""
    if any(user is not joined for user in users[part]):
        return True
    chain, pending = {part}, [part]
    while pending:
        expr = pending.pop()
        of = reading(expr)
        if of is None or of.kind == "opaque" or of.reduces:
            return True
        alone = [
            arg
            for arg in parts(expr) or ()
            if _is_made(arg) and all(user in chain for user in users[arg])
        ]
        pending += [arg for arg in alone if arg not in chain]
        chain |= set(alone)
    return False
