"""Nest: a tensor expression becomes a plain loop nest.

One loop per axis, a store inside; a reduction becomes an accumulator, and loops that add to it.
Each element is reduced in the order of the reduction's axes, whatever the order of the loops.

    out[i, j] = sum over k of a[i, k] * b[k, j]
      -->  for i:
               for j: out[i, j] = 0
               for k:
                   for j: out[i, j] = out[i, j] + a[i, k] * b[k, j]

The last axis goes inside the reduction where neighbours along it are neighbours in memory, since
then the innermost loop is one a vector unit can run.  Elsewhere a few neighbours go inside, since
then several sums are under way at once.  A reduction that is evaluated only under a guard, or
inside another reduction, stays a scalar term.  What is to be done with a reduced element (the
finish) is done as soon as its sum is complete, while it is at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from plica.codegen.lower.walk import VECTOR, Walk, exposed, is_row, strips
from plica.core.binding import free_vars, substitute
from plica.core.diagnostic import CompilerBug
from plica.core.fold import map_top_down, post_order
from plica.core.name import Name, fresh
from plica.core.term import Term
from plica.ir.combiner import MEANING
from plica.ir.dim import known
from plica.ir.loop import Alloc, For, Kernel, LoopKind, Seq, Stmt, Store
from plica.ir.scalar import (
    Buffer,
    Lit,
    Load,
    Reduce,
    Scalar,
    ScalarVar,
    dtype_of,
)
from plica.ir.tensor import Compute

ROW: Final = 16 * 1024
"""Bytes an accumulator may take for a whole row; a longer row is reduced otherwise."""

TILE: Final = 8
"""How many neighbours are reduced side by side: additions take a few cycles to come through."""

SHORT: Final = 16
"""A reduction of fewer terms is done at once."""


@frozen
class Finish:
    """What is stored once an element is reduced: `value` at `indices`, where it reads the element
    from `reduced` at the axes of the reduction's tensor."""

    reduced: Buffer
    shape: tuple[Scalar, ...]
    indices: tuple[Scalar, ...]
    value: Scalar


def nest(of: Compute, finish: Finish | None = None) -> Kernel:
    """The loop nest of a tensor expression; its last parameter is the result."""
    shape, dtype = of.shape, of.dtype
    if finish is not None:
        shape, dtype = finish.shape, dtype_of(finish.value)
    out = Buffer(fresh(Name("out"), {each.name for each in of.inputs}), shape, dtype)
    body = elements(of, out, finish)
    params = (*of.inputs, out)
    return Kernel(open_sizes(params, body), params, len(of.inputs), body)


def open_sizes(of: Sequence[Buffer], body: Stmt) -> tuple[ScalarVar, ...]:
    """The dims in the shapes of buffers, in order, then those that a statement asks for."""
    found = {var: None for each in of for size in each.shape for var in free_vars(size)}
    more = [var for var in free_vars(body) if var not in found and isinstance(var, ScalarVar)]
    more.sort(key=lambda var: (var.name.hint, var.name.index))
    return tuple([var for var in found if isinstance(var, ScalarVar)] + more)


def elements(of: Compute, out: Buffer, finish: Finish | None) -> Stmt:
    """The loops that fill a buffer with the elements of a tensor."""
    places, after = (of.axes, []) if finish is None else (finish.indices, [finish.value])
    found = strips(of, places, after)
    if found is not None:
        return Seq(tuple([_walked(of, out, finish, each) for each in found]))
    return _walked(of, out, finish, _walk(of, finish))


def _walked(of: Compute, out: Buffer, finish: Finish | None, walk: Walk) -> Stmt:
    """The loops of a walk."""
    reductions = exposed(walk.body)
    if not reductions:
        last = walk.where(_last(walk.body, walk, out, finish))
        return loops_around(walk.loops, last, walk.kind)
    outer = walk.loops[: len(walk.loops) - walk.inside]
    inner = walk.loops[len(outer) :]
    used = {out.name, *(each.name for each in of.inputs)}
    steps: list[Stmt] = []
    cells: list[_Cell] = []
    for each in reductions:
        if each is walk.body and walk.indices == of.axes and _in_place(of, each, out, finish):
            cell = _Cell(out, walk.indices)
        else:
            name = fresh(Name("acc"), used)
            used.add(name)
            shape = tuple([extent for _, extent in inner])
            cell = _Cell(Buffer(name, shape, dtype_of(each)), tuple([axis for axis, _ in inner]))
        cells.append(cell)
        start, join = MEANING[each.combiner]
        first = Store(cell.buffer, cell.indices, start(dtype_of(each)))
        again = Store(cell.buffer, cell.indices, join(cell.value, each.body))
        around = tuple(zip(each.axes, each.extents, strict=True))
        steps += [
            loops_around(inner, first, walk.kind, walk.unrolled),
            loops_around((*around, *inner), walk.where(again), walk.kind, walk.unrolled),
        ]
    if cells[0].buffer is not out or finish is not None:
        stand_in: dict[Term, Scalar] = {
            each: cell.value for each, cell in zip(reductions, cells, strict=True)
        }
        value = map_top_down(lambda node: stand_in.get(node, node), walk.body)
        assert isinstance(value, Scalar)
        last = walk.where(_last(value, walk, out, finish))
        steps.append(loops_around(inner, last, walk.kind, walk.unrolled))
    stmt: Stmt = Seq(tuple(steps))
    for cell in reversed(cells):
        if cell.buffer is not out:
            stmt = Alloc(cell.buffer, stmt)
    return loops_around(outer, stmt)


