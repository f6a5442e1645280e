"""Iteration maps: what is claimed is so at every point, and schedules' maps are recognised."""

from __future__ import annotations

from itertools import product
from math import prod

from hypothesis import given, strategies as st
from hypothesis.strategies import DrawFn

from plica.analysis.index.context import TRUE
from plica.analysis.index.iteration import IterationMap, divided, iteration_map
from plica.analysis.index.point import value
from plica.core.binding import substitute
from plica.ir.loop.scalar import And, Lt, Scalar, ScalarVar, index
from plica.ir.type.dim import dim_var

n, m = dim_var("n"), dim_var("m")
LETTERS = tuple(dim_var(name) for name in "abcd")


def points(of: IterationMap, sizes: dict[Scalar, int]) -> list[dict[Scalar, int]]:
    extents = [value(extent, sizes) for _, extent in of.loops]
    found = []
    for point in product(*[range(each) for each in extents]):
        here = sizes | {var: at for (var, _), at in zip(of.loops, point, strict=True)}
        if value(of.predicate, here):
            found.append(here)
    return found


def agrees(of: IterationMap, sizes: dict[Scalar, int]) -> None:
    """What the map says of itself is so when its dims have these sizes."""
    every = points(of, sizes)
    images = [tuple(value(each, here) for each in of.bindings) for here in every]
    if of.injective:
        assert len(set(images)) == len(images)
        for here, image in zip(every, images, strict=True):
            back = of.inverse(tuple(index(each) for each in image))
            assert back is not None
            assert {var: value(term, sizes) for var, term in back.items()} == {
                var: here[var] for var, _ in of.loops
            }
    if of.surjective:
        box = product(*[range(value(each, sizes)) for each in of.extents])
        assert set(box) == set(images)


