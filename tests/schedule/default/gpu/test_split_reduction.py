"""Split reductions mean the same over any axes, and fill the machine where results are few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.cuda.fold import fold
from plica.codegen.lower.passes import lower
from plica.ir.contract import exact, reassociates
from plica.ir.loop.scalar import Scalar
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, evaluate_stages, kernel_of, stages
from plica.ir.loop.statement import For, statements
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dim import known
from plica.ir.type.dtype import DType, f16, f32
from plica.schedule.default.gpu import Gpu, candidates
from plica.schedule.default.gpu.split_reduction import split_reductions
from plica.schedule.form import Facts
from tests.codegen.cuda.emulate import COMPILER, run

FEW = Gpu(processors=8)


def reduced(word: Any, sizes: tuple[int, ...], over: tuple[bool, ...], dtype: DType) -> Stages:
    """A reduction of a tensor over some of its axes, doubled in the end."""
    x = buffer("x", sizes, dtype)

    def element(*kept: Any) -> Scalar:
        def term(*gone: Any) -> Scalar:
            one, two = iter(gone), iter(kept)
            return x[tuple([next(one) if told else next(two) for told in over])]

        return reduce(word, [n for n, told in zip(sizes, over, strict=True) if told], term)

    shape = [n for n, told in zip(sizes, over, strict=True) if not told]
    held = stage("held", shape, element)
    return stages((x,), (held, stage("out", shape, lambda *at: held[at] + held[at])))


@st.composite
def drawn(draw: st.DrawFn) -> Stages:
    over = tuple(draw(st.lists(st.booleans(), min_size=1, max_size=3).filter(any)))
    sizes = tuple([draw(st.integers(1, 90 if told else 20)) for told in over])
    word, dtype = draw(st.sampled_from([("min", f16), ("max", f32), ("sum", f32)]))
    return reduced(word, sizes, over, dtype)


def whole(of: Stages) -> np.ndarray[Any, Any]:  # Any: of any shape and dtype
    (x,) = of.inputs
    random = np.random.default_rng(0)
    return random.integers(-9, 9, [known(size) or 0 for size in x.shape]).astype(x.dtype.numpy)


@given(drawn())
def test_parts_mean_the_same(of: Stages) -> None:
    patient = Gpu(processors=1 << 40)  # everything is worth parts
    made = split_reductions(of, patient)
    x = whole(of)
    if made is not None:
        np.testing.assert_array_equal(evaluate_stages(made, [x]), evaluate_stages(of, [x]))


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
@settings(max_examples=2)
@given(
    st.sampled_from([
        ((60_001,), (True,), "min", f16),
        ((1030, 37), (True, False), "sum", f32),
        ((21, 3, 1200), (True, False, True), "max", f32),
        ((2, 40_001), (False, True), "sum", f32),
    ])
)  # fmt: skip
def test_the_code_means_the_same(case: Any) -> None:
    sizes, over, word, dtype = case
    of = reduced(word, sizes, over, dtype)
    found = next(candidates(of, Facts((False,), (), reassociates), FEW))
    assert found.form.form == "split-reductions"
    x, out = whole(of), np.full([known(size) or 0 for size in of.result.shape], 7, dtype.numpy)
    run(fold(lower(found.kernel, "gpu"), "k"), [x, out])
    np.testing.assert_array_equal(out, evaluate_stages(of, [x]))


def test_all_processors_have_work() -> None:
    of = reduced("min", (40477 * 152,), (True,), f16)
    found = next(candidates(of, Facts((False,), (), reassociates), Gpu()))
    blocks = [known(each.extent) or 0 for each in statements(found.kernel.body)
              if isinstance(each, For) and each.kind == "blockIdx.x"]  # fmt: skip
    assert max(blocks) >= 4 * Gpu().processors


@pytest.mark.parametrize("shape", [(4096, 64), (128, 1000), (1, 1000)])
def test_rows_enough_and_short_ones_stay_whole(shape: tuple[int, int]) -> None:
    assert split_reductions(reduced("sum", shape, (False, True), f32), Gpu()) is None


def test_sums_in_order_stay_whole() -> None:
    of = reduced("sum", (1 << 20,), (True,), f32)
    forms = [each.form.form for each in candidates(of, Facts((False,), (), exact), Gpu())]
    assert "split-reductions" not in forms


def test_the_kernel_is_the_stages() -> None:
    made = split_reductions(reduced("max", (1 << 18,), (True,), f32), Gpu())
    assert made is not None
    assert len(kernel_of(made).params) == 2
