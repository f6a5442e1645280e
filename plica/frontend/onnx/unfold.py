"""Unfolding: all nodes of a model, those of the graphs inside of nodes too, and how many functions
make of them.

A small file may stand for more nodes than any memory holds; that is seen before any is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from plica.frontend.onnx.attribute import name_of
from plica.runtime.error import Diagnostic, Place, UnsupportedError

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, NodeProto

MOST_NODES: Final = 100_000
"""Loops and functions may make a small file large: more nodes than this are refused."""

Functions = Mapping[tuple[str, str, str], "FunctionProto"]


def domain_of(proto: NodeProto) -> str:
    """The domain of a node; the standard one has two names."""
    return "" if proto.domain == "ai.onnx" else proto.domain


def opset_versions(imports: Iterable[object]) -> dict[str, int]:
    """The version of each domain that is imported."""
    # The entries are OperatorSetIdProto, which only exists where onnx is imported.
    pairs = [(getattr(each, "domain"), getattr(each, "version")) for each in imports]  # noqa: B009  # protobuf has no types
    return {("" if domain == "ai.onnx" else domain): int(version) for domain, version in pairs}


def every_node(nodes: Iterable[NodeProto], prefix: str = "") -> Iterator[tuple[NodeProto, str]]:
    """Nodes and those of the graphs inside of them, with what their names begin with."""
    stack = [(node, prefix) for node in reversed(list(nodes))]
    while stack:
        node, before = stack.pop()
        yield node, before
        inner = f"{before}{name_of(node)}/"
        for attribute in reversed(node.attribute):
            graphs = [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
            for graph in graphs:
                stack += [(each, inner) for each in reversed(graph.node)]


def too_many(place: str) -> UnsupportedError:
    """The refusal of a model that is too long once it is written out."""
    message = "The model has too many nodes once loops and functions are written out."
    expected = f"at most {MOST_NODES}"
    return UnsupportedError(Diagnostic("too-large", message, Place(node=place), expected))


def check_expansion(graph: GraphProto, functions: Functions) -> None:
    """Refuse functions that call functions that call … before any is written out."""
    sizes: dict[tuple[str, str, str], int] = {}
    for first in functions:
        stack = [(first, False)]
        while stack:
            name, leaving = stack.pop()
            if leaving:
                sizes[name] = sum(sizes.get(call, 1) for call in _calls(functions[name].node))
            elif name not in sizes:
                sizes[name] = 0  # until it is known; one that calls itself is refused elsewhere
                stack.append((name, True))
                stack += [(call, False) for call in _calls(functions[name].node)
                          if call in functions and call not in sizes]  # fmt: skip
    for node, before in every_node(graph.node):
        call = (domain_of(node), node.op_type, node.overload)
        if sizes.get(call, 0) > MOST_NODES:
            raise too_many(before + name_of(node))


def _calls(nodes: Iterable[NodeProto]) -> Iterator[tuple[str, str, str]]:
    return ((domain_of(each), each.op_type, each.overload) for each, _ in every_node(nodes))
