"""Transposes: squares of elements at a time, transposed in registers.

    out[…, i, …, j] = f(x[…, j, …, i])   -->   for strips of columns j: for squares of rows i:
                                                   tile[r, c]    = x[…, j0 + r, …, i0 + c]
                                                   out[…, j0..]  = f(tile[…, c])

Neighbours of the result are strided in the operand. A square is read along its rows, and stored
along those of the result, its columns (`transpose_tile`). A strip is a line of the result: it is
written at once, while the operand is read row by row. Squares at the ends overlap others; few
elements have a separate loop. With partial vectors, a side too short for a square has a partial
one.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import kernel_of, stages
>>> from plica.ir.loop.tensor import buffer
>>> x, machine = buffer("x", (32, 40), f32), Machine(512, 32)
>>> of = stages((x,), (stage("y", (40, 32), lambda i, j: x[j, i]),))
>>> transpose_schedule(kernel_of(of), machine) is None
False
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from attrs import frozen

from plica.core.binding import free_vars
from plica.ir.loop import Kernel, Load, ScalarVar, Store, loads
from plica.ir.type.dim import known
from plica.ir.type.dtype import f32
from plica.schedule import primitive as st
from plica.schedule.default.form import elements
from plica.schedule.default.machine import LINE, MASKED, MIN_LANES, Machine
from plica.schedule.default.role import only_map
from plica.schedule.default.share import pays, touched
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle

MIN_ROWS, MIN_COLUMNS = 5, 9
"""The minimum rows and columns of the result for a partial square: vectors with fewer columns are
assembled directly."""

MAX_OVERLAP: Final = 1.04
"""How many times as many squares as needed there may be, so that all go in groups."""

MIN_GROUPS: Final = 4
"""The minimum number of groups for separate loops besides those of single squares."""


@frozen(eq=False)
class Transpose:
    """A store of a transpose, and how large squares are and how they follow one another."""

    store: Store
    load: Load  # the load along another axis than the result's last
    side: int  # elements of a square along its rows, and its columns
    strip: int  # squares side by side that are written before those of other rows are
    held: int  # those of a strip that registers hold at once
    block: int  # squares below one another that go by before the next strip
    rows_outside: bool  # whether all strips of some rows go by before the next rows
    fetches: bool  # whether the operand is so far away that the next rows are prefetched

    @property
    def sizes(self) -> dict[ScalarVar, int]:
        """How long each axis is."""
        return _sizes(self.store)

    @property
    def row(self) -> ScalarVar:
        """The axis along which elements are read."""
        assert isinstance(self.load.indices[-1], ScalarVar)
        return self.load.indices[-1]

    @property
    def column(self) -> ScalarVar:
        """The axis along which elements are stored."""
        assert isinstance(self.store.indices[-1], ScalarVar)
        return self.store.indices[-1]

    @property
    def next_strip(self) -> int:
        """The distance in elements to the squares read next."""
        at = self.load.indices.index(self.column)
        inside = prod([known(size) or 0 for size in self.load.buffer.shape[at + 1 :]])
        return self.held * self.side * inside


def _sizes(of: Store) -> dict[ScalarVar, int]:
    axes = [index for index in of.indices if isinstance(index, ScalarVar)]
    return {axis: known(size) or 0 for axis, size in zip(axes, of.buffer.shape, strict=False)}


def transpose_of(of: Store, machine: Machine) -> Transpose | None:
    """The transpose that a store of elements at their own places is, None if it is none."""
    sizes, out = _sizes(of), of.buffer
    if len(of.indices) < 2 or len(sizes) < len(of.indices) or not all(sizes.values()):
        return None
    last = of.indices[-1]
    assert isinstance(last, ScalarVar)
    if (load := _crossing_load(of, last, sizes)) is None:
        return None
    assert isinstance(load.indices[-1], ScalarVar)
    side = min(machine.lanes(load.buffer.dtype), machine.lanes(f32))
    row = sizes[last] * out.dtype.bytes
    if side * out.dtype.bytes >= LINE and row % LINE:
        side //= 2  # vectors as long as a line would all lie in two of them
    least = min(load.buffer.dtype.bytes, out.dtype.bytes)
    masks = machine.masks and (least >= f32.bytes or machine.vector > MASKED)  # none of few bytes
    rows, columns = (min(MIN_ROWS, side), min(MIN_COLUMNS, side)) if masks else (side, side)
    if side < MIN_LANES or sizes[load.indices[-1]] < rows or sizes[last] < columns:
        return None
    line, along = (max(1, LINE // (side * buffer.dtype.bytes)) for buffer in (out, load.buffer))
    if machine.masks:
        return Transpose(of, load, side, max(2, line), 1, 2, rows_outside=True, fetches=False)
    # Rows that are no whole lines are not written line by line: squares follow one another then.
    strip = held = 1 if row % LINE else line
    while held > 1 and (held + 1) * side > machine.registers:
        held //= 2
    far = elements(load.buffer) * load.buffer.dtype.bytes > machine.cache(1)
    fetches = far and held % along == 0  # each square along a line asks for some of its rows
    return Transpose(of, load, side, strip, held, along, rows_outside=False, fetches=fetches)


def _crossing_load(of: Store, last: ScalarVar, sizes: Mapping[ScalarVar, int]) -> Load | None:
    """The one load along another axis than the last; all others are along the last, or still."""
    found: Load | None = None
    for load in loads(of.value):
        if last not in free_vars(load):
            continue
        if load.indices[-1] is last and all(last not in free_vars(e) for e in load.indices[:-1]):
            continue
        if found is not None or not _is_plain(load, sizes) or load.indices[-1] is last:
            return None
        found = load
    return None if found is None or found.indices[-1] not in sizes else found


def _is_plain(of: Load, sizes: Mapping[ScalarVar, int]) -> bool:
    """Whether each index is a separate axis, or the only one.

    Squares are read whole, so a condition that prevents reads past the end does not help.
    """
    axes = [index for index in of.indices if isinstance(index, ScalarVar)]
    if len(set(axes)) != len(axes) or any(axis not in sizes for axis in axes):
        return False
    for index, size in zip(of.indices, of.buffer.shape, strict=True):
        if isinstance(index, ScalarVar) and sizes[index] > (known(size) or 0):
            return False
    return all(isinstance(index, ScalarVar) or known(index) is not None for index in of.indices)


def transpose_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of a transpose, None for other kernels."""
    if (of := only_map(kernel)) is None:
        return None
    assert isinstance(of.body, Store)
    if (transpose := transpose_of(of.body, machine)) is None:
        return None
    shares = pays(machine, prod(transpose.sizes.values()), touched(of.body))

    @do
    def schedule() -> Body:
        one = yield st.block(str(of.label))
        by = dict(zip(of.vars, (yield st.loops(one)), strict=True))
        rows, columns = by.pop(transpose.row), by.pop(transpose.column)
        around = next((loop for axis, loop in by.items() if transpose.sizes[axis] > 1), None)
        yield st.reorder(*by.values(), columns, rows)
        if around is not None and shares:
            yield st.parallel(around)
        apart = shares and around is None
        for each in (yield from _parts(transpose, one, rows, columns, apart)):
            if apart:
                yield st.parallel(each)

    return schedule()


