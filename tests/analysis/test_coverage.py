"""Coverage: what is said to be reached is written at every point, by one write or several."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, strategies as st
from hypothesis.strategies import DrawFn

from plica.analysis.coverage import is_covered, map_of, reached, reaches
from plica.analysis.index import EMPTY, Context
from plica.analysis.index.point import value
from plica.analysis.region import Box
from plica.analysis.statement_coverage import covered
from plica.analysis.write import Write, filled, joined
from plica.core.binding import substitute
from plica.core.term import Term
from plica.ir.loop.scalar import And, Eq, Le, Lit, Lt, Ne, Not, Or, Scalar, ScalarVar, index
from plica.ir.loop.statement import Alloc, For, Kernel, Store, block, seq, statements
from plica.ir.loop.tensor import axis, buffer, reduce
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32

i, j, k, e, f, n = (dim_var(name) for name in "ijkefn")
LINE = EMPTY.loop(e, 16)


def holds(condition: Scalar, point: dict[Scalar, int]) -> bool:
    match condition:
        case Lt(left, right):
            return value(left, point) < value(right, point)
        case Le(left, right):
            return value(left, point) <= value(right, point)
        case Eq(left, right):
            return value(left, point) == value(right, point)
        case Ne(left, right):
            return value(left, point) != value(right, point)
        case And(left, right):
            return holds(left, point) and holds(right, point)
        case Or(left, right):
            return holds(left, point) or holds(right, point)
        case Not(inner):
            return not holds(inner, point)
    raise AssertionError(condition)


def written(writes: list[Write], around: dict[Scalar, int]) -> set[tuple[int, ...]]:
    """The elements that are written, point by point."""
    found = set()
    for write in writes:
        sizes = [range(value(size, {})) for _, size in write.loops]
        for numbers in product(*sizes):
            point = around | {var: at for (var, _), at in zip(write.loops, numbers, strict=True)}
            if all(holds(each, point) for each in write.guards):
                found.add(tuple([value(each, point) for each in write.indices]))
    return found


def over(place: Scalar, size: int, *guards: Scalar) -> Write:
    return Write((place,), ((i, index(size)),), guards)


COVERED = {
    "neighbours": [over(4 * i + at, 4) for at in range(4)],
    "neighbours-backwards": [over(4 * i + 3 - at, 4) for at in range(4)],
    "numbers": [Write((index(at),), ()) for at in range(16)],
    "parts": [over(i, 7), over(i + 7, 9)],
    "three-parts": [over(i, 3), over(i + 3, 6), over(i + 9, 7)],
    "both-branches": [over(i, 16, Lt(i, index(5))), over(i, 16, Le(index(5), i))],
    "whole-and-more": [over(i, 16), over(2 * i, 3)],
    "few-numbers": [Write((index(at),), ()) for at in (15, 0)] + [over(i + 1, 14)],
}
HOLES = {
    "neighbours": [over(4 * i + at, 4) for at in range(3)],
    "numbers": [Write((index(at),), ()) for at in range(16) if at != 9],
    "parts": [over(i, 7), over(i + 8, 8)],
    "both-branches": [over(i, 16, Lt(i, index(5))), over(i, 16, Lt(index(5), i))],
    "one-guard": [over(i, 16, Lt(i, index(15)))],
    "nothing": [],
}


@pytest.mark.parametrize("name", COVERED)
def test_several_writes_cover(name: str) -> None:
    assert reached(COVERED[name], (e,), LINE)
    assert written(COVERED[name], {}) >= {(at,) for at in range(16)}


@pytest.mark.parametrize("name", HOLES)
def test_a_hole_is_no_cover(name: str) -> None:
    assert not reached(HOLES[name], (e,), LINE)


def test_a_grid_of_numbers_is_one_write() -> None:
    writes = [Write((6 * i + a, index(b)), ((i, n),)) for a in range(6) for b in range(8)]
    (both,) = joined(writes)
    assert [size for _, size in both.loops] == [n, index(6), index(8)]
    there = EMPTY.loop(e, 6 * n).loop(f, 8)
    assert reached(writes, (e, f), there)
    assert not reached(writes[:-1], (e, f), there)
    assert len(joined(writes[:-1])) == len(writes) - 1


def test_open_sizes_are_covered_by_parts() -> None:
    writes = [over(i, 4), Write((j + 4,), ((j, n - 4),))]
    assert reached(writes, (e,), EMPTY.loop(e, n).where(Le(index(4), n)))
    assert not reached(writes[1:], (e,), EMPTY.loop(e, n).where(Le(index(4), n)))


def test_stores_of_one_block_cover_what_another_reads() -> None:
    for count, whole in ((4, True), (3, False)):
        kernel = read(count)
        sites = map_of(kernel).blocks
        loop = next(each for each in statements(kernel.body) if isinstance(each, For))
        writer, reader = sites.values()
        assert is_covered(writer, reader, loop) == whole


def read(count: int) -> Kernel:
    """A block with several stores of neighbours, and a block that reads a row of them."""
    x, t, y = (buffer(name, (3, 16), f32) for name in "xty")
    v, w, a, b = (axis(name) for name in "vwab")
    stores = [Store(t, (v, 4 * w + at), x[v, 4 * w + at]) for at in range(count)]
    one = block("t", (v, w), (3, 4), "ss", (i, a), seq(*stores))
    two = block("y", (v, w), (3, 16), "ss", (i, b), Store(y, (v, w), t[v, 15 - w]))
    both = seq(For(a, index(4), "serial", one), For(b, index(16), "serial", two))
    return Kernel((), (x, y), 1, Alloc(t, For(i, index(3), "serial", both)))


@pytest.mark.parametrize("reach", [2, 3])
def test_a_box_of_many_sides(reach: int) -> None:
    """More sides than a context could keep four facts of: tiles on tensor cores have eleven."""
    outer, inner = ([dim_var(f"{word}{at}") for at in range(6)] for word in ("o", "l"))
    values, sizes = [axis(f"v{at}") for at in range(12)], (4,) * 6 + (reach,) * 6
    tile = buffer("t", sizes, f32)
    store = Store(tile, tuple(values), Lit(0.0, f32))
    writer = block("t", values, sizes, "s" * 12, (*outer, *inner), store)
    context = EMPTY
    for var in outer:
        context = context.loop(var, 4)
    starts = (*outer, *[index(0)] * 6)
    box = Box(tile, starts, (*[index(1)] * 6, *[index(reach)] * 6), exact=True)
    loops = tuple([(var, index(2)) for var in inner])
    assert reaches(writer, loops, box, context) == (reach == 2)


@st.composite
def some_writes(draw: DrawFn) -> list[Write]:
    """A few writes of one axis, with loops, steps and guards."""
    found = []
    for _ in range(draw(st.integers(1, 4))):
        variables: list[ScalarVar] = draw(
            st.lists(st.sampled_from((i, j)), max_size=2, unique=True)
        )
        place: Scalar = index(draw(st.integers(0, 4)))
        loops = []
        for var in variables:
            place = place + draw(st.sampled_from((1, 1, 2, 4, -1))) * var
            loops.append((var, index(draw(st.integers(1, 6)))))
        guards: list[Scalar] = []
        guarded = draw(st.booleans())
        if variables and guarded:
            side = Lt(variables[0], index(draw(st.integers(0, 6))))
            even = Eq(variables[0] % 2, index(0))
            guards.append(draw(st.sampled_from([side, Not(side), even])))
        found.append(Write((place,), tuple(loops), tuple(guards)))
    return found


@given(some_writes(), st.integers(1, 8), st.integers(0, 3))
def test_what_is_reached_is_written(writes: list[Write], size: int, start: int) -> None:
    context: Context = EMPTY.loop(e, size)
    if reached(writes, (e + start,), context):
        assert written(writes, {}) >= {(at + start,) for at in range(size)}


@given(some_writes())
def test_joined_writes_write_the_same(writes: list[Write]) -> None:
    more = [
        Write((each.indices[0] + at,), each.loops, each.guards) for each in writes for at in (0, 3)
    ]
    assert written(joined(more), {}) == written(more, {})


@given(some_writes(), some_writes())
def test_boxes_hold_what_is_written(rows: list[Write], columns: list[Write]) -> None:
    others: dict[Term, Term] = {i: k, j: n}
    writes = [
        Write(
            (row.indices[0], substitute(column.indices[0], others)),
            (*row.loops, *[(k if var is i else n, size) for var, size in column.loops]),
            row.guards,
        )
        for row in rows
        for column in columns
    ]
    boxes = filled(writes)
    assert written(boxes, {}) == written(writes, {})
    assert len(boxes) <= len(writes)


def test_a_guard_cuts_a_box() -> None:
    """Two vectors of 16 places, of which 28 are there, for each of two strips."""
    loops = (i, index(2)), (j, index(2)), (k, index(16))
    (box,) = filled([Write((28 * i + 16 * j + k,), loops, (Lt(16 * j + k, index(28)),))])
    assert not box.guards
    assert written([box], {}) == {(at,) for at in range(56)}


def test_boxes_that_meet_are_one_and_others_are_not() -> None:
    tiles = Write((16 * i + j,), ((i, index(4)), (j, index(16))))
    for start, count in ((64, 1), (65, 2)):
        assert len(filled([tiles, Write((k + start,), ((k, index(3)),))])) == count


@pytest.mark.parametrize(("reach", "known"), [(4, True), (5, False)])
def test_each_sum_of_a_term_reads_what_was_written(reach: int, known: bool) -> None:
    """Sums over variables of one name are told apart by how far they go."""
    t, y, j = buffer("t", (8,), f32), buffer("y", (1,), f32), axis("j")
    fill = For(j, index(4), "serial", Store(t, (j,), Lit(1, f32)))
    both = [reduce("sum", (size,), lambda k: t[k], name="k") for size in (4, reach)]
    for total in (both[0] * 2 + both[1], both[1] * 2 + both[0]):
        assert covered(seq(fill, Store(y, (index(0),), total)), t) == known
    nested = reduce("sum", (2,), lambda m: reduce("sum", (reach - 2,), lambda k: t[m * 2 + k]))
    assert covered(seq(fill, Store(y, (index(0),), nested)), t) == known
