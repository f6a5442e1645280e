"""Regions: where each operator of a resolved graph runs, so that branches not taken cost nothing.

The regions of a program form a tree: the whole, and below it the two branches of each `If`. What is
needed in one region runs there. What both branches of an `If` need runs before it. What only some
branches need becomes a thunk: a region of its own, forced where it is needed and run at most once.
So a graph of n nodes gives n steps, whatever its branches share.

>>> tree = RegionTree()
>>> then, orelse = tree.branches(0)
>>> tree.reduced([then, orelse]), tree.reduced([then, 0])
([0], [0])
>>> deeper, _ = tree.branches(then)
>>> tree.reduced([deeper, orelse]), tree.common([deeper, orelse])
([2, 3], 0)
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush


class RegionTree:
    """A growing tree of numbered regions with the root 0; common ancestors in logarithmic time."""

    def __init__(self) -> None:
        self._parent = [0]
        self._jump = [0]  # an ancestor far away: skew-binary jump pointers
        self._depth = [0]
        self._sibling = [0]  # the other branch of the same `If`, or the region itself

    def child(self, parent: int) -> int:
        """A new region below `parent`."""
        number = len(self._parent)
        near = self._jump[parent]
        far = self._jump[near]
        even = self._depth[parent] - self._depth[near] == self._depth[near] - self._depth[far]
        self._parent.append(parent)
        self._jump.append(far if even else parent)
        self._depth.append(self._depth[parent] + 1)
        self._sibling.append(number)
        return number

    def branches(self, parent: int) -> tuple[int, int]:
        """The two regions of an `If` that runs in `parent`."""
        then, orelse = self.child(parent), self.child(parent)
        self._sibling[then], self._sibling[orelse] = orelse, then
        return then, orelse

    def ancestor(self, region: int, depth: int) -> int:
        """The ancestor of `region` at a depth."""
        while self._depth[region] > depth:
            jump = self._jump[region]
            region = jump if self._depth[jump] >= depth else self._parent[region]
        return region

    def common(self, regions: Iterable[int]) -> int:
        """The deepest region that contains all of them."""
        first, *rest = regions
        for other in rest:
            depth = min(self._depth[first], self._depth[other])
            a, b = self.ancestor(first, depth), self.ancestor(other, depth)
            while a != b:
                if self._jump[a] != self._jump[b]:
                    a, b = self._jump[a], self._jump[b]
                else:
                    a, b = self._parent[a], self._parent[b]
            first = a
        return first

    def reduced(self, regions: Iterable[int]) -> list[int]:
        """The outermost regions in which the use is certain, sorted.

        Two branches of one `If` are their parent; a region inside another of the set adds nothing.
        """
        found = set(regions)
        heap = [(-self._depth[region], region) for region in found]
        heapify(heap)
        while heap:  # deepest first, so that merged parents meet their own siblings
            _, region = heappop(heap)
            other = self._sibling[region]
            if region in found and other != region and other in found:
                found -= {region, other}
                parent = self._parent[region]
                if parent not in found:
                    found.add(parent)
                    heappush(heap, (-self._depth[parent], parent))
        return sorted(found if len(found) == 1 else self._outermost(found))

    def _outermost(self, regions: set[int]) -> list[int]:
        """Those that lie inside no other."""
        inside: dict[int, bool] = {}  # whether a region is one of them, or below one
        for region in regions:
            inside[region] = True
        kept = []
        for region in regions:
            path = []
            at = self._parent[region]
            while at not in inside and at != 0:
                path.append(at)
                at = self._parent[at]
            below = region != 0 and inside.get(at, False)
            inside.update(dict.fromkeys(path, below))
            if not below:
                kept.append(region)
        return kept
