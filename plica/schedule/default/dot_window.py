"""Byte windows over one channel: dot products with separate data per lane.

    rows[n, i, j, c] = stored(x[n, i, j, c])              a copy with a border, some rows at a time
    packed[c // 16, k // 4, l, c % 16, k % 4] = w[k, l, c]   once, 0 where a window has no term
    sum[n, i, j, c // 16, c % 16] = sum over k // 4, l, k % 4 of rows[n, i + k, j + l, c] * packed
    out[n, i, j, c // 16, c % 16] = f(sum + factor * sums)

Lanes are along channels, which are contiguous, and vertically adjacent window terms are multiplied
together: with three of them, the fourth is zero. Data shared by the columns of a tile is read once.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop import tensor
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.type.dtype import i8, i32
>>> x, w = tensor.buffer("x", (9, 9, 32), i8), tensor.buffer("w", (3, 3, 32), i8)
>>> conv = stage("y", (7, 7, 32), lambda i, j, c: tensor.reduce("sum", (3, 3), lambda k, l:
...     sc.Cast(x[i + k, j + l, c], i32) * sc.Cast(w[k, l, c], i32)))
>>> machine = Machine(128, 32, dot=Dot("some.dot", 4, i8, windows="some.windows"))
>>> form = window_form(stages((x, w), (conv,)), Facts((False, True)), machine)
>>> [[known(size) for size in each.out.shape] for each in form.stages]
[[10, 10, 32], [2, 1, 3, 16, 4], [7, 2, 8, 16], [7, 7, 2, 16]]
"""

from __future__ import annotations

from math import prod

from plica.analysis.enclosing import simple
from plica.core import Term, free_vars, post_order, substitute
from plica.ir.loop import Block, Each, Kernel, Stages, scalar as sc
from plica.ir.type import known, polynomial
from plica.schedule import primitive as st
from plica.schedule.default.contraction import Contraction
from plica.schedule.default.depthwise import is_of_channels
from plica.schedule.default.dot_product import DotForm
from plica.schedule.default.form import bounds, span, where
from plica.schedule.default.machine import WINDOW_LANES, Dot, Machine
from plica.schedule.default.nest import vectors_inside
from plica.schedule.default.operand_copy import filled_before, in_vectors, widened_sides
from plica.schedule.default.quantised import Axes, QuantisedContraction, quantised, stored
from plica.schedule.default.role import contraction_blocks, reads
from plica.schedule.default.share import pays, shared
from plica.schedule.default.tile import RegisterTile
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.form import Facts
from plica.schedule.handle import Handle
from plica.schedule.primitive.decompose_padding import padded

TAPS = 25  # dot products of a window that are written out for each column, at most
HELD = 2  # of this many registers one holds a sum, the others shared operands
WIDEST = 8  # columns of a tile, at most: more of them are a longer text and read hardly less
NEAR = 2  # rows that are copied at once fill this many of the nearest cache, at most


