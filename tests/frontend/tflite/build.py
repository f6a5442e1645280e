"""Builds TFLite files for tests, by the schema that ai-edge-litert ships."""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

TYPES = {
    "float32": 0, "float16": 1, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "int16": 7,
    "int8": 9,
}  # fmt: skip

VERSIONS = {schema.BuiltinOperator.BROADCAST_TO: 2}
VERSIONS_OF_BYTES = {
    getattr(schema.BuiltinOperator, name): version
    for version, names in (
        (2, "ADD AVERAGE_POOL_2D CONCATENATION DEQUANTIZE GATHER LOGISTIC MAX_POOL_2D MEAN MUL PAD "
            "RELU SOFTMAX STRIDED_SLICE SUB TANH TRANSPOSE LEAKY_RELU MAXIMUM MINIMUM SPLIT"),
        (3, "CONV_2D DEPTHWISE_CONV_2D"), (4, "FULLY_CONNECTED"),
    )
    for name in names.split()
}  # fmt: skip
"""The versions that take int8 tensors."""


class Builder:
    """A model of one graph; tensors are numbers."""

    def __init__(self) -> None:
        self.tensors: list[Any] = []
        self.operators: list[Any] = []
        self.codes: list[int] = []
        self.buffers: list[Any] = [schema.BufferT()]
        self.inputs: list[int] = []
        self.draw = np.random.default_rng(0)

    def tensor(self, shape: tuple[int, ...], dtype: str = "float32", name: str = "") -> int:
        """A tensor without a value."""
        made = schema.TensorT()
        made.shape, made.type = list(shape), TYPES[dtype]
        made.name = name or f"t/{len(self.tensors)}"
        made.buffer, made.hasRank = 0, True
        self.tensors.append(made)
        return len(self.tensors) - 1

    def input(self, *shape: int, dtype: str = "float32") -> int:
        """An input."""
        self.inputs.append(self.tensor(shape, dtype, f"input:{len(self.inputs)}"))
        return self.inputs[-1]

    def constant(self, value: Any, dtype: str = "int32") -> int:
        """A constant."""
        array = np.ascontiguousarray(value, dtype)
        at = self.tensor(array.shape, dtype)
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(array.tobytes(), np.uint8)
        self.tensors[at].buffer = len(self.buffers)
        self.buffers.append(buffer)
        return at

    def weight(self, *shape: int) -> int:
        """A constant of drawn numbers."""
        scale = max(int(np.prod(shape[1:])), 1) ** -0.5
        return self.constant(self.draw.normal(0, scale, shape), "float32")

    def scaled(self, at: int, scale: Any, zero: Any = 0, axis: int = 0) -> int:
        """A tensor with a scale and a zero point, or with one for each place of an axis."""
        made = self.tensors[at].quantization = schema.QuantizationParametersT()
        made.scale = np.atleast_1d(np.asarray(scale, np.float32))
        made.zeroPoint = np.broadcast_to(np.asarray(zero, np.int64), made.scale.shape).copy()
        made.quantizedDimension = axis
        return at

    def op(
        self, name: str, args: list[int], *shapes: tuple[int, ...], options: Any = None,
        dtype: str = "float32",
    ) -> Any:  # Any: a tensor, or several  # fmt: skip
        """The results of an operator."""
        code = getattr(schema.BuiltinOperator, name)
        if code not in self.codes:
            self.codes.append(code)
        made = schema.OperatorT()
        made.opcodeIndex = self.codes.index(code)
        made.inputs = args
        made.outputs = [self.tensor(each, dtype) for each in shapes]
        if options is not None:
            kind = type(options).__name__.removesuffix("T")
            made.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
            made.builtinOptions = options
        self.operators.append(made)
        return made.outputs[0] if len(shapes) == 1 else made.outputs

    def file(self, *outputs: int) -> bytes:
        """The bytes of the model."""
        versions = VERSIONS | (
            VERSIONS_OF_BYTES if any(each.quantization for each in self.tensors) else {}
        )
        graph = schema.SubGraphT()
        graph.tensors, graph.operators = self.tensors, self.operators
        graph.inputs, graph.outputs = self.inputs, list(outputs)
        model = schema.ModelT()
        model.version, model.subgraphs, model.buffers = 3, [graph], self.buffers
        model.operatorCodes = []
        for each in self.codes:
            code = schema.OperatorCodeT()
            code.builtinCode, code.deprecatedBuiltinCode, code.version = (
                each,
                min(each, 127),
                versions.get(each, 1),
            )
            model.operatorCodes.append(code)
        writer = flatbuffers.Builder(1024)
        writer.Finish(model.Pack(writer), b"TFL3")
        return bytes(writer.Output())


def options(kind: str, **values: Any) -> Any:
    """The options of an operator, by the names of the schema."""
    made = getattr(schema, f"{kind}OptionsT")()
    for name, value in values.items():
        assert hasattr(made, name), name
        setattr(made, name, value)
    return made
