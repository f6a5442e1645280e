"""transpose_tile: a copy whose lanes lie rows apart goes in squares that registers transpose.

    before                              after  transpose_tile(p, k, v)
    for k in range(200):                for k in range(25):
        for v in range(8):                  tile = alloc(Buffer[(8, 8), …, scope("local")])
            with block("P", …):             for r in unrolled(8):
                P[k, v] = W[v, k]               for c in vectorized(8):
                                                    with block("P_tile", …):
                                                        tile[r, c] = W[r, 8 * k + c]
                                            for c_1 in unrolled(8):
                                                for v in vectorized(8):
                                                    with block("P", …):
                                                        P[8 * k + c_1, v] = tile[v, c_1]

What is read lies along `rows`, what is written along `lanes`: gathered, each lane would be read
alone while its neighbours are at hand.  A square is as wide as there are lanes.  Where the rows are
no multiple of that, the last square ends with them and begins in the one before: its elements are
written twice.  What a predicate leaves out is not read, and not written.  Fewer rows than lanes are
one square of which some columns stay empty.  The loops keep their handles: `rows` counts squares,
`lanes` is vectorized.  Exact.

Preconditions: `plain-loop` (both loops), `tile` (`rows` holds `lanes` and nothing else, `lanes` the
block and nothing else), `square` (extents are numbers, at least 2 rows and 4 lanes, lanes a power
of two), `copy` (the block stores an element of another buffer, or that or a constant by a condition
that does not depend on the rows; a predicate reads no memory), `neighbours` (of the element that is
read the last index goes by one along the rows, of the one that is written along the lanes, and no
other index depends on that loop; what is read last is the same for all lanes, what is written last
for all rows), `independent` and `handed-over` (loops around that run at once still may).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from attrs import frozen

from plica.analysis.enclosing import inside, shown, simple
from plica.analysis.index.context import conjuncts
from plica.analysis.site import Site, fresh_label, fresh_names, replace, with_parts
from plica.analysis.statement import reads_memory
from plica.core.binding import free_vars, substitute
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.loop.scalar import And, Buffer, Lit, Load, Min, Scalar, ScalarVar, Select, index
from plica.ir.loop.statement import Alloc, Block, For, Stmt, Store, seq
from plica.ir.type.dim import known, polynomial
from plica.ir.type.dtype import i64
from plica.schedule.concurrent import unsafe_after
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.precondition import plain_loop
from plica.schedule.problem import Problem

LEAST_ROWS, LEAST_LANES = 2, 4
"""Squares of fewer are no vectors."""


@primitive("transpose_tile")
@frozen(eq=False)
class TransposeTile(Instruction):
    """A block that copies, the loop along what it reads, and that along what it writes."""

    block: Handle
    rows: Handle
    lanes: Handle

    def check(self, scene: Scene) -> Problem | None:
        site = scene.block(self.block)
        rows, lanes = scene.loop(self.rows).node, scene.loop(self.lanes).node
        if (problem := plain_loop(rows) or plain_loop(lanes)) is not None:
            return problem
        where = f"the block {site.node.label}"
        if rows.body is not lanes or lanes.body is not site.node:
            expected = "a loop of rows around a loop of lanes around the block, and nothing else"
            return Problem("tile", where, expected, f"{rows.var.name} and {lanes.var.name} are not")
        count, width = known(rows.extent) or 0, known(lanes.extent) or 0
        if count < LEAST_ROWS or width < LEAST_LANES or width & (width - 1):
            expected = f"at least {LEAST_ROWS} rows, and {LEAST_LANES} lanes, 8, 16 or more"
            return Problem("square", where, expected, f"{rows.extent!r} and {lanes.extent!r}")
        if (read := _copied(site, rows.var)) is None:
            expected = "a copy of an element, or a constant by a condition that rows do not change"
            return Problem("copy", where, expected, "another statement")
        return _along(site, read.load, rows.var, lanes.var) or unsafe_after(self, scene)

    def edit(self, scene: Scene) -> Edited:
        site = scene.block(self.block)
        rows, lanes = scene.loop(self.rows), scene.loop(self.lanes).node
        block, kernel = site.node, scene.kernel
        read = _copied(site, rows.node.var)
        assert read is not None  # as checked
        assert isinstance(block.body, Store)
        count, width = known(rows.node.extent) or 0, known(lanes.extent) or 0
        columns = min(count, width)
        hints = [Name(each) for each in ("tile", "r", "c", "c", "vr", "vc", "vr", "vc")]
        names = fresh_names(kernel, [*hints, *[each.name for each in block.vars]])
        r, c, column, vr, vc, wr, wc, *own = [ScalarVar(name, i64) for name in names[1:]]
        size = index(width)
        tile = Buffer(names[0], (size, size), read.load.buffer.dtype, "local")
        start: Scalar = rows.node.var * width
        if columns < width:
            start = index(0)
        elif count % width:
            start = Min(start, index(count - width))

        mine: dict[Term, Scalar] = dict(zip(block.vars, own, strict=True))
        at = {lanes.var: r, rows.node.var: start + c}
        fill = Block(
            fresh_label(kernel, f"{block.label}_tile"),
            (*own, vr, vc),
            (*block.extents, size, index(columns)),
            (*block.kinds, "spatial", "spatial"),
            (*[substitute(each, at) for each in block.bindings], r, c),
            substitute(block.predicate, at), None,
            Store(tile, (vr, vc), substitute(read.value, mine)),
        )  # fmt: skip
        filling = For(c, index(columns), "vectorized", fill)
        stored = with_parts(
            block,
            vars=(*block.vars, wr, wc),
            extents=(*block.extents, size, index(columns)),
            kinds=(*block.kinds, "spatial", "spatial"),
            bindings=(
                *[substitute(e, {rows.node.var: start + column}) for e in block.bindings],
                lanes.var,
                column,
            ),
            predicate=substitute(block.predicate, {rows.node.var: start + column}),
            body=Store(block.body.buffer, block.body.indices, Load(tile, (wr, wc))),
            reads=(),
            writes=(),
        )
        storing = For(lanes.var, size, "vectorized", stored)
        square: Stmt = seq(
            For(r, size, "unrolled", filling), For(column, index(columns), "unrolled", storing)
        )
        squares = index(-(-count // width))
        nest = For(rows.node.var, squares, "serial", Alloc(tile, square))
        return Edited(replace(kernel, rows, nest))


@frozen(eq=False)
class CopiedElement:
    """What a copy stores, less what is known of its condition, and the element that it reads."""

    value: Scalar
    load: Load


def _copied(site: Site[Block], row: ScalarVar) -> CopiedElement | None:
    """The element that a block copies; None where it does more."""
    block = site.node
    if block.init is not None or not isinstance(block.body, Store):
        return None
    if reads_memory(block.predicate):
        return None
    if any(kind != "spatial" for kind in block.kinds):
        return None
    match block.body.value:
        case Load() as load:
            kept: list[Scalar] = []
        case Select(condition, Load() as load, Lit()) if not reads_memory(condition):
            values: dict[Term, Scalar] = dict(zip(block.vars, block.bindings, strict=True))
            there = inside(site)
            kept = [
                each
                for each in conjuncts(condition)
                if not shown(each, there, quick=True)
                and not shown(substitute(each, values), there, quick=True)
            ]
            if any(row in free_vars(substitute(each, values)) for each in kept):
                return None
        case _:
            return None
    if load.buffer is block.body.buffer or any(reads_memory(each) for each in load.indices):
        return None
    if not kept:
        return CopiedElement(load, load)
    assert isinstance(block.body.value, Select)
    return CopiedElement(Select(reduce(And, kept), load, block.body.value.orelse), load)


def _along(site: Site[Block], read: Load, row: ScalarVar, lane: ScalarVar) -> Problem | None:
    """The problem of a copy that does not read along the rows, or not write along the lanes."""
    block, there = site.node, inside(site)
    assert isinstance(block.body, Store)
    values: dict[Term, Scalar] = dict(zip(block.vars, block.bindings, strict=True))
    for what, places, along, other in (
        ("reads", read.indices, row, lane), ("writes", block.body.indices, lane, row),
    ):  # fmt: skip
        indices = [simple(substitute(place, values), there) for place in places]
        if not _is_contiguous(indices, along, other):
            where = f"the block {block.label}"
            expected = f"neighbours along {along.name} in what it {what}"
            return Problem("neighbours", where, expected, "elements elsewhere")
    return None


def _is_contiguous(indices: Sequence[Scalar], along: ScalarVar, other: ScalarVar) -> bool:
    """Whether neighbours along one loop are so in memory, and the other moves rows alone."""
    if not indices:
        return False  # a scalar
    *outer, last = indices
    fixed = not any(along in free_vars(index) for index in outer)
    return fixed and _is_step(last, along) and other not in free_vars(last)


def _is_step(place: Scalar, along: ScalarVar) -> bool:
    """Whether a place goes on by one along a variable."""
    found = [
        (atoms, factor)
        for atoms, factor in polynomial(place).values()
        if any(along in free_vars(atom) for atom in atoms)
    ]
    return found == [((along,), 1)]


def transpose_tile(block: Handle, rows: Handle, lanes: Handle) -> Instruction:
    """A copy whose lanes lie rows apart as squares that registers transpose."""
    return TransposeTile(block, rows, lanes)
