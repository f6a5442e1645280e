"""The form of bilinear algorithms keeps the meaning of the convolution, and drops zero factors."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from plica.core.fold import post_order
from plica.ir.loop.scalar import Lit, Load, Mul
from plica.ir.loop.stage import Each, ExternStage, stage
from plica.ir.loop.stages import Stages, evaluate_stages, reductions, stages
from plica.ir.loop.tensor import Compute, buffer
from plica.ir.op.winograd import TILES, conv_winograd
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import DType, f32, f64, i32
from plica.schedule.default import Machine
from plica.schedule.default.bilinear import bilinear_form
from plica.schedule.form import Facts
from tests.schedule.default.test_winograd import numbers, off, transformed, work

EXAMPLES = max(4, settings().max_examples // 5)
KNOWN = Facts((False, True))
MACHINES = (Machine(512, 32), Machine(256, 16), Machine(128, 32))


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_the_form_means_the_convolution(data: st.DataObject) -> None:
    """For drawn shapes, pads and kernels."""
    channels, outputs = (data.draw(st.sampled_from((4, 8, 16, 24))) for _ in range(2))
    shape = (data.draw(st.integers(1, 2)), channels, *(data.draw(st.integers(3, 11)) for _ in "hw"))
    pads = tuple((data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))) for _ in range(2))
    tile = data.draw(st.sampled_from(sorted(TILES)))
    of = work(shape, outputs, tile, pads)
    form = bilinear_form(of, KNOWN, data.draw(st.sampled_from(MACHINES)))
    if form is None:  # wide vectors are filled by more channels
        assert min(channels, outputs) < 4
        return
    x = numbers(data.draw(st.integers(0, 9)), *shape)
    weight = transformed(numbers(1, outputs, channels, 3, 3), tile)
    assert off(evaluate_stages(form, [x, weight]), evaluate_stages(of, [x, weight])) < 5e-5


def with_epilogue() -> Stages:
    """A convolution with a bias, and the same added again at another axis order."""
    x, weight = buffer("x", (1, 16, 6, 7), f32), buffer("w", (36, 16, 16), f32)
    bias = buffer("bias", (16, 1, 1), f32)
    assert conv_winograd.compute is not None
    made = conv_winograd.compute({"tile": 4, "padding": 1}, x, weight)
    assert isinstance(made, Compute)
    conv = Each(buffer("y", made.shape, f32), made.axes, made.body)
    last = stage("out", made.shape, lambda n, o, h, w: conv[n, o, h, w] * 2.0 + bias[o, 0, 0])
    return stages((x, weight, bias), (conv, last))


def test_an_epilogue_is_done_where_results_are_put_back() -> None:
    of = with_epilogue()
    form = bilinear_form(of, Facts((False, True, False)), MACHINES[0])
    assert form is not None
    arrays = [
        numbers(0, 1, 16, 6, 7),
        transformed(numbers(1, 16, 16, 3, 3), 4),
        numbers(2, 16, 1, 1),
    ]
    assert off(evaluate_stages(form, arrays), evaluate_stages(of, arrays)) < 5e-5
    assert form.result is of.result


def test_a_form_writes_no_loops() -> None:
    form = bilinear_form(work((1, 16, 8, 8), 16, 4), KNOWN, MACHINES[0])
    assert form is not None
    assert not any(isinstance(each, ExternStage) for each in form.stages)
    (product,) = [each for each in form.stages if reductions(each)]
    assert isinstance(product, Each)
    for one, two in pairwise(form.stages[1:]):
        assert one.outs[0] in [node.buffer for node in post_order(two) if isinstance(node, Load)]


@pytest.mark.parametrize("tile", TILES)
def test_products_by_zero_and_one_are_not_written(tile: int) -> None:
    form = bilinear_form(work((1, 16, 8, 8), 16, tile), KNOWN, MACHINES[0])
    assert form is not None
    factors = [
        node.left.value
        for each in form.stages
        for node in post_order(each)
        if isinstance(node, Mul) and isinstance(node.left, Lit) and node.left.dtype is f32
    ]
    assert not {0.0, 1.0} & set(factors)


@pytest.mark.parametrize("dtype", [f32, f64, i32])
def test_elements_are_floats(dtype: DType) -> None:
    """Other numbers are not of the operator, and other operators are not of the form."""
    x, y = buffer("x", (4, 8), dtype), buffer("y", (36, 8, 8), dtype)
    other = stage("z", (4, 8), lambda i, j: x[i, j] + y[i, j, j])
    assert bilinear_form(stages((x, y), (other,)), KNOWN, MACHINES[0]) is None


def test_what_is_refused() -> None:
    """A weight that is not known, channels that fill no vector, and sizes that are open."""
    closed = work((1, 16, 8, 8), 16, 4)
    assert bilinear_form(closed, KNOWN, MACHINES[0]) is not None
    assert bilinear_form(closed, Facts((False, False)), MACHINES[0]) is None
    assert bilinear_form(work((1, 6, 8, 8), 16, 4), KNOWN, MACHINES[0]) is None
    assert bilinear_form(work((1, 16, dim_var("h"), 8), 16, 4), KNOWN, MACHINES[0]) is None


def test_the_weight_is_packed_as_register_tiles_read_it() -> None:
    """Vectors that are no lines of a cache by themselves lie side by side."""
    for machine, lanes in ((MACHINES[0], 16), (MACHINES[1], 8)):
        form = bilinear_form(work((1, 32, 8, 8), 32, 4), KNOWN, machine)
        assert form is not None
        packed = form.stages[0].outs[0]
        last = np.array([size.value for size in packed.shape if isinstance(size, Lit)])
        assert last.prod() == 36 * 32 * 32
        assert last[-1] % lanes == 0
