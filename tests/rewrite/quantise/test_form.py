"""The integer form is found, and its parts say all that it computes."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

import plica
from plica.ir.graph.expression import Expr, const
from plica.ir.op.elementwise import add, cast, clip
from plica.ir.type.dtype import i32
from plica.quantising import quantised
from plica.rewrite.graph.fold import fold_constants
from plica.rewrite.quantise.form import (
    IntegerConvolution,
    integer_convolution,
    integer_convolutions,
    integer_layer,
)
from tests.ir.reference.neural import _conv as convolved
from tests.rewrite.quantise.net import digits, module_of, numbers, op, var

Array = np.ndarray[Any, Any]
EXAMPLES = max(6, settings().max_examples // 3)


def meaning(of: IntegerConvolution, x: Array) -> Array:
    """A layer by its parts alone."""
    if of.kind == "dense":
        sums = x.astype(np.int64) @ of.weight.astype(np.int64).T
        side: tuple[int, ...] = (-1,)
    else:
        wide = (x.astype(np.float64), of.weight.astype(np.float64))
        pads = tuple(side for pair in of.padding for side in pair)
        padded = np.pad(wide[0], ((0, 0), (0, 0), *of.padding)) if any(pads) else wide[0]
        sums = convolved(padded, wide[1], strides=of.strides, padding=0,
                         dilation=of.dilation, groups=of.groups).astype(np.int64)  # fmt: skip
        side = (-1, *([1] * len(of.strides)))
    bias = 0 if of.bias is None else of.bias.reshape(side)
    shift = np.array(of.shifts, np.int64)
    moved = (sums + bias) >> (shift.reshape(side) if shift.size > 1 else shift)
    found: Array = np.clip(moved, of.low, of.high).astype(np.int8)
    return found


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_the_parts_are_the_whole(data: st.DataObject) -> None:
    draw: Any = data.draw
    random = np.random.default_rng(draw(st.integers(0, 999)))
    dense, groups = draw(st.booleans()), draw(st.sampled_from((1, 2)))
    shape: tuple[int, ...] = (2, 5) if dense else (1, 4, 6, 5)
    size: tuple[int, ...] = (4, 5) if dense else (4, 4 // groups, 3, 2)
    x, w = var("x", shape, "i8"), const(random.integers(-128, 128, size).astype(np.int8))
    wide = [cast(x, i32), cast(w, i32)]
    pads = draw(st.sampled_from((0, 1, ((1, 0), (0, 2)))))
    strides = draw(st.sampled_from((1, 2, (1, 2))))
    sums: Expr = (
        op("nn.dense", *wide)
        if dense
        else op("nn.conv", *wide, padding=pads, strides=strides, groups=groups)
    )
    each = (4,) if dense else (4, 1, 1)
    bias = random.integers(-999, 999, each) if draw(st.booleans()) else None
    shift: Any = random.integers(0, 9, each) if draw(st.booleans()) else draw(st.integers(0, 9))
    low = draw(st.sampled_from((-128, -127, 0)))
    whole = module_of(integer_layer(sums, bias, shift, low, 127), x)
    for module in (whole, fold_constants(whole)):
        (found,) = integer_convolutions(module)
        assert found.data is x
        assert found.relu == (low == 0)
        values = random.integers(-128, 128, shape).astype(np.int8)
        assert np.array_equal(meaning(found, values), plica.interpret(module, values))
        assert (found.shift is None) == (np.unique(shift).size > 1)


def test_a_layer_is_what_it_computes() -> None:
    random = np.random.default_rng(0)
    x, y = var("x", (2, 5), "i8"), var("x", (1, 4, 6, 5), "i8")
    w = const(random.integers(-128, 128, (5, 4)).astype(np.int8))
    v = const(random.integers(-128, 128, (3, 4, 3, 3)).astype(np.int8))
    product = op("matmul", cast(x, i32), cast(w, i32))
    padded = op("pad", cast(y, i32), pad_width=((0, 0), (0, 0), (1, 1), (1, 1)))
    conv = op("nn.conv", padded, cast(v, i32))
    above = op("maximum", op("right_shift", conv, const(7, i32)), const(-5, i32))
    layers = {
        integer_layer(product, random.integers(-999, 999, (4,)), 3, -128, 127): x,
        integer_layer(conv, None, 0, 0, 90): y,
        cast(clip(op("minimum", above, const(50, i32)), min=-128, max=127), "i8"): y,
    }
    for layer, data in layers.items():
        module = module_of(layer, data)
        (found,) = integer_convolutions(module)
        assert found.data is data
        values = random.integers(-128, 128, (2, 5) if data is x else (1, 4, 6, 5)).astype(np.int8)
        assert np.array_equal(meaning(found, values), plica.interpret(module, values))
    assert [each.padding for each in integer_convolutions(module)] == [((1, 1), (1, 1))]


def test_what_is_not_of_the_form_is_none() -> None:
    x = var("x", (2, 5), "i8")
    w = const(np.ones((4, 5), np.int8))
    sums = op("nn.dense", cast(x, i32), cast(w, i32))
    wrong = [
        sums,
        integer_layer(sums, None, 40, 0, 127),
        integer_layer(add(sums, op("nn.dense", cast(x, i32), cast(w, i32))), None, 1, 0, 127),
        integer_layer(
            op("nn.dense", cast(x, i32), const(np.full((4, 5), 300), i32)), None, 1, 0, 9
        ),
        cast(clip(sums, min=-300, max=127), "i8"),
        integer_layer(sums, np.ones((2, 1)), 1, 0, 127),
        integer_layer(op("reshape", sums, shape=(8,)), None, 1, 0, 127),
        integer_layer(op("transpose", sums, axes=(1, 0)), None, 1, 0, 127),
        integer_layer(op("nn.dense", cast(x, i32), cast(x, i32)), None, 1, 0, 127),
    ]
    assert [integer_convolution(each) for each in wrong] == [None] * len(wrong)


def test_a_quantised_network_is_made_of_it() -> None:
    found = quantised(digits(), [numbers(7, 1, 2, 8, 8)], power_of_two=True)
    layers = integer_convolutions(found.module)
    assert [each.layer.op for each in layers].count("nn.conv") >= 3
    assert all(each.shift is not None and each.bias is not None for each in layers)
    assert layers[0].relu
