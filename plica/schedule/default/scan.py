"""Scans: folds up to each index of an axis, carried in registers.

    y[i, k] = t[i] += x[i, k]  -->  for i0:
                                        t[16] = 0
                                        for k0:                        squares turned in registers
                                            p[k1, i1] = x[i0 * 16 + i1, k0 * 16 + k1]
                                            for k1, lanes i1:
                                                t[i1] += p[k1, i1]
                                                q[k1, i1] = t[i1]
                                            y[i0 * 16 + i1, k0 * 16 + k1] = q[k1, i1]

Rows are independent, so lanes are rows. If the axis is not the last, lanes are contiguous; if it
is, squares of the operand and the result are transposed. Remainders have a few rows in parallel. No
step reorders the scanned axis.

>>> from plica.ir.loop.stage import Scan, stage_of
>>> from plica.ir.loop.stages import kernel_of, stages
>>> from plica.ir.loop.tensor import buffer, compute, prefix
>>> from plica.ir.type.dtype import f32
>>> from plica.schedule.do import trace_of
>>> x = buffer("x", (64, 1000), f32)
>>> of = compute((x,), x.shape, lambda i, j: prefix("sum", 1000, j, lambda k: x[i, k]))
>>> scan = stage_of(buffer("y", x.shape, f32), of.axes, of.body)
>>> kernel = kernel_of(stages((x,), (scan,)))
>>> "reverse_compute_at" in trace_of(scan_schedule(kernel, Machine(512, 32)), kernel).to_python()
True
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from attrs import frozen

from plica.analysis.site import map_of
from plica.core import Name, free_vars, post_order
from plica.ir.loop import Block, Buffer, Kernel, Load, Scalar, ScalarVar, Store, statements
from plica.ir.loop.index_map import IndexMap, index_map
from plica.ir.type import known, polynomial
from plica.schedule import primitive as st
from plica.schedule.block_class import carried_by
from plica.schedule.dataflow import touched
from plica.schedule.default.general_schedule import block_schedule
from plica.schedule.default.machine import MIN_LANES, Machine
from plica.schedule.default.nest import vectors as in_vectors
from plica.schedule.default.share import pays
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle

TRANSPOSED_BYTES: Final = (4, 8)  # bytes of an element that squares in registers are transposed of
LEAST_PLACES: Final = 8  # places of a row that is worth transposing for
ROWS_SIDE_BY_SIDE: Final = 8
"""Rows with folds in flight at once: an addition has a latency of 4 cycles, and a store of one."""

VECTORS_CARRIED: Final = 16  # the maximum number of carried vectors in registers
OPEN_SIZE: Final = 4099  # the assumed value of an open size: longer than strips, and prime
CARRIED_NEAR: Final = 2048  # carried elements that stay in the nearest cache between indices


def scan_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of a kernel with scans, None for others."""
    sites = map_of(kernel).blocks
    if not any("scan" in site.node.kinds for site in sites.values()):
        return None

    @do
    def schedule() -> Body:
        for name, site in sites.items():
            if "scan" in site.node.kinds:
                yield from _scanned(name, ScanBlock(site.node), machine)
            else:
                yield from block_schedule(site.node, machine)

    return schedule()


