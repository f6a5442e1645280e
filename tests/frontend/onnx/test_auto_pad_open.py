"""Windows that pad themselves over axes of open size: one code gives what onnxruntime gives."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from onnx import ModelProto, helper

import plica
from tests.frontend.onnx.build import agrees, f32_like, model, runtime

KINDS: Final[dict[str, dict[str, Any]]] = {
    "Conv": {},
    "MaxPool": {},
    "LpPool": {"p": 3},
    "AveragePool": {"count_include_pad": 0},
}


def windows(kind: str, auto: str, kernel: list[int], strides: list[int]) -> ModelProto:
    """One operator over (1, 2, h, w)."""
    attributes = {"auto_pad": auto, "kernel_shape": kernel, "strides": strides, **KINDS[kind]}
    stored = {"w": f32_like(3, 2, *kernel)} if kind == "Conv" else {}
    node = helper.make_node(kind, ["x", *stored], ["y"], **attributes)
    return model([node], {"x": ("float32", [1, 2, "h", "w"])}, ["y"], stored)


@given(
    st.sampled_from(list(KINDS)),
    st.sampled_from(["SAME_UPPER", "SAME_LOWER"]),
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 7)), min_size=2,
             max_size=2),
)  # fmt: skip
@settings(max_examples=20)
def test_a_window_over_open_axes_pads_itself(
    kind: str, auto: str, axes: list[tuple[int, int, int]]
) -> None:
    kernel, strides, sizes = (list(each) for each in zip(*axes, strict=True))
    if kind != "Conv":  # the runtime takes no pools that leave out elements
        strides = list(map(min, strides, kernel))
    agrees(windows(kind, auto, kernel, strides), {"x": f32_like(1, 2, *sizes)})


@pytest.mark.parametrize("kind", list(KINDS))
def test_one_code_pads_itself_at_every_size(kind: str) -> None:
    of = windows(kind, "SAME_LOWER" if kind == "LpPool" else "SAME_UPPER", [3, 3], [2, 3])
    made = plica.compile(of, cache=False, effort="fast")
    for sizes in ((5, 6), (4, 7), (1, 1), (2, 8)):
        x = f32_like(1, 2, *sizes)
        np.testing.assert_allclose(made(x), runtime(of, {"x": x})[0], rtol=1e-4, atol=1e-5)
    assert made.stats.at_call == 0
