"""Convolutions in groups go by the same rules of thumb, one group after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica import op
from plica.core.name import Name
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.loop.scalar import index
from plica.ir.loop.stage import placeholder, stage
from plica.ir.loop.stages import stages
from plica.ir.loop.tensor import reduce
from plica.ir.type.dtype import f32
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.rewrite.fuse.to_stages import to_stages
from plica.schedule.default import Machine, default_schedule, formed
from plica.schedule.default.grouped import by_group
from plica.schedule.form import Facts
from plica.schedule.hoist import constants, hoist
from tests.schedule.begun import begun

Array = np.ndarray[Any, Any]
FEW = settings(max_examples=max(4, settings().max_examples // 3))
MACHINES = {"wide": Machine(512, 32), "narrow": Machine(128, 16)}


def numbers(seed: int, shape: tuple[int, ...]) -> Array:
    """Small whole numbers: their sums are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def whole(params: list[Var], body: Expr) -> Module:
    main = Var(Name("main"), None)
    return module({main: Function((), (), tuple(params), None, body)}, main)


def layer(x: Var, weight: Expr, outputs: int, **attrs: Any) -> Expr:
    """A convolution with a bias, and a relu after it."""
    return op.nn.relu(op.nn.conv(x, weight, **attrs) + const(numbers(2, (outputs, 1, 1))))


@FEW
@given(st.data())
def test_groups_mean_the_same(data: st.DataObject) -> None:
    draw = data.draw
    groups, channels = draw(st.integers(2, 5)), draw(st.integers(1, 5))
    outputs = draw(st.sampled_from((2, 3, 4, 8, 16, 20)))
    window, stride, side = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 2))
    size = draw(st.integers(3, 9)), draw(st.integers(3, 20))
    shape = (draw(st.sampled_from((1, 2))), groups * channels, *size)
    taps = (groups * outputs, channels, window, window)
    constant = draw(st.booleans())
    x, w = Var(Name("x"), tensor(shape, "f32")), Var(Name("w"), tensor(taps, "f32"))
    weight: Expr = const(numbers(1, taps)) if constant else w
    body = layer(x, weight, taps[0], groups=groups, strides=stride, padding=side)
    of = whole([x] if constant else [x, w], body)
    arrays = [numbers(3, shape), numbers(1, taps)][: 1 if constant else 2]
    found = plica.compile(of, cache=False)(*arrays)
    np.testing.assert_array_equal(found, plica.interpret(of, *arrays))


