"""Attributes and sizes at the ends of their range: right numbers, or a refusal of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pytest
from onnx import ModelProto, helper

import plica
from plica.core.diagnostic import CompilerBug
from plica.frontend.onnx import from_onnx
from plica.ir.interpret.interpreter import interpret
from plica.runtime.error import PlicaError
from tests.frontend.onnx.build import Array, f32_like, model, one, runtime

HUGE: Final = (2**31 - 1, 2**31, 2**62, 2**63 - 1)
IMAGE, WEIGHT, MATRIX = f32_like(1, 1, 5, 5), f32_like(1, 1, 3, 3), f32_like(3, 3)


def i64(*values: int) -> Array:
    return np.asarray(values, np.int64)


def scalar(value: int) -> Array:
    return np.asarray(value, np.int64)


EXTREME: Final[dict[str, Callable[[int], ModelProto]]] = {
    "conv dilation": lambda n: one("Conv", [IMAGE, WEIGHT], dilations=[n, n]),
    "conv dilation and padding": lambda n: one(
        "Conv", [IMAGE, WEIGHT], dilations=[n, n], pads=[n] * 4
    ),
    "conv stride": lambda n: one("Conv", [IMAGE, WEIGHT], strides=[n, n]),
    "conv padding": lambda n: one("Conv", [IMAGE, WEIGHT], strides=[n, n], pads=[n] * 4),
    "conv group": lambda n: one("Conv", [IMAGE, WEIGHT], group=n),
    "transposed stride": lambda n: one("ConvTranspose", [IMAGE, WEIGHT], strides=[n, n]),
    "transposed stride of 1": lambda n: one(
        "ConvTranspose", [f32_like(1, 1, 1, 1), WEIGHT], strides=[n, n]
    ),
    "transposed output": lambda n: one("ConvTranspose", [IMAGE, WEIGHT], output_shape=[n, n]),
    "pool window": lambda n: one("MaxPool", [IMAGE], kernel_shape=[n, n]),
    "pool padding": lambda n: one("AveragePool", [IMAGE], kernel_shape=[n, n], pads=[n - 5] * 4),
    "pool dilation": lambda n: one("MaxPool", [IMAGE], kernel_shape=[2, 2], dilations=[n, n]),
    "pool stride": lambda n: one("MaxPool", [IMAGE], kernel_shape=[2, 2], strides=[n, n]),
    "pad and cut": lambda n: one("Pad", [f32_like(3), i64(n - 1, -n)], stored=1),
    "slice": lambda n: one("Slice", [f32_like(3), i64(-n), i64(n), i64(0), i64(n)], stored=4),
    "slice back": lambda n: one("Slice", [f32_like(3), i64(n), i64(-n), i64(0), i64(-n)], stored=4),
    "reshape": lambda n: one("Reshape", [f32_like(3), i64(n, n)], stored=1),
    "tile": lambda n: one("Tile", [f32_like(3), i64(n * n % 2**63)], stored=1),
    "empty tensor": lambda n: one("ConstantOfShape", [i64(n, 0)], stored=1),
    "range": lambda n: one("Range", [scalar(-n), scalar(n), scalar(n)], stored=3),
    "gather": lambda n: one("Gather", [f32_like(3), i64(n)], stored=1),
    "top": lambda n: one("TopK", [f32_like(3), i64(n)], outputs=2, stored=1),
    "eye": lambda n: one("EyeLike", [MATRIX], k=n),
    "triangle": lambda n: one("Trilu", [MATRIX, scalar(-n)], stored=1),
    "near channels": lambda n: one("LRN", [f32_like(1, 3, 2, 2)], size=n),
    "window": lambda n: one("HannWindow", [scalar(n)], stored=1),
    "blocks": lambda n: one("DepthToSpace", [IMAGE], blocksize=n),
    "patches": lambda n: one(
        "Col2Im", [f32_like(1, 9, 9), i64(5, 5), i64(3, 3)], stored=2, dilations=[n, n]
    ),
}


NARROW: Final = ("near channels", "range", "eye")
"""Attributes that onnxruntime takes for numbers of 32 bits."""


@pytest.mark.parametrize("name", EXTREME)
def test_a_huge_number_is_computed_with_or_refused(name: str) -> None:
    """Never an internal error, memory that nobody has, or other numbers than onnxruntime's."""
    for huge in HUGE:
        made = EXTREME[name](huge)
        given = {each.name: EXAMPLES[shape_of(each)] for each in made.graph.input}
        try:
            found = interpret(from_onnx(made), *given.values())
        except PlicaError as refused:
            if isinstance(refused, CompilerBug):
                raise
            continue
        if name not in NARROW:
            expected = runtime(made, given)
            np.testing.assert_allclose(np.asarray(found), expected[0], rtol=1e-4)