@st.composite
def terms(draw: DrawFn, variables: tuple[ScalarVar, ...]) -> Scalar:
    """A term such as schedules make, now and then an odd one."""
    term: Scalar = draw(st.sampled_from(variables))
    for _ in range(draw(st.integers(0, 4))):
        number = draw(st.sampled_from((1, 2, 3, 4, 6)))
        other = draw(st.sampled_from(variables))
        term = draw(
            st.sampled_from(
                (term * number + other, term // number, term % number, term + number, other)
            )
        )
    return term


@st.composite
def maps(draw: DrawFn) -> IterationMap:
    sizes = draw(st.lists(st.sampled_from((1, 2, 3, 4, 6)), min_size=1, max_size=3))
    variables = LETTERS[: len(sizes)]
    bindings = draw(st.lists(terms(variables), min_size=1, max_size=3))
    predicate: Scalar = TRUE
    for _ in range(draw(st.integers(0, 2))):
        condition = Lt(draw(terms(variables)), index(draw(st.integers(1, 12))))
        predicate = condition if predicate is TRUE else And(predicate, condition)
    loops = tuple(zip(variables, map(index, sizes), strict=True))
    whole = iteration_map(loops, bindings, [index(0) for _ in bindings], predicate)
    images = [tuple(value(each, here) for each in bindings) for here in points(whole, {})]
    extents = [max((each[at] for each in images), default=0) + 1 for at in range(len(bindings))]
    return iteration_map(loops, bindings, map(index, extents), predicate)


@given(maps())
def test_what_is_claimed_of_a_map_is_so(of: IterationMap) -> None:
    agrees(of, {})


@st.composite
def scheduled(draw: DrawFn) -> tuple[IterationMap, dict[Scalar, int]]:
    """Loops of one or two dims after random splits and fusions, and sizes for the dims."""
    sizes: dict[Scalar, int] = {n: draw(st.integers(0, 7)), m: draw(st.integers(0, 5))}
    extents: list[Scalar] = draw(st.sampled_from(([n], [n, m], [n, index(6)], [index(7), m])))
    loops: list[tuple[ScalarVar, Scalar]] = [(LETTERS[at], e) for at, e in enumerate(extents)]
    bindings: list[Scalar] = [var for var, _ in loops]
    predicates: list[Scalar] = []
    names = iter([dim_var(f"x{number}") for number in range(20)])
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(loops) - 1))
        if len(loops) > at + 1 and draw(st.booleans()):
            (outer, size), (inner, step) = loops[at : at + 2]
            new = next(names)
            loops[at : at + 2] = [(new, size * step)]
            values: dict[ScalarVar, Scalar] = {outer: new // step, inner: new % step}
        else:
            var, size = loops[at]
            factor = draw(st.sampled_from((2, 3, 4)))
            outer, inner = next(names), next(names)
            loops[at : at + 1] = [(outer, (size + (factor - 1)) // factor), (inner, index(factor))]
            values = {var: outer * factor + inner}
            predicates.append(Lt(var, size))
        bindings = [replaced(each, values) for each in bindings]
        predicates = [replaced(each, values) for each in predicates]
    predicate: Scalar = TRUE
    for each in predicates:
        predicate = each if predicate is TRUE else And(predicate, each)
    return iteration_map(loops, bindings, extents, predicate), sizes


def replaced(term: Scalar, values: dict[ScalarVar, Scalar]) -> Scalar:
    found = substitute(term, values)
    assert isinstance(found, Scalar)
    return found


@given(scheduled())
def test_what_splits_and_fusions_make_is_recognised(
    made: tuple[IterationMap, dict[Scalar, int]],
) -> None:
    of, sizes = made
    if prod(value(extent, sizes) for _, extent in of.loops) <= 4000:
        agrees(of, sizes)
    assert of.injective
    assert of.surjective


@given(maps(), st.integers(0, 3))
def test_a_divided_map_puts_together_what_it_took_apart(of: IterationMap, cut: int) -> None:
    inner = {var for var, _ in of.loops[cut:]}
    found = divided(of, inner)
    if found is None:
        return
    for here in points(of, {}):
        for binding, part in zip(of.bindings, found.parts, strict=True):
            outer, within = value(part.outer, here), value(part.inner, here)
            size = value(part.inner_extent, here)
            assert outer * size + within == value(binding, here)
            assert 0 <= within < size
            assert outer < value(part.outer_extent, here)
        assert value(found.outer_predicate, here)
        assert value(found.inner_predicate, here)


def test_tiles_divide_and_a_window_does_not() -> None:
    a, b, c, d = LETTERS
    loops = ((a, n), (b, m), (c, index(4)), (d, index(8)))
    tiles = iteration_map(loops, (a * 4 + c, b * 8 + d), (n * 4, m * 8))
    found = divided(tiles, {c, d})
    assert found is not None
    assert [(part.outer, part.inner) for part in found.parts] == [(a, c), (b, d)]
    assert [part.outer_extent for part in found.parts] == [n, m]
    assert divided(iteration_map(loops, (a + c,), (n + 3,)), {c, d}) is None
    assert divided(iteration_map(loops, (a * 4 + c,), (n * 4,), a * 4 + c < n), {c, d}) is None


def test_which_bindings_a_loop_feeds() -> None:
    a, b, c, _ = LETTERS
    of = iteration_map(((a, n), (b, m), (c, index(2))), (a // 2, b, a % 2), (n, m, index(2)))
    assert (of.feeds(a), of.feeds(b), of.feeds(c)) == ((0, 2), (1,), ())
    assert not of.injective  # c is nowhere


@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=4),
    st.lists(st.sampled_from((1, 2, 3, 4, 8, 16)), min_size=1, max_size=2),
)
def test_digits_of_loops_that_are_cut_otherwise_are_recognised(
    sizes: list[int], inner: list[int]
) -> None:
    """Places of a tensor by one number, which is cut into loops where no axis of it ends."""
    whole = prod(sizes)
    extents = [-(-whole // prod(inner)), *inner]
    loops = [(dim_var(f"l{at}"), index(each)) for at, each in enumerate(extents)]
    number: Scalar = index(0)
    for var, extent in loops:
        number = number * extent + var
    places = []
    for at, size in enumerate(sizes):
        below = prod(sizes[at + 1 :])
        places.append(number // below % size if at else number // below)
    inside = Lt(number, index(whole))
    found = iteration_map(loops, places, [index(each) for each in sizes], inside)
    assert found.injective
    agrees(found, {})


def test_conditions_that_no_loop_decides() -> None:
    a = LETTERS[0]
    for bound in (0, 1):
        condition = And(Lt(index(0), index(bound)), Lt(a, index(3)))
        agrees(IterationMap(((a, index(4)),), (a,), (index(3),), condition), {})
