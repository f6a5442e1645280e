"""Trees that grow at their leaves, and the lowest common ancestor of two nodes.

>>> tree = ScopeTree()
>>> left, right = tree.add(tree.root), tree.add(tree.root)
>>> tree.common(tree.add(left), right) == tree.root, tree.is_inside(left, tree.root)
(True, True)
"""

from __future__ import annotations


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
