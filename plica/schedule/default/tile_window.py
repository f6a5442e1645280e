"""Byte windows as tile products: the elements of each window form a row (im2col).

    rows[p, (a, b, c)] = x[p // 56 + a, p % 56 + b, c] if inside else zero      for each tile anew
    sum[n // 16, p, n % 16] = sum over k // 4, k % 4 of rows * packed

All pixels of an image are rows of one product, with all terms of a window: those of one pixel are
contiguous, so a row is a copy of a few pieces, and in cache when it is multiplied.
"""

from __future__ import annotations

from math import prod

from attrs import evolve, frozen

from plica.analysis.enclosing import simple
from plica.core import Term, substitute
from plica.ir.loop import Each, Stages, scalar as sc
from plica.ir.type import known
from plica.schedule.default.contraction import flattened
from plica.schedule.default.form import bounds, names_of, span, where
from plica.schedule.default.machine import QUAD, Dot, Machine
from plica.schedule.default.quantised import QuantisedContraction
from plica.schedule.default.tile_product import TileForm, product_of_bytes, rows_of_tile
from plica.schedule.form import Facts

FEWEST_CHANNELS = 16  # the minimum number of contiguous elements worth copying


@frozen(eq=False)
class GatheredWindow:
    """A product of rows that are windows, and the contraction that says what those hold."""

    product: QuantisedContraction
    window: QuantisedContraction
    terms: tuple[sc.ScalarVar, ...]  # the terms of a row, the channel last


def tile_window_form(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
    """The stages of a byte window, or None for others, or machines without tiles."""
    found, dot = product_of_bytes(of, facts), machine.dot
    if found is None or dot is None or not dot.tiles or (window := gathered(found)) is None:
        return None
    if (rows := rows_of_tile(window.product)) is None:
        return None
    own = Dot(dot.intrinsic, dot.lanes, window.window.source.dtype)
    return WindowTileForm(window, own, rows, machine.cache(2) // 2).formed()


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