@frozen(eq=False)
class ScanBlock:
    """A scan block as built by its stage: each variable has its own loop."""

    node: Block

    @property
    def along(self) -> ScalarVar:
        """The variable that is scanned."""
        return self.node.vars[self.node.kinds.index("scan")]

    @property
    def rows(self) -> tuple[ScalarVar, ...]:
        """The other variables."""
        return tuple([var for var in self.node.vars if var is not self.along])

    def size(self, var: ScalarVar) -> int:
        """How many values a variable has; many where that is open."""
        size = known(self.node.extents[self.node.vars.index(var)])
        return OPEN_SIZE if size is None else size

    @property
    def carry(self) -> Buffer:
        """The carried buffer."""
        (found,) = carried_by(self.node)
        return found

    @property
    def kept(self) -> Store:
        """The store of a result."""
        every = [each for each in statements(self.node.body) if isinstance(each, Store)]
        return next(each for each in every if each.buffer is not self.carry)

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """What it reads of others, in the order in which steps count."""
        reads, writes = touched(self.node)
        return tuple([read for read in reads if read not in writes])

    def place(self, buffer: Buffer) -> tuple[Scalar, ...] | None:
        """The only index at which a buffer is read, or None."""
        found = {
            node.indices
            for node in post_order(self.node.body)
            if isinstance(node, Load) and node.buffer is buffer
        }
        return found.pop() if len(found) == 1 else None

    def crosses(self, place: Sequence[Scalar] | None, row: ScalarVar) -> bool:
        """Whether neighbours of a scan are neighbours there, and those of a row are not."""
        if not place or not _is_step(place[-1], self.along):
            return False
        if any(self.along in free_vars(scalar) for scalar in place[:-1]):
            return False
        return [scalar for scalar in place if row in free_vars(scalar)] == [row]

    @property
    def shares(self) -> int:
        """Operations that cores could share."""
        return prod([self.size(var) for var in self.node.vars])


def _is_step(place: Scalar, along: ScalarVar) -> bool:
    """Whether an index changes by one along a variable."""
    found = [(atoms, factor) for atoms, factor in polynomial(place).values() if along in atoms]
    return [(atoms, abs(factor)) for atoms, factor in found] == [((along,), 1)]


def _scanned(name: Name, of: ScanBlock, machine: Machine) -> Body:
    last = of.kept.indices[-1] if of.kept.indices else None
    lane = last if isinstance(last, ScalarVar) and last in of.rows else None
    if lane is not None and of.size(lane) >= MIN_LANES:
        yield from _along_lanes(name, of, lane, machine)
        return
    row = next((var for var in reversed(of.rows) if of.size(var) > 1), None)
    if row is None:
        yield from _along_rows(name, of, None, machine)
    elif (side := _square(of, row, machine)) >= MIN_LANES:
        yield from _in_squares(name, of, row, side, machine)
    else:
        yield from _along_rows(name, of, row, machine)


def _square(of: ScanBlock, row: ScalarVar, machine: Machine) -> int:
    """The side of squares that are transposed, 0 where none are."""
    crossed = [of.kept.buffer, *[read for read in of.reads if of.crosses(of.place(read), row)]]
    if any(buffer.dtype.bytes not in TRANSPOSED_BYTES for buffer in (*crossed, of.carry)):
        return 0
    if len(crossed) == 1 or not of.crosses(of.kept.indices, row):
        return 0
    lanes = min([machine.lanes(buffer.dtype) for buffer in (*crossed, of.carry)])
    rows, places = of.size(row), of.size(of.along)
    if places < LEAST_PLACES or (rows < lanes and rows != _floor_power(rows)):
        return 0
    return min(lanes, _floor_power(rows), _floor_power(places))


def _floor_power(of: int) -> int:
    """The greatest power of two that is not greater."""
    return 1 << (of.bit_length() - 1) if of else 0