@FEW
@given(st.data())
def test_groups_with_more_terms_than_a_run_have_tiles(data: st.DataObject) -> None:
    """Runs and a shorter one after them, lanes that the result does not fill, room around."""
    draw = data.draw
    groups, window = draw(st.integers(1, 3)), draw(st.sampled_from((3, 5)))
    whole_run = 320 // window**2
    channels = whole_run + draw(st.integers(1, whole_run))
    outputs, side = draw(st.integers(5, 9)), draw(st.integers(0, window // 2))
    size = draw(st.integers(7, 9)), draw(st.integers(9, 21))
    shape, taps = (1, groups * channels, *size), (groups * outputs, channels, window, window)
    x, w = Var(Name("x"), tensor(shape, "f32")), Var(Name("w"), tensor(taps, "f32"))
    value = op.nn.conv(x, w, groups=groups, padding=side)
    facts = Facts((False, True), contract=reassociates)
    of = to_stages(infer(whole([x, w], value)).main_function()).stages
    for on in MACHINES.values():
        form = formed(of, facts, on)
        assert form is not None
        assert isinstance(default_schedule(begun(form.stages, facts.constant), on), tuple)
    held = op.nn.conv(x, const(numbers(1, taps)), groups=groups, padding=side)
    found = plica.compile(whole([x], held), cache=False)(numbers(3, shape))
    np.testing.assert_array_equal(found, exact(numbers(3, shape), numbers(1, taps), groups, side))


def exact(x: Array, w: Array, groups: int, side: int) -> Array:
    """The convolution of whole numbers, by numpy."""
    around = np.pad(x, ((0, 0), (0, 0), (side, side), (side, side)))
    windows = np.lib.stride_tricks.sliding_window_view(around, w.shape[2:], (2, 3))
    parts = zip(np.split(windows, groups, axis=1), np.split(w, groups), strict=True)
    return np.concatenate([np.einsum("ncijkl,ockl->noij", a, b) for a, b in parts], axis=1)


# fmt: off
LAYERS = {  # channels, outputs, groups, size, window, stride
    "resnext":       (32,  32,  8, 14, 3, 1), "resnext stride": (32, 32, 4, 15, 3, 2),
    "shuffle":       (24,  48,  3,  9, 1, 1), "multiplied":     ( 8, 24, 8, 10, 3, 1),
    "wide":          (16, 128,  2,  7, 3, 1), "one row":        (12, 12, 3,  4, 3, 1),
}
# fmt: on


def function(name: str) -> Function:
    channels, outputs, groups, size, window, stride = LAYERS[name]
    x = Var(Name("x"), tensor((1, channels, size, size), "f32"))
    w = Var(Name("w"), tensor((outputs, channels // groups, window, window), "f32"))
    value = op.nn.conv(x, w, groups=groups, strides=stride, padding=window // 2)
    return infer(whole([x, w], value)).main_function()


@pytest.mark.parametrize("machine", list(MACHINES))
@pytest.mark.parametrize("name", list(LAYERS))
def test_layers_in_groups_have_schedules(name: str, machine: str) -> None:
    of, on = to_stages(function(name)).stages, MACHINES[machine]
    assert by_group(of) is not None
    for constant in (True, False):
        form = formed(of, Facts((False, constant)), on)
        assert form is not None
        assert isinstance(default_schedule(begun(form.stages, (False, constant)), on), tuple)
        assert form.stages.inputs[1].shape[0] is index(LAYERS[name][2])  # seen in groups


@pytest.mark.parametrize("name", list(LAYERS))
def test_layers_agree_with_another_runtime(name: str) -> None:
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    channels, outputs, groups, size, window, stride = LAYERS[name]
    given_ = np.random.default_rng(3).standard_normal((1, channels, size, size), np.float32)
    taps = (outputs, channels // groups, window, window)
    weight = np.random.default_rng(4).standard_normal(taps, np.float32)
    x = Var(Name("x"), tensor(given_.shape, "f32"))
    value = op.nn.conv(x, const(weight), groups=groups, strides=stride, padding=window // 2)
    found = plica.compile(whole([x], value), cache=False)(given_)
    assert isinstance(found, np.ndarray)
    node = onnx.helper.make_node(
        "Conv", ["x", "w"], ["y"], strides=[stride] * 2, group=groups, pads=[window // 2] * 4
    )
    float_ = onnx.TensorProto.FLOAT
    ports = [onnx.helper.make_tensor_value_info("x", float_, given_.shape)]
    ends = [onnx.helper.make_tensor_value_info("y", float_, found.shape)]
    kept = [onnx.numpy_helper.from_array(weight, "w")]
    graph = onnx.helper.make_graph([node], "g", ports, ends, kept)
    opset = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    expected = session.run(None, {"x": given_})[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_packing_sees_another_shape() -> None:
    x, w = placeholder("x", (15, 16, 8), f32), placeholder("w", (12, 5), f32)
    conv = stage("y", (12, 16, 8), lambda o, i, j: reduce(
        "sum", (5,), lambda c: x[o // 4 * 5 + c, i, j] * w[o, c]))  # fmt: skip
    form = formed(stages((x, w), (conv,)), Facts((False, True)), MACHINES["narrow"], "lanes-over-n")
    assert form is not None
    apart = hoist(form.stages, (False, True))
    weight = np.arange(60, dtype=np.float32).reshape(12, 5)
    made = constants(apart, {1: weight})[apart.before[0].out]
    assert made.shape == (3, 1, 5, 4)  # groups, vectors of four outputs, channels, lanes
    assert made[1, 0, 2].tolist() == [weight[4 + lane, 2] for lane in range(4)]


def test_what_has_no_groups_has_no_axis_for_them() -> None:
    x = Var(Name("x"), tensor((1, 8, 9, 9), "f32"))
    w = Var(Name("w"), tensor((8, 1, 3, 3), "f32"))
    depthwise = infer(whole([x, w], op.nn.conv(x, w, groups=8))).main_function()
    assert by_group(to_stages(depthwise).stages) is None
