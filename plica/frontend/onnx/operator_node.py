"""Operators that ONNX has as well: the nodes that say them, and their attributes.

>>> from plica.ir.type import tensor
>>> kind, words = NODES["nn.max_pool"]
>>> how = {"kernel": 2, "strides": None, "padding": 0, "dilation": 1, "ceil_mode": False}
>>> words(how, tensor((1, 3, 4, 4), "f32"))["strides"]
[2, 2]

Not here: operators that are written by their definitions (`plica.frontend.onnx.writer`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from plica.ir.graph.operator import Values
from plica.ir.op.relation import per_axis
from plica.ir.op.window import windows
from plica.ir.type import TensorType

Words: TypeAlias = Callable[[Values, TensorType], dict[str, Any] | None]
"""The attributes of a node by those of an operator and its result; None where it has no node."""


def _window(op: str, *more: str) -> Words:
    """Strides and padding, with other attributes by the names that ONNX has for them."""

    def words(attrs: Values, of: TensorType) -> dict[str, Any] | None:
        rank = len(of.shape) - 2
        strides = attrs["strides"] or attrs["kernel"]
        sliding = windows(op, {**attrs, "strides": strides}, rank)
        found: dict[str, Any] = {
            "strides": [window.stride for window in sliding],
            "pads": [*[window.before for window in sliding], *[window.after for window in sliding]],
        }
        if "kernel" in attrs:
            found["kernel_shape"] = per_axis(op, "kernel", attrs["kernel"], rank)
        if "dilation" in attrs:
            found["dilations"] = [window.dilation for window in sliding]
        if "output_padding" in attrs:
            extra = per_axis(op, "output_padding", attrs["output_padding"], rank)
            found["output_padding"] = extra
        return found | {MEANS.get(name, name): int(attrs[name]) for name in more}

    return words


def _plain(*names: str) -> Words:
    return lambda attrs, of: {name: attrs[name] for name in names}


def _batch_norm(attrs: Values, of: TensorType) -> dict[str, Any] | None:
    """ONNX normalises the second axis."""
    return {"epsilon": attrs["epsilon"]} if attrs["axis"] % len(of.shape) == 1 else None


def _gather(attrs: Values, of: TensorType) -> dict[str, Any] | None:
    """Places beyond an axis are errors, as in ONNX."""
    return {"axis": attrs["axis"]} if attrs["mode"] == "raise" else None


MEANS: Final = {"groups": "group"}
AVERAGES: Final = ("ceil_mode", "count_include_pad")
BOUNDS: Final = {"nn.relu6": (0, 6)}  # constant inputs of a node that an operator does not have

# fmt: off
NODES: Final[dict[str, tuple[str, Words]]] = {
    "nn.conv":            ("Conv",               _window("nn.conv", "groups")),
    "nn.conv_transpose":  ("ConvTranspose",      _window("nn.conv_transpose", "groups")),
    "nn.max_pool":        ("MaxPool",            _window("nn.max_pool", "ceil_mode")),
    "nn.avg_pool":        ("AveragePool",        _window("nn.avg_pool", *AVERAGES)),
    "nn.global_avg_pool": ("GlobalAveragePool",  _plain()),
    "nn.batch_norm":      ("BatchNormalization", _batch_norm),
    "nn.layer_norm":      ("LayerNormalization", _plain("axis", "epsilon")),
    "nn.softmax":         ("Softmax",            _plain("axis")),
    "nn.relu":            ("Relu",               _plain()),
    "nn.relu6":           ("Clip",               _plain()),
    "nn.flatten":         ("Flatten",            _plain("axis")),
    "nn.dense":           ("Gemm",               lambda attrs, of: {"transB": 1}),
    "matmul":             ("MatMul",             _plain()),
    "take":               ("Gather",             _gather),
}
# fmt: on
"""Operators on floats that one node says."""
