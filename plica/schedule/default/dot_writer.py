"""The loops of tiles of dot products (`plica.schedule.default.dot_tile`): sums, then results.

    for tiles of the side with more rows, of the other:
        acc[r, c] = 0
        for h: acc[r, c] += x[i + r, vector h] * w[j + c, vector h]     registers
        few[r, c] = half of the lanes, and half of these …
        out[i + r, j + c] = the sums of the last four                   four at once

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import f32
>>> from plica.schedule.default.contraction import contraction
>>> from plica.schedule.default.dot_tile import dots_of
>>> x, w = buffer("x", (4, 64), f32), buffer("w", (5, 64), f32)
>>> dense = stage("y", (4, 5), lambda i, j: reduce("sum", (64,), lambda k: x[i, k] * w[j, k]))
>>> of, machine = stages((x, w), (dense,)), Machine(512, 32)
>>> print(tiles_of_dots(of, dots_of(contraction(of), machine), machine))
y = statements
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import TypeAlias

from plica.core import Term, map_bottom_up, substitute
from plica.ir.loop import Alloc, ExternStage, For, Stages, Stmt, Store, scalar as sc, seq
from plica.ir.loop.stages import stages
from plica.ir.loop.statement import LoopKind
from plica.schedule.default.dot_tile import TOGETHER, Dots, DotTile
from plica.schedule.default.form import elements, names_of
from plica.schedule.default.machine import Machine
from plica.schedule.default.reduction import halved
from plica.schedule.default.share import pays
from plica.schedule.default.summed import LONGEST

Corner: TypeAlias = tuple[sc.Scalar, sc.Scalar]
"""The row and the column at which a tile begins."""

Lane: TypeAlias = tuple[sc.Scalar, sc.Scalar, sc.Scalar, sc.Scalar]
"""Which of the sums of a result, its row and column in a tile, and a lane."""


def tiles_of_dots(of: Stages, dots: Dots, machine: Machine) -> Stages:
    """The stages of such a contraction, with the loops they should have."""
    return stages(of.inputs, (ExternStage((of.result,), _DotWriter(of, dots, machine).body()),))


class _DotWriter:
    """The loops of tiles under construction."""

    def __init__(self, of: Stages, dots: Dots, machine: Machine) -> None:
        self.dots, self.whole, self.machine = dots, dots.whole, machine
        self.names, self.out = names_of(dots.whole), of.result
        self.dtype = dots.whole.reduced.dtype
        self.lanes = machine.lanes(self.dtype)
        work = prod(dots.whole.sizes.values())
        self.shares = pays(machine, work, of.inputs, self.dtype)

    def body(self) -> Stmt:
        """All tiles, for each place of other axes."""
        dots, whole = self.dots, self.whole
        around = [axis for axis in whole.axes if axis not in (dots.rows, dots.columns)]
        alone = all(whole.sizes[axis] == 1 for axis in around)
        made = self.tiles(shared=self.shares and alone)
        first = next((axis for axis in around if whole.sizes[axis] > 1), None)
        for axis in reversed(around):
            kind: LoopKind = "parallel" if self.shares and axis is first else "serial"
            made = For(axis, sc.index(whole.sizes[axis]), kind, made)
        return made

    def tiles(self, *, shared: bool) -> Stmt:
        """The side with more rows goes by once, the other for each of its tiles."""
        dots, tile = self.dots, self.dots.tile

        def over_rows(wide: int, j: sc.Scalar, shared: bool) -> Stmt:
            return self.along(
                dots.rows, tile.rows, shared, lambda high, i, _: self.tile(high, wide, i, j)
            )

        def over_columns(high: int, i: sc.Scalar, shared: bool) -> Stmt:
            return self.along(
                dots.columns, tile.columns, shared, lambda wide, j, _: self.tile(high, wide, i, j)
            )

        if dots.by_columns:
            return self.along(dots.columns, tile.columns, shared, over_rows)
        return self.along(dots.rows, tile.rows, shared, over_columns)

    def along(
        self,
        axis: sc.ScalarVar | None,
        part: int,
        shared: bool,
        body: Callable[[int, sc.Scalar, bool], Stmt],
    ) -> Stmt:
        """A statement for each part of an axis, the last of which may be shorter."""
        size = 1 if axis is None else self.whole.sizes[axis]
        count, rest = divmod(size, part)
        made: list[Stmt] = []
        if count == 1:
            made.append(body(part, sc.index(0), shared))
        elif count:
            t = self.names.var("t")
            inner = body(part, t * part, False)
            made.append(For(t, sc.index(count), "parallel" if shared else "serial", inner))
        if rest:
            made.append(body(rest, sc.index(count * part), False))
        return seq(*made)

    def tile(self, high: int, wide: int, i: sc.Scalar, j: sc.Scalar) -> Stmt:
        """The results of a tile from a place on."""
        tile, lanes = DotTile(high, wide), self.lanes
        vectors, rest = divmod(self.dots.depth, lanes)
        runs = -(-vectors // LONGEST["box"])
        many = tile.independent_sums(self.machine)
        acc = self.local("acc", many * tile.sums * lanes)
        total = self.local("sums", tile.sums * lanes) if runs > 1 else acc
        groups, left = divmod(vectors, many * runs)
        length = groups * many * lanes

        def terms(to: sc.Buffer, start: sc.Scalar, vectors: int) -> Stmt:
            return self.over(vectors, tile, partial(self.added, to, tile, (i, j), start))

        def run(start: sc.Scalar) -> Stmt:
            h = self.names.var("h")
            inner = terms(acc, start + h * (many * lanes), many)
            return For(h, sc.index(groups), "serial", inner)

        made: list[Stmt] = [self.cleared(total)]
        if runs == 1:
            made.append(run(sc.index(0)))
        else:
            b = self.names.var("b")
            kept = self.over(1, tile, partial(self.kept, acc, total, many, tile))
            inner = seq(self.cleared(acc), run(b * length), kept)
            made.append(For(b, sc.index(runs), "serial", inner))
        at = runs * length
        for _ in range(left):
            made.append(terms(total, sc.index(at), 1))
            at += lanes
        if rest:
            made.append(self.over(1, tile, partial(self.partly, total, tile, (i, j))))
        made.append(self.joined(total, 1 if runs > 1 else many, tile, (i, j)))
        body = Alloc(acc, seq(*made))
        return body if total is acc else Alloc(total, body)

    # --- sums ------------------------------------------------------------------------------------

    def local(self, name: str, size: int) -> sc.Buffer:
        return sc.Buffer(self.names.name(name), (sc.index(size),), self.dtype, "local")

    def over(self, many: int, tile: DotTile, body: Callable[[Lane], Stmt]) -> Stmt:
        """A statement for each lane of each sum: those of the side with fewer rows stay at hand."""
        u, r, c, v = (self.names.var(each) for each in "urcv")
        made: Stmt = For(v, sc.index(self.lanes), "vectorized", body((u, r, c, v)))
        both = [(c, tile.columns), (r, tile.rows)]
        for var, size in [*sorted(both, key=lambda each: each[1]), (u, many)]:
            made = For(var, sc.index(size), "unrolled", made)
        return made

    def cleared(self, of: sc.Buffer) -> Stmt:
        u, v = self.names.var("u"), self.names.var("v")
        zero = Store(of, (u * self.lanes + v,), sc.Lit(0, of.dtype))
        lanes = For(v, sc.index(self.lanes), "vectorized", zero)
        return For(u, sc.index(elements(of) // self.lanes), "unrolled", lanes)

    def product(
        self, r: sc.Scalar, c: sc.Scalar, at: Corner, k: sc.Scalar, inside: sc.Scalar | None = None
    ) -> sc.Scalar:
        """A product of the result at a row and a column of a tile that begins at a place; both its
        sides are 0 where a term is not `inside`."""
        whole, dots = self.whole, self.dots
        where: dict[Term, Term] = {whole.k[0]: k, dots.columns: at[1] + c}
        if dots.rows is not None:
            where[dots.rows] = at[0] + r
        assert whole.weight is not None
        sides: list[sc.Scalar] = [substitute(each, where) for each in (whole.data, whole.weight)]
        if inside is not None:
            sides = [sc.Select(inside, each, sc.Lit(0, self.dtype)) for each in sides]
        return sc.Mul(*sides)

    def place(self, tile: DotTile, lane: Lane) -> sc.Scalar:
        """Where a lane of a sum is."""
        u, r, c, v = lane
        return ((u * tile.rows + r) * tile.columns + c) * self.lanes + v

    def added(self, to: sc.Buffer, tile: DotTile, at: Corner, start: sc.Scalar, lane: Lane) -> Stmt:
        """The products of a vector of terms added to a sum."""
        u, r, c, v = lane
        place, k = self.place(tile, lane), start + (u * self.lanes + v)
        found = self.product(r, c, at, k)
        return Store(to, (place,), sc.Load(to, (place,)) + found)

    def partly(self, to: sc.Buffer, tile: DotTile, at: Corner, lane: Lane) -> Stmt:
        """The last terms, which fill a part of a vector: where those are not read in part, it ends
        with them, and what came before is left out."""
        _, r, c, v = lane
        depth, rest = self.dots.depth, self.dots.depth % self.lanes
        k, inside = v + (depth - rest), sc.Lt(v, sc.index(rest))
        if not self.machine.masks:
            k, inside = v + (depth - self.lanes), sc.Lt(sc.index(self.lanes - rest - 1), v)
        place = self.place(tile, lane)
        return Store(to, (place,), sc.Load(to, (place,)) + self.product(r, c, at, k, inside))

    def kept(self, acc: sc.Buffer, total: sc.Buffer, many: int, tile: DotTile, lane: Lane) -> Stmt:
        """The sums of a run added to those of all runs before."""
        place = self.place(tile, lane)
        found = [sc.Load(acc, (self.place(tile, (sc.index(u), *lane[1:])),)) for u in range(many)]
        return Store(total, (place,), sc.Load(total, (place,)) + halved(found, sc.Add))

    # --- results ---------------------------------------------------------------------------------

    def joined(self, total: sc.Buffer, parts: int, tile: DotTile, at: Corner) -> Stmt:
        """Half of the lanes after half, then the results."""
        lanes = self.lanes
        if lanes == TOGETHER and parts == 1:
            return self.results(total, tile, at)
        width = lanes if parts > 1 else lanes // 2
        few = self.local("few", tile.sums * width)
        s, v = self.names.var("s"), self.names.var("v")
        apart = tile.sums * lanes if parts > 1 else width
        places = [s * lanes + v + n * apart for n in range(max(parts, 2))]
        found = [sc.Load(total, (place,)) for place in places]
        store = Store(few, (s * width + v,), halved(found, sc.Add))
        some = For(v, sc.index(width), "vectorized", store)
        every = For(s, sc.index(tile.sums), "unrolled", some)
        self.lanes = width
        made = Alloc(few, seq(every, self.joined(few, 1, tile, at)))
        self.lanes = lanes
        return made

    def results(self, few: sc.Buffer, tile: DotTile, at: Corner) -> Stmt:
        """The results of a tile."""
        made: list[Stmt] = []
        r, whole, rest = self.names.var("r"), *divmod(tile.columns, TOGETHER)
        if whole:
            q, c = self.names.var("q"), self.names.var("c")
            one = self.result(few, tile, r, q * TOGETHER + c, at)
            four = For(c, sc.index(TOGETHER), "vectorized", one)
            made.append(For(q, sc.index(whole), "unrolled", four))
        if rest:
            c = self.names.var("c")
            one = self.result(few, tile, r, c + whole * TOGETHER, at)
            made.append(For(c, sc.index(rest), "unrolled", one))
        return For(r, sc.index(tile.rows), "unrolled", seq(*made))

    def result(  # a place of a tile
        self, few: sc.Buffer, tile: DotTile, r: sc.Scalar, c: sc.Scalar, at: Corner
    ) -> Stmt:
        dots, whole = self.dots, self.whole
        start = (r * tile.columns + c) * TOGETHER
        found: list[sc.Scalar] = [sc.Load(few, (start + v,)) for v in range(TOGETHER)]
        total = halved(found, sc.Add)

        def new(node: Term) -> Term:
            return total if isinstance(node, sc.Load) and node.buffer is whole.reduced else node

        where: dict[Term, Term] = {dots.columns: at[1] + c}
        if dots.rows is not None:
            where[dots.rows] = at[0] + r
        value = map_bottom_up(new, substitute(whole.value, where))
        places = substitute(sc.Load(self.out, whole.axes), where).indices
        return Store(self.out, places, value)
