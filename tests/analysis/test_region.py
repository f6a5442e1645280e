"""Regions: no element that is touched is left out, and for affine stencils none is too many."""

from __future__ import annotations

import operator
from functools import reduce
from itertools import product

from hypothesis import given, strategies as st
from hypothesis.strategies import DrawFn

from plica.analysis.enclosing import simple
from plica.analysis.index import EMPTY
from plica.analysis.index.point import value
from plica.analysis.region import Box, block_boxes, boxes, boxes_under, clipped, covers, hull
from plica.analysis.site import distinct, map_of
from plica.ir.loop.scalar import Cast, Load, Max, Ramp, Reduce, Scalar, index
from plica.ir.loop.statement import For, Kernel, Stmt, Store, block, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32, i64
from tests.schedule.example import conv2d, m, n, nest

o, i, j, k = (axis(name) for name in "oijk")
x, y = buffer("x", (40, 40), f32), buffer("y", (40, 40), f32)
SIZES = {i: 3, j: 4, k: 2}


@st.composite
def affine(draw: DrawFn) -> Scalar:
    """A sum of loop variables with small factors, each at most once."""
    used = draw(st.lists(st.sampled_from((i, j, k)), max_size=3, unique=True))
    term: Scalar = o * draw(st.integers(0, 4)) + draw(st.integers(-3, 3))
    for var in used:
        term = term + var * draw(st.sampled_from((-2, -1, 1, 2, 3)))
    return term


