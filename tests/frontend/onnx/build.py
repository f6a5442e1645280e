"""Small ONNX models for tests, and what onnxruntime makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from plica.frontend.onnx import from_onnx
from plica.ir.interpret.interpreter import interpret

Array = np.ndarray[Any, Any]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array | tuple[str, Sequence[int | str | None]]],
    outputs: Sequence[str],
    stored: Mapping[str, Array] | None = None,
    opset: int = 21,
    **options: Any,
) -> onnx.ModelProto:
    """A model; an input is an example, or its dtype and shape."""
    infos = []
    for name, given in inputs.items():
        dtype, shape = (given.dtype, given.shape) if isinstance(given, np.ndarray) else given
        number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        infos.append(helper.make_tensor_value_info(name, number, shape))
    graph = helper.make_graph(
        list(nodes),
        "test",
        infos,
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (stored or {}).items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **options)
    made.ir_version = 10
    return made


def one(kind: str, arrays: Sequence[Array], opset: int = 21, outputs: int = 1, stored: int = 0,
        **attrs: Any) -> onnx.ModelProto:  # fmt: skip
    """A model of one node; the last `stored` arrays are constants of it."""
    names = [f"x{at}" for at in range(len(arrays))]
    made = [f"y{at}" for at in range(outputs)]
    node = helper.make_node(kind, names, made, name="node", **attrs)
    pairs = list(zip(names, arrays, strict=True))
    cut = len(pairs) - stored
    return model([node], dict(pairs[:cut]), made, dict(pairs[cut:]), opset)


def runtime(of: onnx.ModelProto, given: Mapping[str, Array]) -> list[Array]:
    """What onnxruntime gives."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        of.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found: list[Array] = session.run(None, dict(given))
    return found


def agrees(of: onnx.ModelProto, given: Mapping[str, Array], rtol: float = 1e-4) -> None:
    """Assert that the interpreter gives what onnxruntime gives."""
    found = interpret(from_onnx(of), **dict[str, Any](given))
    mine = found if isinstance(found, tuple) else (found,)
    for a, b in zip(mine, runtime(of, given), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(
            a.astype(np.float64), b.astype(np.float64), rtol=rtol, atol=rtol * 1e-1
        )


def f32_like(*shape: int) -> Array:
    """Numbers that depend on the shape alone."""
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)
