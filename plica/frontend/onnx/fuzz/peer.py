"""Peers: onnxruntime, and the onnx package's reference, evaluate a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final
from warnings import catch_warnings, simplefilter

import numpy as np

from plica.frontend.onnx.fuzz.peer_process import ask
from plica.frontend.onnx.order import names_read
from plica.runtime.error import Diagnostic, UnsupportedError

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Array = np.ndarray[Any, Any]
IR_VERSION: Final = 10
OLDEST: Final = 13  # the first version whose operators are generated


@cache
def runtime() -> ModuleType:
    """The package, or a refusal that names it."""
    try:
        import onnxruntime
    except ImportError as error:
        message = "Models are compared with onnxruntime, which is not installed."
        hint = "Install it: pip install onnxruntime."
        diagnostic = Diagnostic("missing-tool", message, None, "onnxruntime", str(error), hint)
        raise UnsupportedError(diagnostic) from None
    found: ModuleType = onnxruntime
    found.set_default_logger_severity(4)
    return found


def answers(model: ModelProto, given: Mapping[str, Array]) -> list[Array] | None:
    """onnxruntime's results, or None if it refuses the model or the inputs."""
    runtime()
    return ask(model.SerializeToString(), given)


def in_this_process(model: bytes, given: Mapping[str, Array]) -> list[Array] | None:
    """The same of a model's bytes, where the model may end the process."""
    package = runtime()
    options = package.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    refused = package.capi.onnxruntime_pybind11_state
    kinds = (refused.Fail, refused.InvalidArgument, refused.InvalidGraph, refused.NotImplemented,
             refused.RuntimeException)  # fmt: skip
    try:
        session = package.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        arrays: list[Array] = session.run(None, dict(given))
    except kinds:
        return None
    return arrays


NO_ANSWER: Final = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""Exceptions of the reference for unknown operators or unsupported inputs."""


def by_reference(model: ModelProto, given: Mapping[str, Array]) -> list[Array] | None:
    """The onnx package's reference results, or None if it refuses the model."""
    from onnx.reference import ReferenceEvaluator

    try:
        with np.errstate(all="ignore"), catch_warnings():
            simplefilter("ignore")
            found = ReferenceEvaluator(model).run(None, dict(given))
            return [np.asarray(each) for each in found]
    except NO_ANSWER:
        return None


def one_node(node: NodeProto, given: Mapping[str, Array], opset: int) -> list[Array] | None:
    """What one node gives on these arrays."""
    names = list(names_read(node))
    return answers(model_of([node], {name: given[name] for name in names}, node.output, {}, opset),
                   {name: given[name] for name in names})  # fmt: skip


def node_by_node(model: ModelProto, given: Mapping[str, Array]) -> list[Array] | None:
    """What onnxruntime gives with a session per node, so that each tensor has its declared dtype.

    In whole models it drops casts through f16 around operators that it implements in f32 only.
    """
    from onnx import numpy_helper

    values = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    values |= given
    for node in model.graph.node:
        if (results := one_node(node, values, model.opset_import[0].version)) is None:
            return None
        values |= zip(node.output, map(np.asarray, results), strict=True)
    return [values[output.name] for output in model.graph.output]


def model_of(  # noqa: PLR0917  # what a model is made of
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    stored: Mapping[str, Array],
    opset: int,
    batch: str | None = None,
) -> ModelProto:
    """A model; with `batch` the first size of each input is a dim of that name."""
    from onnx import ValueInfoProto, helper, numpy_helper

    infos = []
    for name, array in inputs.items():
        shape: list[int | str] = list(array.shape)
        if batch is not None and shape:
            shape[0] = batch
        number = helper.np_dtype_to_tensor_dtype(array.dtype)
        infos.append(helper.make_tensor_value_info(name, number, shape))
    graph = helper.make_graph(
        list(nodes),
        "fuzz",
        infos,
        [ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(each), name) for name, each in stored.items()],
    )
    model_proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model_proto.ir_version = IR_VERSION
    return model_proto


@cache
def newest() -> int:
    """The newest version of the operators that both sides take."""
    from onnx import defs, helper

    x = np.ones(1, np.float32)
    for opset in range(defs.onnx_opset_version(), OLDEST, -1):
        if answers(model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": x}, ["y"], {}, opset),
                   {"x": x}) is not None:  # fmt: skip
            return opset
    return OLDEST
