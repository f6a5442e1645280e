"""The general template: the loops of any stages, nest by nest, without knowing their purpose.

    for i: for j: for k: y[i, j] += …   -->   for i in parallel:
                                                  for j in vectorized: y[i, j] = 0
                                                  for k: for j in vectorized: y[i, j] += …

The last axis goes inside a reduction if it is contiguous in memory: lanes. Otherwise a few
neighbours go inside a long reduction, so that several sums are in flight. The epilogue of a reduced
element runs as soon as it is complete, and stages that share rows go row by row. Steps that are
illegal for a nest are omitted.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import kernel_of, stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import f32
>>> from plica.schedule.do import trace_of
>>> x, w = buffer("x", (4, 8), f32), buffer("w", (8, 32), f32)
>>> dense = stage("y", (4, 32), lambda m, n: reduce("sum", (8,), lambda k: x[m, k] * w[k, n]))
>>> kernel = kernel_of(stages((x, w), (dense,)))
>>> steps = trace_of(general_schedule(kernel, Machine(512, 32)), kernel).steps
>>> print(*[each.instruction.kind for each in steps if each.instruction.kind != "loops"][:6])
block cache_write block compute_at set_scope reorder
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Final

from attrs import frozen

from plica.core import Term, free_vars
from plica.ir.loop import Block, Buffer, Each, Kernel, Scalar, ScalarVar, Store, loads
from plica.ir.loop.scalar import FloorDiv, Lit, Pair
from plica.ir.loop.stages import inlined
from plica.ir.type import known
from plica.schedule import primitive as st
from plica.schedule.default.lane import MAX_STRIDE, is_row, nested
from plica.schedule.default.machine import MIN_LANES, Machine
from plica.schedule.default.role import BlockFlow, block_flow, is_reduction, made_by
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle
from plica.schedule.problem import ScheduleRefused

MAX_ROW_BYTES: Final = 16 * 1024
"""Bytes the totals of a whole row may take; a longer row is reduced in panels."""

PANEL_BYTES: Final = 4 * 1024  # bytes the totals of a panel take
MAX_NEIGHBOURS: Final = 8
"""The maximum number of neighbours reduced together, to hide the latency of additions."""

MIN_TERMS: Final = 16  # a reduction of fewer terms is done at once
MAX_OPEN_VECTORS: Final = 4  # vectors of elements of open number that are computed together
MAX_ROWS_NEAR: Final = 16
"""Rows of what is read that are near at once, where they are columns of an open result."""

MAX_TOTALS_IN_REGISTERS: Final = 64
"""The maximum number of a row's totals kept in registers, if lanes may be masked: a load after a
masked store stalls, and LLVM cannot see that it is unnecessary."""

MIN_STORES_TO_SHARE: Final = 1 << 17
"""A nest that stores less often is not worth waking other cores."""


def general_schedule(kernel: Kernel, machine: Machine) -> Do:
    """The schedule of any kernel; unchanged if blocks are not stores of elements to their own
    buffers, or if one is empty."""
    flow = block_flow(kernel)
    blocks = () if flow is None else flow.blocks.values()
    empty = any(known(size) == 0 for block in blocks for size in block.extents)

    @do
    def schedule() -> Body:
        if flow is not None and not empty:
            yield from _Nests.of(kernel, flow).steps(machine)

    return schedule()


def block_schedule(of: Block, machine: Machine) -> Body:
    """The schedule of one block for itself; nothing is done to one that is no store of an
    element."""
    if isinstance(of.body, Store):
        one = _Element(of, of.body.value)
        nest = _Nest(one, (one,) if is_reduction(of) else (), tuple(one.axes()))
        yield from _Nests((nest,), (), ()).steps(machine)


@frozen(eq=False)
class _Element:
    """A block and what it stores for each element."""

    block: Block
    value: Scalar

    @property
    def label(self) -> str:
        return str(self.block.label)

    @property
    def out(self) -> Buffer:
        """The buffer that the block fills."""
        return made_by(self.block)

    @property
    def sizes(self) -> dict[Term, int]:
        """How long each axis is, 0 where that is open."""
        both = zip(self.block.vars, self.block.extents, strict=True)
        return {var: known(size) or 0 for var, size in both}

    @property
    def stores(self) -> int:
        """How often an element is stored."""
        return prod(self.sizes.values())

    def stores_inside(self, rows: int) -> int:
        """The number of elements of a row."""
        return prod([self.sizes[axis] for axis in self.axes()[rows:]])

    def axes(self, kind: str = "spatial") -> list[ScalarVar]:
        """The axes of a kind."""
        both = zip(self.block.vars, self.block.kinds, strict=True)
        return [var for var, literal_type in both if literal_type == kind]

    @property
    def term(self) -> Scalar:
        """The term that is accumulated, or the element if there is no reduction."""
        if is_reduction(self.block):
            assert isinstance(self.value, Pair)
            return self.value.right
        return self.value

    def reads_along(self, axis: Term, *, named: bool = False, apart: int = 1) -> bool:
        """Whether neighbours along an axis are neighbours in all that is read, or so far apart."""
        within = nested(self.term)
        reads = named and not within
        return isinstance(axis, ScalarVar) and is_row(self.term, axis, within, apart, named=reads)

    def goes_along(self, axis: Term, *, named: bool = True, apart: int = 1) -> bool:
        """Whether neighbours along an axis are neighbours where they are written, too."""
        ends = isinstance(self.block.body, Store) and self.block.body.indices[-1:] == (axis,)
        return ends and self.reads_along(axis, named=named, apart=apart)

    def repeats(self, axis: Term) -> int:
        """How many neighbours along an axis read the same element, 1 where that varies."""
        read = [load for load in loads(self.value) if axis in free_vars(load)]
        found = {
            int(at.right.value)
            for load in read
            for at in load.indices
            if isinstance(at, FloorDiv) and at.left is axis and isinstance(at.right, Lit)
        }
        return found.pop() if len(read) == len(found) == 1 and max(found) <= MAX_NEIGHBOURS else 1

    def crosses(self, axis: Term) -> Term | None:
        """The axis along which what is read lies that has another one in an outer place, if it is
        the only one."""
        places = [load.indices for load in loads(self.value) if axis in load.indices[:-1]]
        found = {place[-1] for place in places if place[-1] in self.block.vars}
        return found.pop() if len(found) == 1 else None


@frozen(eq=False)
class _Inside:
    """The axis inside the reduction's terms: a number of neighbours at a time, which may be vector
    lanes."""

    at: int
    together: int
    vectors: bool

    @property
    def is_few(self) -> bool:
        """Whether vectors of totals are kept in registers."""
        return self.vectors and self.together <= MAX_TOTALS_IN_REGISTERS


@frozen(eq=False)
class _Nest:
    """A block, and the reductions that it alone reads, each element at its own place: then `axes`
    are its own in the order of theirs.  One that is a reduction itself has no other."""

    last: _Element
    folds: tuple[_Element, ...]
    axes: tuple[Term, ...]

    @property
    def stores(self) -> int:
        """How often something is stored."""
        return sum([each.stores for each in {self.last, *self.folds}])

    @property
    def is_alone(self) -> bool:
        """Whether it is one reduction, whose totals are what others read."""
        return self.folds == (self.last,)

    def inside(self, inner: Collection[Term]) -> _Inside | None:
        """The axis inside the terms of its reductions, or None."""
        sizes = self.last.sizes
        long = [at for at, axis in enumerate(self.axes) if axis in inner and sizes[axis] > 1]
        if not self.folds or not long:
            return None
        at, size = long[-1], sizes[self.axes[long[-1]]]
        if all(_goes_along(fold, fold.axes()[at]) for fold in self.folds):
            bytes_ = max([fold.out.dtype.bytes for fold in self.folds])
            panel = not self.is_alone and size * bytes_ > MAX_ROW_BYTES
            vectors = size >= MIN_LANES and self.last.goes_along(self.axes[at], named=False)
            return _Inside(at, PANEL_BYTES // bytes_ if panel else size, vectors)
        terms = [prod([fold.sizes[var] for var in fold.axes("reduce")]) for fold in self.folds]
        parts = [part for part in range(2, MAX_NEIGHBOURS + 1) if size % part == 0]
        return _Inside(at, max(parts), False) if parts and max(terms) >= MIN_TERMS else None


def _goes_along(fold: _Element, axis: ScalarVar) -> bool:
    """Whether neighbours along an axis are neighbours in all that is reduced."""
    return axis in free_vars(fold.term) and fold.reads_along(axis)


@frozen(eq=False)
class _Nests:
    """The nests of a kernel in order, the blocks that are computed where they are read, and what
    others than the kernel read."""

    nests: tuple[_Nest, ...]
    inlined: tuple[Block, ...]
    outputs: tuple[Buffer, ...]

    @staticmethod
    def of(kernel: Kernel, flow: BlockFlow) -> _Nests:
        """The nests of a kernel: an element that is read once is made there, and reductions are
        followed by what alone reads them."""
        outputs = kernel.params[kernel.inputs :]
        within: dict[Buffer, _Element] = {}
        every: dict[Buffer, _Element] = {}
        for block in flow.blocks.values():
            assert isinstance(block.body, Store)
            there = {e.out: Each(e.out, e.block.vars, e.value) for e in within.values()}
            value = inlined(block.body.value, there)
            one, readers = _Element(block, value), flow.readers.get(block.body.buffer, ())
            goes = one.out not in outputs and len(readers) == 1 and _is_read_once(block, readers[0])
            (within if goes else every)[one.out] = one
        nests: dict[_Element, _Nest] = {}
        for last in every.values():
            folds = [nest for nest in nests if _is_epilogue(last, nest, every.values())]
            places = {_places(last, fold) for fold in folds}
            if len(places) == 1:
                nests[last] = _Nest(last, tuple(folds), *places)
                for fold in folds:
                    del nests[fold]
            else:
                own = (last,) if is_reduction(last.block) else ()
                nests[last] = _Nest(last, own, tuple(last.axes()))
        return _Nests(
            tuple(nests.values()), tuple([each.block for each in within.values()]), outputs
        )

    @property
    def rows(self) -> int:
        """How many of their first axes nests share, each reading others at its own row."""
        folds = [each.folds[0] for each in self.nests if each.folds]
        if len(self.nests) == 1 or not folds:
            return 0
        sizes = [folds[0].sizes[axis] for axis in folds[0].axes()]
        count = max([at + 1 for at, size in enumerate(sizes) if size != 1], default=1)
        every = {each for nest in self.nests for each in (nest.last, *nest.folds)}
        made = {each.out for each in every}
        return count if all(_is_at_row(each, sizes[:count], made) for each in every) else 0

    def steps(self, machine: Machine) -> Body:
        """The steps of all nests, last first: producers go into existing loops."""
        for block in self.inlined:
            inlined = yield st.block(str(block.label))
            yield st.compute_inline(inlined)
        rows, stores = self.rows, 0
        row: Handle | None = None
        for nest in reversed(self.nests):
            last, moved = (yield st.block(nest.last.label)), False
            if row is not None and nest.last.out not in self.outputs:
                with suppress(ScheduleRefused):
                    yield st.compute_at(last, row)
                    moved = True
                    if nest.last.stores_inside(rows) <= MAX_TOTALS_IN_REGISTERS:
                        yield st.set_scope(last, 0, "local")  # not in the row of the result
            every: tuple[Handle, ...] = yield st.loops(last)
            sizes = nest.last.sizes
            axes = [var for var in nest.last.block.vars[rows:] if not moved or sizes[var] != 1]
            own = _by_axis(axes, every)
            around = every[: len(every) - len(axes)]
            if row is None and rows and around:
                row = around[-1]
            stores += nest.stores
            outer: Sequence[tuple[Handle, int]] = ()
            with suppress(ScheduleRefused):
                outer = yield from self.nest(nest, last, own, around, machine)
            if not moved:
                shares = machine.cores > 1 and stores >= MIN_STORES_TO_SHARE
                whole = [*zip(around, sizes.values(), strict=False), *outer]
                shared = next((loop for loop, size in whole if size > 1), None)
                if shares and shared is not None:
                    with suppress(ScheduleRefused):
                        yield st.parallel(shared)
                stores = 0

    def nest(  # a nest and where it stands
        self,
        of: _Nest,
        last: Handle,
        own: dict[Term, Handle],
        around: Sequence[Handle],
        machine: Machine,
    ) -> Body:
        """The steps of a nest with its own and enclosing loops; returns those around lanes or
        reductions, with their extents."""
        sizes = of.last.sizes
        if not of.folds:
            yield from _in_lanes(of.last, own, machine)
            return [(loop, sizes[axis]) for axis, loop in own.items()]
        inside, alone = of.inside(own), of.is_alone
        near = machine.masks and inside is not None and inside.is_few
        if alone and near and of.last.out in self.outputs:
            alone, last = False, (yield st.cache_write(last, 0, "local"))
            own = _by_axis([term for term in of.axes if sizes[term] != 1], (yield st.loops(last)))
        spread = {axis: own.pop(axis) for axis in of.axes if axis in own}
        outer, lane, stays = yield from _parted(of, spread, inside)
        if alone:
            terms = [*own.values()]
            yield from _begun(last, [loop for loop, _ in outer], terms, lane, inside)
            return outer
        outer = [*[(loop, 1) for loop in own.values()], *outer]
        if own or not stays:
            yield st.reorder(*[loop for loop, _ in outer], *([] if lane is None else [lane]))
        home = [*around, *[loop for loop, _ in outer]][-1:]
        for fold in reversed(of.folds):
            yield from _placed(fold, home, inside, local=near)
        if lane is not None and inside is not None and inside.vectors:
            yield st.vectorize(lane)
        return outer


def _in_lanes(of: _Element, own: dict[Term, Handle], machine: Machine) -> Body:
    """The lanes of elements, whose loops are taken from those of the axes: neighbours along the
    last axis; else, of an open one, a few that are near to one another in what crosses it."""
    lane = of.block.vars[-1] if of.block.vars else None
    if lane is None or lane not in own:
        return
    if (size := of.sizes[lane]) >= MIN_LANES and of.goes_along(lane):
        yield st.vectorize(own.pop(lane))
    elif not size and of.goes_along(lane, apart=MAX_STRIDE):
        vectors = MAX_OPEN_VECTORS if len(own) == 1 else 1  # what is left of a row is done masked
        count = vectors * machine.lanes(of.out.dtype)
        own[lane], inner = yield st.split(own[lane], (None, count))
        yield st.vectorize(inner)
    elif (times := of.repeats(lane)) > 1:
        own[lane], inner = yield st.split(own[lane], (None, times))
        yield st.unroll(inner)
    elif not size and (across := of.crosses(lane)) in own:
        own[lane], inner = yield st.split(own[lane], (None, MAX_ROWS_NEAR))
        yield st.reorder(own[lane], own[across], inner)


def _by_axis(axes: Sequence[Term], every: Sequence[Handle]) -> dict[Term, Handle]:
    """The innermost of some loops, by their axes."""
    return dict(zip(axes, every[len(every) - len(axes) :], strict=True))


def _parted(of: _Nest, spread: Mapping[Term, Handle], inside: _Inside | None) -> Body:
    """The loops of some axes that stay around the reduction's inner axis, with their extents, the
    loop over that axis, and whether it is the last."""
    outer: list[tuple[Handle, int]] = []
    lane: Handle | None = None
    for axis, loop in spread.items():
        size = of.last.sizes[axis]
        if inside is None or axis is not of.axes[inside.at]:
            outer.append((loop, size))
        elif inside.together < size:
            panels, lane = yield st.split(loop, (None, inside.together))
            outer.append((panels, -(-size // inside.together)))
        else:
            lane = loop
    order = [var for var in of.last.block.vars if var in spread]
    last = inside is None or order[-1:] == [of.axes[inside.at]]
    return outer, lane, last and [*spread] == order


def _placed(fold: _Element, home: Sequence[Handle], inside: _Inside | None, *, local: bool) -> Body:
    """A reduction in the loop where its elements are needed, if any."""
    one = yield st.block(fold.label)
    for handle in home:
        yield st.compute_at(one, handle)
    if local:
        yield st.set_scope(one, 0, "local")
    every: tuple[Handle, ...] = yield st.loops(one)
    lanes = [] if inside is None else [fold.axes()[inside.at]]
    left = [
        axis for axis in fold.block.vars
        if not home or (fold.sizes[axis] != 1 and axis in (*lanes, *fold.axes("reduce")))
    ]  # fmt: skip
    own = _by_axis(left, every)
    terms = [own.pop(axis) for axis in fold.axes("reduce") if axis in own]
    lane = own.pop(lanes[0]) if lanes else None
    yield from _begun(one, [*own.values()], terms, lane, inside)


def _begun(
    fold: Handle,
    others: Sequence[Handle],
    terms: Sequence[Handle],
    lane: Handle | None,
    inside: _Inside | None,
) -> Body:
    """The loops of a reduction, its neighbours innermost, and those of its beginning."""
    if lane is None or inside is None:
        return
    if terms:
        yield st.reorder(*others, *terms, lane)
    if inside.vectors:
        yield st.vectorize(lane)
    if terms:
        yield st.decompose_reduction(fold, terms[0])


def _is_read_once(of: Block, reader: Block) -> bool:
    """Whether each element of a block, which is no reduction, is read for one other element."""
    if is_reduction(of) or is_reduction(reader) or not isinstance(of.body, Store):
        return False
    read = {load.indices for load in loads(reader.body) if load.buffer is made_by(of)}
    counts = [prod([known(size) or 0 for size in block.extents]) for block in (of, reader)]
    return len(read) == 1 and counts[0] == counts[1] and of.body.indices == of.vars


def _places(last: _Element, fold: _Element) -> tuple[Term, ...]:
    """Where a block reads an element of a reduction."""
    return next(load.indices for load in loads(last.value) if load.buffer is fold.out)


def _is_epilogue(last: _Element, fold: _Element, every: Iterable[_Element]) -> bool:
    """Whether a block alone reads the totals of a reduction, each element at its own place."""
    readers = {element for element in every if _reads(element, fold.out)} - {fold}
    if not is_reduction(fold.block) or is_reduction(last.block) or readers != {last}:
        return False
    if len({load.indices for load in loads(last.value) if load.buffer is fold.out}) != 1:
        return False
    wanted = {axis for axis, size in last.sizes.items() if size != 1}
    for place, axis in zip(_places(last, fold), fold.axes(), strict=True):
        if place in wanted and last.sizes[place] == fold.sizes[axis]:
            wanted.remove(place)
        elif fold.sizes[axis] != 1:
            return False
    return not wanted


def _reads(of: _Element, buffer: Buffer) -> bool:
    return any(load.buffer is buffer for load in loads(of.value))


def _is_at_row(of: _Element, sizes: Sequence[int], made: Collection[Buffer]) -> bool:
    """Whether a block has a given number of rows, and reads others at its own."""
    rows = of.block.vars[: len(sizes)]
    return [of.sizes[var] for var in rows] == [*sizes] and all(
        place is row or known(size) == 1
        for load in loads(of.value)
        if load.buffer in made and load.buffer is not of.out
        for place, row, size in zip(load.indices, rows, load.buffer.shape, strict=False)
    )
