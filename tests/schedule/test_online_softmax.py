"""Online softmax: the fold means what the stages meant, whatever the scores are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Cast, Eq, Lit, Select
from plica.ir.loop.stage import Each, Fold, stage
from plica.ir.loop.stages import Stages, kernel_of, stages
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dtype import f32
from plica.schedule.default.summed import in_free_order
from plica.schedule.online_softmax import RESCALING, online_softmax
from tests.schedule.chains import Mask, Sizes, attention, drawn, exact

MASKS: tuple[Mask, ...] = ("none", "causal", "window", "bias")


@given(
    st.tuples(*[st.integers(1, 2), *[st.integers(1, 4)] * 4]),
    st.sampled_from(MASKS),
    st.integers(0, 9),
)
def test_the_fold_means_the_same(sizes: Sizes, mask: Mask, seed: int) -> None:
    of = online_softmax(attention(sizes, mask))
    assert of is not None
    inputs = drawn(sizes, seed, mask)
    (found,) = run_kernel(kernel_of(of), inputs)
    np.testing.assert_allclose(found, exact(inputs, mask), atol=4e-3)


def test_the_derivation_is_printed() -> None:
    of = online_softmax(in_free_order(attention((2, 6, 5, 4, 3), "causal")))
    assert str(of).splitlines() == [
        "held[i < 2, i_1 < 6, i_2 < 5] = "
        "sum(f32(q[i, i_1, k]) * f32(k_1[i, i_2, k]) for k in range(4))",
        "greatest, total_1, mixed_1[i < 2, i_1 < 6, i_2 < 3] = combine(held[i, i_1, k] * 0.25 "
        'if k <= i_1 else f32("-inf"), 1.0, f32(v[i, k, i_2]) for k < 5)',
        "out[i < 2, i_1 < 6, i_2 < 3] = f16(mixed_1[i, i_1, i_2] / total_1[i, i_1, i_2])",
    ]


def test_what_is_linear_is_done_to_the_sum() -> None:
    """A guard of rows that see nothing, as front ends write it."""
    old = attention((1, 3, 3, 2, 2), "causal")
    *before, w, mixed, out = old.stages
    top = old.find("top")
    assert isinstance(w, Each)
    assert top is not None
    is_least = Eq(top[w.axes[:2]], Lit(float("-inf"), f32))
    kept = Each(w.out, w.axes, Select(is_least, Lit(0.0, f32), w.value))
    of = online_softmax(stages(old.inputs, (*before, kept, mixed, out)))
    assert "0.0 if greatest" in str(of)


def without(of: Stages, name: str) -> Stages:
    """Stages of which one is a number."""
    made = [each for each in of.stages if isinstance(each, Each)]
    return stages(of.inputs, [
        Each(each.out, each.axes, Lit(1.0, f32)) if str(each.out.name) == name else each
        for each in made
    ])  # fmt: skip


@pytest.mark.parametrize("name", ["e", "w", "s"])
def test_what_is_no_softmax_is_left_alone(name: str) -> None:
    assert online_softmax(without(attention((1, 3, 3, 2, 2)), name)) is None


def test_a_product_alone_is_left_alone() -> None:
    x, y = buffer("x", (3, 4), f32), buffer("y", (4, 5), f32)
    held = stage("held", (3, 5), lambda i, j: reduce("sum", (4,), lambda k: x[i, k] * y[k, j]))
    out = stage("out", (3, 5), lambda i, j: Cast(held[i, j], f32) * 2.0)
    assert online_softmax(stages((x, y), (held, out))) is None


def test_scores_of_nothing_count_for_nothing() -> None:
    of = online_softmax(attention((1, 2, 2, 2, 2)))
    assert of is not None
    (fold,) = [each for each in of.stages if isinstance(each, Fold)]
    assert fold.combine is RESCALING
