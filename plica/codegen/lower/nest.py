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
epilogue) is done as soon as its sum is complete, while it is at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from attrs import frozen

from plica.analysis.statement import mapped, reads_memory
from plica.codegen.lower.loop_order import (
    LoopOrder,
    StoredElement,
    is_near,
    last_store,
    loops_around,
    panels,
    replaced,
    stored,
    strips,
)
from plica.core.binding import free_vars, name_of, substitute
from plica.core.diagnostic import CompilerBug
from plica.core.fold import map_bottom_up, post_order
from plica.core.name import Name, fresh
from plica.core.term import Term
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.reduction import exposed
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Names, Stages, kernel_of, loads, pairs
from plica.ir.loop.statement import Kernel, LoopKind, Seq, Stmt, Store, allocated
from plica.ir.loop.summation import spelled
from plica.ir.type import known
from plica.runtime.late import lazy_imports
from plica.schedule.default.lane import is_row, nested
from plica.schedule.default.machine import Machine
from plica.schedule.default.row import rows_of
from plica.schedule.default.summed import in_equal_runs

with lazy_imports(__name__):
    from plica.codegen.lower.hoist import looked_up
    from plica.codegen.lower.open_pad import padded_rows

FEWEST: Final = 4
"""A row of fewer elements is not worth a vector, which may be a part of a register."""

ROW: Final = 16 * 1024
"""Bytes an accumulator may take for a whole row; a longer row is reduced otherwise."""

PANEL: Final = 4 * 1024  # bytes an accumulator takes for a part of a row that is too long
TILE: Final = 8
"""How many neighbours are reduced side by side: additions take a few cycles to come through."""

SHORT: Final = 16  # a reduction of fewer terms is done at once
LONG: Final = 64  # a run of this many terms has an accumulator of its own for each neighbour
FEW: Final = 64
"""Sums side by side that registers are kept for, where lanes may be masked off.  A processor waits
for what is stored under a mask before it reads it again, and LLVM does not see that it need not."""


def nest(of: Stages, free: bool = False, machine: Machine | None = None) -> Kernel:
    """The plain loops of some stages: these fit everything.

    Sums of open rows may be made in another order than they say, if they are `free`.  A `machine`
    says how many lanes and rows of what is open go together.
    """
    if not all(isinstance(stage, Each) for stage in of.stages):
        return kernel_of(of)
    every = [(in_order(_freed(fold, free)), epilogue) for fold, epilogue in pairs(of)]
    if len(every) == 1:
        ((fold, epilogue),) = every
        body = elements(fold, of.result, stored(fold, epilogue), machine)
    else:
        body = _by_row(of, every, rows_of(of) or 0, machine)
    params = (*of.inputs, *of.outputs)
    if any(
        map(reads_memory, [at for each in of.stages for load in loads(each) for at in load.indices])
    ):
        body = mapped(body, looked_up)
    return Kernel(open_sizes(params, body), params, len(of.inputs), body)


def nest_along_rows(of: Stages, free: bool, machine: Machine) -> Kernel | None:
    """The same where vectors of a machine go along rows of all that is touched, and what is read
    again and again is near; None where plain loops may be slow."""
    if not all(isinstance(stage, Each) for stage in of.stages):
        return None
    every = pairs(of)
    if len(every) > 1 and not rows_of(of):
        return None
    alone = len(every) == 1
    return (
        nest(of, free, machine)
        if all(_has_lanes(fold, stored(fold, epilogue), machine, alone) for fold, epilogue in every)
        else None
    )


def _has_lanes(of: Each, after: StoredElement | None, machine: Machine, alone: bool) -> bool:
    """Whether the elements of a stage are made in lanes, those of one row alone or of several."""
    reductions = exposed(of.value)
    if not of.axes or (known(of.out.shape[-1]) or 0) < machine.lanes(of.out.dtype):
        return False
    if not reductions:
        return _kind(of, [of.value], after) == "vectorized"
    if not alone or any(isinstance(e, sc.Select) for one in reductions for e in post_order(one)):
        return False
    if not is_near(of, machine):  # one row reads all of it once, in order
        others = [known(size) for size in of.out.shape[:-1]]
        fits = _row_fits(of, reductions, after)
        bodies = [reduction.body for reduction in reductions]
        return all(n == 1 for n in others) and fits and _kind(of, bodies, after) == "vectorized"
    places, terms = (of.axes, []) if after is None else (after.indices, [after.value])
    return strips(of, places, terms, machine) is not None


