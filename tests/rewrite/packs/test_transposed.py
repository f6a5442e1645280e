"""Transposed convolutions become ordinary ones of the same result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica.core.name import Name
from plica.ir.graph.expression import Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.loop.scalar import index
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32
from plica.ir.type.infer import infer
from plica.ir.type.term import TensorType, tensor
from plica.rewrite.pack import rewrite
from plica.rewrite.packs.transposed import TRANSPOSED
from tests.deep import spread
from tests.rewrite.packs.layers import agree, call, numbers, of, operators

FEW = settings(max_examples=max(6, settings().max_examples // 2))


def layer(shape: tuple[int, ...], taps: tuple[int, ...], **attrs: Any) -> tuple[Module, Any]:
    x = Var(Name("x"), tensor(shape, "f32"))
    return of(call("nn.conv_transpose", x, const(numbers(*taps)), **attrs), x), numbers(*shape)


def rewritten(before: Module) -> Module:
    after, _ = rewrite(before, TRANSPOSED)
    assert isinstance(after, Module)
    return after


@FEW
@given(st.data())
def test_phases_mean_the_same(data: st.DataObject) -> None:
    draw = data.draw
    rank, groups = draw(st.integers(1, 2)), draw(st.sampled_from((1, 1, 2)))
    steps = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    taps = tuple(draw(st.integers(1, 5)) for _ in steps)
    size = tuple(draw(st.integers(1, 6)) for _ in range(rank))
    extra = tuple(draw(st.integers(0, step - 1)) for step in steps)
    sides = []
    for s, k, n, more in zip(steps, taps, size, extra, strict=True):
        most = (n - 1) * s + k + more - 1
        before = draw(st.integers(0, min(most, 4)))
        sides.append((before, draw(st.integers(0, min(most - before, 4)))))
    before_, x = layer(
        (2, 2 * groups, *size), (2 * groups, 3, *taps), strides=steps, padding=tuple(sides),
        output_padding=extra, groups=groups,
    )  # fmt: skip
    agree(before_, rewritten(before_), x)


# fmt: off
# data, weight, settings, and how many convolutions it becomes
GONE: dict[str, tuple[Any, Any, dict[str, Any], int]] = {
    "dcgan":     ((1, 8, 4, 4),  (8, 6, 4, 4),  {"strides": 2, "padding": 1}, 1),
    "doubled":   ((1, 4, 5, 7),  (4, 3, 2, 2),  {"strides": 2}, 1),
    "odd":       ((1, 4, 5, 7),  (4, 3, 3, 3),  {"strides": 2, "padding": 1}, 4),
    "even":      ((2, 4, 5, 6),  (4, 3, 3, 3),  {"strides": 2, "output_padding": 1}, 4),
    "cut off":   ((1, 4, 9, 9),  (4, 3, 2, 2),  {"strides": 2, "padding": 4}, 1),
    "groups":    ((1, 6, 5, 5),  (6, 2, 4, 4),  {"strides": 2, "padding": 1, "groups": 3}, 1),
    "beside":    ((1, 6, 5, 5),  (6, 2, 4, 4),  {"strides": 2, "groups": 3}, 1),
    "sound":     ((1, 4, 20),    (4, 3, 8),     {"strides": 4, "padding": 2}, 1),
    "one axis":  ((1, 4, 5, 6),  (4, 3, 3, 4),  {"strides": (1, 2)}, 1),
    "gaps":      ((1, 4, 5, 5),  (4, 3, 1, 1),  {"strides": 2}, 1),
    "some gaps": ((1, 4, 5, 6),  (4, 3, 1, 3),  {"strides": (2, 2), "output_padding": 1}, 2),
    "none":      ((2, 2, 2, 2),  (2, 2, 2, 1),  {"strides": (1, 3), "padding": 1}, 0),
    "few left":  ((1, 2, 3, 1),  (2, 3, 3, 4),  {"strides": (1, 3), "padding": 1}, 1),
    "turned":    ((1, 4, 5, 6),  (4, 3, 3, 2),  {"groups": 2, "padding": 1}, 1),
    "pixel groups": ((1, 4, 1, 1), (4, 3, 4, 4), {"groups": 2}, 1),
    "volume":    ((1, 2, 3, 3, 3), (2, 2, 2, 2, 2), {"strides": 2}, 1),
}
KEPT: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "stride 1":       ((1, 4, 5, 5), (4, 3, 3, 3), {}),
    "dilated":        ((1, 4, 5, 5), (4, 3, 3, 3), {"strides": 2, "dilation": 2}),
    "too many":       ((1, 4, 5, 5), (4, 3, 6, 6), {"strides": 6}),
    "pixel padded":   ((1, 4, 1, 1), (4, 3, 4, 4), {"padding": 1}),
}
# fmt: on


@pytest.mark.parametrize("name", list(GONE))
def test_a_transposed_convolution_goes(name: str) -> None:
    shape, taps, attrs, count = GONE[name]
    before, x = layer(shape, taps, **attrs)
    after = rewritten(before)
    found = operators(after)
    assert found["nn.conv_transpose"] == 0
    assert found["nn.conv"] == count
    agree(before, after, x)


@pytest.mark.parametrize("name", list(KEPT))
def test_a_transposed_convolution_stays(name: str) -> None:
    shape, taps, attrs = KEPT[name]
    before, _ = layer(shape, taps, **attrs)
    assert rewritten(before) is before


def test_a_pixel_is_a_product() -> None:
    before, x = layer((3, 10, 1, 1), (10, 6, 4, 4))
    after = rewritten(before)
    assert operators(after)["matmul"] == 1
    assert operators(after)["nn.conv_transpose"] == 0
    agree(before, after, x)


def test_a_pixel_of_weights_that_are_no_numbers_stays() -> None:
    x = Var(Name("x"), tensor((1, 2, 1, 1), "f32"))
    weight = numbers(2, 3, 2, 2)
    weight[0, 0, 0, 0] = np.inf
    before = of(call("nn.conv_transpose", x, const(weight)), x)
    assert rewritten(before) is before


def test_sizes_that_are_not_known_stay() -> None:
    n = dim_var("n")
    x = Var(Name("x"), TensorType((n, index(4), index(5), index(5)), f32))
    body = call("nn.conv_transpose", x, const(numbers(4, 3, 4, 4)), strides=2)
    main = Var(Name("main"), None)
    before = infer(module({main: Function((n,), (), (x,), None, body)}, main))
    assert rewritten(before) is before


@pytest.mark.parametrize("name", spread(GONE, 8))
def test_another_runtime_agrees(name: str) -> None:
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    shape, taps, attrs, _ = GONE[name]
    before, x = layer(shape, taps, **attrs)
    rank = len(shape) - 2
    found = plica.compile(before, cache=False)(x)
    assert isinstance(found, np.ndarray)
    strides = attrs.get("strides", 1)
    node = onnx.helper.make_node(
        "ConvTranspose", ["x", "w"], ["y"], group=attrs.get("groups", 1),
        strides=list(strides) if isinstance(strides, tuple) else [strides] * rank,
        pads=[attrs.get("padding", 0)] * (2 * rank),
        output_padding=[attrs.get("output_padding", 0)] * rank,
    )  # fmt: skip
    float_ = onnx.TensorProto.FLOAT
    ports = [onnx.helper.make_tensor_value_info("x", float_, shape)]
    ends = [onnx.helper.make_tensor_value_info("y", float_, found.shape)]
    kept = [onnx.numpy_helper.from_array(numbers(*taps), "w")]
    graph = onnx.helper.make_graph([node], "g", ports, ends, kept)
    opset = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    expected = session.run(None, {"x": x})[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@FEW
@given(st.data())
def test_phases_of_open_images_mean_the_same(data: st.DataObject) -> None:
    draw = data.draw
    rank, groups = draw(st.integers(1, 2)), draw(st.sampled_from((1, 1, 2)))
    steps = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    taps = tuple(step + draw(st.integers(0, 3)) for step in steps)
    sides = []
    for step, count in zip(steps, taps, strict=True):
        before = draw(st.integers(0, count - step))
        sides.append((before, count - step - before))
    x = Var(Name("x"), tensor((2, 2 * groups, *[dim_var("h"), dim_var("w")][:rank]), "f32"))
    weight = const(numbers(2 * groups, 3, *taps))
    body = call("nn.conv_transpose", x, weight, strides=steps, padding=tuple(sides), groups=groups)
    main = Var(Name("main"), None)
    dims = tuple(dim_var(each) for each in ("h", "w")[:rank])
    before_ = infer(module({main: Function(dims, (), (x,), None, body)}, main))
    after = rewritten(before_)
    assert ("nn.conv_transpose" in operators(after)) == (set(steps) == {1})
    given_ = numbers(2, 2 * groups, *[draw(st.integers(1, 6)) for _ in range(rank)])
    agree(before_, after, given_)


def test_open_images_whose_phases_have_other_lengths_stay() -> None:
    x = Var(Name("x"), tensor((1, 4, dim_var("w")), "f32"))
    body = call("nn.conv_transpose", x, const(numbers(4, 3, 3)), strides=2)
    main = Var(Name("main"), None)
    before = infer(module({main: Function((dim_var("w"),), (), (x,), None, body)}, main))
    assert rewritten(before) is before