def shape_of(port: Any) -> tuple[int, ...]:
    return tuple(each.dim_value for each in port.type.tensor_type.shape.dim)


EXAMPLES: Final[dict[tuple[int, ...], Array]] = {
    shape: f32_like(*shape)
    for shape in ((1, 1, 5, 5), (1, 1, 3, 3), (1, 1, 1, 1), (3, 3), (3,), (1, 9, 9), (1, 3, 2, 2))
}

X: Final = f32_like(2, 3)
AXIS: Final[dict[str, Sequence[Array]]] = {
    "Softmax": [X], "LogSoftmax": [X], "Hardmax": [X], "LpNormalization": [X], "Concat": [X, X],
    "ArgMax": [X], "ArgMin": [X], "Split": [X], "Unique": [X], "Gather": [X, i64(0)],
    "GatherElements": [X, np.zeros((2, 3), np.int64)],
    "ScatterElements": [X, np.zeros((2, 3), np.int64), X],
    "TopK": [X, i64(1)], "Compress": [X, np.ones(2, bool)], "LayerNormalization": [X, X],
    "QuantizeLinear": [X, np.ones(3, np.float32)],
    "DequantizeLinear": [np.zeros((2, 3), np.uint8), np.ones(3, np.float32)],
    "OneHot": [i64(0, 1), i64(3), np.zeros(2, np.float32)], "Flatten": [X],
}  # fmt: skip


@pytest.mark.parametrize("kind", AXIS)
@pytest.mark.parametrize("axis", [3, -4, 2**31, -(2**63), 2**63 - 1])
def test_an_axis_that_is_not_there_is_refused(kind: str, axis: int) -> None:
    stored = 1 if kind == "TopK" else 2 if kind == "OneHot" else 0
    outputs = 2 if kind in ("TopK", "Split") else 1
    with pytest.raises(PlicaError) as refused:
        from_onnx(one(kind, AXIS[kind], stored=stored, outputs=outputs, axis=axis))
    assert not isinstance(refused.value, CompilerBug)


def nest(depth: int, turns: int) -> ModelProto:
    """Loops inside one another around one product."""

    def body(level: int) -> Any:
        inner = (
            helper.make_node("Mul", ["v0", "k"], ["w0"])
            if level == 0
            else helper.make_node(
                "Loop", ["m", "", f"v{level}"], [f"w{level}"], body=body(level - 1)
            )
        )
        names = [(f"i{level}", 7, []), (f"c{level}", 9, []), (f"v{level}", 1, [2])]
        results = [(f"co{level}", 9, []), (f"w{level}", 1, [2])]
        ports = [[helper.make_tensor_value_info(*each) for each in of] for of in (names, results)]
        going = helper.make_node("Identity", [f"c{level}"], [f"co{level}"])
        return helper.make_graph([going, inner], f"level{level}", ports[0], ports[1])

    node = helper.make_node("Loop", ["m", "", "x"], ["y"], body=body(depth - 1))
    factor = np.asarray(1.001, np.float32)
    return model([node], {"x": f32_like(2)}, ["y"], {"m": scalar(turns), "k": factor})


@pytest.mark.parametrize(("depth", "turns"), [(10, 1), (6, 2), (2, 20)])
def test_loops_inside_loops(depth: int, turns: int) -> None:
    found = interpret(from_onnx(nest(depth, turns)), f32_like(2))
    expected = f32_like(2) * np.float32(1.001) ** (turns**depth)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4)


def test_loops_that_would_be_too_long_written_out_are_loops() -> None:
    """A million turns: the model is short all the same."""
    assert len(str(from_onnx(nest(2, 1000)))) < 10_000
    found = plica.compile(nest(2, 400), cache=False)(x=np.zeros(2, np.float32))
    assert not np.asarray(found).any()


@pytest.mark.parametrize(
    ("equation", "count"),
    [
        (",".join(map(chr, range(97, 123))) + "->", 26),
        (",".join(f"{chr(at)}{chr(at + 1)}" for at in range(97, 122)) + "->az", 25),
        (",".join(f"{chr(at)}{chr(at - 32)}" for at in range(97, 123)) + "->", 26),
    ],
)
def test_einsum_of_every_letter(equation: str, count: int) -> None:
    ranks = [len(each) for each in equation.partition("->")[0].split(",")]
    given = {f"x{at}": f32_like(*[2] * ranks[at]) / 2 for at in range(count)}
    made = one("Einsum", list(given.values()), equation=equation)
    expected = runtime(made, given)
    found = plica.compile(made, cache=False)(**given)
    np.testing.assert_allclose(np.asarray(found), expected[0], rtol=1e-3)
