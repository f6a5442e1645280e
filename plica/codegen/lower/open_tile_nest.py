"""The loops of open tiles: vectors of outputs by a few neighbours along an open axis.

    for n, blocks of outputs, i:
        for s in range(w // 13):                 13 neighbours x 2 vectors of 16 outputs each
            acc[t, v, lane] += x[n, c, i + k, 13 * s + t + l] * packed[b, c, k, l, lane]
            out[n, o, i, 13 * s + t] = f(acc)    columns of the tile are rows of the result
        the same for what is left, 6 neighbours at a time and then 3: sums beyond the end are those
        of the last place, or of where there is room, and not stored

Where rows are images as a whole, the last tile ends with the image, and makes some elements again.

Law: each sum has its terms in the order that it says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import frozen

from plica.codegen.lower.loop_order import (
    LoopOrder,
    StoredElement,
    last_store,
    loops_around,
    replaced,
    stored,
)
from plica.codegen.lower.nest import Sums, elements, in_order, open_sizes
from plica.codegen.lower.open_tile import OpenTile
from plica.core import Term, post_order, substitute
from plica.ir.loop import Each, Names, Stages, loads, scalar as sc, statement as st
from plica.ir.loop.reduction import exposed
from plica.ir.loop.stages import pairs
from plica.ir.type import known, polynomial
from plica.schedule.default.machine import Machine
from plica.schedule.default.written_terms import BRIEF, SHORT, WINDOW


def tiled(of: OpenTile, rest: Stages, machine: Machine) -> st.Kernel:
    """The loops of stages, less those that were made beforehand."""
    *before, (fold, epilogue) = pairs(rest)
    steps: list[st.Stmt] = [elements(each, each.out, None, machine=machine) for each, _ in before]
    steps += _tiles(of, in_order(fold), rest.result, stored(fold, epilogue))
    params = (*rest.inputs, *rest.outputs)
    body = st.Seq(tuple(steps)) if len(steps) > 1 else steps[0]
    return st.Kernel(open_sizes(params, body), params, len(rest.inputs), body)


@frozen(eq=False)
class _Tile:
    """One shape of tile: where its outputs begin, how many blocks of vectors there are, how many
    outputs a block has."""

    blocks: int
    first: int
    outputs: int


def _tiles(
    of: OpenTile, fold: Each, out: sc.Buffer, after: StoredElement | None
) -> Iterator[st.Stmt]:
    """Blocks of outputs that are whole, then what is left of these."""
    sizes = dict(zip(fold.axes, fold.out.shape, strict=True))
    count, wide = known(sizes[of.lane]) or 0, of.vectors * of.lanes
    whole = count // wide
    for tile in (_Tile(whole, 0, wide), _Tile(1, whole * wide, count % wide)):
        if tile.blocks and tile.outputs:
            yield _Block(of, fold, out, after, tile).loops()


class _Block:
    """Blocks of outputs at all places."""

    def __init__(
        self, of: OpenTile, fold: Each, out: sc.Buffer, after: StoredElement | None, tile: _Tile
    ) -> None:
        self.of, self.fold, self.out, self.after, self.tile = of, fold, out, after, tile
        names = self.names = Names(fold, out, *([] if after is None else [after.value]))
        self.block, self.near, self.vector, self.lane, self.strip = [
            names.var(each) for each in ("block", "near", "vector", "lane", "strip")
        ]
        which = self.block * of.vectors + self.vector + tile.first // of.lanes
        self.output = which * of.lanes + self.lane
        halves: dict[Term, sc.Scalar] = {of.lane // of.lanes: which, of.lane % of.lanes: self.lane}
        if of.wide > of.lanes:
            halves = {
                of.lane // of.wide: self.block + tile.first // of.wide,
                of.lane % of.wide: self.vector * of.lanes + self.lane,
            }
        self.value = replaced(fold.value, halves)
        sizes = dict(zip(fold.axes, fold.out.shape, strict=True))
        self.size = sizes.pop(of.column)
        self.blocks = (self.block, sc.index(tile.blocks))
        self.outer = [item for item in sizes.items() if item[0] is not of.lane]
        self.around = [self.blocks if axis is of.lane else (axis, n) for axis, n in sizes.items()]

    def loops(self) -> st.Stmt:
        """All of it."""
        if self.of.group:
            return loops_around(self.outer, self._image())
        return loops_around(self.around, self._strips())

    def _strips(self) -> st.Stmt:
        """Whole tiles of neighbours, then narrower ones, of which the last hangs over the end."""
        of, size, strip, near = self.of, self.size, self.strip, self.near
        place = strip * of.steps + near
        tiles = self._made(of.steps, place)
        if (row := known(size)) is not None:  # what is left is one tile
            whole, left = divmod(row, of.steps)
            parts = [loops_around([(strip, sc.index(whole))], tiles)] if whole else []
            parts += [self._made(of.narrower[-1], near + whole * of.steps)] if left else []
            return st.Seq(tuple(parts)) if len(parts) > 1 else parts[0]
        steps: list[st.Stmt] = [loops_around([(strip, size // of.steps)], tiles)]
        bound = [(self.names.var("done"), size // of.steps * of.steps)]
        for at, wide in enumerate(of.narrower):
            done = bound[-1][0]
            after = of.narrower[at + 1] if at + 1 < len(of.narrower) else 0
            count = (size - done + (wide - after - 1)) // wide  # what the next has room for is left
            steps.append(loops_around([(strip, count)], self._narrow(wide, done)))
            bound.append((self.names.var("done"), done + count * wide))
        statement: st.Stmt = st.Seq(tuple(steps))
        for var, value in reversed(bound[:-1]):
            statement = st.Bind(var, value, statement)
        return statement

    def _narrow(self, wide: int, done: sc.ScalarVar) -> st.Stmt:
        """A tile of a given number of neighbours after those that are done, which may hang over the
        end."""
        of, size, near = self.of, self.size, self.near
        column, end = self.names.var("column"), self.names.var("end")
        last = column + near
        # Of places in several axes nobody sees by their number alone that the last is inside.
        flat = not of.room and max(len(atoms) for atoms, _ in polynomial(size).values()) > 1
        inside = last if of.room else sc.Min(last, end if flat else size - 1)
        tile = self._made(wide, last, inside, sc.Lt(last, size))
        end_of_room = sc.Le(column + wide, size + (of.narrower[-1] - 1))
        fits = end_of_room if of.room else sc.Lt(column, size)
        tile = st.Branch(sc.And(sc.Le(sc.index(0), column), fits), tile, st.NOTHING)  # it does
        tile = st.Bind(column, done + self.strip * wide, tile)
        if not flat:
            return tile
        there_is = sc.And(
            sc.Le(sc.index(0), done), sc.And(sc.Le(sc.index(0), end), sc.Lt(end, size))
        )  # it is
        return st.Bind(end, size - 1, st.Branch(there_is, tile, st.NOTHING))

    def _image(self) -> st.Stmt:
        """All outputs of a group of tiles after another: what is read of these is near.  The last
        tile ends with the image; of one that is smaller each place is done alone."""
        of, size, strip, near = self.of, self.size, self.strip, self.near
        tiles = (size + (of.steps - 1)) // of.steps
        single = loops_around([(strip, size), self.blocks], self._made(1, strip + near))
        if of.group > 1:
            return st.Branch(sc.Le(sc.index(of.steps), size), self._groups(tiles), single)
        tile = self._begun(strip, lambda at: loops_around([self.blocks], self._made(of.steps, at)))
        whole = loops_around([(strip, tiles)], tile)
        return st.Branch(sc.Le(sc.index(of.steps), size), whole, single)

    def _begun(self, number: sc.Scalar, body: Callable[[sc.Scalar], st.Stmt]) -> st.Stmt:
        """A tile by its number, given its places: the last one ends with the image."""
        of, size, column = self.of, self.size, self.names.var("column")
        inside = sc.And(sc.Le(sc.index(0), column), sc.Le(column + of.steps, size))  # it is
        begin = sc.Min(number * of.steps, size - of.steps)
        return st.Bind(column, begin, st.Branch(inside, body(column + self.near), st.NOTHING))

    def _groups(self, tiles: sc.Scalar) -> st.Stmt:
        """Groups of tiles: copied, since their rows lie pages apart, then summed."""
        of, strip, near = self.of, self.strip, self.near
        data = [load for load in loads(self.value) if load.buffer is of.source]
        group, many = self.names.var("group"), self.names.var("many")
        extents = [data[0].buffer.shape[at] for at in of.inner]
        shape = (sc.index(of.group), *extents, sc.index(of.steps))
        panel = sc.Buffer(self.names.name("panel"), shape, data[0].buffer.dtype)
        places = [self.names.var("a") for _ in of.inner]

        def copied(at: sc.Scalar) -> st.Stmt:
            source = [*data[0].indices[:-1], at]
            for each, place in zip(of.inner, places, strict=True):
                source[each] = place
            store = st.Store(panel, (strip, *places, near), sc.Load(data[0].buffer, tuple(source)))
            loops = [*zip(places, extents, strict=True), (near, sc.index(of.steps))]
            return loops_around(loops, store, "vectorized")

        reads: dict[Term, sc.Scalar] = {
            each: sc.Load(panel, (strip, *[each.indices[at] for at in of.inner], near))
            for each in data
        }
        number, value = group * of.group + strip, self.value
        copies = st.For(strip, many, "serial", self._begun(number, copied))
        self.value = replaced(value, reads)
        sums = self._begun(number, lambda at: self._made(of.steps, at))
        self.value = value
        blocks, count = self.blocks
        summed = st.For(strip, many, "serial", sums)
        summed = st.For(blocks, count, "parallel" if of.shares else "serial", summed)
        made: st.Stmt = st.Alloc(panel, st.seq(copies, summed))
        made = st.Branch(sc.Le(many, sc.index(of.group)), made, st.NOTHING)  # there are no more
        made = st.Bind(many, sc.Min(tiles - group * of.group, sc.index(of.group)), made)
        return loops_around([(group, (tiles + (of.group - 1)) // of.group)], made)

    def _made(
        self,
        steps: int,
        there: sc.Scalar,
        read: sc.Scalar | None = None,
        guard: sc.Scalar | None = None,
    ) -> st.Stmt:
        """A tile of a given number of neighbours: where they are, what is read of there, which are
        stored."""
        of, tile = self.of, self.tile
        inner = (
            (self.near, sc.index(steps)),
            (self.vector, sc.index(-(-tile.outputs // of.lanes))),
            (self.lane, sc.index(of.lanes)),
        )
        body = substitute(self.value, {of.column: there if read is None else read})
        here = ((of.lane, self.output), (of.column, there))
        indices = tuple([dict(here).get(axis, axis) for axis in self.fold.axes])
        unrolled = (self.near, self.vector, *self._row_of_window(steps))
        walk = LoopOrder(inner, indices, body, 3, here, "vectorized", None, unrolled)
        return _one(of, walk, self.out, self.after, tile, guard, self.names)

    def _row_of_window(self, steps: int) -> tuple[sc.ScalarVar, ...]:
        """The terms along a row of a window, if they are written out: neighbours have most of what
        they read in common, and where vectors are short it would be a loop of few cycles."""
        of = self.of
        sums = steps * -(-self.tile.outputs // of.lanes)
        # A sum in runs is one of totals around that of the terms, which comes first.
        total = next((each for each in post_order(self.value) if isinstance(each, sc.Reduce)), None)
        if total is None or of.lanes * sc.dtype_of(total).bytes > BRIEF:
            return ()
        terms = known(total.extents[-1]) or 0
        return (total.axes[-1],) if terms <= SHORT and terms * sums <= WINDOW else ()


def _one(  # noqa: PLR0917  # a tile, and where it ends
    of: OpenTile,
    walk: LoopOrder,
    out: sc.Buffer,
    after: StoredElement | None,
    tile: _Tile,
    guard: sc.Scalar | None,
    names: Names,
) -> st.Stmt:
    """The sums of a tile, and what is stored of them."""
    sums = Sums(walk, walk.loops, names, "local", 1)
    steps, stand_in = sums.totals(exposed(walk.body))
    value = replaced(walk.body, stand_in)
    if not isinstance(value, sc.Load):
        whole = tuple([extent for _, extent in walk.loops])
        made = sc.Buffer(names.name("made"), whole, sc.dtype_of(value), "local")
        sums.held.append(made)
        at = tuple([axis for axis, _ in walk.loops])
        steps.append(loops_around(walk.loops, st.Store(made, at, value), walk.kind, walk.unrolled))
        value = sc.Load(made, at)
    near, (vector, _), (lane, _) = walk.loops
    last = last_store(value, walk, out, after)
    if guard is not None:
        last = st.Branch(guard, last, st.NOTHING)
    full, part = divmod(tile.outputs, of.lanes)
    columns = _is_column_major(walk, after)
    for first, count, lanes in ((0, full, of.lanes), (full, 1, part)):
        if not count or not lanes:
            continue
        stmt = substitute(last, {vector: vector + first}) if first else last
        rows = [(vector, sc.index(count)), (lane, sc.index(lanes))]
        order = [*rows, near] if columns else [near, *rows]
        written = [var for var, _ in order[:-1]]
        steps.append(loops_around(order, stmt, "vectorized", written))
    return sums.around(steps)


def _is_column_major(walk: LoopOrder, after: StoredElement | None) -> bool:
    """Whether neighbours along the columns are neighbours in the result."""
    (lane, _), (_, there) = walk.turned
    if after is None:
        return walk.indices[-1] is there
    return after.indices[-1] is not lane
