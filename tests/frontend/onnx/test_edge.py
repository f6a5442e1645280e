"""Sizes of 0 and 1, attributes at their limits: what onnxruntime gives, or a refusal of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

import plica
from plica.runtime.error import PlicaError
from tests.frontend.onnx.build import Array, model, one, runtime

onnxruntime = pytest.importorskip("onnxruntime")

REFUSED = onnxruntime.capi.onnxruntime_pybind11_state
REFUSALS = (REFUSED.Fail, REFUSED.InvalidArgument, REFUSED.RuntimeException)


def f32(*shape: int) -> Array:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def reals(*values: float) -> Array:
    return np.asarray(values, np.float32)


def ints(*values: int) -> Array:
    return np.asarray(values, np.int64)


def open_(  # noqa: PLR0917  # what a model of one node is made of
    kind: str, arrays: Sequence[Array], stored: int, opset: int, outputs: int, attrs: dict[str, Any]
) -> ModelProto:
    """A model of one node, of whose inputs no size is known but that of the constants."""
    names = [f"x{at}" for at in range(len(arrays))]
    made = [f"y{at}" for at in range(outputs)]
    node = helper.make_node(kind, names, made, name="node", **attrs)
    types = {
        name: (str(each.dtype), [f"{name}_{axis}" for axis in range(each.ndim)])
        for name, each in zip(names, arrays[: len(arrays) - stored], strict=False)
    }
    return model(
        [node], types, made, dict(list(zip(names, arrays, strict=True))[len(types) :]), opset
    )


BEST, HALF = ints(5), reals(0.5)
LEAST = -(1 << 63)

# fmt: off
GIVEN: list[tuple[str, list[Array], int, int, int, dict[str, Any]]] = [
    # operator, inputs, how many of them are constants, version, outputs, attributes
    ("NonMaxSuppression", [f32(1, 0, 4), f32(1, 1, 0), BEST, HALF], 2, 18, 1, {}),
    ("NonMaxSuppression", [f32(1, 3, 4), f32(1, 0, 3), BEST, HALF, reals(0.1)], 3, 18, 1, {}),
    ("NonMaxSuppression", [f32(0, 3, 4), f32(0, 1, 3), BEST, reals(1.0)], 2, 18, 1, {}),
    ("Pad", [f32(4), ints(3, -5)], 1, 19, 1, {}),
    ("Pad", [f32(4), ints(-6, 3)], 1, 19, 1, {}),
    ("Pad", [f32(4), ints(-2, -2)], 1, 19, 1, {}),
    ("DynamicQuantizeLinear", [np.zeros(3, np.float32)], 0, 18, 3, {}),
    ("DynamicQuantizeLinear", [np.zeros((2, 0), np.float32)], 0, 18, 3, {}),
    ("OneHot", [reals(-2.75, -3, -0.5, 0, 0.5, 1, 2.75, 3), ints(3), ints(2, 7)], 2, 18, 1, {}),
    ("NonZero", [np.asarray(3.0, np.float32)], 0, 18, 1, {}),
    ("NonZero", [np.asarray(0.0, np.float32)], 0, 18, 1, {}),
    ("NonZero", [np.asarray(3.0, np.float32)], 1, 18, 1, {}),
    ("Slice", [f32(5), ints(4), ints(-9), ints(-1), ints(LEAST)], 4, 18, 1, {}),
    ("Split", [f32(0)], 0, 13, 2, {}),
    ("Clip", [reals(np.inf, -np.inf, np.nan, 1)], 0, 13, 1, {}),
    ("Clip", [reals(np.inf, -np.inf).astype(np.float16), np.zeros((), np.float16)], 1, 13, 1, {}),
]

NONE: list[tuple[str, list[Array], int, int, int, dict[str, Any]]] = [
    *[("Pad", [f32(4), ints(*sides)], 1, 19, 1, {"mode": mode})
      for mode, sides in (("constant", (-3, -3)), ("constant", (0, -5)), ("edge", (3, -5)),
                          ("reflect", (4, 0)), ("reflect", (-3, 3)), ("wrap", (0, -5)))],
    *[("Split", [f32(size)], 0, 18, parts, {"num_outputs": parts})
      for size, parts in ((0, 1), (1, 2), (4, 3))],
    *[("MaxPool", [f32(1, 1, 0)], 0, 18, 1, {"kernel_shape": [2], **more})
      for more in ({}, {"ceil_mode": 1, "strides": [3]}, {"pads": [1, 1]})],
    *[(kind, [f32(1, 1, 0)], 0, 18, 1, {"kernel_shape": [2], "pads": [1, 1]})
      for kind in ("AveragePool", "LpPool")],
    ("GlobalLpPool", [f32(1, 1, 0)], 0, 18, 1, {}),
    ("NonMaxSuppression", [f32(1, 2, 4), f32(1, 1, 2), BEST, reals(1.5)], 2, 18, 1, {}),
]
# fmt: on


@pytest.mark.parametrize(("kind", "arrays", "stored", "opset", "outputs", "attrs"), GIVEN)
def test_it_is_what_onnxruntime_gives(  # noqa: PLR0917  # a row of the table
    kind: str, arrays: list[Array], stored: int, opset: int, outputs: int, attrs: dict[str, Any]
) -> None:
    made = one(kind, arrays, opset, outputs, stored, **attrs)
    given = {f"x{at}": each for at, each in enumerate(arrays[: len(arrays) - stored])}
    found = plica.compile(made, cache=False, threads=1)(**given)
    several = found if isinstance(found, tuple) else (found,)
    for mine, other in zip(several, runtime(made, given), strict=True):
        assert (mine.shape, mine.dtype) == (np.shape(other), other.dtype)
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize(("kind", "arrays", "stored", "opset", "outputs", "attrs"), NONE)
def test_what_onnxruntime_refuses_is_refused(  # noqa: PLR0917  # a row of the table
    kind: str, arrays: list[Array], stored: int, opset: int, outputs: int, attrs: dict[str, Any]
) -> None:
    """Whether sizes and values are known when it is read, or come when it runs."""
    made = one(kind, arrays, opset, outputs, stored, **attrs)
    given = {f"x{at}": each for at, each in enumerate(arrays)}
    fed = dict(list(given.items())[: len(arrays) - stored])
    with pytest.raises(REFUSALS):
        runtime(made, fed)
    with pytest.raises(PlicaError) as refused:
        plica.compile(made, cache=False, threads=1)
    assert refused.value.diagnostics[0].found
    late = [(one(kind, arrays, opset, outputs, 0, **attrs), given)] if stored else []
    late.append((open_(kind, arrays, stored, opset, outputs, attrs), fed))
    for other, inputs in late:
        with pytest.raises(PlicaError) as refused:
            plica.compile(other, cache=False, threads=1)(**inputs)
        assert refused.value.diagnostics[0].expected
        assert "_of_" not in str(refused.value)  # no name that the model does not have
