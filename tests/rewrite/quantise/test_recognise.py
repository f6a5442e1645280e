"""Models that say themselves what is quantised become the same integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import plica
from plica.ir.op.elementwise import cast, clip, round_
from plica.quantising import quantised
from plica.rewrite.check.run import check
from plica.rewrite.check.verdict import is_good
from plica.rewrite.quantise.form import integer_convolutions
from plica.rewrite.quantise.integer import RECOGNISE, TIES_UP, float_layers, to_integers
from tests.rewrite.quantise.net import module_of, numbers, var

onnx = pytest.importorskip("onnx")


@pytest.mark.parametrize("name", [rule.name for rule in RECOGNISE])
def test_rules_keep_the_meaning_to_the_bit(name: str) -> None:
    (rule,) = [each for each in RECOGNISE if each.name == name]
    assert is_good(check(rule, examples=3, seed=0))


class Graph:
    """An ONNX model of points and operators between them."""

    def __init__(self, zero: Any, power_of_two: bool) -> None:
        self.zero, self.power_of_two = zero, power_of_two
        self.nodes: list[Any] = []
        self.stored: list[Any] = []

    def scale(self, of: float) -> np.float32:
        return np.float32(2.0 ** round(np.log2(of)) if self.power_of_two else of)

    def const(self, name: str, value: Any) -> str:
        self.stored.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, kind: str, inputs: list[str], name: str, **attributes: Any) -> str:
        self.nodes.append(onnx.helper.make_node(kind, inputs, [name], **attributes))
        return name

    def point(self, x: str, scale: float, zero: int) -> str:
        own = [self.const(f"{x}_s", self.scale(scale)), self.const(f"{x}_z", self.zero(zero))]
        return self.add("DequantizeLinear", [self.add("QuantizeLinear", [x, *own], f"{x}_q"), *own], f"{x}_p")  # fmt: skip  # noqa: E501

    def weight(self, name: str, shape: tuple[int, ...], each: bool) -> str:
        random = np.random.default_rng(shape[0])
        count = shape[0] if each else 1
        scales = [self.scale(s) for s in random.uniform(0.005, 0.02, count)]
        self.const(name, random.integers(-127, 128, shape).astype(np.int8))
        self.const(f"{name}_s", np.array(scales, np.float32) if each else scales[0])
        self.const(f"{name}_z", np.zeros(count, np.int8) if each else np.int8(0))
        names = [name, f"{name}_s", f"{name}_z"]
        return self.add("DequantizeLinear", names, f"{name}_f", **({"axis": 0} if each else {}))


def model(zero: Any, each: bool, power_of_two: bool) -> Any:
    """A convolution, a pool, a sum, a mean and a product, all between points."""
    g, middle = Graph(zero, power_of_two), 0 if zero is np.int8 else 120
    x = g.point("x", 0.02, middle)
    y = g.add("Conv", [x, g.weight("w", (8, 3, 3, 3), each)], "y", pads=[1, 1, 1, 1])
    y = g.point(g.add("Relu", [y], "r"), 0.05, 0)
    y = g.point(g.add("MaxPool", [y], "m", kernel_shape=[2, 2], strides=[2, 2]), 0.05, 0)
    z = g.point(g.add("Conv", [y, g.weight("v", (8, 8, 1, 1), False)], "z"), 0.08, middle)
    a = g.point(g.add("Add", [z, y], "a"), 0.09, middle)
    p = g.point(g.add("GlobalAveragePool", [a], "p"), 0.04, middle)
    f = g.add("Flatten", [p], "f")
    o = g.add("Gemm", [f, g.weight("u", (5, 8), False)], "o", transB=1)
    end = g.point(o, 0.05, middle)
    make = onnx.helper.make_tensor_value_info
    ends = [make("x", 1, [1, 3, 8, 8])], [make(end, 1, [1, 5])]
    graph = onnx.helper.make_graph(g.nodes, "graph", *ends, g.stored)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])


@pytest.mark.parametrize("zero", [np.int8, np.uint8])
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("power_of_two", [False, True])
def test_a_model_of_points_becomes_integers(zero: Any, each: bool, power_of_two: bool) -> None:
    of = plica.from_onnx(model(zero, each, power_of_two))
    found = quantised(of)
    assert float_layers(found.module) == 0
    assert found.report.count("f32") == 0
    step = 0.0625 if power_of_two else 0.05
    exe = plica.compile(found.module) if each else None
    for seed in range(3):
        x = numbers(seed, 1, 3, 8, 8)
        integers = plica.interpret(found.module, x)
        apart = np.abs(plica.interpret(of, x) - integers).max() / step
        assert apart == 0 if power_of_two else apart < 1.01
        assert exe is None or np.array_equal(exe(x), integers)


def test_other_roundings_are_left_as_they_are() -> None:
    x = var("x", (3,))
    for low, high in ((-200.0, 127.0), (-1.5, 2.0)):
        body = cast(clip(round_(x / 0.5), min=low, max=high), "i8")
        before = module_of(body, x)
        assert to_integers(before).module is before


def test_ties_that_go_up_are_within_a_step() -> None:
    (rule,) = TIES_UP
    assert is_good(check(rule, examples=3, seed=0))


def test_a_model_of_points_that_rounds_as_a_shift_does_has_layers_for_an_accelerator() -> None:
    of = model(np.int8, False, True)
    assert integer_convolutions(plica.quantise(of)) == ()
    found = plica.quantise(of, power_of_two=True)
    assert len(integer_convolutions(found)) == 3
    x = numbers(0, 1, 3, 8, 8)
    apart = np.abs(plica.interpret(found, x) - plica.interpret(plica.from_onnx(of), x)).max()
    assert apart <= 0.0625  # a step of the result