def _freed(of: Each, free: bool) -> Each:
    """A stage whose sum of products is in runs that need no totals of f64, if it is `free`."""
    if not free or not isinstance(of.value, sc.Reduce):
        return of
    return Each(of.out, of.axes, in_equal_runs(of.value, Names(of)))


def in_order(of: Each) -> Each:
    """A stage in which the order of sums is written out."""
    value = spelled(of.value)
    return of if value is of.value else Each(of.out, of.axes, value)


def _by_row(
    of: Stages, every: Sequence[tuple[Each, Each | None]], rows: int, machine: Machine | None
) -> Stmt:
    """Stages one after another, in one loop over the rows that they share.

    What a stage makes is kept for one row only, but for what is memory of the launch.
    """
    names = Names(of)
    row = tuple([names.var("row") for _ in range(rows)])
    kept: dict[sc.Buffer, sc.Buffer] = {}
    steps: list[Stmt] = []
    for fold, epilogue in every:
        one = _of_row(fold, row, kept)
        stage, after = fold, StoredElement(one.out, one.axes, sc.Load(one.out, one.axes))
        if epilogue is not None:
            stage = epilogue
            element = stored(one, _of_row(epilogue, row, {**kept, fold.out: one.out}))
            assert element is not None
            after = element
        if stage.out in of.outputs:
            target = stage.out
            after = StoredElement(after.reduced, (*row, *after.indices), after.value)
        else:
            target = sc.Buffer(names.name("kept"), stage.out.shape[rows:], stage.out.dtype)
            kept[stage.out] = target
        steps.append(elements(one, target, after, machine))
    body: Stmt = Seq(tuple(steps))
    body = allocated(body, reversed(kept.values()))
    return loops_around(tuple(zip(row, of.result.shape[:rows], strict=True)), body)


def _of_row(of: Each, row: tuple[sc.ScalarVar, ...], kept: Mapping[sc.Buffer, sc.Buffer]) -> Each:
    """A stage for one row: the axes after those of the rows are left."""
    rows = len(row)
    here: dict[Term, Term] = dict(zip(of.axes[:rows], row, strict=True))

    def new(node: Term) -> Term:
        if isinstance(node, sc.Load) and node.buffer in kept:
            return sc.Load(kept[node.buffer], node.indices[rows:])
        return node

    value = map_bottom_up(new, substitute(of.value, here))
    out = sc.Buffer(of.out.name, of.out.shape[rows:], of.out.dtype)
    return Each(out, of.axes[rows:], value)


def open_sizes(of: Sequence[sc.Buffer], body: Stmt) -> tuple[sc.ScalarVar, ...]:
    """The dims in the shapes of buffers, in order, then those that a statement asks for; by name
    where one size has several, since sets have no order that is the same in every process."""
    sizes = [free_vars(size) for buffer in of for size in buffer.shape]
    found = {var: None for terms in (*sizes, free_vars(body)) for var in sorted(terms, key=name_of)}
    return tuple([var for var in found if isinstance(var, sc.ScalarVar)])


def elements(
    of: Each, out: sc.Buffer, after: StoredElement | None, machine: Machine | None = None
) -> Stmt:
    """The loops that fill a buffer with the elements of a stage."""
    short = machine if machine is not None and not machine.masks and after is None else None
    if short is not None and (rows := padded_rows(of, out, short)) is not None:
        return rows
    masks = machine is not None and machine.masks
    places, terms = (of.axes, []) if after is None else (after.indices, [after.value])
    if (orders := strips(of, places, terms, machine)) is not None:
        return Seq(tuple([_walked(of, out, after, loop_order, masks) for loop_order in orders]))
    if lanes_of_panel := _panel(of, after):
        every = panels(of, lanes_of_panel)
        return Seq(tuple([_walked(of, out, after, loop_order, masks) for loop_order in every]))
    return _walked(of, out, after, _walk(of, after), masks)


def _panel(of: Each, after: StoredElement | None) -> int:
    """How many lanes of a row are reduced at a time that is too long to be so at once, else 0."""
    reductions = exposed(of.value)
    if not reductions or not _row_is_read(of, reductions) or _row_fits(of, reductions, after):
        return 0
    if _kind(of, [reduction.body for reduction in reductions], after) != "vectorized":
        return 0
    return PANEL // max(sc.dtype_of(reduction).bytes for reduction in reductions)


