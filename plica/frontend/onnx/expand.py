"""Expansion: functions in terms of other operators, from the model or from the ONNX standard.

The standard defines many operators by others (attention, losses, windows …); where the table has
no row, that definition is read instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.schema import schema_of
from plica.frontend.onnx.value import ListedValue
from plica.ir.type.dim import known

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto


class Defined(Protocol):
    """Methods of a schema that the onnx package's type stubs lack."""

    attributes: Mapping[str, Any]
    has_function: bool
    function_opset_versions: list[int]
    has_context_dependent_function: bool
    context_dependent_function_opset_versions: list[int]

    def get_function_with_opset_version(self, version: int) -> bytes:
        """The function of a version, serialised."""

    def get_context_dependent_function_with_opset_version(
        self, version: int, node: bytes, types: list[bytes]
    ) -> bytes:
        """The function body of a node with inputs of these types, serialised."""


def _schema(name: str, version: int, domain: str) -> Defined | None:
    # Any: see `Defined`.
    found: Any = schema_of(name, version, domain)
    schema: Defined | None = found
    return schema


def has_definition(name: str, version: int, domain: str) -> bool:
    """Whether the standard defines an operator by others."""
    schema = _schema(name, version, domain)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def definition(node: OnnxNode, domain: str) -> FunctionProto | None:
    """The standard's definition of a node's operator, or None."""
    if (schema := _schema(node.proto.op_type, node.opset, domain)) is None:
        return None
    plain = [version for version in schema.function_opset_versions if version <= node.opset]
    if schema.has_function and plain:
        function = _function(schema.get_function_with_opset_version(max(plain)))
        defaults = [attribute.default_value for attribute in schema.attributes.values()]
        function.attribute_proto.extend(default for default in defaults if default.type)
        return function
    versions = [
        each for each in schema.context_dependent_function_opset_versions if each <= node.opset
    ]
    if not schema.has_context_dependent_function or not versions:
        return None
    try:
        data = schema.get_context_dependent_function_with_opset_version(
            max(versions), node.proto.SerializeToString(), _types(node)
        )
    except ValueError as reason:  # the package's own checks of a node
        what = f"The standard's definition of {node.proto.op_type} does not fit the node."
        node.malformed(what, "inputs and attributes as the standard says", str(reason))
    return _function(data) if data else None


def _function(data: bytes) -> FunctionProto:
    from onnx import FunctionProto

    function = FunctionProto()
    function.ParseFromString(data)
    return function


def _types(node: OnnxNode) -> list[bytes]:
    """The types of a node's inputs in ONNX's own form."""
    from onnx import TypeProto

    found = []
    for value in node.inputs:
        proto = TypeProto()
        if isinstance(value, ListedValue):
            proto.sequence_type.elem_type.tensor_type.elem_type = value.of.row.onnx
        elif value is not None:
            of = value.type
            proto.tensor_type.elem_type = of.dtype.row.onnx
            proto.tensor_type.shape.SetInParent()
            for size in of.shape:
                dim = proto.tensor_type.shape.dim.add()
                if (number := known(size)) is not None:
                    dim.dim_value = number
        found.append(proto.SerializeToString())
    return found


def bound_nodes(
    function: FunctionProto, call: OnnxNode, absent: Collection[str]
) -> list[NodeProto]:
    """The nodes of a function with the attributes of a call in place of those it refers to."""
    from onnx import NodeProto

    given: dict[str, AttributeProto] = {each.name: each for each in function.attribute_proto}
    given |= {each.name: each for each in call.proto.attribute}
    declared = {*function.attribute, *(each.name for each in function.attribute_proto)}
    call.ignore(*(name for name in given if name in declared))
    node_protos: list[NodeProto] = []
    for node in function.node:
        copy = NodeProto()
        copy.CopyFrom(node)
        _bind(copy, given)
        for at, name in enumerate(copy.input):
            if name in absent:
                copy.input[at] = ""
        node_protos.append(copy)
    return node_protos


def _bind(node: NodeProto, given: dict[str, AttributeProto]) -> None:
    stack: list[NodeProto] = [node]
    while stack:
        node_proto = stack.pop()
        kept: list[AttributeProto] = []
        for attribute in node_proto.attribute:
            if attribute.ref_attr_name:
                if (proto := given.get(attribute.ref_attr_name)) is None:
                    continue  # left out at the call, so left out here
                copy = type(attribute)()
                copy.CopyFrom(proto)
                copy.name = attribute.name
                kept.append(copy)
            else:
                kept.append(attribute)
        graphs: list[GraphProto] = []
        if any(attribute.ref_attr_name for attribute in node_proto.attribute):
            copies = [type(attribute).FromString(attribute.SerializeToString())
                      for attribute in kept]  # fmt: skip
            del node_proto.attribute[:]
            node_proto.attribute.extend(copies)
        for attribute in node_proto.attribute:
            graphs += [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
        for graph in graphs:
            stack += graph.node
