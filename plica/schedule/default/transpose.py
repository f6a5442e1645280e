"""Transposes: a tile of elements at a time, turned in registers.

    out[…, i, …, j] = f(x[…, j, …, i])

Neighbours of the result are far apart in what is read.  A square tile is read along its rows, and
stored along the rows of the result, which are its columns: registers exchange lanes until they are
(`plica.codegen.llvm.transpose`).  What is left at the ends is part of tiles that end there and
begin in others; where it is little it goes element by element.  Where vectors can be read and
written in part, a side that is too short for a tile has one that is not full.

    tile[r, c]                 <-  x[…, j + r, …, i + c]
    out[…, i + c, …, j + l]    <-  f(tile[l, c])

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer
>>> x = buffer("x", (32, 40), f32)
>>> print(turned(stages((x,), (stage("y", (40, 32), lambda i, j: x[j, i]),)), Machine(512, 32)))
y = statements
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import NamedTuple

from plica.core.binding import free_vars, substitute
from plica.core.fold import map_bottom_up, post_order
from plica.ir.loop.scalar import Buffer, Lit, Load, Lt, Min, Scalar, ScalarVar, Select, index
from plica.ir.loop.stage import Each, ExternStage
from plica.ir.loop.stages import Names, Stages, reductions, stages
from plica.ir.loop.statement import Alloc, Annotations, Branch, For, LoopKind, Seq, Stmt, Store, seq
from plica.ir.type.dim import known
from plica.ir.type.dtype import f32
from plica.schedule.default.form import elements
from plica.schedule.default.machine import LINE, MASKED, Machine
from plica.schedule.default.share import pays

LEAST = 4
"""Fewer elements than that at an end go one by one, and so do all with shorter vectors."""

TOGETHER = 2
"""Tiles along each side that go one after another: most lines of memory are then read, and written,
as a whole in one go, and no more of them are under way than are fetched at once."""

SHORT_ROWS, SHORT_COLUMNS = 5, 9
"""Rows and columns of the result that are worth a tile that is not full, at least: vectors of fewer
columns are put together as they lie."""


def turned(of: Stages, machine: Machine) -> Stages | None:
    """The stage of a transpose with the loops it should have, None where it is none."""
    match of.stages:
        case (Each() as whole,):
            pass
        case _:
            return None
    if len(whole.axes) < 2 or any(not known(size) for size in whole.out.shape):
        return None
    if reductions(whole.value):
        return None
    sizes = {a: known(s) or 0 for a, s in zip(whole.axes, whole.out.shape, strict=True)}
    load = _turned_load(whole, sizes)
    if load is None:
        return None
    side = min(machine.lanes(load.buffer.dtype), machine.lanes(f32))
    row = sizes[whole.axes[-1]] * whole.out.dtype.bytes
    if side * whole.out.dtype.bytes >= LINE and row % LINE:
        side //= 2  # vectors as long as a line would all lie in two of them
    least = min(load.buffer.dtype.bytes, whole.out.dtype.bytes)
    masks = machine.masks and (least >= f32.bytes or machine.vector > MASKED)  # none of few bytes
    if side < LEAST or not _fills(whole, load, sizes, side, masks=masks):
        return None
    shares = pays(machine, prod(sizes.values()), (whole.out, load.buffer))
    tiles = _tiles(side, whole.out, row, load.buffer, machine)
    body = _Turning(whole, load, sizes, tiles).body(shares)
    return stages(of.inputs, (ExternStage((whole.out,), body),))


class TransposeTiles(NamedTuple):
    """How large tiles are and in what order they follow one another."""

    side: int
    """Rows of a tile, and columns."""
    strip: int
    """Tiles that make a line of the result; where vectors are short, they go side by side along
    rows of what is read."""
    beside: int
    """Those of a line that registers hold at once."""
    fetches: bool
    """Whether what is read is so far that the next rows are asked for."""
    masks: bool
    """Whether vectors are stored in part."""


def _tiles(side: int, out: Buffer, row: int, read: Buffer, machine: Machine) -> TransposeTiles:
    """The tiles of a side, for a result whose rows have so many bytes."""
    # Rows that are no whole lines are not written line by line: tiles follow one another then.
    strip = 1 if machine.masks or row % LINE else LINE // (side * out.dtype.bytes)
    beside = strip
    while beside > 1 and (beside + 1) * side > machine.registers:
        beside //= 2
    fetches = elements(read) * read.dtype.bytes > machine.cache(1)
    return TransposeTiles(side, strip, beside, fetches, machine.masks)


def _fills(of: Each, load: Load, sizes: Mapping[ScalarVar, int], side: int, *, masks: bool) -> bool:
    """Whether both sides are as long as that of a tile, or long enough for one that is not full."""
    columns, rows = sizes[of.axes[-1]], sizes[load.indices[-1]]  # type: ignore[index]  # a variable
    if not masks:
        return rows >= side and columns >= side
    return rows >= min(SHORT_ROWS, side) and columns >= min(SHORT_COLUMNS, side)


def _turned_load(of: Each, sizes: Mapping[ScalarVar, int]) -> Load | None:
    """The one load along another axis than the last; all others are along the last, or still."""
    last = of.axes[-1]
    found: Load | None = None
    for node in post_order(of.value):
        if not isinstance(node, Load) or last not in free_vars(node):
            continue
        if node.indices[-1] is last and all(last not in free_vars(e) for e in node.indices[:-1]):
            continue
        if found is not None or not _is_plain(node, sizes) or node.indices[-1] is last:
            return None
        found = node
    return None if found is None or found.indices[-1] not in sizes else found


def _is_plain(of: Load, sizes: Mapping[ScalarVar, int]) -> bool:
    """Whether each index is an axis of its own, or the only one there is.

    Tiles are read whole, so what a condition keeps from being read past an end is none either.
    """
    axes = [each for each in of.indices if isinstance(each, ScalarVar)]
    if len(set(axes)) != len(axes) or any(each not in sizes for each in axes):
        return False
    for each, size in zip(of.indices, of.buffer.shape, strict=True):
        if isinstance(each, ScalarVar) and sizes[each] > (known(size) or 0):
            return False
    return all(isinstance(each, ScalarVar) or known(each) is not None for each in of.indices)


class _Turning:
    """The kernel under construction."""

    def __init__(
        self, of: Each, load: Load, sizes: Mapping[ScalarVar, int], tiles: TransposeTiles
    ) -> None:
        self.of, self.load, self.sizes, self.out = of, load, sizes, of.out
        self.tiles, self.side = tiles, tiles.side
        self.names = Names(of)
        inner = load.indices[-1]
        assert isinstance(inner, ScalarVar)
        self.i, self.j = inner, of.axes[-1]

    def body(self, shares: bool) -> Stmt:
        """All tiles, then the rows and columns that fill none."""
        i, j, sizes = self.i, self.j, self.sizes
        rest_i, rest_j = sizes[i] % self.side, sizes[j] % self.side
        parts = [*(self.squares() if self.tiles.masks else self.strips())]
        if 0 < rest_j < LEAST and sizes[j] > self.side:
            parts.append(self.rest({i: (0, sizes[i]), j: (sizes[j] - rest_j, sizes[j])}))
        if 0 < rest_i < LEAST and sizes[i] > self.side:
            parts.append(self.rest({i: (sizes[i] - rest_i, sizes[i]), j: (0, sizes[j])}))
        body: Stmt = parts[0] if len(parts) == 1 else Seq(tuple(parts))
        outer = [each for each in self.of.axes if each not in (i, j)]
        for number, each in reversed(list(enumerate(outer))):
            kind: LoopKind = "parallel" if shares and number == 0 and sizes[each] > 1 else "serial"
            body = For(each, index(sizes[each]), kind, body)
        if shares and not any(sizes[each] > 1 for each in outer):
            body = _shared(body)
        return body

    def squares(self) -> Iterator[Stmt]:
        """Tiles of tiles: a line of memory that ends in the next one is still near then."""
        for start, groups, rows in _groups(self.sizes[self.i], self.side):
            a = self.names.var("a")
            corner = a * (rows * self.side) + start
            pieces: list[Stmt] = []
            for first, columns, many in _groups(self.sizes[self.j], self.side):
                a1, b0, b1 = (self.names.var(each) for each in "abb")
                place = (b0 * many + b1) * self.side + first
                near = self.turning(corner + a1 * self.side, place)
                pieces.append(_around(near, (a1, rows), (b1, many), (b0, columns)))
            yield _around(seq(*pieces), (a, groups))

    def strips(self) -> Iterator[Stmt]:
        """Rows of what is read that make whole lines of the result, all along: each row is read in
        order, and each line is written at once, so that it need not come from memory first."""
        for first, columns, many in _groups(self.sizes[self.j], self.side, self.tiles.strip):
            b0, pieces = self.names.var("b"), list[Stmt]()
            beside = min(self.tiles.beside, many)
            # A line of what is read is asked for once: by each tile along it in some of its rows.
            along = LINE // (self.side * self.load.buffer.dtype.bytes)
            fetches = self.tiles.fetches and beside % along == 0 and columns > 1
            for start, rows, together in _groups(self.sizes[self.i], self.side, along):
                a, b1 = (self.names.var(each) for each in "ab")
                place = (b0 * many + b1 * beside) * self.side + first
                corner = a * (together * self.side) + start
                tiles = [
                    self.turning(corner + at * self.side, place, beside, at if fetches else None)
                    for at in range(together)
                ]
                pieces.append(_around(seq(*tiles), (b1, many // beside), (a, rows)))
            yield _around(seq(*pieces), (b0, columns))

    def turning(
        self, start_i: Scalar, start_j: Scalar, beside: int = 1, asks: int | None = None
    ) -> Stmt:
        """Some tiles side by side, whose rows are stored as wholes; the rows of the tile of number
        `asks` also fetch those that the next tiles below read."""
        side, i, j, load = self.side, self.i, self.j, self.load
        tile = Buffer(
            self.names.name("tile"), (index(beside * side * side),), load.buffer.dtype, "local"
        )
        few_i, few_j = min(self.sizes[i], side), min(self.sizes[j], side)
        inside_row = load.buffer.shape[load.indices.index(j) + 1 :]
        below = beside * side * prod([known(each) or 0 for each in inside_row])
        reads: list[Stmt] = []
        for begin in range(0, beside * side, side):
            r, c = self.names.var("r"), self.names.var("c")
            # Where rows are missing the last stands for them: what it gives there is not stored.
            row = r if few_j == side else Min(r, index(few_j - 1))
            read = self.at(load, start_i + c, start_j + (row + begin))
            if few_i < side:
                read = Select(Lt(c, index(few_i)), read, Lit(0, load.buffer.dtype))
            stored: Stmt = Store(tile, ((r + begin) * side + c,), read)
            notes = (("fetch", below),) if asks is not None and begin == asks * side else ()
            reads.append(_nest((r, side), (c, side), stored, notes))
        column, which, lane = (self.names.var(each) for each in "cbl")
        picked = Load(tile, ((which * side + lane) * side + column,))
        body = map_bottom_up(lambda node: picked if node is load else node, self.of.value)
        moved = {i: start_i + column, j: start_j + (which * side + lane)}
        places = tuple([moved.get(each, each) for each in self.of.axes])
        stored = Store(self.out, places, self.at(body, moved[i], moved[j]))
        if few_j < side:
            stored = Branch(Lt(lane, index(few_j)), stored, Seq(()))
        rows = _nest((which, beside), (lane, side), stored)
        return Alloc(tile, Seq((*reads, For(column, index(few_i), "unrolled", rows))))

    def at(self, of: Scalar, i: Scalar, j: Scalar) -> Scalar:
        return substitute(of, {self.i: i, self.j: j})

    def rest(self, spans: Mapping[ScalarVar, tuple[int, int]]) -> Stmt:
        """Elements one by one."""
        own = {each: self.names.var("e") for each in spans}
        moved = {each: own[each] + start for each, (start, _) in spans.items()}
        value = substitute(self.of.value, dict(moved))
        places = tuple([moved.get(each, each) for each in self.of.axes])
        body: Stmt = Store(self.out, places, value)
        for each, (start, end) in spans.items():
            body = For(own[each], index(end - start), "serial", body)
        return body


def _around(body: Stmt, *loops: tuple[ScalarVar, int]) -> Stmt:
    """Loops around a statement, the innermost first."""
    for var, count in loops:
        body = For(var, index(count), "serial", body)
    return body


def _groups(size: int, side: int, together: int = TOGETHER) -> list[tuple[int, int, int]]:
    """Where tiles begin along an axis that go together, how many groups there are, and of how many
    tiles.

    >>> _groups(90, 16), _groups(92, 16)
    ([(0, 2, 2), (64, 1, 1), (74, 1, 1)], [(0, 2, 2), (64, 1, 1), (76, 1, 1)])
    """
    count = max(1, size // side)
    whole, left = divmod(count, together)
    last = size > side and size % side >= LEAST
    found = [(0, whole, together), ((count - left) * side, left, 1), (size - side, int(last), 1)]
    return [each for each in found if each[1]]


def _nest(
    around: tuple[ScalarVar, int], lane: tuple[ScalarVar, int], body: Stmt, notes: Annotations = ()
) -> Stmt:
    """A vector, and a loop around it that is written out."""
    inner = For(lane[0], index(lane[1]), "vectorized", body, notes)
    return For(around[0], index(around[1]), "unrolled", inner)


def _shared(of: Stmt) -> Stmt:
    """The first loop of a statement, or of each part of it, for all cores."""
    match of:
        case Seq(stmts):
            return Seq(tuple([_shared(each) for each in stmts]))
        case For(var, extent, "serial", body):
            return For(var, extent, "parallel", body)
        case _:
            return of
