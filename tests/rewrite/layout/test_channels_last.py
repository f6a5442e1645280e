"""Channels last: what convolutions of many images mean is kept, and few are left alone."""

from __future__ import annotations

import numpy as np
import pytest

import plica
from plica.ir.graph.expression import Apply
from plica.ir.graph.module import Module
from plica.ir.text.script import from_text
from plica.ir.type.infer import infer
from plica.rewrite.graph.walk import expressions
from plica.rewrite.layout import channels_last


def network(images: int, channels: int, dtype: str, groups: int = 1) -> Module:
    return infer(
        from_text(f"""
import plica
from plica import op
from plica.op import nn
from plica.script import Tensor, {dtype}

@plica.function
def main(
    x: Tensor[({images}, {channels}, 6, 5), {dtype}],
    w: Tensor[(8, {channels // groups}, 3, 3), {dtype}],
    v: Tensor[(16, 8, 1, 1), {dtype}],
):
    y = nn.relu(nn.conv(x, w, padding=1, groups={groups}))
    return nn.conv(nn.max_pool(y, 2), v)
""")
    )


def operators(of: Module) -> set[str]:
    return {each.op for each in expressions(of.main_function()) if isinstance(each, Apply)}


@pytest.mark.parametrize(("channels", "dtype"), [(3, "f16"), (8, "f32"), (3, "f32")])
def test_meaning_is_kept(channels: int, dtype: str) -> None:
    before = network(4, channels, dtype)
    after = channels_last(before)
    assert "nn.conv_laid" in operators(after)
    assert "nn.conv" not in operators(after)
    assert ("pad" in operators(after)) == (dtype == "f16")
    random = np.random.default_rng(0)
    kind = np.float16 if dtype == "f16" else np.float32
    given = [random.standard_normal(shape).astype(kind)
             for shape in ((4, channels, 6, 5), (8, channels, 3, 3), (16, 8, 1, 1))]  # fmt: skip
    one, two = (plica.interpret(each, *given) for each in (before, after))
    np.testing.assert_allclose(one, two, atol=4e-2 if dtype == "f16" else 1e-4)


@pytest.mark.parametrize(
    ("images", "dtype", "groups", "count"),
    [(1, "f32", 1, 0), (4, "f32", 1, 2), (1, "f16", 1, 2), (4, "f16", 2, 1)],
)
def test_few_images_of_wide_floats_and_groups_are_left_alone(
    images: int, dtype: str, groups: int, count: int
) -> None:
    of = network(images, 8, dtype, groups)
    laid = [each for each in expressions(channels_last(of).main_function())
            if isinstance(each, Apply) and each.op == "nn.conv_laid"]  # fmt: skip
    assert len(laid) == count


def rows(channels: int, made: int, dtype: str) -> Module:
    return infer(
        from_text(f"""
import plica
from plica.op import nn
from plica.script import Tensor, {dtype}

@plica.function
def main(x: Tensor[(4, {channels}, 9), {dtype}], w: Tensor[({made}, {channels}, 3), {dtype}]):
    return nn.conv(x, w, padding=1)
""")
    )


@pytest.mark.parametrize(
    ("channels", "made", "dtype", "laid"),
    [(9, 5, "f16", True), (8, 16, "f32", True), (8, 5, "f32", False), (3, 5, "f16", False)],
)
def test_rows_have_channels_last_too(channels: int, made: int, dtype: str, laid: bool) -> None:
    before = rows(channels, made, dtype)
    after = channels_last(before)
    assert ("nn.conv_laid" in operators(after)) == laid
    random = np.random.default_rng(0)
    kind = np.float16 if dtype == "f16" else np.float32
    given = [random.standard_normal(shape).astype(kind)
             for shape in ((4, channels, 9), (made, channels, 3))]  # fmt: skip
    one, two = (plica.interpret(each, *given) for each in (before, after))
    np.testing.assert_allclose(one, two, atol=4e-2 if dtype == "f16" else 1e-4)
