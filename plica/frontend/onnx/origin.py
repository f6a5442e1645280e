"""Origins: which nodes of an ONNX model each operator of its module comes from.

Terms hold no names; a reading holds the module and, beside it, the names.  What a node is written
out to belongs to the node, and what several nodes compute alike belongs to all of them.

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

from plica.core.collector import paused
from plica.frontend.onnx.importer import imported
from plica.frontend.onnx.model import input_names, open_model
from plica.frontend.onnx.node import name_of
from plica.frontend.onnx.order import ordered
from plica.ir.graph.expression import Const, Expr, Literal, Var
from plica.ir.graph.module import Module

if TYPE_CHECKING:
    from onnx import ModelProto


@frozen(eq=False)
class OnnxReading:
    """A module, and the names of the nodes that its expressions come from."""

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
    with paused():
        module, scope = imported(opened, dict(dims or {}), dict(fixed or {}), measures)
    nodes = list(opened.model.graph.node)
    made = {name for node in nodes for name in node.output if name}
    given = {name for name in scope if name not in made}
    found: dict[Expr, tuple[str, ...]] = {}
    for node in ordered(nodes, given):
        values = [scope.get(name) for name in node.output if name]
        roots = [each.expr for each in values if each is not None]
        for term in _fresh(roots, found):
            found[term] = (*found.get(term, ()), name_of(node))
    return OnnxReading(module, found, dict(fixed or {}), input_names(opened.model))


def _fresh(roots: list[Expr], known: Mapping[Expr, object]) -> list[Expr]:
    """The roots, and all below them that belongs to nothing yet."""
    found: dict[Expr, None] = {}
    stack = list(roots)
    while stack:
        term = stack.pop()
        if term in found or isinstance(term, Var | Const | Literal):
            continue
        if term not in known or term in roots:
            found[term] = None
        if term not in known:
            stack += [each for each in term._children if isinstance(each, Expr)]
    return list(found)
