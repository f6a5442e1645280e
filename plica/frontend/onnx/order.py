"""Order: nodes after what they use, whatever order a file has them in.

Ties keep the order of the file.  A cycle, a name that nothing makes and a name made twice are
refused, each naming its nodes.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from plica.core.diagnostic import Malformed, did_you_mean
from plica.frontend.onnx.attribute import name_of
from plica.runtime.error import Diagnostic, Place

if TYPE_CHECKING:
    from onnx import NodeProto


def ordered(nodes: list[NodeProto], known: Container[str], prefix: str = "") -> Iterator[NodeProto]:
    """The nodes in an order in which each comes after what it uses; `known` needs no node."""
    made = _makers(nodes, known, prefix)
    waiting = [0] * len(nodes)
    after: list[list[int]] = [[] for _ in nodes]
    wrong: list[Diagnostic] = []
    for at, node in enumerate(nodes):
        for name in dict.fromkeys(_uses(node)):
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
        raise Malformed(Diagnostic("bad-model", message, Place(node=stuck[0]), "no cycle", shown))
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
                raise Malformed(Diagnostic("bad-model", message, place, "one node", first))
            made[name] = at
    return made


def _uses(node: NodeProto) -> Iterator[str]:
    """The names a node reads, and those that graphs inside of it read from outside."""
    used: dict[str, None] = {}
    inside: set[str] = set()
    stack = [node]
    while stack:
        each = stack.pop()
        used.update(dict.fromkeys(name for name in each.input if name))
        if each is not node:
            inside.update(each.output)
        for attribute in each.attribute:
            for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                stack += graph.node
                used.update(dict.fromkeys(output.name for output in graph.output))
                inside.update(one.name for one in (*graph.input, *graph.initializer))
    yield from (name for name in used if name not in inside or name in node.input)
