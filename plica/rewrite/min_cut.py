"""Minimum cuts: assigns things to sides so that few nets span several sides.

>>> nets = [("a", "b"), ("b", "c"), ("b", "d")]
>>> cheapest(nets, {"a": "left", "c": "right", "d": "right"}, "left")["b"]
'right'
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def cheapest(
    nets: Sequence[Sequence[T | str]], pinned: Mapping[T, str], default: str
) -> dict[T | str, str]:
    """The side of everything in the nets; pinned things keep theirs."""
    sides = list(dict.fromkeys((default, *pinned.values())))
    things: dict[T | str, None] = dict.fromkeys(pinned)
    for net in nets:
        things.update(dict.fromkeys(net))
    ends: list[tuple[T | str, str]] = [(side, side) for side in sides if side in things]
    ends.extend(pinned.items())
    fixed = dict(ends)
    result: dict[T | str, str] = {}
    for side in sides[1:]:
        inside = _around(nets, {each for each in fixed if fixed[each] == side}, fixed)
        result.update({each: side for each in inside if each not in result})
    for thing in things:
        result.setdefault(thing, default)
    result.update(fixed)
    return result


def _around(
    nets: Sequence[Sequence[T | str]], sources: set[T | str], fixed: Mapping[T | str, str]
) -> list[T | str]:
    """The fewest things around the sources that cutting the least number of nets leaves."""
    number: dict[T | str, int] = {}
    for net in nets:
        for each in net:
            number.setdefault(each, len(number))
    things = list(number)
    graph = FlowNetwork(len(things) + 2 * len(nets))
    for at, net in enumerate(nets):
        enter, leave = len(things) + 2 * at, len(things) + 2 * at + 1
        graph.edge(enter, leave, 1)
        for each in dict.fromkeys(net):
            graph.edge(number[each], enter, len(nets))
            graph.edge(leave, number[each], len(nets))
    begin = [number[thing] for thing in things if thing in sources]
    end = {number[thing] for thing in things if thing in fixed and thing not in sources}
    while graph.flow(begin, end):
        pass
    level = graph.levels(begin)
    return [thing for thing in things if level[number[thing]] >= 0]


class FlowNetwork:
    """What can still flow along the edges of a graph; each edge is followed by its reverse."""

    def __init__(self, count: int) -> None:
        self.edges: list[list[int]] = [[] for _ in range(count)]
        self.to: list[int] = []
        self.room: list[int] = []

    def edge(self, start: int, end: int, room: int) -> None:
        """Let `room` flow from one vertex to another."""
        for vertex, other, much in ((start, end, room), (end, start, 0)):
            self.edges[vertex].append(len(self.to))
            self.to.append(other)
            self.room.append(much)

    def levels(self, begin: Sequence[int]) -> list[int]:
        """How many edges with room lead to each vertex, -1 where none do."""
        level = [-1] * len(self.edges)
        queue = deque(begin)
        for vertex in begin:
            level[vertex] = 0
        while queue:
            vertex = queue.popleft()
            for edge in self.edges[vertex]:
                other = self.to[edge]
                if self.room[edge] and level[other] < 0:
                    level[other] = level[vertex] + 1
                    queue.append(other)
        return level

    def flow(self, begin: Sequence[int], end: set[int]) -> int:
        """Augments the flow along shortest paths; returns the number of paths."""
        level = self.levels(begin)
        if all(level[vertex] < 0 for vertex in end):
            return 0
        tried = [0] * len(self.edges)  # of the edges of each vertex, how many lead nowhere
        found = 0
        for start in begin:
            while True:
                if (way := self._way(start, end, level, tried)) is None:
                    break
                found += 1
                for edge in way:
                    self.room[edge] -= 1
                    self.room[edge ^ 1] += 1
        return found

    def _way(
        self, start: int, end: set[int], level: list[int], tried: list[int]
    ) -> list[int] | None:
        """A path that ascends one level per edge; dead ends are not retried."""
        way: list[int] = []
        vertex = start
        while vertex not in end:
            edges = self.edges[vertex]
            while tried[vertex] < len(edges):
                edge = edges[tried[vertex]]
                if self.room[edge] and level[self.to[edge]] == level[vertex] + 1:
                    way.append(edge)
                    vertex = self.to[edge]
                    break
                tried[vertex] += 1
            else:
                if not way:
                    return None
                vertex = self.to[way.pop() ^ 1]
                tried[vertex] += 1
        return way
