"""Decision trees: which clause of a match fits, found by looking at each tag once.

    Node ::= Switch(root, path, cases, default) | Leaf(clause) | Miss

Nodes are numbered and refer to one another by number, so that clauses which several ways lead to
are there once.  The first node is where the search begins.

>>> tree([(0, {(0, ()): Test(1, 2, {})}), (1, {})])
(Switch(root=0, path=(), cases=((1, 1),), default=2), Leaf(clause=0), Leaf(clause=1))

Rows are tried in order, so the first clause that fits is the one; a constructor that no row asks
about leads to the default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from attrs import frozen

from plica.runtime.error import Diagnostic, UnsupportedError

MAX_NODES: Final = 20_000
"""How many nodes a tree may have: overlapping patterns can ask for exponentially many."""

Place: TypeAlias = tuple[int, tuple[int, ...]]
"""Where something stands: the number of a root, and the fields on the way from there."""


@frozen(eq=False)
class Test:
    """A tag that is asked for, of how many there are, and what is asked inside then."""

    tag: int
    count: int
    inside: Mapping[Place, Test]


Row: TypeAlias = tuple[int, Mapping[Place, Test]]  # a clause, and what it still asks


@frozen
class Switch:
    """Go on by the tag of an object: pairs of tag and node, and the node for all others."""

    root: int
    path: tuple[int, ...]
    cases: tuple[tuple[int, int], ...]
    default: int | None


@frozen
class Leaf:
    """This clause fits."""

    clause: int


@frozen
class Miss:
    """No clause fits."""


Node: TypeAlias = Switch | Leaf | Miss
_Number: TypeAlias = Callable[[Sequence[Row]], int]


def tree(rows: Sequence[Row]) -> tuple[Node, ...]:
    """The tree for rows in order of preference."""
    nodes: list[Node | None] = []
    known: dict[object, int] = {}
    todo: list[tuple[int, Sequence[Row]]] = []

    def number(of: Sequence[Row]) -> int:
        key = tuple([(clause, tuple(asked.items())) for clause, asked in of])
        if key not in known:
            if len(nodes) >= MAX_NODES:
                message = "A match has too many overlapping patterns."
                hint = "Take it apart into several matches."
                expected = f"at most {MAX_NODES} cases"
                raise UnsupportedError(
                    Diagnostic("unsupported", message, None, expected, None, hint)
                )
            known[key] = len(nodes)
            nodes.append(None)
            todo.append((known[key], of))
        return known[key]

    number(rows)
    while todo:
        at, here = todo.pop(0)
        nodes[at] = _node(here, number)
    return tuple([node for node in nodes if node is not None])


def _node(rows: Sequence[Row], number: _Number) -> Node:
    if not rows:
        return Miss()
    clause, asked = rows[0]
    if not asked:
        return Leaf(clause)
    place = next(iter(asked))
    tags = dict.fromkeys([row[place].tag for _, row in rows if place in row])
    cases = tuple([(tag, number(_under(rows, place, tag))) for tag in sorted(tags)])
    rest = [row for row in rows if place not in row[1]]
    default = None if len(tags) == asked[place].count else number(rest)
    return Switch(place[0], place[1], cases, default)


def _under(rows: Sequence[Row], place: Place, tag: int) -> list[Row]:
    """The rows that can still fit once a tag is known."""
    found: list[Row] = []
    for clause, asked in rows:
        if (test := asked.get(place)) is None:
            found.append((clause, asked))
        elif test.tag == tag:
            rest = {each: what for each, what in asked.items() if each != place}
            found.append((clause, {**test.inside, **rest}))
    return found
