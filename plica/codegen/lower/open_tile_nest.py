"""The loops of open tiles: vectors of outputs by a few neighbours along an open axis.

    for n, blocks of outputs, i:
        for s in range(w // 13):                 13 neighbours x 2 vectors of 16 outputs each
            acc[t, v, lane] += x[n, c, i + k, 13 * s + t + l] * packed[b, c, k, l, lane]
            out[n, o, i, 13 * s + t] = f(acc)    columns of the tile are rows of the result
        the same for what is left, 6 neighbours at a time: sums beyond the end are those of the last
        place, or of where there is room, and not stored

Law: each sum has its terms in the order that it says.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from plica.codegen.lower.loop_order import LoopOrder, loops_around, replaced
from plica.codegen.lower.nest import (
    StoredElement,
    Sums,
    elements,
    in_order,
    last_store,
    open_sizes,
    stored,
)
from plica.codegen.lower.open_tile import OpenTile
from plica.core.binding import substitute
from plica.core.term import Term
from plica.ir.loop.reduction import exposed
from plica.ir.loop.scalar import Buffer, Load, Lt, Min, Scalar, ScalarVar, dtype_of, index
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Names, Stages, pairs
from plica.ir.loop.statement import NOTHING, Bind, Branch, Kernel, Seq, Stmt, Store
from plica.ir.type.dim import known


def tiled(of: OpenTile, rest: Stages) -> Kernel:
    """The loops of stages, less those that were made beforehand."""
    *before, (fold, epilogue) = pairs(rest)
    steps: list[Stmt] = [elements(each, each.out, None) for each, _ in before]
    steps += _tiles(of, in_order(fold), rest.result, stored(fold, epilogue))
    params = (*rest.inputs, *rest.outputs)
    body = Seq(tuple(steps)) if len(steps) > 1 else steps[0]
    return Kernel(open_sizes(params, body), params, len(rest.inputs), body)


@frozen(eq=False)
class _Tile:
    """One shape of tile: where its outputs begin, how many blocks of vectors there are, how many
    outputs a block has."""

    blocks: int
    first: int
    outputs: int


def _tiles(of: OpenTile, fold: Each, out: Buffer, after: StoredElement | None) -> Iterator[Stmt]:
    """Blocks of outputs that are whole, then what is left of these."""
    sizes = dict(zip(fold.axes, fold.out.shape, strict=True))
    count, wide = known(sizes[of.lane]) or 0, of.vectors * of.lanes
    whole = count // wide
    for tile in (_Tile(whole, 0, wide), _Tile(1, whole * wide, count % wide)):
        if tile.blocks and tile.outputs:
            yield _block(of, fold, out, after, tile)


def _block(of: OpenTile, fold: Each, out: Buffer, after: StoredElement | None, tile: _Tile) -> Stmt:
    """All places of some blocks of outputs: whole tiles of neighbours, then the last."""
    names = Names(fold, out, *([] if after is None else [after.value]))
    block, near, vector, lane = (names.var(each) for each in ("block", "near", "vector", "lane"))
    strip = names.var("strip")
    which = block * of.vectors + vector + tile.first // of.lanes
    output = which * of.lanes + lane
    wide = of.lanes * of.abreast
    halves: dict[Term, Scalar] = {of.lane // of.lanes: which, of.lane % of.lanes: lane}
    if of.abreast > 1:
        halves[of.lane // wide] = block + tile.first // wide
        halves[of.lane // of.lanes % of.abreast] = vector
    value = replaced(fold.value, halves)
    sizes = dict(zip(fold.axes, fold.out.shape, strict=True))
    size = sizes[of.column]
    if (row := known(size)) is None:
        done: Scalar = names.var("done")
        many, left = size // of.steps, (size - done + (of.rest - 1)) // of.rest
    else:  # what is left is one tile
        done = index(row // of.steps * of.steps)
        many, left = index(row // of.steps), index(1 if row % of.steps else 0)
    around = [
        (block, index(tile.blocks)) if axis is of.lane else (axis, extent)
        for axis, extent in sizes.items()
        if axis is not of.column
    ]
    place, last = strip * of.steps + near, done + strip * of.rest + near
    walks: list[tuple[int, Scalar, Scalar, Scalar, Scalar | None]] = [
        (of.steps, many, place, place, None),
        (of.rest, left, last, last if of.room else Min(last, size - 1), Lt(last, size)),
    ]
    if row is not None:
        walks[1] = of.rest, left, last, last, None
    found: list[Stmt] = []
    for steps, many, there, read, guard in walks:
        if known(many) == 0:
            continue
        inner = (
            (near, index(steps)),
            (vector, index(-(-tile.outputs // of.lanes))),
            (lane, index(of.lanes)),
        )
        body = substitute(value, {of.column: read})
        here = ((of.lane, output), (of.column, there))
        indices = tuple([dict(here).get(axis, axis) for axis in fold.axes])
        walk = LoopOrder(inner, indices, body, 3, here, "vectorized", None, (near, vector))
        one = _one(of, walk, out, after, tile, guard, names)
        found.append(loops_around([(strip, many)], one))
    whole: Stmt = Seq(tuple(found)) if len(found) > 1 else found[0]
    if isinstance(done, ScalarVar):
        whole = Bind(done, size // of.steps * of.steps, whole)
    return loops_around(around, whole)


def _one(  # noqa: PLR0917  # a tile, and where it ends
    of: OpenTile,
    walk: LoopOrder,
    out: Buffer,
    after: StoredElement | None,
    tile: _Tile,
    guard: Scalar | None,
    names: Names,
) -> Stmt:
    """The sums of a tile, and what is stored of them."""
    sums = Sums(walk, walk.loops, names, "local", 1)
    steps, stand_in = sums.totals(exposed(walk.body))
    value = replaced(walk.body, stand_in)
    if not isinstance(value, Load):
        whole = tuple([extent for _, extent in walk.loops])
        made = Buffer(names.name("made"), whole, dtype_of(value), "local")
        sums.held.append(made)
        at = tuple([axis for axis, _ in walk.loops])
        steps.append(loops_around(walk.loops, Store(made, at, value), walk.kind, walk.unrolled))
        value = Load(made, at)
    last = last_store(value, walk, out, after)
    if guard is not None:
        last = Branch(guard, last, NOTHING)
    near, (vector, _), (lane, _) = walk.loops
    full, part = divmod(tile.outputs, of.lanes)
    columns = _is_turned(walk, after)
    for first, count, lanes in ((0, full, of.lanes), (full, 1, part)):
        if not count or not lanes:
            continue
        stmt = substitute(last, {vector: vector + first}) if first else last
        rows = [(vector, index(count)), (lane, index(lanes))]
        order = [*rows, near] if columns else [near, *rows]
        written = [var for var, _ in order[:-1]]
        steps.append(loops_around(order, stmt, "vectorized", written))
    return sums.around(steps)


def _is_turned(walk: LoopOrder, after: StoredElement | None) -> bool:
    """Whether neighbours along the columns are neighbours in the result."""
    (lane, _), (_, there) = walk.turned
    if after is None:
        return walk.indices[-1] is there
    return after.indices[-1] is not lane