def _side_by_side(rows: int) -> int:
    """How many of a given number of rows go side by side: all of a few, else a number that divides
    them."""
    if rows <= 2 * ROWS_SIDE_BY_SIDE:
        return max(1, rows)
    few = range(ROWS_SIDE_BY_SIDE // 2, ROWS_SIDE_BY_SIDE + 1)
    return max([each for each in few if rows % each == 0], default=ROWS_SIDE_BY_SIDE)


def _opened(name: Name, of: ScanBlock) -> Body:
    """The block of a scan and the loop of each of its variables, with the carry in registers."""
    scan = yield st.block(str(name))
    every: tuple[Handle, ...] = yield st.loops(scan)
    return scan, dict(zip(of.node.vars, every, strict=True))


def _shared(of: ScanBlock, loop: Handle | None, machine: Machine) -> Body:
    """The outermost loop in parallel, if that pays."""
    buffers = (*of.reads, of.kept.buffer)
    if loop is not None and of.shares and pays(machine, of.shares, buffers):
        yield st.parallel(loop)


def _in_squares(name: Name, of: ScanBlock, row: ScalarVar, side: int, machine: Machine) -> Body:
    """Rows as lanes; squares of the operand and the result are transposed in registers."""
    scan, by = yield from _opened(name, of)
    crossed = [read for read in of.reads if of.crosses(of.place(read), row)]
    places = [(each, of.place(each) or ()) for each in crossed]
    outer, lane = yield st.split(by[row], (None, side))
    around, step = yield st.split(by[of.along], (None, side))
    others = [by[var] for var in of.rows if var is not row]
    yield st.reorder(*others, outer, around, step, lane)
    copies: list[Handle] = []
    for buffer, place in places:  # the first that is left is always read next
        copy = yield st.cache_read(scan, of.reads.index(buffer), "local")
        copies.append(copy)
        yield st.compute_at(copy, around)
        yield st.transform_layout(copy, "write", 0, _lane_major(place, row, side))
    _, writes = touched(of.node)
    kept = yield st.cache_write(scan, writes.index(of.kept.buffer), "local")
    yield st.reverse_compute_at(kept, around)
    yield st.transform_layout(
        scan, "write", writes.index(of.kept.buffer), _lane_major(of.kept.indices, row, side)
    )
    yield st.set_scope(scan, writes.index(of.carry), "local")
    yield st.vectorize(lane)
    yield st.decompose_reduction(scan, around)
    for copy in copies:
        *_, lanes, steps = yield st.loops(copy)
        yield st.reorder(steps, lanes)
        yield st.transpose_tile(copy, steps, lanes)
    *_, rows, steps = yield st.loops(kept)
    yield st.transpose_tile(kept, rows, steps)
    yield st.unroll(step)
    yield from _shared(of, others[0] if others else outer, machine)


def _lane_major(place: Sequence[Scalar], row: ScalarVar, side: int) -> IndexMap:
    """The layout in which the lanes of rows are innermost."""
    at = place.index(row)

    def turned(*of: Scalar) -> tuple[Scalar, ...]:
        blocks = [scalar // side if n == at else scalar for n, scalar in enumerate(of)]
        return (*blocks, of[at] % side)

    return index_map(turned, len(place))


def _along_lanes(name: Name, of: ScanBlock, lane: ScalarVar, machine: Machine) -> Body:
    """Contiguous elements as lanes, each with its own carry."""
    scan, by = yield from _opened(name, of)
    size, inner = of.size(lane), by[lane]
    held = VECTORS_CARRIED * machine.lanes(of.carry.dtype)
    strips: list[Handle] = []
    if size > CARRIED_NEAR:
        strip, inner = yield st.split(inner, (None, CARRIED_NEAR))
        strips.append(strip)
    others = [by[row] for row in of.rows if row is not lane]
    lanes, vectors = machine.lanes(of.carry.dtype), list[Handle]()
    if lanes < size <= held and size % lanes == 0:  # whole vectors, each in a register of its own
        several, inner = yield st.split(inner, (None, lanes))
        vectors.append(several)
    yield st.reorder(*others, *strips, by[of.along], *vectors, inner)
    if size <= held:
        _, writes = touched(of.node)
        yield st.set_scope(scan, writes.index(of.carry), "local")
    yield from in_vectors((*vectors, inner))
    yield st.decompose_reduction(scan, by[of.along])
    outermost = [*others, *strips]
    yield from _shared(of, outermost[0] if outermost else None, machine)


def _along_rows(name: Name, of: ScanBlock, row: ScalarVar | None, machine: Machine) -> Body:
    """Each row from its beginning to its end, a few of them side by side."""
    scan, by = yield from _opened(name, of)
    _, writes = touched(of.node)
    yield st.set_scope(scan, writes.index(of.carry), "local")
    if row is None:
        yield st.decompose_reduction(scan, by[of.along])
        return
    outer, beside = yield st.split(by[row], (None, _side_by_side(of.size(row))))
    others = [by[var] for var in of.rows if var is not row]
    yield st.reorder(*others, outer, by[of.along], beside)
    yield st.unroll(beside)
    yield st.decompose_reduction(scan, by[of.along])
    yield from _shared(of, others[0] if others else outer, machine)