def _in_place(of: Compute, reduction: Reduce, out: Buffer, finish: Finish | None) -> bool:
    """Whether a reduction is accumulated where its element ends: if nothing follows it, or if the
    row is too long to be kept elsewhere."""
    if finish is None:
        return True
    same = finish.indices == of.axes and dtype_of(reduction) is out.dtype
    return same and _row_bytes(of, [reduction]) > ROW


def _last(value: Scalar, walk: Walk, out: Buffer, finish: Finish | None) -> Stmt:
    """The store of an element whose reduction is done."""
    if finish is None:
        return Store(out, walk.indices, value)
    terms: list[Scalar] = [finish.value, *finish.indices]
    if walk.turned:
        turned: dict[Term, Term] = dict(walk.turned)
        terms = [substitute(each, turned) for each in terms]  # type: ignore[misc]  # scalars give scalars

    def filled(node: Term) -> Term:
        return value if isinstance(node, Load) and node.buffer is finish.reduced else node

    whole = map_top_down(filled, terms[0])
    assert isinstance(whole, Scalar)
    return Store(out, tuple(terms[1:]), whole)


def _walk(of: Compute, finish: Finish | None) -> Walk:
    """Row by row where rows are contiguous, otherwise a few neighbours at a time."""
    loops = tuple(zip(of.axes, of.shape, strict=True))
    reductions = exposed(of.body)
    if any(axis in of.axes for each in reductions for axis in each.axes):
        raise CompilerBug("A reduction binds an axis of the tensor it is part of.")
    if not reductions:
        return Walk(loops, of.axes, of.body, 0, kind=_kind(of, [of.body], finish))
    if _row_fits(of, reductions, finish):
        kind = _kind(of, [each.body for each in reductions], finish)
        return Walk(loops, of.axes, of.body, 1, kind=kind)
    long = [place for place, size in enumerate(of.shape) if (known(size) or 0) > 1]
    if not long or _count(reductions) < SHORT:
        return Walk(loops, of.axes, of.body, 0)
    place = long[-1]
    axis, size = of.axes[place], known(of.shape[place])
    assert size is not None
    tile = max((count for count in range(1, TILE + 1) if size % count == 0), default=1)
    if tile == 1:
        return Walk(loops, of.axes, of.body, 0)
    taken = {node.name for node in post_order(of) if isinstance(node, ScalarVar)}
    one = ScalarVar(fresh(Name("tile"), taken), axis.dtype)
    lane = ScalarVar(fresh(Name("lane"), taken), axis.dtype)
    index = one * tile + lane
    body = substitute(of.body, {axis: index})
    assert isinstance(body, Scalar)
    tiled = (one, Lit(size // tile, axis.dtype))
    return Walk(
        (*loops[:place], tiled, *loops[place + 1 :], (lane, Lit(tile, axis.dtype))),
        (*of.axes[:place], index, *of.axes[place + 1 :]),
        body,
        1,
        ((axis, index),),
    )


def _count(reductions: Sequence[Reduce]) -> int:
    """How many terms the longest reduction has."""
    longest = 0
    for each in reductions:
        count = 1
        for extent in each.extents:
            count *= known(extent) or 0
        longest = max(longest, count)
    return longest


@frozen
class _Cell:
    """Where a reduction is accumulated."""

    buffer: Buffer
    indices: tuple[Scalar, ...]

    @property
    def value(self) -> Scalar:
        return Load(self.buffer, self.indices)


def _kind(of: Compute, bodies: Sequence[Scalar], finish: Finish | None) -> LoopKind:
    """Vectorized if neighbours along the last axis are neighbours in all that is touched."""
    if not of.axes or (known(of.shape[-1]) or 0) < VECTOR:
        return "serial"
    axis = of.axes[-1]
    if finish is not None and finish.indices[-1:] != (axis,):
        return "serial"
    after = [] if finish is None else [finish.value]
    return "vectorized" if all(is_row(each, axis) for each in (*bodies, *after)) else "serial"


def _row_bytes(of: Compute, reductions: Sequence[Reduce]) -> int:
    """What an accumulator for a row takes."""
    length = known(of.shape[-1]) if of.shape else 1
    return max(dtype_of(each).bytes for each in reductions) * (length or 0)


def _row_fits(of: Compute, reductions: Sequence[Reduce], finish: Finish | None) -> bool:
    """Whether the last axis may go innermost: it is contiguous in what is read, and not long."""
    if not of.axes:
        return False
    axis = of.axes[-1]
    extent = known(of.shape[-1])
    if extent is None or extent < 2:
        return False
    alone = list(reductions) == [of.body]
    if alone and finish is not None:
        alone = finish.indices == of.axes and dtype_of(of.body) is dtype_of(finish.value)
    if _row_bytes(of, reductions) > ROW and not alone:
        return False
    return all(_contiguous(each, axis) for each in reductions)


def _contiguous(reduction: Reduce, axis: ScalarVar) -> bool:
    """Whether a reduction reads along an axis, and what it reads is contiguous there."""
    return axis in free_vars(reduction.body) and is_row(reduction.body, axis)


def loops_around(
    around: Sequence[tuple[ScalarVar, Scalar]],
    inside: Stmt,
    innermost: LoopKind = "serial",
    unrolled: ScalarVar | None = None,
) -> Stmt:
    """A statement in loops, the innermost of some kind, another maybe written out."""
    kind = innermost
    for var, extent in reversed(around):
        inside = For(var, extent, "unrolled" if var is unrolled else kind, inside)
        kind = "serial"
    return inside
