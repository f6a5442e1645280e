from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from plica.core.name import Name
from plica.ir.graph.expression import Apply, Const, Expr, Var, const
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.ir.type.dim import dim_var, known
from plica.ir.type.infer import type_of
from plica.ir.type.term import TensorType, tensor
from plica.rewrite.pack import rewrite
from plica.rewrite.packs.padding import PADDING
from tests.rewrite.packs.layers import call, numbers, of, operators

X = Var(Name("x"), tensor((2, 3, 5, 5), "f32"))
W = const(numbers(4, 3, 3, 3), "f32")
INNER = ((0, 0), (0, 0), (1, 2), (0, 1))


def pad(widths: Any = INNER, inner: Expr = X, value: float = 0, mode: str = "constant") -> Expr:
    return call("pad", inner, widths, mode, value)


LOWEST = float("-inf")
FOLDED = {
    "conv": call("nn.conv", pad(), W, strides=2, padding=1),
    "dilated": call("nn.conv", pad(), W, dilation=(2, 1), padding=((0, 1), (2, 0))),
    "max": call("nn.max_pool", pad(value=LOWEST), 4, 1, 1),
    "max-ceil": call(
        "nn.max_pool", pad(((0, 0), (0, 0), (1, 0), (1, 0)), value=LOWEST), 3, 2, ceil_mode=True
    ),
    "relu": call("nn.max_pool", pad(inner=call("nn.relu", X)), 3, 2),
    "average": call("nn.avg_pool", pad(), 4, 1, 1, count_include_pad=True),
    "alone": call("nn.avg_pool", pad(), 3, 1),
}
KEPT = {
    "value": call("nn.conv", pad(value=1.0), W),
    "minus-zero": call("nn.conv", pad(value=-0.0), W),
    "edge": call("nn.conv", pad(mode="edge"), W),
    "batch": call("nn.conv", pad(((1, 0), (0, 0), (1, 1), (1, 1))), W),
    "channels": call("nn.max_pool", pad(((0, 0), (1, 0), (1, 1), (1, 1)), value=LOWEST), 3),
    "all": call("nn.max_pool", pad(1, value=LOWEST), 3),
    "zeros-in-max": call("nn.max_pool", pad(), 3),
    "window-in-padding": call("nn.max_pool", pad(value=LOWEST), 2),
    "mixed-mean": call("nn.avg_pool", pad(), 3, 1, 1),
    "mixed-max": call("nn.max_pool", pad(inner=call("nn.relu", X)), 3, 2, 1),
    "mean-of-ones": call("nn.avg_pool", pad(value=1.0), 3),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDED)
def test_a_pad_is_folded(name: str) -> None:
    before = of(FOLDED[name], X)
    after, _ = rewrite(before, PADDING)
    assert isinstance(after, Module)
    assert operators(after)["pad"] == 0
    x = numbers(2, 3, 5, 5)
    assert np.array_equal(interpret(before, x), interpret(after, x))


@pytest.mark.parametrize("name", KEPT)
def test_a_pad_stays(name: str) -> None:
    assert rewrite(KEPT[name], PADDING)[0] is KEPT[name]


def blocks(word: str, of: Expr, block: Any, sides: Any = None) -> Expr:
    return call(f"nn.{word}", of, block, sides)


def between_blocks(channels: Any = (0, 0), crop: int = 1) -> Expr:
    inside = blocks("space_to_batch", X, (1, 2, 2), (channels, (1, 2), (2, 1)))
    return blocks(
        "batch_to_space", call("nn.conv", inside, W), (1, 2, 2), ((0, 0), (0, crop), (0, 0))
    )


def test_a_convolution_over_blocks_is_dilated() -> None:
    before = of(between_blocks(), X)
    after, derivation = rewrite(before, PADDING)
    assert isinstance(after, Module)
    assert [step.rule.name for step in derivation.steps] == ["conv-in-blocks"]
    x = numbers(2, 3, 5, 5)
    assert np.array_equal(interpret(before, x), interpret(after, x))


