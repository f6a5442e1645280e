"""Post-dominators of dataflow: through which expressions every use of a value must pass.

`a` post-dominates `b` if every path from `b` to the result passes through `a`: `a` is the first
place at which all uses of `b` have joined again, where fusion may close a group.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((2,), "f32"))
>>> left, right = x + 1, x * 2
>>> tree = PostDominators(left - right)
>>> tree.immediate(x) is left - right, tree.immediate(left) is left - right
(True, True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from plica.core import Term, parts_first
from plica.ir.graph.expression import Expr
from plica.rewrite.graph.walk import operands

Parts = Callable[[Any], Iterable[Any]]  # Any: expressions, or whatever a graph is made of


class PostDominators:
    """The tree of immediate post-dominators below a result; n nodes take n log n steps.

    `parts` returns the parts of a node; another function gives the tree of another graph.
    """

    def __init__(self, root: Expr, parts: Parts = operands) -> None:
        self.nodes = sorted_from(root, parts)
        self.tree = ScopeTree()
        self.number: dict[Term, int] = {root: ScopeTree.root}
        self._at: list[Any] = [root]
        common: dict[Term, int] = {}
        for node in self.nodes:
            if node is not root:
                self.number[node] = self.tree.add(common[node])
                self._at.append(node)
            mine = self.number[node]
            for part in parts(node):
                seen = common.get(part)
                common[part] = mine if seen is None else self.tree.common(seen, mine)

    def immediate(self, node: Any) -> Any:
        """The nearest expression every way from `node` passes, None for the result itself."""
        number = self.number[node]
        return None if number == ScopeTree.root else self._at[self.tree.parent[number]]

    def dominates(self, node: Any, other: Any) -> bool:
        """Whether every way from `other` to the result passes `node`; a node dominates itself."""
        return self.tree.is_inside(self.number[other], self.number[node])

    def preorder(self) -> list[Any]:
        """The nodes, each followed by all that it dominates."""
        inside: list[list[int]] = [[] for _ in self._at]
        for number in range(len(self._at) - 1, 0, -1):
            inside[self.tree.parent[number]].append(number)
        order: list[Any] = []
        stack = [ScopeTree.root]
        while stack:
            number = stack.pop()
            order.append(self._at[number])
            stack.extend(inside[number])
        return order

    def common(self, node: Any, other: Any) -> Any:
        """The nearest expression that dominates both."""
        return self._at[self.tree.common(self.number[node], self.number[other])]


def sorted_from(root: Any, parts: Parts) -> list[Any]:
    """Everything below `root`, wholes before parts."""
    return parts_first(parts, root)[::-1]


# --- trees that grow at their leaves, and the lowest common ancestor of two nodes --------------


class ScopeTree:
    """Nodes are numbers in the order in which they were added; the root is 0."""

    root = 0

    def __init__(self) -> None:
        self.parent = [0]
        self.depth = [0]
        self._jump = [0]

    def add(self, parent: int) -> int:
        """A new leaf below `parent`."""
        jump, depth = self._jump, self.depth
        near = jump[parent]
        far = jump[near]
        balanced = depth[parent] - depth[near] == depth[near] - depth[far]
        self.parent.append(parent)
        depth.append(depth[parent] + 1)
        jump.append(far if balanced else parent)
        return len(depth) - 1

    def ancestor(self, node: int, depth: int) -> int:
        """The ancestor at a depth, which is at most the node's own."""
        while self.depth[node] > depth:
            jump = self._jump[node]
            node = jump if self.depth[jump] >= depth else self.parent[node]
        return node

    def common(self, a: int, b: int) -> int:
        """The lowest node that both are inside of; a node is inside itself."""
        if self.depth[a] > self.depth[b]:
            a, b = b, a
        b = self.ancestor(b, self.depth[a])
        while a != b:
            if self._jump[a] == self._jump[b]:
                a, b = self.parent[a], self.parent[b]
            else:
                a, b = self._jump[a], self._jump[b]
        return a

    def is_inside(self, node: int, ancestor: int) -> bool:
        """Whether a node is in the subtree of another."""
        depth = self.depth[ancestor]
        return self.depth[node] >= depth and self.ancestor(node, depth) == ancestor
