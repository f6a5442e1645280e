"""Index maps: applying, composing; inverses and padding by brute force."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, strategies as st
from hypothesis.strategies import DrawFn

from plica.analysis.index.inversion import image_shape, inverse, is_bijective
from plica.analysis.index.point import value
from plica.ir.loop.index_map import IndexMap, identity, index_map
from plica.ir.loop.scalar import Cast, Lit, Scalar, index
from plica.ir.loop.tensor import buffer
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32, i64
from plica.runtime.error import PlicaError

n, m = dim_var("n"), dim_var("m")
MAPS = {
    "identity": identity(2),
    "transposed": index_map(lambda i, j: (j, i)),
    "tiled": index_map(lambda i, j: (i // 2, j // 3, i % 2, j % 3)),
    "flat": index_map(lambda i, j: i * 6 + j),
    "packed": index_map(lambda i, j: (j // 2, i, j % 2)),
    "spread": index_map(lambda i, j: (i * 2, j + 1)),
    "swizzled": index_map(lambda i, j: ((i * 6 + j) // 4, (i * 6 + j) % 4)),
}
NONE = {"folded": index_map(lambda i, j: (i // 2, j)), "summed": index_map(lambda i, j: i + j)}


@st.composite
def cases(draw: DrawFn) -> tuple[IndexMap, tuple[int, int]]:
    of = MAPS[draw(st.sampled_from(sorted(MAPS)))]
    return of, (draw(st.integers(1, 5)), 6 if of.results[0] != of.vars[0] else 5)


@given(cases())
def test_an_inverse_goes_back_and_padding_is_where_nothing_came(
    case: tuple[IndexMap, tuple[int, int]],
) -> None:
    of, sizes = case
    shape = tuple(index(each) for each in sizes)
    box, back = image_shape(of, shape), inverse(of, shape)
    assert box is not None
    assert back is not None
    came = {}
    for point in product(*map(range, sizes)):
        at = tuple(value(each, {}) for each in of.apply([index(each) for each in point]))
        came[at] = point
    for at in product(*[range(value(each, {})) for each in box]):
        here: dict[Scalar, int] = dict(zip(back.map.vars, at, strict=True))
        assert bool(value(back.padding, here)) == (at not in came)
        if at in came:
            assert tuple(value(each, here) for each in back.map.results) == came[at]
    assert set(came) <= set(product(*[range(value(each, {})) for each in box]))


def test_symbolic_shapes_have_inverses() -> None:
    flat = index_map(lambda i, j: i * m + j)
    back = inverse(flat, (n, m))
    assert back is not None
    assert back.exact
    assert is_bijective(flat, (n, m))
    tiles = inverse(index_map(lambda i: (i // 4, i % 4)), (n,))
    assert tiles is not None
    assert not tiles.exact


def test_a_map_that_forgets_has_no_inverse() -> None:
    for of in NONE.values():
        assert inverse(of, (index(4), index(6))) is None


def test_maps_compose() -> None:
    tiles, swap = MAPS["tiled"], MAPS["transposed"]
    both = tiles.after(swap)
    point = (index(3), index(4))
    assert both.apply(point) == tiles.apply(swap.apply(point))
    assert identity(2).after(swap).results == swap.results


def test_a_function_of_any_number_of_indices_takes_the_rank() -> None:
    rotated = index_map(lambda first, *rest: (*rest, first), rank=3)
    assert [str(each.name) for each in rotated.vars] == ["first", "rest", "rest_1"]
    assert rotated.results == (*rotated.vars[1:], rotated.vars[0])


def test_what_is_no_index_map_is_refused() -> None:
    x = buffer("x", (3,), f32)
    with pytest.raises(PlicaError, match="not f32"):
        index_map(lambda i: Lit(1.0, f32))
    with pytest.raises(PlicaError, match="what a buffer holds"):
        index_map(lambda i: i + Cast(x[i], i64))
    with pytest.raises(PlicaError, match="cannot take 3"):
        index_map(lambda i: i, rank=3)
    with pytest.raises(PlicaError, match="have places"):
        index_map(lambda *, i: i)
    with pytest.raises(PlicaError, match="is given 1"):
        identity(2).apply((index(0),))
