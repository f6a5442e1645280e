"""Origins: the nodes of an ONNX model behind each operator of its module.

Terms have no names; a reading holds the module and, separately, the names.

>>> from onnx import TensorProto, helper
>>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in "xy")
>>> node = helper.make_node("HardSwish", ["x"], ["y"], name="act")
>>> graph = helper.make_graph([node], "g", [x], [y])
>>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
>>> read = read_onnx(model)
>>> sorted({name for names in read.nodes.values() for name in names})
['act']
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import frozen

from plica.frontend.onnx.importer import from_opened
from plica.frontend.onnx.model import input_names, open_model
from plica.ir.graph.expression import Expr
from plica.ir.graph.module import Module
from plica.ir.graph.node_name import names_within

if TYPE_CHECKING:
    from onnx import ModelProto


@frozen(eq=False)
class OnnxReading:
    """A module, and the node names of its expressions."""

    module: Module
    nodes: Mapping[Expr, tuple[str, ...]]
    fixed: Mapping[str, Any] = MappingProxyType({})
    """The inputs that are part of the module, and their values."""
    inputs: tuple[str, ...] = ()
    """The names of all inputs of the model, in its order, where it is an ONNX model."""


def read_onnx(
    source: str | PathLike[str] | bytes | ModelProto,
    *,
    dims: Mapping[str, int] | None = None,
    fixed: Mapping[str, Any] | None = None,
    measures: bool = True,
) -> OnnxReading:
    """A model as `from_onnx` reads it, with the names of its nodes; if it `measures`, sizes may
    become known while it runs."""
    opened = open_model(source)
    module = from_opened(opened, dims, fixed, measures)
    return OnnxReading(module, names_within(module), dict(fixed or {}), input_names(opened.model))
