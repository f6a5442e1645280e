"""Transposed convolutions that pad themselves: sizes and elements are those of onnxruntime."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from tests.frontend.onnx.build import agrees, f32_like, one


@given(
    st.sampled_from(["SAME_UPPER", "SAME_LOWER"]),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3)), min_size=1,
             max_size=2),
)  # fmt: skip
@settings(max_examples=25)
def test_a_transposed_convolution_that_pads_itself(
    auto: str, axes: list[tuple[int, int, int]]
) -> None:
    sizes, kernel, strides = zip(*axes, strict=True)
    arrays = (f32_like(1, 2, *sizes), f32_like(2, 3, *kernel))
    of = one("ConvTranspose", arrays, auto_pad=auto, strides=strides, kernel_shape=kernel)
    agrees(of, {"x0": arrays[0], "x1": arrays[1]})
