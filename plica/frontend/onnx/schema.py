"""Schemas: the standard's signature of an operator, checked before a row reads it.

The rows may then rely on attributes of the right kind and on inputs of admitted types.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from plica.core.diagnostic import did_you_mean
from plica.frontend.onnx.node import OnnxNode
from plica.runtime.error import Diagnostic, Place

if TYPE_CHECKING:
    from onnx.defs import OpSchema


@cache
def schema_of(name: str, version: int, domain: str) -> OpSchema | None:
    """The schema of an operator at a version, or None."""
    from onnx import defs

    if not defs.has(name, max_inclusive_version=version, domain=domain):
        return None
    return defs.get_schema(name, max_inclusive_version=version, domain=domain)


def violations(node: OnnxNode, domain: str) -> list[Diagnostic]:
    """How a node breaks the schema of its operator."""
    proto = node.proto
    schema = schema_of(proto.op_type, node.opset, domain)
    wrong: list[Diagnostic] = []

    def say(message: str, *rest: str | None) -> None:
        wrong.append(Diagnostic("bad-model", message, Place(node=node.place), *rest))

    if schema is None:
        if schema_of(proto.op_type, 1 << 30, domain) is not None:
            message = f"There is no {proto.op_type} in version {node.opset} of the operators."
            say(message, "an operator of that version", proto.op_type)
        return wrong
    given = len(proto.input)
    if not schema.min_input <= given <= schema.max_input:
        expected = f"{schema.min_input} to {schema.max_input}"
        say(f"{proto.op_type} has the wrong number of inputs.", expected, str(given))
    if len(proto.output) > schema.max_output:
        say(f"{proto.op_type} has too many outputs.", str(schema.max_output), str(proto.output))
    seen: set[str] = set()
    for attribute in proto.attribute:
        declared = schema.attributes.get(attribute.name)
        if declared is None or attribute.name in seen:
            message = f"{proto.op_type} has no attribute {attribute.name!r}, or has it twice."
            say(message, None, attribute.name, did_you_mean(attribute.name, schema.attributes))
        elif int(attribute.type) != _number(declared.type):
            message = f"The attribute {attribute.name!r} of {proto.op_type} is of the wrong kind."
            say(message, str(declared.type), str(attribute.type))
        seen.add(attribute.name)
    for name, declared in schema.attributes.items():
        if declared.required and name not in seen:
            say(f"{proto.op_type} has no attribute {name!r}.", name, "nothing")
    if not wrong:
        _types(node, schema, say)
    return wrong


def _types(node: OnnxNode, schema: OpSchema, say: Any) -> None:
    allowed = {param.type_param_str: param.allowed_type_strs for param in schema.type_constraints}
    bound: dict[str, str] = {}
    for at, value in enumerate(node.inputs):
        if value is None:
            continue
        formal = schema.inputs[min(at, len(schema.inputs) - 1)]
        found = value.word
        admitted = allowed.get(formal.type_str, [formal.type_str])
        if found not in admitted:
            say(
                f"Input {at} of {node.proto.op_type} has a type that the standard does not admit.",
                ", ".join(sorted(each for each in admitted if each.startswith("tensor"))),
                found,
            )
        elif formal.is_homogeneous and bound.setdefault(formal.type_str, found) != found:
            message = f"The inputs of {node.proto.op_type} must be of one type."
            say(message, bound[formal.type_str], found)


def _number(kind: Any) -> int:  # Any: an enumeration of the onnx package's native part
    return int(kind.value if hasattr(kind, "value") else kind)