def _walked(
    of: Each, out: sc.Buffer, after: StoredElement | None, walk: LoopOrder, masks: bool
) -> Stmt:
    """The loops of a walk."""
    if not (reductions := exposed(walk.body)):
        last = walk.where(last_store(walk.body, walk, out, after))
        return loops_around(walk.loops, walk.begun(last), walk.kind)
    outer = walk.loops[: len(walk.loops) - walk.inside]
    inner = walk.loops[len(outer) :]
    names = Names(of, out)
    few = masks and walk.kind == "vectorized" and 0 < prod(known(e) or 0 for _, e in inner) <= FEW
    sums = Sums(walk, inner, names, "local" if few else "global")
    steps: list[Stmt] = []
    cells: list[_Cell] = []
    for reduction in reductions:
        own = reduction is walk.body and walk.indices == of.axes and not few
        if own and _in_place(of, reduction, out, after):
            cell = _Cell(out, walk.indices)
        else:
            cell = sums.cell(reduction)
        cells.append(cell)
        steps += sums.accumulated(reduction, cell)
    if cells[0].buffer is not out or after is not None:
        stand_in: dict[Term, sc.Scalar] = {
            reduction: cell.value for reduction, cell in zip(reductions, cells, strict=True)
        }
        value = replaced(walk.body, stand_in)
        last = walk.where(last_store(value, walk, out, after))
        steps.append(loops_around(inner, last, walk.kind, walk.unrolled))
    return loops_around(outer, walk.begun(sums.around(steps)))


def in_registers(
    walk: LoopOrder, out: sc.Buffer, after: StoredElement | None, names: Names
) -> Stmt:
    """The loops of a walk that is all inside the reductions, whose sums are kept in registers."""
    sums = Sums(walk, walk.loops, names, "local", 1)
    steps, stand_in = sums.totals(exposed(walk.body))
    last = walk.where(last_store(replaced(walk.body, stand_in), walk, out, after))
    return sums.around([*steps, loops_around(walk.loops, last, walk.kind, walk.unrolled)])


class Sums:
    """The accumulators of a walk, each as large as the loops that go inside the reductions."""

    def __init__(
        self,
        walk: LoopOrder,
        inner: Sequence[tuple[sc.ScalarVar, sc.Scalar]],
        names: Names,
        scope: str = "global",
        long: int = LONG,
    ) -> None:
        self.walk, self.inner, self.names = walk, inner, names
        self.scope, self.long = scope, long
        self.held: list[sc.Buffer] = []

    def cell(self, of: sc.Reduce) -> _Cell:
        """A place for the total of a reduction."""
        shape = tuple([extent for _, extent in self.inner])
        self.held.append(sc.Buffer(self.names.name("acc"), shape, sc.dtype_of(of), self.scope))
        return _Cell(self.held[-1], tuple([axis for axis, _ in self.inner]))

    def totals(self, of: Sequence[sc.Reduce]) -> tuple[list[Stmt], dict[Term, sc.Scalar]]:
        """The loops of some reductions, each into a cell, and what each is after them."""
        steps: list[Stmt] = []
        found: dict[Term, sc.Scalar] = {}
        for reduction in of:
            cell = self.cell(reduction)
            steps += self.accumulated(reduction, cell)
            found[reduction] = cell.value
        return steps, found

    def around(self, steps: Sequence[Stmt]) -> Stmt:
        """What is done where the cells are there."""
        statement: Stmt = Seq(tuple(steps))
        return allocated(statement, reversed(self.held))

    def accumulated(self, of: sc.Reduce, cell: _Cell) -> list[Stmt]:
        """The loops that reduce into a cell.

        Long runs inside it have cells of their own, if neighbours are reduced side by side; short
        ones are terms.
        """
        walk, runs = self.walk, exposed(of.body) if self.inner else ()
        steps, stand_in = self.totals([run for run in runs if not _is_short(run, self.long)])
        start, join = MEANING[of.combiner]
        first = Store(cell.buffer, cell.indices, start(sc.dtype_of(of)))
        again = Store(cell.buffer, cell.indices, join(cell.value, replaced(of.body, stand_in)))
        around = tuple(zip(of.axes, of.extents, strict=True))
        begin = loops_around(self.inner, first, walk.kind, walk.unrolled)
        if not steps:
            inside = (*around, *self.inner)
            return [begin, loops_around(inside, again, walk.kind, walk.unrolled)]
        steps.append(loops_around(self.inner, again, walk.kind, walk.unrolled))
        return [begin, loops_around(around, Seq(tuple(steps)))]


def _is_short(of: sc.Reduce, long: int) -> bool:
    """Whether a reduction has few terms for sure."""
    count = 1
    for extent in of.extents:
        most = known(extent.left) if isinstance(extent, sc.Min) else known(extent)
        count *= long if most is None else most
    return count < long