def test_transposes_move_out_of_blocks() -> None:
    """As TensorFlow writes it: blocks of (n, h, w, c), a convolution of (n, c, h, w)."""
    inside = blocks("space_to_batch", call("transpose", X, (0, 2, 3, 1)), (2, 2), ((1, 2), (2, 1)))
    conv = call("nn.conv", call("transpose", inside, (0, 3, 1, 2)), W)
    before = of(blocks("batch_to_space", call("transpose", conv, (0, 2, 3, 1)), (2, 2)), X)
    after, _ = rewrite(before, PADDING)
    assert isinstance(after, Module)
    assert not {"nn.space_to_batch", "nn.batch_to_space"} & set(operators(after))
    x = numbers(2, 3, 5, 5)
    assert np.array_equal(interpret(before, x), interpret(after, x))


def test_blocks_that_no_dilation_says_stay() -> None:
    """More is cropped than was padded; blocks change their order in the batch."""
    kept = between_blocks(crop=3)
    assert rewrite(kept, PADDING)[0] is kept
    turned = call("transpose", blocks("space_to_batch", X, (1, 5, 5)), (0, 1, 3, 2))
    assert rewrite(turned, PADDING)[0] is turned


def test_symbolic_sizes_fold_where_that_is_right_whatever_they_are() -> None:
    x = Var(Name("x"), tensor((dim_var("n"), 3, dim_var("h"), dim_var("h")), "f32"))
    assert isinstance(rewrite(call("nn.conv", pad(inner=x), W), PADDING)[0], Apply)
    assert operators(rewrite(call("nn.conv", pad(inner=x), W), PADDING)[0])["pad"] == 0
    pool = call("nn.max_pool", pad(inner=call("nn.relu", x)), 3)  # h may be 0
    assert rewrite(pool, PADDING)[0] is pool


@given(
    st.lists(
        st.tuples(
            st.integers(1, 4), st.integers(1, 7), st.integers(1, 3), st.integers(1, 3),
            st.integers(0, 4), st.integers(0, 4),
        ),
        min_size=1,
        max_size=3,
    )
)  # fmt: skip
@settings(max_examples=40)
def test_places_of_a_window_that_are_never_inside_are_cut_off(
    axes: list[tuple[int, int, int, int, int, int]],
) -> None:
    sizes, kernels, strides, dilation, before, after = (
        tuple(each) for each in zip(*axes, strict=True)
    )
    reach = [(k - 1) * d + 1 for k, d in zip(kernels, dilation, strict=True)]
    whole = [n + b + a for n, b, a in zip(sizes, before, after, strict=True)]
    assume(all(window <= size for window, size in zip(reach, whole, strict=True)))
    x = Var(Name("x"), tensor((2, 2, *sizes), "f32"))
    pads = tuple(zip(before, after, strict=True))
    weight = const(numbers(3, 2, *kernels), "f32")
    made = call("nn.conv", x, weight, strides=strides, padding=pads, dilation=dilation)
    cut, _ = rewrite(made, PADDING)
    assert isinstance(cut, Apply)
    assert type_of(cut) is type_of(made)
    values = numbers(2, 2, *sizes)
    left, right = interpret(of(made, x), values), interpret(of(cut, x), values)
    assert np.allclose(left, right, atol=1e-6)
    assert isinstance(cut.args[1], Const)
    for axis, (size, kernel, *_) in enumerate(axes):
        kept = cut.args[1].shape[2 + axis]
        assert kept <= kernel
        if set(strides) == set(dilation) == {1}:  # no more than are over some pixel
            assert kept <= size + whole[axis] - reach[axis]


def test_windows_over_one_pixel_become_one_product() -> None:
    x = Var(Name("x"), tensor((1, 2, 1, 1), "f32"))
    cut, _ = rewrite(call("nn.conv", x, const(numbers(3, 2, 3, 3), "f32"), padding=1), PADDING)
    assert isinstance(cut, Apply)
    weight = type_of(cut.args[1])
    assert isinstance(weight, TensorType)
    assert [known(size) for size in weight.shape] == [3, 2, 1, 1]
    assert dict(cut.attrs)["padding"] == ((0, 0), (0, 0))


def test_weights_in_the_padding_that_are_not_finite_stay() -> None:
    x = Var(Name("x"), tensor((1, 2, 1, 1), "f32"))
    values = numbers(3, 2, 3, 3)
    values[0, 0, 0, 0] = np.inf  # times a zero of the padding it is no number
    made = call("nn.conv", x, const(values, "f32"), padding=1)
    assert rewrite(made, PADDING)[0] is made
