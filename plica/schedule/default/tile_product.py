"""Products of tiles of bytes: the form and the schedule of quantised products for AMX.

    rows[m, k] = x[m, k] if inside else 0               where x has no whole tiles
    packed[n // 16, k // 4, n % 16, k % 4] = w[k, n]    once, where the weight is a constant
    sum[n // 16, m, n % 16] = sum over k // 4, k % 4 of rows * packed
    out[m, n] = f(sum + factor * sums)

    for tiles of two vectors, tiles of up to 32 rows:
        sum[tile] = one invocation                      over all terms
        out[tile] = f(sum[tile])

Bytes of either sign are multiplied directly, so there is no offset; terms go in steps of 64.

Windows are products whose rows hold the elements of each window (im2col): all pixels of an image
are rows of one product, with all terms of a window.  Those of one pixel are contiguous, so a row is
a copy of a few pieces, and in cache when it is multiplied:

    rows[p, (a, b, c)] = x[p // 56 + a, p % 56 + b, c] if inside else zero      for each tile anew
"""

from __future__ import annotations

from math import prod

from attrs import evolve, frozen

from plica.analysis.enclosing import simple
from plica.core import Term, free_vars, post_order, substitute
from plica.ir.loop import Block, Each, Kernel, Stages, scalar as sc
from plica.ir.type import DType, i8, known, u8
from plica.schedule import primitive as st
from plica.schedule.default.contraction import flattened
from plica.schedule.default.dot_product import DotForm
from plica.schedule.default.dot_product_schedule import lies, summed_by_ones
from plica.schedule.default.form import bounds, names_of, span, where
from plica.schedule.default.machine import QUAD, TILE_QUADS, TILE_ROWS, Dot, Machine
from plica.schedule.default.operand_copy import in_rows, in_vectors, widened_sides
from plica.schedule.default.quantised import QuantisedContraction, quantised
from plica.schedule.default.role import contraction_blocks, made_by, reads
from plica.schedule.default.share import pays, shared
from plica.schedule.default.tile import RegisterTile
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.form import Facts
from plica.schedule.handle import Handle

FEWEST_CHANNELS = 16  # the minimum number of contiguous elements worth copying
FEWEST_ROWS = 8  # fewer rows than that leave most of a tile empty
WRITTEN_OUT = 25  # the maximum number of unrolled pieces of a row, with static places
FEWEST_TERMS = 48  # as many terms fill most of a step