def _in_place(of: Each, reduction: sc.Reduce, out: sc.Buffer, after: StoredElement | None) -> bool:
    """Whether a reduction is accumulated where its element ends: if nothing follows it, or if the
    row is too long to be kept elsewhere."""
    if after is None:
        return True
    same = after.indices == of.axes and sc.dtype_of(reduction) is out.dtype
    return same and _row_bytes(of, [reduction]) > ROW


def _walk(of: Each, after: StoredElement | None) -> LoopOrder:
    """Row by row where rows are contiguous, otherwise a few neighbours at a time."""
    loops = tuple(zip(of.axes, of.out.shape, strict=True))
    reductions = exposed(of.value)
    if any(axis in of.axes for reduction in reductions for axis in reduction.axes):
        raise CompilerBug("A reduction binds an axis of the tensor it is part of.")
    if not reductions:
        return LoopOrder(loops, of.axes, of.value, 0, kind=_kind(of, [of.value], after))
    if _row_fits(of, reductions, after):
        kind = _kind(of, [reduction.body for reduction in reductions], after)
        return LoopOrder(loops, of.axes, of.value, 1, kind=kind)
    long = [place for place, size in enumerate(of.out.shape) if (known(size) or 0) > 1]
    if not long or _count(reductions) < SHORT:
        return LoopOrder(loops, of.axes, of.value, 0)
    place = long[-1]
    axis, size = of.axes[place], known(of.out.shape[place])
    assert size is not None
    tile = max((count for count in range(1, TILE + 1) if size % count == 0), default=1)
    if tile == 1:
        return LoopOrder(loops, of.axes, of.value, 0)
    taken = {node.name for node in post_order(of) if isinstance(node, sc.ScalarVar)}
    one = sc.ScalarVar(fresh(Name("tile"), taken), axis.dtype)
    lane = sc.ScalarVar(fresh(Name("lane"), taken), axis.dtype)
    there = one * tile + lane
    body = substitute(of.value, {axis: there})
    tiled = (one, sc.Lit(size // tile, axis.dtype))
    return LoopOrder(
        (*loops[:place], tiled, *loops[place + 1 :], (lane, sc.Lit(tile, axis.dtype))),
        (*of.axes[:place], there, *of.axes[place + 1 :]),
        body,
        1,
        ((axis, there),),
    )


def _count(reductions: Sequence[sc.Reduce]) -> int:
    """How many terms the longest reduction has."""
    longest = 0
    for reduction in reductions:
        count = 1
        for extent in reduction.extents:
            count *= known(extent) or 0
        longest = max(longest, count)
    return longest


@frozen
class _Cell:
    """Where a reduction is accumulated."""

    buffer: sc.Buffer
    indices: tuple[sc.Scalar, ...]

    @property
    def value(self) -> sc.Scalar:
        return sc.Load(self.buffer, self.indices)


def _kind(of: Each, bodies: Sequence[sc.Scalar], after: StoredElement | None) -> LoopKind:
    """Vectorized if neighbours along the last axis are neighbours in all that is touched, or where
    memory says."""
    if not of.axes or (known(of.out.shape[-1]) or 0) < FEWEST:
        return "serial"
    axis = of.axes[-1]
    if after is not None and after.indices[-1:] != (axis,):
        return "serial"
    rest = [] if after is None else [after.value]
    within = nested(of.value)
    named = not within  # lanes read where memory says; sums of such are under way one by one
    rows = all(is_row(scalar, axis, within, named=named) for scalar in (*bodies, *rest))
    return "vectorized" if rows else "serial"


def _row_bytes(of: Each, reductions: Sequence[sc.Reduce]) -> int:
    """What an accumulator for a row takes."""
    length = known(of.out.shape[-1]) if of.out.shape else 1
    return max(sc.dtype_of(reduction).bytes for reduction in reductions) * (length or 0)


def _row_fits(of: Each, reductions: Sequence[sc.Reduce], after: StoredElement | None) -> bool:
    """Whether the last axis may go innermost: it is contiguous in what is read, and not long."""
    alone = list(reductions) == [of.value]
    if alone and after is not None:
        alone = after.indices == of.axes and sc.dtype_of(of.value) is sc.dtype_of(after.value)
    if _row_bytes(of, reductions) > ROW and not alone:
        return False
    return _row_is_read(of, reductions)


def _row_is_read(of: Each, reductions: Sequence[sc.Reduce]) -> bool:
    """Whether neighbours along the last axis are neighbours in all that is reduced."""
    if not of.axes or (known(of.out.shape[-1]) or 0) < 2:
        return False
    axis, within = of.axes[-1], nested(of.value)
    return all(
        axis in free_vars(each.body) and is_row(each.body, axis, within) for each in reductions
    )
