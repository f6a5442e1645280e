"""Order: nodes after what they use, whatever order a file has them in.

Unfolding: all nodes of a model, those of the graphs inside of nodes too, and how many functions
make of them.

A small file may denote more nodes than fit in memory; that is detected before any is read.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from plica.core.diagnostic import Malformed, did_you_mean
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
    """Nodes, including those of subgraphs, with their name prefixes."""
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
    return UnsupportedError.of("too-large", message, Place(node=place), f"at most {MOST_NODES}")


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
    return ((domain_of(proto), proto.op_type, proto.overload) for proto, _ in every_node(nodes))


def ordered(nodes: list[NodeProto], known: Container[str], prefix: str = "") -> Iterator[NodeProto]:
    """The nodes in topological order; `known` names need no node."""
    made = _makers(nodes, known, prefix)
    waiting = [0] * len(nodes)
    after: list[list[int]] = [[] for _ in nodes]
    wrong: list[Diagnostic] = []
    for at, node in enumerate(nodes):
        for name in dict.fromkeys(names_read(node)):
            if name in made:
                waiting[at] += 1
                after[made[name]].append(at)
            elif name not in known and name in node.input:
                message = f"Nothing makes {name!r}, which {node.op_type} reads."
                place = Place(node=prefix + name_of(node))
                hint = did_you_mean(name, made)
                wrong.append(Diagnostic("bad-model", message, place, "a value", name, hint))
    if wrong:
        raise Malformed(wrong[0], *wrong[1:])
    ready = [at for at, count in enumerate(waiting) if count == 0]
    heapify(ready)
    order: list[int] = []
    while ready:
        at = heappop(ready)
        order.append(at)
        for later in after[at]:
            waiting[later] -= 1
            if waiting[later] == 0:
                heappush(ready, later)
    if len(order) < len(nodes):
        stuck = [prefix + name_of(nodes[at]) for at, count in enumerate(waiting) if count]
        message = "The nodes of the model depend on one another in a cycle."
        shown = ", ".join(stuck[:8]) + (", …" if len(stuck) > 8 else "")
        raise Malformed.of("bad-model", message, Place(node=stuck[0]), "no cycle", shown)
    return iter([nodes[at] for at in order])


def _makers(nodes: list[NodeProto], known: Container[str], prefix: str) -> dict[str, int]:
    """Which node makes each name."""
    made: dict[str, int] = {}
    for at, node in enumerate(nodes):
        for name in node.output:
            if not name:
                continue
            # A graph inside a node may use a name of the graphs around it for its own values.
            if name in made:
                message = f"Two nodes make {name!r}."
                place = Place(node=prefix + name_of(node))
                first = prefix + name_of(nodes[made[name]])
                raise Malformed.of("bad-model", message, place, "one node", first)
            made[name] = at
    return made


def names_read(node: NodeProto) -> Iterator[str]:
    """The names a node reads, and those that graphs inside of it read from outside."""
    used: dict[str, None] = {}
    inside: set[str] = set()
    stack = [node]
    while stack:
        node_proto = stack.pop()
        used.update(dict.fromkeys(name for name in node_proto.input if name))
        if node_proto is not node:
            inside.update(node_proto.output)
        for attribute in node_proto.attribute:
            for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                stack += graph.node
                used.update(dict.fromkeys(output.name for output in graph.output))
                inside.update(one.name for one in (*graph.input, *graph.initializer))
    yield from (name for name in used if name not in inside or name in node.input)