def tile_form(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
    """The stages of a quantised product or window, or None for others, or machines without
    tiles."""
    dot = machine.dot
    if dot is None or not dot.tiles or (found := product_of_bytes(of, facts)) is None:
        return None
    own = Dot(dot.intrinsic, dot.lanes, found.source.dtype)
    if (rows := rows_of_tile(found)) is not None:
        return TileForm(found, own, rows).formed()
    if (window := gathered(found)) is None or (rows := rows_of_tile(window.product)) is None:
        return None
    return WindowTileForm(window, own, rows, machine.cache(2) // 2).formed()


def product_of_bytes(of: Stages, facts: Facts) -> QuantisedContraction | None:
    """The product of some stages, of bytes of either sign."""
    contraction = quantised(of, facts, u8)
    if contraction is not None and contraction.source.dtype is i8:
        contraction = quantised(of, facts, i8)
    return None if contraction is None or contraction.whole.batch else contraction


def rows_of_tile(of: QuantisedContraction) -> int | None:
    """The rows of a tile, or None if tiles do not pay, or data rows are not contiguous."""
    whole = of.whole
    if len(whole.k) != 1 or len(whole.m) == 0 or whole.guarded:
        return None
    places = whole.data.indices
    plain = all(isinstance(place, sc.ScalarVar | sc.Lit) for place in places)
    if not plain or places[-1] is not of.quad or places[-2:-1] != (whole.m[-1],):
        return None
    count = whole.sizes[whole.m[-1]]
    if count < FEWEST_ROWS or whole.sizes[of.quad] < FEWEST_TERMS:
        return None
    return -(-count // -(-count // TILE_ROWS))


class TileForm(DotForm):
    """The stages with whole tiles: pairs of vectors, steps of terms, and rows."""

    def __init__(self, of: QuantisedContraction, dot: Dot, rows: int) -> None:
        super().__init__(of, dot, RegisterTile(2, rows))
        sizes = self.sizes
        terms = -(-sizes[of.quad] // (QUAD * TILE_QUADS))
        sizes[self.quads] = terms * TILE_QUADS
        sizes[self.outer] += sizes[self.outer] % 2

    def data(self) -> sc.Load:
        """Rows of whole steps: as they lie, or of a copy."""
        of, whole = self.of, self.whole
        old, places = of.source, whole.data.indices
        row, depth = places[-2], self.sizes[self.quads] * QUAD
        assert isinstance(row, sc.ScalarVar)
        place = self.quads * QUAD + self.part
        if whole.sizes[of.quad] == depth and whole.sizes[row] == self.sizes[row]:
            return sc.Load(old, (*places[:-1], place))
        above = [each for each in places[:-2] if isinstance(each, sc.ScalarVar)]
        axes = [self.names.var("a") for _ in (*above, row, of.quad)]
        own = dict(zip((*above, row), axes, strict=False))
        there = [own.get(each, each) if isinstance(each, sc.ScalarVar) else each for each in places]
        inside = sc.And(
            sc.Lt(axes[-2], sc.index(whole.sizes[row])),
            sc.Lt(axes[-1], sc.index(whole.sizes[of.quad])),
        )
        value = sc.Select(inside, sc.Load(old, (*there[:-1], axes[-1])), sc.Lit(0, old.dtype))
        shape = [*[self.sizes[var] for var in (*above, row)], depth]
        room = sc.Buffer(self.names.name("rows"), tuple(map(sc.index, shape)), old.dtype)
        self.stages.append(Each(room, tuple(axes), value))
        return sc.Load(room, (*above, row, place))


@frozen(eq=False)
class GatheredWindow:
    """A product of rows that are windows, and the contraction that says what those hold."""

    product: QuantisedContraction
    window: QuantisedContraction
    terms: tuple[sc.ScalarVar, ...]  # the terms of a row, the channel last


def gathered(of: QuantisedContraction) -> GatheredWindow | None:
    """A window as a product of rows, or None if channels are not contiguous, or few."""
    whole = of.whole
    assert whole.weight is not None
    channels = whole.sizes[of.quad]
    if whole.data.indices[-1] is not of.quad or channels < FEWEST_CHANNELS:
        return None
    if set(whole.k) | {of.lane} != {e for e in whole.weight.indices if e is not sc.index(0)}:
        return None
    names = names_of(whole)
    term = names.var("k")
    terms = (*[each for each in whole.k if each is not of.quad], of.quad)
    depth = sc.index(prod([whole.sizes[each] for each in terms]))
    around = [axis for axis in whole.axes if axis is not of.lane]
    shape = tuple([sc.index(whole.sizes[each]) for each in around])
    rows = sc.Buffer(names.name("gathered"), (*shape, depth), whole.data.buffer.dtype)
    width = sc.index(whole.sizes[of.lane])
    weight = sc.Buffer(names.name("laid"), (depth, width), whole.weight.buffer.dtype)
    sizes = {var: size for var, size in whole.sizes.items() if var not in terms}
    flat = flattened(
        evolve(
            whole,
            k=(term,),
            sizes=sizes | {term: known(depth) or 0},
            data=sc.Load(rows, (*around, term)),
            weight=sc.Load(weight, (term, of.lane)),
            guards=(),
        )
    )
    source = sc.Buffer(flat.data.buffer.name, flat.data.buffer.shape, of.source.dtype)
    product = evolve(of, whole=flat, source=source, weight=weight, quad=term)
    return GatheredWindow(product, of, terms)


class WindowTileForm(TileForm):
    """The stages of a window whose rows are gathered anew for each tile."""

    def __init__(self, of: GatheredWindow, dot: Dot, rows: int, most: int) -> None:
        super().__init__(of.product, dot, rows)
        self.gathered = of
        # Rows are gathered for each tile if the weight, read for each, is no larger.
        weight = self.sizes[self.outer] * self.sizes[self.inner] * self.sizes[self.quads] * QUAD
        self.is_near = weight <= most

    def given(self) -> dict[sc.Buffer, sc.Buffer]:
        """The data of the window as the input."""
        window = self.gathered.window
        assert window.whole.weight is not None
        return {window.whole.data.buffer: window.source,
                window.whole.weight.buffer: window.weight}  # fmt: skip

    def term_places(self, term: sc.Scalar) -> dict[Term, Term]:
        """The terms of a window from their number in a row."""
        found: dict[Term, Term] = {}
        step, sizes = 1, self.gathered.window.whole.sizes
        for number, var in enumerate(reversed(self.gathered.terms)):
            place = term if step == 1 else term // step
            last = number == len(self.gathered.terms) - 1
            found[var] = place if last else place % sizes[var]
            step *= sizes[var]
        return found

    def weight_at(self, places: list[sc.Scalar]) -> sc.Scalar:
        window = self.gathered.window
        assert window.whole.weight is not None
        term, output = places
        at = self.term_places(term) | {window.lane: output}
        indices = [substitute(index, at) for index in window.whole.weight.indices]
        return sc.Load(window.weight, tuple(indices))

    def data(self) -> sc.Load:
        """Rows of whole steps, each a window of the data."""
        window, whole = self.gathered.window, self.whole
        places, depth = whole.data.indices, self.sizes[self.quads] * QUAD
        row = places[-2]
        assert isinstance(row, sc.ScalarVar)
        above = [each for each in places[:-2] if isinstance(each, sc.ScalarVar)]
        axes = [self.names.var("a") for _ in (*above, row, self.of.quad)]
        own: dict[sc.Scalar, sc.Scalar] = dict(zip((*above, row), axes, strict=False))
        place: sc.Scalar = sc.index(0)
        for scalar, extent in zip(places[:-1], whole.data.buffer.shape, strict=False):
            place = simple(place * extent + own.get(scalar, scalar))
        at = self.term_places(axes[-1])
        around = [var for var in window.whole.axes if var is not window.lane]
        for number, axis in enumerate(reversed(around)):
            count = window.whole.sizes[axis]
            last = number == len(around) - 1
            at[axis] = sc.index(0) if count == 1 else place if last else place % count
            place = place if count == 1 else place // count
        tests: list[sc.Scalar] = [sc.Lt(axes[-2], sc.index(whole.sizes[row]))] * (
            whole.sizes[row] != self.sizes[row]
        )
        if depth != whole.sizes[self.of.quad]:
            tests.append(sc.Lt(axes[-1], sc.index(whole.sizes[self.of.quad])))
        indices: list[sc.Scalar] = []
        for index, size in zip(window.whole.data.indices, window.source.shape, strict=True):
            indices.append(simple(substitute(index, at)))
            tests += bounds(indices[-1], span(index, window.whole.sizes), size)
        value = where(tests, sc.Load(window.source, tuple(indices)), window.fill)
        shape = [*[self.sizes[var] for var in (*above, row)], depth]
        room = sc.Buffer(self.names.name("rows"), tuple(map(sc.index, shape)), window.source.dtype)
        self.stages.append(Each(room, tuple(axes), value))
        self.near = room if self.is_near else None
        return sc.Load(room, (*above, row, self.quads * QUAD + self.part))


# --- the schedule ---------------------------------------------------------------------------------


def tile_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of a kernel with byte tile products, or None."""
    dot = machine.dot
    if dot is None or not dot.tiles:
        return None
    blocks = contraction_blocks(kernel, lambda each: _dtype(each, dot) is not None)
    if blocks is None or (dtype := _dtype(blocks.reduction, dot)) is None:
        return None
    of, copied = blocks.reduction, blocks.data
    sizes = [known(extent) or 1 for extent in of.extents]
    spatial = [at for at, kind in enumerate(of.kinds) if kind == "spatial"]
    *around, vector, row, lane = spatial
    tiles = -(-sizes[row] // TILE_ROWS)
    rows = sizes[row] // tiles
    if rows * tiles != sizes[row] or rows < FEWEST_ROWS or sizes[vector] % 2:
        return None
    shares = pays(machine, prod(sizes) // TILE_QUADS, kernel.params)
    # Rows that are no parameter are made for each tile of them, just before these.
    near = copied is not None and made_by(copied) not in kernel.params

    def schedule() -> Body:
        total = yield st.block(str(of.label))
        last = yield st.block(str(blocks.epilogue.label))
        every: tuple[Handle, ...] = yield st.loops(total)
        vectors, many = yield st.split(every[vector], (None, 2))
        outer, inner = yield st.split(every[row], (None, rows))
        apart = [every[at] for at in around]
        order = [*apart, outer, vectors] if near else [*apart, vectors, outer]
        yield st.reorder(*order, many, inner, every[lane], *every[len(spatial) :])
        yield st.set_scope(total, 0, "local")
        yield st.reverse_compute_at(last, order[-1])
        yield st.tensorize(many, f"{dot.tiles}_{dtype}i8")
        done: tuple[Handle, ...] = yield st.loops(last)
        yield st.vectorize(done[-1])
        if blocks.weight is not None:
            yield from in_vectors(blocks.weight)
            yield from summed_by_ones(kernel, blocks.weight, dot)
        if copied is not None:
            yield from _copied(copied, outer if near else None)
        if blocks.epilogue is not blocks.result:  # sums are kept as a whole
            yield from in_vectors(blocks.result, dot.lanes if lies(blocks) else None)
        if shares:
            yield from shared(order[:-1] if near else order)

    return do(schedule)()


def _copied(of: Block, at: Handle | None) -> Body:
    """Rows are copied in vectors: all at once, or those of a tile at a loop, piece by piece."""
    copy = yield st.block(str(of.label))
    if at is not None:
        yield st.compute_at(copy, at)
    every: tuple[Handle, ...] = yield st.loops(copy)
    pieces = [node.right for load in reads(of) for node in post_order(load)
              if isinstance(node, sc.FloorMod) and node.left is of.vars[-1]]  # fmt: skip
    if pieces:
        several, piece = yield st.split(every[-1], (None, known(pieces[0]) or 1))
        if -(-(known(of.extents[-1]) or 0) // (known(pieces[0]) or 1)) <= WRITTEN_OUT:
            yield st.unroll(several)
        yield st.vectorize(piece)
        return
    yield from in_rows(of, copy, every)


def _dtype(of: Block, dot: Dot) -> DType | None:
    """The dtype of the rows of a block that multiplies them by packed bytes, None for others."""
    if (sides := widened_sides(of)) is None:
        return None
    left, right = sides
    shape = [known(size) or 0 for size in right.buffer.shape]
    terms = [var for var, kind in zip(of.vars, of.kinds, strict=True) if kind == "reduce"]
    whole = len(terms) == 2 and len(shape) == 4 and shape[1] % TILE_QUADS == 0
    if not whole or shape[2:] != [dot.lanes, QUAD] or dot.lanes != TILE_QUADS:
        return None
    rows = [var for var, kind in zip(of.vars, of.kinds, strict=True) if kind == "spatial"][-2]
    in_rows = left.indices[-2:-1] == (rows,) and set(terms) <= free_vars(left.indices[-1])
    return left.buffer.dtype if in_rows and left.buffer.dtype in (u8, i8) else None
