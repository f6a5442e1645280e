"""Views among the results of a traced graph: what shares memory in torch shares it here.

A view of a value (`y.view(-1)`, `y.expand(3, 4)`, `y[1:]`) has no memory of its own. If one is a
result, torch creates it at the end, from the value that Plica computed: so results that are views
of one another, or of an input, see each other's writes, and have the strides that torch expects.
Inside a part a view is an ordinary operator, and so is a dense, unshared result: gradients of
weights have two transposes, which cancel.
"""

from __future__ import annotations

import operator
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch import fx

MARK: Final = "plica_result_view"  # the mark of nodes that torch computes at the end


def with_views_last(root: fx.GraphModule) -> fx.GraphModule:
    """The graph with the views among its results once more at its end, for torch to make."""
    (output,) = [node for node in root.graph.nodes if node.op == "output"]
    again: dict[fx.Node, fx.Node] = {}
    roots = Counter(_root(node) for node in output.all_input_nodes)
    results = [
        node
        for node in output.all_input_nodes
        if is_view(node) and not (roots[_root(node)] == 1 and _is_whole(node))
    ]
    if not results:
        return root
    with root.graph.inserting_before(output):
        for result in results:
            chain = [result]
            while is_view(_base(chain[-1])):
                chain.append(_base(chain[-1]))
            for node in reversed(chain):
                if node not in again:
                    again[node] = root.graph.node_copy(node, lambda old: again.get(old, old))
                    again[node].meta[MARK] = True
    output.args = _replaced(output.args, again)
    for node in reversed(list(root.graph.nodes)):
        if node in again and not node.users:
            root.graph.erase_node(node)
    return root


def is_view(node: fx.Node) -> bool:
    """Whether a node gives a tensor over the memory of its first argument."""
    if node.op != "call_function" or not node.args:
        return False
    if node.target is operator.getitem:
        return is_view(_base(node))
    schema: Any = getattr(node.target, "_schema", None)
    return schema is not None and any(
        each.alias_info is not None and not each.alias_info.is_write for each in schema.returns
    )


def ending_views(root: fx.GraphModule) -> set[fx.Node]:
    """The views that only results are made of."""
    nodes: set[fx.Node] = set()
    for node in reversed(list(root.graph.nodes)):
        if is_view(node) and all(user.op == "output" or user in nodes for user in node.users):
            nodes.add(node)
    return nodes


def is_made_last(node: fx.Node) -> bool:
    """Whether a node is a view among the results, which is left to torch."""
    return bool(node.meta.get(MARK))


def _base(node: fx.Node) -> fx.Node:
    return node.all_input_nodes[0]


def _root(node: fx.Node) -> fx.Node:
    """The node whose memory a view is of, a node itself where it is no view."""
    while is_view(node):
        node = _base(node)
    return node


def _is_whole(node: fx.Node) -> bool:
    """Whether a view is dense, has all elements of the computed value, and static sizes."""
    known: list[Any] = [each.meta.get("val") for each in (node, _root(node))]
    if _root(node).op != "call_function" or not all(hasattr(each, "dtype") for each in known):
        return False
    said, whole = known
    sizes: list[Any] = [*said.shape, *said.stride(), *whole.shape]
    return (
        all(isinstance(size, int) for size in sizes)
        and said.dtype == whole.dtype
        and said.numel() == whole.numel()
        and bool(said.is_contiguous())
    )


def _replaced(given: Any, again: dict[fx.Node, fx.Node]) -> Any:
    if isinstance(given, list | tuple):
        return type(given)([_replaced(each, again) for each in given])
    return again.get(given, given) if hasattr(given, "all_input_nodes") else given
