"""Tiles as stages: whatever the rank, the sizes and the epilogue, they mean the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.ir.loop.stage import stage
from plica.ir.loop.stages import evaluate_stages, stages
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dtype import f16, f32
from plica.schedule.default.gpu.form import tiled
from plica.schedule.default.gpu.octet import is_plain
from plica.schedule.default.gpu.operand import GROUPS, Operands, operands
from plica.schedule.default.gpu.product import ProductTile
from plica.schedule.default.gpu.tensor_core import Warps
from plica.schedule.hoist import hoist
from tests.schedule.default.gpu.contractions import Case, batch, dense, drawn, ended, image, wide

TILE = ProductTile(8, 32, 4, 2, 4)
WARPS = Warps(2, 2, 2, 4, 2)
GROUPED = Warps(1, 1, 1, 8, 4, together=True)


def product(of: Case) -> Operands:
    found = operands(of.of)
    assert found is not None
    return found


@settings(max_examples=max(8, settings().max_examples // 8))
@given(seed=st.integers(0, 10_000), parts=st.sampled_from([1, 1, 2, 3]))
def test_tiles_mean_the_same(seed: int, parts: int) -> None:
    """A population: every contraction that is drawn, in tiles of every kind that fits its dtype."""
    case = drawn(seed)
    found = product(case)
    along = (found.along(found.left), found.along(found.right))
    pads = (is_plain(found, found.left, along[0]), is_plain(found, found.right, along[1]))
    for shape in (TILE,) if found.dtype is f32 else (WARPS, GROUPED):
        form = tiled(found, shape.layout(along), parts, pads if seed % 2 else (False, False))
        made = evaluate_stages(form, case.arrays())
        np.testing.assert_array_equal(
            np.asarray(made).reshape(case.expected().shape), case.expected(), case.name
        )


@pytest.mark.parametrize(
    ("case", "sizes"),
    [
        (dense((3, 20), 24, 16), (1, 60, 24, 16)),
        (dense((20,), 24, 16, swapped=True), (1, 20, 24, 16)),
        (batch((2, 3), (20, 24, 16)), (6, 20, 24, 16)),
        (batch((2, 3), (20, 24, 16), heads=True), (6, 20, 24, 16)),
        (image((2, 4, 8), 10), (2, 10, 64, 36)),
    ],
)
def test_axes_that_are_neighbours_are_one(case: Case, sizes: tuple[int, int, int, int]) -> None:
    found = product(case)
    assert (found.size("batch"), found.size("rows"), found.size("columns"), found.depth) == sizes


def test_a_constant_side_is_gathered_before() -> None:
    case = dense((20,), 24, 16, constant=True)
    apart = hoist(tiled(product(case), WARPS.layout((True, True))), case.constant)
    assert [each.out.name.hint for each in apart.before] == ["right"]
    assert [each.outs[0].name.hint for each in apart.rest.stages] == ["left", "part", "out"]


def test_guards_ask_about_high_digits() -> None:
    """Eight neighbours are inside or outside together where sizes are multiples of eight."""
    case = dense((40,), 72, 40, turned=True)
    left, right, *_ = tiled(product(case), WARPS.layout((True, True))).stages
    for each in (left, right):
        text = str(stages((), (each,), each.outs))
        guard = text.partition(" if ")[2]
        assert " e" not in guard.replace("else", "")
        assert guard


def test_rows_are_padded_to_whole_octets() -> None:
    case = dense((20,), 24, 15, turned=True)
    form = tiled(product(case), WARPS.layout((True, True)), 1, (True, False))
    pad, left, *_ = form.stages
    assert [int(size.value) for size in pad.outs[0].shape] == [20, 16]  # type: ignore[attr-defined]  # numbers
    assert "x[" not in str(stages((), (left,), left.outs))
    np.testing.assert_array_equal(evaluate_stages(form, case.arrays()), case.expected())


def test_one_side_twice() -> None:
    """A product of a matrix with itself."""
    x = buffer("x", (20, 16), f16)

    def element(i: object, j: object) -> object:
        return reduce("sum", (16,), lambda k: wide(x[i, k]) * wide(x[j, k]))  # type: ignore[index]  # axes

    case = ended((x, x), (20, 20), element, "", 0, False, "square")
    whole = stages((x,), case.of.stages)
    found = operands(whole)
    assert found is not None
    form = tiled(found, WARPS.layout((True, True)))
    given_ = case.arrays()[:1]
    np.testing.assert_array_equal(evaluate_stages(form, given_), evaluate_stages(whole, given_))


def test_sides_of_two_dtypes_are_multiplied_as_f32() -> None:
    x, w = buffer("x", (20, 16), f16), buffer("w", (16, 24), f32)

    def element(i: object, j: object) -> object:
        return reduce("sum", (16,), lambda k: wide(x[i, k]) * w[k, j])  # type: ignore[index]  # axes

    case = ended((x, w), (20, 24), element, "", 0, False, "two dtypes")
    found = operands(case.of)
    assert found is not None
    assert found.dtype is f32
    form = tiled(found, WARPS.layout((True, False)))
    given_ = case.arrays()
    np.testing.assert_array_equal(evaluate_stages(form, given_), evaluate_stages(case.of, given_))


@pytest.mark.parametrize("which", ["max", "f16 sums"])
def test_other_work_is_no_product(which: str) -> None:
    x, w = buffer("x", (20, 16), f16), buffer("w", (16, 24), f16)

    def element(i: object, j: object) -> object:
        if which == "max":
            return reduce("max", (16,), lambda k: wide(x[i, k]) * wide(w[k, j]))  # type: ignore[index]
        return reduce("sum", (16,), lambda k: x[i, k] * w[k, j])  # type: ignore[index]

    case = ended((x, w), (20, 24), element, "", 0, False, which)
    assert operands(case.of) is None


def test_few_columns_are_filled_up_with_others_of_their_kind() -> None:
    """Nine places of each image are few; those of all images fill tiles, wherever they lie."""
    x, w = buffer("x", (6, 4, 5, 5), f32), buffer("w", (40, 4, 3, 3), f32)
    of = stages((x, w), (stage("y", (6, 40, 3, 3), lambda n, o, i, j: reduce(
        "sum", (4, 3, 3), lambda c, k, m: x[n, c, i + k, j + m] * w[o, c, k, m])),))  # fmt: skip
    found = operands(of)
    assert found is not None
    assert [found.size(each) for each in GROUPS] == [1, 40, 54, 36]
    random = np.random.default_rng(0)
    given = [
        random.integers(-4, 5, shape).astype(np.float32) for shape in ((6, 4, 5, 5), (40, 4, 3, 3))
    ]
    ours, theirs = (
        evaluate_stages(each, given) for each in (tiled(found, TILE.layout((True, False))), of)
    )
    np.testing.assert_array_equal(ours[0].reshape(theirs[0].shape), theirs[0])
