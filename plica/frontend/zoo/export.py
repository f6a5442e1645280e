"""Exporting: networks of the zoo as ONNX models, which other systems read.

>>> from plica.frontend.zoo.plain import mlp
>>> [node.op_type for node in to_onnx(mlp((8, 4, 2))).graph.node]
['Gemm', 'Relu', 'Gemm']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from plica.core.fold import post_order
from plica.frontend.zoo.layer import sizes
from plica.frontend.zoo.recurrent import Weights
from plica.ir.graph.expression import Apply, Const, Expr, Function, Var
from plica.ir.graph.module import Module
from plica.ir.type import TensorType, static_shape, type_of
from plica.runtime.error import Diagnostic, Place, UnsupportedError

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

OPSET: Final = 17
IR_VERSION: Final = 9


class OnnxWriter:
    """The nodes and stored tensors of a model under construction."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.stored: dict[str, np.ndarray[Any, Any]] = {}
        self.names: dict[Expr, str] = {}

    def store(self, values: object, hint: str = "w") -> str:
        """The name of a stored tensor."""
        name = f"{hint}{len(self.stored)}"
        self.stored[name] = np.asarray(values)
        return name

    def name(self, of: Expr) -> str:
        """The name of a value: of a constant, it is stored when it is named first."""
        if of not in self.names:
            assert isinstance(of, Const), of
            self.names[of] = self.store(of.numpy())
        return self.names[of]

    def node(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """The name of the first output of a new node."""
        from onnx import helper

        name = f"{kind}_{len(self.nodes)}"
        made = [f"{name}.{at}" if at else name for at in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, made, name, **attributes))
        return name

    def model(self, x: Var, result: str, shape: tuple[int, ...]) -> ModelProto:
        """The whole, from one input to one output of floats."""
        from onnx import TensorProto, helper, numpy_helper

        assert isinstance(x.type, TensorType)
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(x.type.dtype.numpy))
        graph = helper.make_graph(
            self.nodes,
            "zoo",
            [helper.make_tensor_value_info(str(x.name), kind, sizes(x))],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, shape)],
            [numpy_helper.from_array(values, name) for name, values in self.stored.items()],
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        made.ir_version = IR_VERSION
        return made


Attrs = Mapping[str, Any]


def _dilated(attrs: Attrs) -> dict[str, Any]:
    return {} if _both(attrs["dilation"]) == (1, 1) else {"dilations": _both(attrs["dilation"])}


def _both(value: Any) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


def _window(attrs: Attrs) -> dict[str, Any]:
    """Strides and padding of two axes in ONNX's words."""
    around = _both(attrs["padding"])
    return {"strides": _both(attrs["strides"]), "pads": (*around, *around)}


def _conv(attrs: Attrs) -> dict[str, Any]:
    return {"group": attrs["groups"], **_window(attrs), **_dilated(attrs)}


def _pool(attrs: Attrs) -> dict[str, Any]:
    ceil = {"ceil_mode": 1} if attrs["ceil_mode"] else {}
    return {"kernel_shape": _both(attrs["kernel"]), **_window(attrs), **ceil}


def _mean_pool(attrs: Attrs) -> dict[str, Any]:
    return {**_pool(attrs), "count_include_pad": int(attrs["count_include_pad"])}


def _only(*names: str) -> Callable[[Attrs], dict[str, Any]]:
    return lambda attrs: {name: attrs[name] for name in names}


# fmt: off
PLAIN: Final[dict[str, tuple[str, Callable[[Attrs], dict[str, Any]]]]] = {
    "nn.conv":            ("Conv",               _conv),
    "nn.conv_transpose":  ("ConvTranspose",      _conv),
    "nn.batch_norm":      ("BatchNormalization", _only("epsilon")),
    "nn.layer_norm":      ("LayerNormalization", _only("axis", "epsilon")),
    "nn.relu":            ("Relu",               _only()),
    "tanh":               ("Tanh",               _only()),
    "nn.softmax":         ("Softmax",            _only("axis")),
    "nn.max_pool":        ("MaxPool",            _pool),
    "nn.avg_pool":        ("AveragePool",        _mean_pool),
    "concat":             ("Concat",             _only("axis")),
    "nn.global_avg_pool": ("GlobalAveragePool",  _only()),
    "nn.flatten":         ("Flatten",            _only("axis")),
    "take":               ("Gather",             _only("axis")),
    "transpose":          ("Transpose",          lambda attrs: {"perm": attrs["axes"]}),
    "matmul":             ("MatMul",             _only()),
    "add":                ("Add",                _only()),
    "divide":             ("Div",                _only()),
}
# fmt: on
"""Operators that one node of the same inputs says."""


WRITTEN_OUT: Final = ("nn.dense", "nn.relu6", "reshape", "nn.gelu")
"""Operators that several nodes say, or one of other inputs."""


def to_onnx(of: Module) -> ModelProto:
    """The ONNX model of a network with one input and one output; unsupported operators are refused
    all at once."""
    main = of.main_function()
    if wrong := list(_problems(main)):
        raise UnsupportedError(wrong[0], *wrong[1:])
    (x,) = main.params
    writer = OnnxWriter()
    order = [node for node in post_order(main.body) if isinstance(node, Apply)]
    layers = {node.args[0] for node in order if _is_biased(node)}
    writer.names[x] = str(x.name)
    for node in order:
        if node not in layers:
            writer.names[node] = _written(writer, node)
    return writer.model(x, writer.names[main.body], sizes(main.body))


