"""transpose_tile: transpose square tiles in registers where lanes would gather from rows.

    before                          after  transpose_tile(p, k, v)
    for k in range(200):            for k in range(25):
        for v in range(8):              tile = alloc(Buffer[(8, 8), …, scope("local")])
            with block("P", …):         for r in unrolled(8):
                P[k, v] = W[v, k] + 1       for c in vectorized(8):
                                                with block("P_tile", …):
                                                    tile[r, c] = W[r, 8 * k + c]
                                        for c_1 in unrolled(8):
                                            for v in vectorized(8):
                                                with block("P", …):
                                                    P[8 * k + c_1, v] = tile[v, c_1] + 1

Reads are contiguous along `rows`, writes along `lanes`. Without this step each lane would load one
element. Tiles are as wide as the vector; loops between `rows` and `lanes` are unrolled, so that
whole lines are stored. If the lanes do not divide the rows, the last tile overlaps the previous
one. Elements outside a predicate are neither read nor written. Fewer rows than lanes use part of
one tile. Handles stay: `rows` counts tiles, `lanes` is vectorized. Exact.

Preconditions:

- `plain-loop`: all loops.
- `tile`: `rows` contains `lanes`, perhaps inside other loops; `lanes` contains the block and
  nothing else.
- `square`: extents are numbers, at least 2 rows and 4 lanes, lanes a power of two.
- `one-store`: a block of spatial variables stores one element of a buffer that it does not read;
  its predicate reads no memory.
- `neighbours`: exactly one loaded element varies along the lanes. Its last index goes by one
  along the rows and does not depend on the lanes; no other index depends on the rows.
- `neighbours` of the store: its last index goes by one along the lanes and does not depend on the
  rows.
- `in-bounds`: that element is inside its buffer, or guarded by one condition that is the same
  along the rows.
- `independent`, `handed-over`: parallel loops around it and inside it stay legal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

from attrs import frozen

from plica.analysis.enclosing import inside, shown, simple
from plica.analysis.index.context import conjuncts
from plica.analysis.site import Site, fresh_label, fresh_names, replace, with_parts
from plica.analysis.statement import reads_memory
from plica.core.binding import free_vars, substitute
from plica.core.fold import map_bottom_up, post_order
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.loop.scalar import (
    And,
    Buffer,
    Le,
    Lit,
    Load,
    Lt,
    Min,
    Scalar,
    ScalarVar,
    Select,
    index,
)
from plica.ir.loop.stages import loads
from plica.ir.loop.statement import Alloc, Block, For, Stmt, Store, seq
from plica.ir.type.dim import known, polynomial
from plica.ir.type.dtype import i64
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.launch import unsafe_after
from plica.schedule.precondition import plain_loop
from plica.schedule.problem import Problem

LEAST_ROWS, LEAST_LANES = 2, 4  # squares of fewer are no vectors


@primitive("transpose_tile")
@frozen(eq=False)
class TransposeTile(Instruction):
    """A block, the loop along what it reads, and that along what it writes."""

    block: Handle
    rows: Handle
    lanes: Handle

    def check(self, scene: Scene) -> Problem | None:
        site = scene.block(self.block)
        rows, lanes = scene.loop(self.rows).node, scene.loop(self.lanes).node
        if (nest := _nest(rows, lanes, site.node)) is None:
            expected = "a loop of rows around a loop of lanes around the block, and nothing else"
            return Problem("tile", site, expected, f"{rows.var.name} and {lanes.var.name} are not")
        for loop in nest:
            if (problem := plain_loop(loop)) is not None:
                return problem
        sizes = [known(loop.extent) or 0 for loop in nest]
        count, width = sizes[0], sizes[-1]
        if count < LEAST_ROWS or width < LEAST_LANES or width & (width - 1) or not all(sizes):
            expected = f"at least {LEAST_ROWS} rows, and {LEAST_LANES} lanes, 8, 16 or more"
            return Problem("square", site, expected, f"{rows.extent!r} and {lanes.extent!r}")
        problem = one_store(site.node) or _along(site, rows.var, lanes.var)
        return problem or _outside(site, rows.var, lanes.var) or unsafe_after(self, scene)

    def edit(self, scene: Scene) -> Edited:
        site = scene.block(self.block)
        rows, lanes = scene.loop(self.rows), scene.loop(self.lanes).node
        block, kernel = site.node, scene.kernel
        nest = _nest(rows.node, lanes, block)
        read = _crossing(site, rows.node.var, lanes.var)
        assert nest is not None  # as checked
        assert read is not None
        assert isinstance(block.body, Store)
        count, width = known(rows.node.extent) or 0, known(lanes.extent) or 0
        beside, columns = nest[1:-1], min(count, width)
        hints = [Name(each) for each in ("tile", "r", "c", "c", "vr", "vc", "vr", "vc")]
        inner = [loop.var.name for loop in beside]
        names = fresh_names(kernel, [*hints, *inner, *[each.name for each in block.vars]])
        r, c, column, vr, vc, wr, wc, *own = [ScalarVar(name, i64) for name in names[1:]]
        again, own = own[: len(beside)], own[len(beside) :]
        many = prod([known(loop.extent) or 0 for loop in beside])
        tile_rows, square = index(many * width), index(width)
        tile = Buffer(names[0], (tile_rows, square), read.load.buffer.dtype, "local")
        start: Scalar = rows.node.var * width
        if columns < width:
            start = index(0)
        elif count % width:
            start = Min(start, index(count - width))

        def tile_row(of: Sequence[Scalar], lane: Scalar) -> Scalar:
            """The lane's index in the square addressed by adjacent loops."""
            at: Scalar = index(0)
            for var, loop in zip(of, beside, strict=True):
                at = at * loop.extent + var
            return simple(at * width + lane)

        mine: dict[Term, Scalar] = dict(zip(block.vars, own, strict=True))
        at: dict[Term, Scalar] = dict(zip([loop.var for loop in beside], again, strict=True))
        at |= {lanes.var: r, rows.node.var: start + c}
        fill = Block(
            fresh_label(kernel, f"{block.label}_tile"),
            (*own, vr, vc),
            (*block.extents, tile_rows, index(columns)),
            (*block.kinds, "spatial", "spatial"),
            (*[substitute(binding, at) for binding in block.bindings], tile_row(again, r), c),
            substitute(block.predicate, at), None,
            Store(tile, (vr, vc), substitute(read.value, mine)),
        )  # fmt: skip
        filling: Stmt = For(c, index(columns), "vectorized", fill)
        filling = For(r, square, "unrolled", filling)
        picked = Load(tile, (wr, wc))
        value = map_bottom_up(lambda node: picked if node is read.taken else node, block.body.value)
        stored = with_parts(
            block,
            vars=(*block.vars, wr, wc),
            extents=(*block.extents, tile_rows, index(columns)),
            kinds=(*block.kinds, "spatial", "spatial"),
            bindings=(
                *[substitute(e, {rows.node.var: start + column}) for e in block.bindings],
                tile_row([loop.var for loop in beside], lanes.var),
                column,
            ),
            predicate=substitute(block.predicate, {rows.node.var: start + column}),
            body=Store(block.body.buffer, block.body.indices, value),
            reads=(),
            writes=(),
        )
        storing: Stmt = For(lanes.var, square, "vectorized", stored)
        for var, loop in zip(reversed(again), reversed(beside), strict=True):
            filling = For(var, loop.extent, "unrolled", filling)
            storing = For(loop.var, loop.extent, "unrolled", storing)
        both: Stmt = seq(filling, For(column, index(columns), "unrolled", storing))
        squares = index(-(-count // width))
        whole = For(rows.node.var, squares, "serial", Alloc(tile, both))
        return Edited(replace(kernel, rows, whole))


def _nest(rows: For, lanes: For, block: Block) -> tuple[For, ...] | None:
    """The loops from that of rows to that of lanes, or None if other statements are between."""
    loops = [rows]
    while loops[-1] is not lanes:
        if not isinstance(loops[-1].body, For):
            return None
        loops.append(loops[-1].body)
    return tuple(loops) if len(loops) > 1 and lanes.body is block else None


@frozen(eq=False)
class CrossingRead:
    """The element along the rows, its copy in the squares, and the replaced term: the element, or a
    select of it by a condition uniform along the rows."""

    load: Load
    value: Scalar
    taken: Scalar


def one_store(block: Block) -> Problem | None:
    """The problem of a block that is not one store of an element made of others."""
    stores = block.init is None and isinstance(block.body, Store)
    if stores and not reads_memory(block.predicate) and set(block.kinds) <= {"spatial"}:
        assert isinstance(block.body, Store)
        if all(load.buffer is not block.body.buffer for load in loads(block.body)):
            return None
    expected = "a store of one element, made of elements of other buffers"
    return Problem("one-store", block, expected, "another statement")


def _crossing(site: Site[Block], row: ScalarVar, lane: ScalarVar) -> CrossingRead | None:
    """The only element read along the rows that differs per lane, or None."""
    block, there = site.node, inside(site)
    assert isinstance(block.body, Store)
    values: dict[Term, Scalar] = dict(zip(block.vars, block.bindings, strict=True))
    value = block.body.value
    found = []
    for load in dict.fromkeys(loads(value)):
        indices = [simple(substitute(scalar, values), there) for scalar in load.indices]
        crosses = any(lane in free_vars(scalar) for scalar in indices)
        if crosses and free_vars(load) <= free_vars(value) and _is_contiguous(indices, row):
            found.append(load)
    if len(found) != 1:
        return None
    match value:
        case Select(condition, Load() as load, Lit()) if load is found[0]:
            kept = [
                conjunct
                for conjunct in conjuncts(condition)
                if not shown(conjunct, there, quick=True)
                and not shown(substitute(conjunct, values), there, quick=True)
            ]
            steady = not any(row in free_vars(substitute(scalar, values)) for scalar in kept)
            if steady and not reads_memory(condition):
                held = Select(reduce(And, kept), load, value.orelse) if kept else load
                return CrossingRead(load, held, value)
    return CrossingRead(found[0], found[0], found[0])


def _along(site: Site[Block], row: ScalarVar, lane: ScalarVar) -> Problem | None:
    """The problem of a block that does not read one element along the rows, or not write along
    the lanes."""
    block, there = site.node, inside(site)
    assert isinstance(block.body, Store)
    values: dict[Term, Scalar] = dict(zip(block.vars, block.bindings, strict=True))
    read = _crossing(site, row, lane)
    for what, places, along, other in (
        ("reads", () if read is None else read.load.indices, row, lane),
        ("writes", block.body.indices, lane, row),
    ):
        indices = [simple(substitute(place, values), there) for place in places]
        if not _is_contiguous(indices, along) or other in free_vars(indices[-1]):
            expected = f"neighbours along {along.name} in one element that it {what}"
            return Problem("neighbours", block, expected, "elements elsewhere, or several")
    return None


def _outside(site: Site[Block], row: ScalarVar, lane: ScalarVar) -> Problem | None:
    """The problem of an element that may be there by a condition alone."""
    block, there, read = site.node, inside(site), _crossing(site, row, lane)
    assert read is not None
    assert isinstance(block.body, Store)
    chosen = [each for each in post_order(block.body.value) if isinstance(each, Select)]
    if read.taken is not read.load or not any(read.load in loads(select) for select in chosen):
        return None
    for place, size in zip(read.load.indices, read.load.buffer.shape, strict=True):
        if not (shown(Le(index(0), place), there) and shown(Lt(place, size), there)):
            expected = f"an element of {read.load.buffer.name} that is there without a condition"
            return Problem("in-bounds", block, expected, "it may be outside")
    return None


def _is_contiguous(indices: Sequence[Scalar], along: ScalarVar) -> bool:
    """Whether neighbours along a loop are so in memory."""
    if not indices:
        return False  # a scalar
    *outer, last = indices
    return not any(along in free_vars(index) for index in outer) and _is_step(last, along)


def _is_step(place: Scalar, along: ScalarVar) -> bool:
    """Whether an index grows by one along a variable."""
    found = [
        (atoms, factor)
        for atoms, factor in polynomial(place).values()
        if any(along in free_vars(atom) for atom in atoms)
    ]
    return found == [((along,), 1)]


transpose_tile = TransposeTile