def columns_of(count: int, machine: Machine, dot: Dot) -> int:
    """How many columns a tile has: each tile reads a few more, and the last may have some less."""
    most = min(WIDEST, max(1, machine.registers // HELD // (WINDOW_LANES // dot.lanes)))
    return min(range(1, most + 1), key=lambda each: (-(-count // each) * (each + 1), -each))


def window_form(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
    """The stages of a byte window, or None for other stages or machines without such dot
    products."""
    dot = machine.dot
    if dot is None or not dot.windows:
        return None
    contraction = quantised(of, facts, dot.dtype, _axes)
    if contraction is None:
        return None
    own = Dot(dot.windows, WINDOW_LANES, dot.dtype)
    steps = columns_of(contraction.whole.sizes[contraction.whole.axes[-2]], machine, dot)
    return WindowForm(contraction, own, RegisterTile(1, steps), NEAR * machine.cache(1)).formed()


def _axes(of: Contraction) -> Axes | None:
    """The channels, and the vertical term: both indexed contiguously."""
    if of.n or not is_of_channels(of) or of.weight is None or len(of.k) > 2:
        return None
    lane, places = of.axes[-1], of.data.indices
    if of.sizes[lane] % WINDOW_LANES or lane not in of.weight.indices:
        return None
    for term in of.k:
        if [stride_of(place, term) for place in places if term in free_vars(place)] == [1]:
            return (lane, term) if prod([of.sizes[var] for var in of.k]) <= TAPS else None
    return None


class WindowForm(DotForm):
    """The data is copied to rows of channels, with a border and as many rows as dot products take;
    `bytes` are copied at once, for a band of rows of the result."""

    def __init__(self, of: QuantisedContraction, dot: Dot, tile: RegisterTile, near: int) -> None:
        super().__init__(of, dot, tile)
        self.sizes[of.quad] = self.sizes[self.quads] * dot.terms
        self.row = self.axes[-4] if len(self.axes) > 3 else None
        self.high = 1 if self.row is None else self.rows_together(self.row, near)

    def rows_together(self, row: sc.ScalarVar, near: int) -> int:
        """How many rows of the result are computed of one copy: all bands have as many."""
        count = self.sizes[row]

        def copied(rows: int) -> int:
            boxes = [span(index, self.sizes | {row: rows}) for index in self.whole.data.indices]
            return prod([high - low + 1 for low, high in boxes])

        return max([1, *[n for n in range(2, count + 1) if count % n == 0 and copied(n) <= near]])

    def data(self) -> sc.Load:
        of, dot, row, high = self.of, self.dot, self.row, self.high
        sizes = dict(self.sizes)
        bands = 1
        if row is not None:
            bands, sizes[row] = sizes[row] // high, high
        axes: list[sc.ScalarVar] = []
        shape: list[sc.Scalar] = []
        source: list[sc.Scalar] = []
        read: list[sc.Scalar] = []
        tests: list[sc.Scalar] = []
        for place, size in zip(self.whole.data.indices, of.source.shape, strict=True):
            least, most = span(place, sizes)
            length, first = most - least + 1, sc.index(least)
            if row is not None and bands > 1 and row in free_vars(place):
                band, apart = self.names.var("a"), stride_of(place, row) * high
                axes.append(band)
                shape.append(sc.index(bands))
                read.append(row // high)
                first, most = band * apart + least, most + (bands - 1) * apart
                place = substitute(place, {row: row % high})
            axes.append(self.names.var("a"))
            shape.append(sc.index(length))
            source.append(simple(axes[-1] + first))
            read.append(simple(place - least))
            tests += bounds(source[-1], (least, most), size)
        value = stored(sc.Load(of.source, tuple(source)), of.shift, dot.dtype)
        value = where(tests, value, of.fill)
        rows = sc.Buffer(self.names.name("rows"), tuple(shape), dot.dtype)
        self.stages.append(Each(rows, tuple(axes), value))
        self.near = rows
        at: dict[Term, Term] = {
            of.quad: self.quads * dot.terms + self.part,
            of.lane: self.outer * dot.lanes + self.inner,
        }
        return sc.Load(rows, tuple([simple(substitute(scalar, at)) for scalar in read]))


def stride_of(place: sc.Scalar, axis: sc.ScalarVar) -> int:
    """The factor of a variable in an affine index, 0 where it is not in it."""
    return sum([factor for atoms, factor in polynomial(place).values() if axis in atoms])


# --- the schedule ---------------------------------------------------------------------------------


def is_window_dot(of: Block, dot: Dot) -> bool:
    """Whether a block adds byte products with separate data per lane."""
    if not dot.windows or (sides := widened_sides(of)) is None:
        return False
    left, right = sides
    shape = [known(size) for size in right.buffer.shape[-2:]]
    lane = [var for var, kind in zip(of.vars, of.kinds, strict=True) if kind == "spatial"][-1]
    whole = left.buffer.dtype is dot.dtype and shape == [WINDOW_LANES, dot.terms]
    return whole and lane in free_vars(left.indices[-1])


def dot_window_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of a kernel of such windows, None for others."""
    dot = machine.dot
    blocks = (
        None if dot is None else contraction_blocks(kernel, lambda each: is_window_dot(each, dot))
    )
    if dot is None or blocks is None or blocks.epilogue is not blocks.result:
        return None
    of, copied = blocks.reduction, blocks.data
    sizes = [known(extent) or 1 for extent in of.extents]
    *around, vector, column, lane = [at for at, kind in enumerate(of.kinds) if kind == "spatial"]
    terms = [at for at, kind in enumerate(of.kinds) if kind == "reduce"]
    wide = columns_of(sizes[column], machine, dot)
    if copied is None or sizes[column] % wide:
        return None
    row = around.pop() if around else None
    high = 1 if row is None else _band(of, of.vars[row]) or sizes[row]
    shares = pays(machine, prod(sizes), kernel.params)

    def schedule() -> Body:
        total = yield st.block(str(of.label))
        last = yield st.block(str(blocks.epilogue.label))
        copy = yield st.block(str(copied.label))
        every: tuple[Handle, ...] = yield st.loops(total)
        tiles, columns = yield st.split(every[column], (None, wide))
        order = [every[at] for at in around]
        if row is not None:
            order += yield st.split(every[row], (None, high))
        place = order[-2] if row is not None else None
        order += [every[vector], tiles]
        inside, part = [every[at] for at in terms[:-1]], every[terms[-1]]
        yield st.reorder(*order, *inside, columns, every[lane], part)
        yield st.set_scope(total, 0, "local")
        yield st.reverse_compute_at(last, tiles)
        if place is not None:
            yield st.compute_at(copy, place)
        start = yield st.decompose_reduction(total, inside[0])
        yield from vectors_inside(start, len(order))
        yield st.tensorize(every[lane], dot.windows)
        for each in (*inside, columns):
            yield st.unroll(each)
        yield from vectors_inside(last, len(order))
        if blocks.weight is not None:
            yield from in_vectors(blocks.weight)
        yield from _bordered(copied, copy)
        if shares:
            yield from shared(order[: len(around) + 1])

    return do(schedule)()


def _band(of: Block, row: sc.ScalarVar) -> int | None:
    """The number of result rows computed from one copy, or None if there is a single copy."""
    floor_divs = [n for read in reads(of) for n in post_order(*read.indices)
             if isinstance(n, sc.FloorDiv) and n.left is row]  # fmt: skip
    return known(floor_divs[0].right) if floor_divs else None


def _bordered(of: Block, copy: Handle) -> Body:
    """Rows are copied in vectors of channels, their border is filled before."""
    every: tuple[Handle, ...] = yield st.loops(copy)
    if padded(of) is not None:
        yield from filled_before(copy, every[-2])
    yield st.vectorize(every[-1])