def _problems(main: Function) -> Iterator[Diagnostic]:
    """What of a network `to_onnx` does not write."""
    types = [type_of(each) for each in (*main.params, main.body)]
    tensors = [each for each in types if isinstance(each, TensorType)]
    if len(main.params) != 1 or len(tensors) != 2:
        message = "A network with one tensor in and one out is written as ONNX."
        found = ", ".join(map(str, types))
        yield Diagnostic("unsupported", message, None, "one input and one output", found)
    if any(static_shape(each) is None for each in tensors):
        message = "A network is written as ONNX for one size of its input."
        yield Diagnostic("unsupported", message, None, "known sizes", ", ".join(map(str, tensors)))
    for node in post_order(main.body):
        if isinstance(node, Apply):
            if (why := _unwritten(node)) is not None:
                expected = ", ".join(sorted({*PLAIN, *WRITTEN_OUT}))
                yield Diagnostic("unsupported", why, Place(node=node.op), expected)
        elif isinstance(node, Expr) and not isinstance(node, Const | Var):
            kind = type(node).__name__
            message = f"{kind} of the graph language is not written as ONNX."
            yield Diagnostic("unsupported", message, None, "operators, constants, variables", kind)


def _unwritten(node: Apply) -> str | None:
    """Why a node is not supported, or None."""
    if node.op not in PLAIN and node.op not in WRITTEN_OUT and not _is_biased(node):
        return f"The operator {node.op} is not written as ONNX."
    if PLAIN.get(node.op, ("", None))[1] in (_conv, _pool, _mean_pool):
        attrs = dict(node.attrs)
        windows = [attrs.get(each, 1) for each in ("strides", "padding", "dilation", "kernel")]
        flat = [each for value in windows for each in _both(value)]
        plain = len(flat) == 2 * len(windows) and all(isinstance(each, int) for each in flat)
        of = type_of(node)
        if not isinstance(of, TensorType) or len(of.shape) != 4 or not plain:
            return f"{node.op} is written for two axes that are padded alike at both ends."
    return None


def _is_biased(node: Apply) -> bool:
    """Whether this is a layer and its bias, which are one node."""
    if node.op not in ("add", "nn.bias_add"):
        return False
    layer, bias = node.args
    known = isinstance(bias, Const) and len(bias.shape) == 1
    return known and isinstance(layer, Apply) and layer.op in ("nn.dense", "nn.conv")


def _written(writer: OnnxWriter, node: Apply) -> str:
    attrs = dict(node.attrs)
    if _is_biased(node):
        layer = node.args[0]
        assert isinstance(layer, Apply)
        return _layer(writer, layer, writer.name(node.args[1]))
    if node.op == "nn.dense":
        return _layer(writer, node, None)
    inputs = [writer.name(each) for each in node.args]
    match node.op:
        case "nn.relu6":
            bounds = [writer.store(np.float32(each)) for each in (0, 6)]
            return writer.node("Clip", *inputs, *bounds)
        case "reshape":
            shape = np.asarray([size.value for size in attrs["shape"]], np.int64)
            return writer.node("Reshape", *inputs, writer.store(shape))
        case "nn.gelu":
            (x,) = inputs
            half, one, root = (writer.store(np.float32(each)) for each in (0.5, 1, np.sqrt(2)))
            error = writer.node("Erf", writer.node("Div", x, root))
            return writer.node("Mul", writer.node("Mul", x, writer.node("Add", error, one)), half)
    kind, words = PLAIN[node.op]
    return writer.node(kind, *inputs, **words(attrs))


def _layer(writer: OnnxWriter, layer: Apply, bias: str | None) -> str:
    """A convolution or a dense layer with its bias."""
    x, weight = layer.args
    extra = () if bias is None else (bias,)
    if layer.op == "nn.conv":
        words = _conv(dict(layer.attrs))
        return writer.node("Conv", writer.name(x), writer.name(weight), *extra, **words)
    if len(sizes(x)) == 2:
        return writer.node("Gemm", writer.name(x), writer.name(weight), *extra, transB=1)
    assert isinstance(weight, Const)
    product = writer.node("MatMul", writer.name(x), writer.store(weight.numpy().T.copy()))
    return product if bias is None else writer.node("Add", product, bias)


def lstm_to_onnx(x: Var, weights: Weights) -> ModelProto:
    """The language model over tokens `x`, with one LSTM node per layer."""
    writer = OnnxWriter()
    y = writer.node("Gather", writer.name(weights.embedding), str(x.name), axis=0)
    last = ""
    for cell in weights.cells:
        wide = [each.numpy()[None] for each in (cell.inputs, cell.state, cell.bias)]
        wide[2] = np.concatenate([wide[2], np.zeros_like(wide[2])], axis=1)
        stored = [writer.store(each) for each in wide]
        hidden = sizes(cell.state)[1]
        states = writer.node("LSTM", y, *stored, outputs=2, hidden_size=hidden)
        axis = writer.store(np.asarray([1], np.int64))
        y, last = writer.node("Squeeze", states, axis), f"{states}.1"
    end = writer.node("Squeeze", last, writer.store(np.asarray([0], np.int64)))
    out, bias = writer.name(weights.out), writer.name(weights.bias)
    result = writer.node("Gemm", end, out, bias, transB=1)
    return writer.model(x, result, (sizes(x)[1], sizes(weights.out)[0]))