@frozen
class AxisPart:
    """Elements along an axis, and the number of squares processed together; none if there are too
    few for a square."""

    length: int
    squares: int


def parts_of(size: int, side: int, together: int, *, overlaps: bool = True) -> list[AxisPart]:
    """The parts of an axis with squares processed together, and the remainder; squares at the end
    overlap others, groups of them only if that adds little work.

    >>> [(each.length, each.squares) for each in parts_of(337, 16, 2)]
    [(320, 2), (16, 1), (1, 0)]
    >>> [(each.length, each.squares) for each in parts_of(1000, 8, 2)]
    [(1000, 2)]
    """
    few = size % side if size > side and size % side < MIN_LANES else 0
    whole, group = size - few, together * side
    groups, squares = -(-whole // group), -(-whole // side)
    left = whole % group if groups * together > MAX_OVERLAP * squares or not overlaps else 0
    if left and groups < MIN_GROUPS:
        group, together, left = side, 1, whole % side * (not overlaps)
    if 0 < left < side < whole:
        left += group if whole > group else 0
    axis_parts = [AxisPart(whole - left, together), AxisPart(left, 1), AxisPart(few, 0)]
    return [axis_part for axis_part in axis_parts if axis_part.length]


def _parts(of: Transpose, one: Handle, rows: Handle, columns: Handle, shares: bool) -> Body:
    """All squares, and the ends that are none; gives the outermost loop of each part.  Cores that
    share squares write apart from one another."""
    heights = parts_of(
        of.sizes[of.row], of.side, of.block, overlaps=not (shares and of.rows_outside)
    )
    widths = parts_of(
        of.sizes[of.column], of.side, of.strip, overlaps=not shares or of.rows_outside
    )
    handles: list[Handle] = []
    for square, across, along, width in (yield from _parted(one, columns, rows, widths)):
        if not width.squares:
            handles.append(across)
            continue
        yield st.reorder(along, across)
        for each, down, over, height in (yield from _parted(square, along, across, heights)):
            if height.squares:
                handles.append((yield from _squares(of, each, (down, height), (over, width))))
            else:
                yield st.reorder(over, down)
                handles.append(over)
    return handles


def _parted(one: Handle, outer: Handle, inner: Handle, parts: Sequence[AxisPart]) -> Body:
    """A loop in parts: the block, the loop and the one inside of each."""
    if len(parts) == 1:
        return [(one, outer, inner, parts[0])]
    first, *others = yield st.loop_partition(outer, tuple([each.length for each in parts]))
    found = [(one, first, inner, parts[0])]
    for loop, part in zip(others, parts[1:], strict=True):
        (copy,) = yield st.child_blocks(loop)
        *_, inside = yield st.loops(copy)
        found.append((copy, loop, inside, part))
    return found


def _squares(
    of: Transpose, one: Handle, rows: tuple[Handle, AxisPart], columns: tuple[Handle, AxisPart]
) -> Body:
    """The squares of a part; gives the outermost loop."""
    side, (along, height), (across, width) = of.side, rows, columns
    several: list[Handle] = []
    held: list[Handle] = []
    if width.length < side:
        strips, lanes = yield st.split(across, (None, side))
    else:
        strips, lanes = yield st.overlap_split(across, width.squares * side)
    if width.squares > 1:
        *several, last, lanes = yield st.split(lanes, (None, of.held, side))
        held = [last]
    squares, inner = yield st.overlap_split(along, min(height.squares * side, height.length))
    if height.squares > 1:
        together, inner = yield st.split(inner, (None, side))
        several.append(together)
    outer = (squares, strips) if of.rows_outside else (strips, squares)
    yield st.reorder(*outer, *several, inner, *held, lanes)
    yield st.transpose_tile(one, inner, lanes)
    if of.fetches and height.squares == of.block:
        if of.block > 1:
            yield st.unroll(several[-1])
        fill, _ = yield st.child_blocks(inner)
        *_, lane = yield st.loops(fill)
        yield st.annotate(lane, "fetch", of.next_strip)
    return outer[0]
