"""Eager torch: the nodes of an ONNX model as calls of torch's own functions, one after the other.

>>> "Conv" in ROWS, "Loop" in ROWS
(True, False)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from plica.runtime.error import Diagnostic, Place, UnsupportedError
from plica.runtime.port import Array

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

Values = dict[str, Any]  # tensors of torch, which mypy does not know where it is not installed
Attrs = Mapping[str, Any]
Call = Callable[..., Any]


def eager(path: Path, arrays: Sequence[Array], threads: int) -> Callable[[], Sequence[Array]]:
    """What runs a model with torch."""
    import onnx
    import torch
    from onnx import numpy_helper

    torch.set_num_threads(threads)
    graph = onnx.load(path).graph
    stored = {each.name: torch.from_numpy(numpy_helper.to_array(each).copy())
              for each in graph.initializer}  # fmt: skip
    steps = _steps(graph, stored)
    names = [each.name for each in graph.input if each.name not in stored]
    given = {name: torch.from_numpy(array) for name, array in zip(names, arrays, strict=True)}
    wanted = [each.name for each in graph.output]

    def run() -> Sequence[Array]:
        values = {**stored, **given}
        with torch.inference_mode():
            for call, inputs, outputs in steps:
                made = call(*[values[name] for name in inputs])
                if len(outputs) == 1:
                    values[outputs[0]] = made
                else:
                    values.update(zip(outputs, made, strict=False))
        return [values[name].numpy() for name in wanted]

    return run


Step = tuple[Call, tuple[str, ...], tuple[str, ...]]


def _steps(graph: GraphProto, stored: Values) -> list[Step]:
    from onnx import helper

    gelu = _gelus(graph, stored)
    within = {name for inside, _ in gelu.values() for name in inside}
    if wrong := sorted({node.op_type for node in graph.node} - set(ROWS)):
        message = "These operators are not supported by the torch runner."
        place = Place(node=graph.name or "graph")
        raise UnsupportedError(Diagnostic("unsupported", message, place, None, ", ".join(wrong)))
    steps: list[Step] = []
    for node in graph.node:
        if node.output[0] in gelu:
            _, x = gelu[node.output[0]]
            steps.append((_functional().gelu, (x,), (node.output[0],)))
        elif node.output[0] not in within:
            attrs = {each.name: helper.get_attribute_value(each) for each in node.attribute}
            made, used = ROWS[node.op_type](node, attrs, stored)
            steps.append((made, used, tuple(node.output)))
    return steps


def _functional() -> Any:
    from torch.nn import functional

    return functional


def _gelus(graph: GraphProto, stored: Values) -> dict[str, tuple[list[str], str]]:
    """Where `x * (1 + erf(x / sqrt 2)) * 0.5` is: by its name, the names within it, and `x`."""
    makers = {node.output[0]: node for node in graph.node}
    found: dict[str, tuple[list[str], str]] = {}
    for last in graph.node:
        chain: list[str] = []
        node: NodeProto | None = last
        for kind in ("Mul", "Mul", "Add", "Erf", "Div"):
            if node is None or node.op_type != kind:
                break
            chain.append(node.output[0])
            before = [makers[name] for name in node.input if name in makers]
            inner = {"Mul": ("Mul", "Add"), "Add": ("Erf",), "Erf": ("Div",)}.get(kind, ())
            node = next((each for each in before if each.op_type in inner), None)
        if len(chain) == 5:
            found[chain[0]] = chain[1:], makers[chain[4]].input[0]
    return found


Row = Callable[["NodeProto", Attrs, Values], tuple[Call, tuple[str, ...]]]


def _plain(make: Callable[[Attrs], Call]) -> Row:
    """An operator whose inputs are the arguments of a function."""
    return lambda node, attrs, stored: (make(attrs), tuple(node.input))


def _settled(make: Callable[..., Call]) -> Row:
    """An operator whose inputs but for the first are known."""

    def row(node: NodeProto, attrs: Attrs, stored: Values) -> tuple[Call, tuple[str, ...]]:
        known = [stored[name] for name in node.input[1:]]
        return make(attrs, *known), (node.input[0],)

    return row


def _conv(attrs: Attrs) -> Call:
    pads, f = attrs["pads"], _functional()
    words = {"stride": attrs["strides"], "padding": pads[: len(pads) // 2],
             "groups": attrs.get("group", 1)}  # fmt: skip
    return lambda x, w, b=None: f.conv2d(x, w, b, **words)


def _conv_transpose(attrs: Attrs) -> Call:
    pads, f = attrs["pads"], _functional()
    words = {"stride": attrs["strides"], "padding": pads[: len(pads) // 2],
             "groups": attrs.get("group", 1)}  # fmt: skip
    return lambda x, w, b=None: f.conv_transpose2d(x, w, b, **words)


def _max_pool(attrs: Attrs) -> Call:
    pads, f = attrs["pads"], _functional()
    words = {"stride": attrs["strides"], "padding": pads[: len(pads) // 2]}
    return lambda x: f.max_pool2d(x, attrs["kernel_shape"], **words)


def _batch_norm(attrs: Attrs) -> Call:
    f, eps = _functional(), attrs.get("epsilon", 1e-5)
    return lambda x, gamma, beta, mean, var: f.batch_norm(x, mean, var, gamma, beta, eps=eps)


def _layer_norm(attrs: Attrs) -> Call:
    f, eps = _functional(), attrs.get("epsilon", 1e-5)
    return lambda x, gamma, beta: f.layer_norm(x, gamma.shape, gamma, beta, eps)


def _gemm(attrs: Attrs) -> Call:
    f = _functional()
    if attrs.get("transB"):
        return lambda x, w, b=None: f.linear(x, w, b)
    return lambda x, w, b=None: f.linear(x, w.T, b)


def _gather(attrs: Attrs) -> Call:
    f, axis = _functional(), attrs.get("axis", 0)
    if axis == 0:
        return lambda x, at: f.embedding(at, x)
    return lambda x, at: x.index_select(axis, at)


def _squeeze(attrs: Attrs, axes: Any) -> Call:
    dims = tuple(axes.tolist())
    return lambda x: x.squeeze(dims)


def _reshape(attrs: Attrs, shape: Any) -> Call:
    sizes = tuple(shape.tolist())
    return lambda x: x.reshape(sizes)


def _clip(attrs: Attrs, low: Any, high: Any) -> Call:
    f, ends = _functional(), (float(low), float(high))
    return lambda x: f.hardtanh(x, *ends)


def _lstm(attrs: Attrs, inputs: Any, state: Any, bias: Any) -> Call:
    """Torch has the gates in another order: input, forget, cell, output."""
    import torch

    hidden = attrs["hidden_size"]
    order = np.concatenate([np.arange(hidden) + at * hidden for at in (0, 2, 3, 1)])
    lstm = torch.nn.LSTM(inputs.shape[2], hidden)
    halves = bias[0].reshape(2, -1)
    with torch.no_grad():
        for name, values in (
            ("weight_ih_l0", inputs[0]),
            ("weight_hh_l0", state[0]),
            ("bias_ih_l0", halves[0]),
            ("bias_hh_l0", halves[1]),
        ):
            getattr(lstm, name).copy_(values[order])
    lstm.eval()

    def call(x: Any) -> tuple[Any, ...]:
        y, (h, c) = lstm(x)
        return y[:, None], h, c

    return call


def _named(name: str) -> Row:
    import operator

    def make(attrs: Attrs) -> Call:
        import torch

        found: Call = getattr(operator, name, None) or getattr(torch, name)
        return found

    return _plain(make)


# fmt: off
ROWS: Final[dict[str, Row]] = {
    "Conv":               _plain(_conv),
    "ConvTranspose":      _plain(_conv_transpose),
    "MaxPool":            _plain(_max_pool),
    "BatchNormalization": _plain(_batch_norm),
    "LayerNormalization": _plain(_layer_norm),
    "Gemm":               _plain(_gemm),
    "Gather":             _plain(_gather),
    "GlobalAveragePool":  _plain(lambda attrs: lambda x: x.mean((2, 3), keepdim=True)),
    "Flatten":            _plain(lambda attrs: lambda x: x.flatten(attrs.get("axis", 1))),
    "Softmax":            _plain(lambda attrs: lambda x: x.softmax(attrs.get("axis", -1))),
    "Transpose":          _plain(lambda attrs: lambda x: x.permute(attrs["perm"])),
    "Squeeze":            _settled(_squeeze),
    "Reshape":            _settled(_reshape),
    "Clip":               _settled(_clip),
    "LSTM":               _settled(_lstm),
    "MatMul":             _named("matmul"),
    "Add":                _named("add"),
    "Mul":                _named("mul"),
    "Div":                _named("truediv"),
    "Erf":                _named("erf"),
    "Identity":           _plain(lambda attrs: lambda x: x),
    "Relu":               _named("relu"),
    "Tanh":               _named("tanh"),
    "Sigmoid":            _named("sigmoid"),
}
# fmt: on
"""Operators of ONNX, and what torch calls them."""