@st.composite
def quasi_affine(draw: DrawFn) -> Scalar:
    """The same, divided, or taken by remainder or maximum, and added up."""
    term = draw(affine())
    for _ in range(draw(st.integers(0, 3))):
        by = draw(st.sampled_from((2, 3, 5)))
        term = draw(
            st.sampled_from((term // by, term % by, term + i, term - j * by, Max(term, index(by))))
        )
    return term


def touched(box: Box, terms: list[Scalar], outer: int) -> list[tuple[int, int]]:
    """For each dimension the ends of what the terms are over the loops."""
    found = []
    for term in terms:
        values = []
        for point in product(*[range(size) for size in SIZES.values()]):
            here: dict[Scalar, int] = {o: outer, **dict(zip(SIZES, point, strict=True))}
            values.append(value(term, here))
        found.append((min(values), max(values)))
    return found


def ends(box: Box, outer: int) -> list[tuple[int, int]]:
    here: dict[Scalar, int] = {o: outer}
    lows = [value(each, here) for each in box.starts]
    sizes = [value(each, here) for each in box.extents]
    return [(low, low + size - 1) for low, size in zip(lows, sizes, strict=True)]


def over(stmt: Stmt) -> Stmt:
    return nest(list(SIZES.items()), stmt)


@given(st.lists(affine(), min_size=2, max_size=2), st.integers(0, 3))
def test_the_box_of_an_affine_access_is_exact(terms: list[Scalar], outer: int) -> None:
    a, b = terms
    (read,), (written,) = boxes(over(Store(y, (a, b), x[b, a])))
    assert read.exact
    assert written.exact
    assert ends(written, outer) == touched(written, [a, b], outer)
    assert ends(read, outer) == touched(read, [b, a], outer)


@given(
    st.lists(affine(), min_size=2, max_size=2),
    st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=5),
    st.integers(0, 3),
)
def test_the_box_of_neighbours_is_the_hull_of_theirs(
    terms: list[Scalar], offsets: list[tuple[int, int]], outer: int
) -> None:
    every = [[term + by for term, by in zip(terms, each, strict=True)] for each in offsets]
    total = reduce(operator.add, [Load(x, tuple(each)) for each in every])
    (read,), _ = boxes(over(Store(y, (index(0), index(0)), total)))
    apart = [touched(read, each, outer) for each in every]
    assert ends(read, outer) == [
        (min(low for low, _ in along), max(high for _, high in along))
        for along in zip(*apart, strict=True)
    ]


@given(st.lists(quasi_affine(), min_size=2, max_size=2), st.integers(0, 3))
def test_no_box_leaves_out_what_is_touched(terms: list[Scalar], outer: int) -> None:
    a, b = terms
    _, (written,) = boxes(over(Store(y, (a, b), x[0, 0])))
    real = touched(written, [a, b], outer)
    for (low, high), (least, most) in zip(ends(written, outer), real, strict=True):
        assert (low <= least and most <= high) or (low, high) == (0, 39)  # or all of the buffer
        if written.exact:
            assert (low, high) == (least, most)


@given(st.lists(affine(), min_size=4, max_size=4), st.integers(0, 3))
def test_the_hull_of_boxes_holds_both(terms: list[Scalar], outer: int) -> None:
    a, b, c, d = terms
    stmt = over(seq(Store(y, (a, b), x[0, 0]), Store(y, (c, d), x[0, 0])))
    _, (written,) = boxes(stmt)
    one, two = touched(written, [a, b], outer), touched(written, [c, d], outer)
    both = [(min(p[0], q[0]), max(p[1], q[1])) for p, q in zip(one, two, strict=True)]
    assert ends(written, outer) == both


def test_what_a_convolution_reads_in_one_iteration() -> None:
    kernel = distinct(conv2d(4, 8, 7))
    blocks = {str(label): site for label, site in map_of(kernel).blocks.items()}
    conv = blocks["C"]
    rows = next(loop for loop in conv.loops if str(loop.var.name) == "h_C")
    reads, writes = boxes_under(conv, rows.var)
    found = {str(each.buffer.name): each for each in (*reads, *writes)}
    assert [str(each) for each in map(_number, found["P"].extents)] == ["4", "3", "9"]
    assert found["P"].starts[1] is rows.var
    whole, _ = boxes_under(conv, None)
    assert [_number(each) for each in whole[1].extents] == [4, 9, 9]
    assert _number(found["C"].extents[1]) == 1


def _number(of: Scalar) -> int:
    return value(of, {})


def test_symbolic_sizes_stay_symbolic() -> None:
    z = buffer("z", (n, m), f32)
    stmt = nest([(i, n), (j, m)], Store(z, (i, j), z[n - 1 - i, j]))
    (read,), (written,) = boxes(stmt)
    assert written.extents == (n, m)
    assert read.starts == (index(0), index(0))
    assert read.extents == (n, m)
    assert read.exact


def test_a_tile_that_sticks_out_is_clipped() -> None:
    z = buffer("z", (n,), f32)
    inside = Store(z, (o * 4 + i,), z[o * 4 + i])
    _, (tile,) = boxes(For(i, index(4), "serial", inside))
    assert tile.extents == (index(4),)
    cut = clipped(tile, EMPTY.loop(o, (n + 3) // 4))
    for size, outer in ((5, 1), (8, 1), (7, 0)):
        here: dict[Scalar, int] = {n: size, o: outer}
        assert value(cut.starts[0], here) + value(cut.extents[0], here) == min(4 * outer + 4, size)


def test_data_lanes_reductions_and_blocks_inside() -> None:
    at = Cast(Load(x, (index(0), i)), i64)
    _, (scattered,) = boxes(Store(y, (at, i), x[0, 0]))
    assert scattered.extents == (index(40), index(1))
    assert not scattered.exact
    lanes = Ramp(o * 8, index(2), 4)
    _, (vector,) = boxes(Store(y, (lanes, index(0)), x[0, 0]))
    assert (simple(vector.starts[0] - o * 8), _number(vector.extents[0])) == (index(0), 7)
    (summed,), _ = boxes(Store(y, (i, j), Reduce("sum", (k,), (index(5),), x[i, k])))
    assert _number(summed.extents[1]) == 5
    v = axis("v")
    inner = block("inner", (v,), (8,), "s", (o * 4 + i,), Store(y, (v, index(1)), x[v, 1]))
    _, (through,) = boxes(For(i, index(4), "serial", inner))
    assert _number(through.extents[0]) == 4
    assert block_boxes(inner)[1][0].starts[0] is v
    triangle = nest([(i, 4), (j, i + 1)], Store(y, (i, j), x[0, 0]))
    _, (half,) = boxes(triangle)
    assert [_number(each) for each in half.extents] == [4, 4]
    assert not half.exact


def test_a_box_covers_another_where_that_is_shown() -> None:
    small = Box(y, (o * 4, index(0)), (index(4), index(2)), True)
    large = Box(y, (o * 4 - 1, index(0)), (index(6), index(2)), True)
    assert covers(large, small)
    assert not covers(small, large)
    both = hull(small, large)
    assert covers(both, small)
    assert covers(both, large)


def test_a_deep_index_does_not_overflow_the_stack() -> None:
    term: Scalar = i
    for _ in range(3000):
        term = Max(term, index(1))
    _, (box,) = boxes(For(i, index(4), "serial", Store(y, (term, index(0)), x[0, 0])))
    assert box.buffer is y


def test_what_predicates_exclude_is_left_out() -> None:
    """A block of 7 instances in loops of 8: reads under its guard end with the seventh."""
    v = axis("v")
    places = o * 7 + v
    own = block("y", (v,), (7,), "s", (i * 4 + j,), Store(y, (index(0), v), x[0, places]))
    nested = For(o, index(5), "serial", nest([(i, 2), (j, 4)], own))
    (site,) = map_of(Kernel((), (x, y), 1, nested)).blocks.values()
    for guarded, count in ((False, 8), (True, 7)):
        (read,), _ = boxes_under(site, o, guarded=guarded)
        assert _number(read.extents[1]) == count
