"""Rows: groups that follow one another along the same rows become one.

A reduction along the last axes and what is computed from its result read the same row, so they are
one kernel with a loop over rows around its *stages*, each a group by itself:

    softmax   m[i]    = max over k of x[i, k]
              e[i, j] = exp(x[i, j] - m[i])            stages of one row,
              s[i]    = sum over k of e[i, k]          which stays in the nearest cache
              y[i, j] = e[i, j] / s[i]

A group joins that of its users if these are all in one, read it at their own row, and at least one
reduction is among what is joined.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Apply, Var
>>> from plica.ir.type.infer import infer_expr
>>> from plica.ir.type.term import tensor
>>> from plica.rewrite.fuse.decide import USUAL
>>> x = Var(Name("x"), tensor((2, 3), "f32"))
>>> root = infer_expr(x - Apply("max", (x,), (("axis", (1,)), ("keepdims", True))))
>>> whole = with_rows(decide(root, USUAL)).groups[root]
>>> whole.rows, [operator(each.sink) for each in whole.stages]
(1, ['max', 'subtract'])
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Final, TypeAlias

from plica.ir.graph.expression import Expr
from plica.ir.loop.scalar import Scalar
from plica.ir.type.dim import known
from plica.ir.type.infer import type_of
from plica.ir.type.term import TensorType
from plica.rewrite.fuse.decide import Decisions, Group, Verdict, decide, moved
from plica.rewrite.fuse.reading import Index, operator, parts, reading

__all__ = ["decide", "operator", "with_rows"]

Size: TypeAlias = "int | Scalar"

MOST_BYTES: Final = 1024 * 1024
"""What all stages keep of one row, at most: it should stay in a near cache."""

MOST_STAGES: Final = 12


class _Line:
    """Groups along the same rows; grows from the last towards the inputs."""

    def __init__(self, last: Group) -> None:
        self.stages = [last]
        self.rows: tuple[Size, ...] | None = None
        self.bytes = 0


def with_rows(decisions: Decisions) -> Decisions:
    """The decisions once groups along the same rows are one."""
    groups = dict(decisions.groups)
    lines: dict[Group, _Line] = {}
    for node in reversed(decisions.order):
        group = groups.get(node)
        if group is None or group.sink is not node:
            continue
        line = _joined(group, decisions, lines)
        lines[group] = _Line(group) if line is None else line
    verdicts = dict(decisions.verdicts)
    place = {node: number for number, node in enumerate(decisions.order)}
    for line in dict.fromkeys(lines.values()):
        if len(line.stages) == 1 or line.rows is None:
            continue
        first, *others = line.stages
        whole = Group(first.sink, first.of, is_closed=True)
        spots = [pair for each in line.stages for pair in each.spots.items()]
        whole.spots = dict(sorted(spots, key=lambda pair: -place[pair[0]]))
        whole.stages, whole.rows = tuple(reversed(line.stages)), len(line.rows)
        for node in whole.spots:
            groups[node] = whole
        for each in others:
            verdicts[each.sink] = Verdict("row")
    return Decisions(decisions.order, decisions.users, groups, verdicts)


def _joined(group: Group, decisions: Decisions, lines: dict[Group, _Line]) -> _Line | None:
    """The line of all users of a group, if it may be a stage of that."""
    users = decisions.users[group.sink]
    line: _Line | None = None
    for user in users:
        theirs = decisions.groups.get(user)
        if theirs is None or (line is not None and lines[theirs] is not line):
            return None
        line = lines[theirs]
    if line is None or len(line.stages) >= MOST_STAGES:
        return None
    if not all(map(_is_stage, (group, *line.stages))):
        return None
    sizes = _sizes(group)
    if sizes is None or any(_sizes(each) is None for each in line.stages):
        return None
    rows = line.rows
    if group.anchor is not None:
        rows = _rows(sizes) if rows is None else rows
        if rows is None or sizes[: len(rows)] != rows or _elements(sizes[len(rows) :]) != 1:
            return None
    if rows is None or sizes[: len(rows)] != rows:
        return None
    if line.rows is None and any((_sizes(each) or ())[: len(rows)] != rows for each in line.stages):
        return None
    if not all(_is_straight(each, len(rows)) for each in (group, *line.stages)):
        return None
    if not _read_at_rows(group.sink, users, decisions, len(rows)):
        return None
    assert group.of is not None
    if (elements := _elements(sizes[len(rows) :])) is None:
        return None
    size = elements * group.of.compute.dtype.bytes
    if line.bytes + size > MOST_BYTES:
        return None
    line.rows = rows
    line.bytes += size
    line.stages.append(group)
    return line


def _is_stage(group: Group) -> bool:
    """Whether a group can be computed row by row: it reduces in the simplest way, if at all."""
    if group.is_closed or group.of is None or group.of.may_fail:
        return False
    return group.anchor is None or group.anchor_kind == "reduction"


def _is_straight(group: Group, rows: int) -> bool:
    """Whether the rows of what a group reduces are those of what it makes, in the same order."""
    if group.anchor is None or group.of is None or group.anchor is group.sink:
        return True
    return group.spots[group.anchor].place[:rows] == group.of.identity[:rows]


def _sizes(group: Group) -> tuple[Size, ...] | None:
    """The shape of what a group makes, where it is not known to be empty."""
    of = type_of(group.sink)
    if not isinstance(of, TensorType) or any(known(size) == 0 for size in of.shape):
        return None
    return tuple([known(size) or size for size in of.shape])


def _elements(sizes: tuple[Size, ...]) -> int | None:
    """How many elements that is, None where some size is open."""
    numbers = [each for each in sizes if isinstance(each, int)]
    return prod(numbers) if len(numbers) == len(sizes) else None


def _rows(sizes: tuple[Size, ...]) -> tuple[Size, ...] | None:
    """The axes that are left by a reduction; a single row may have none."""
    count = max((at + 1 for at, size in enumerate(sizes) if size != 1), default=min(1, len(sizes)))
    return sizes[:count] if count else None


def _read_at_rows(value: Expr, users: Iterable[Expr], decisions: Decisions, rows: int) -> bool:
    """Whether all users of a value read the row they are part of."""
    for user in users:
        theirs, group = reading(user), decisions.groups[user]
        assert theirs is not None
        assert group.of is not None
        own: Index = group.of.identity[:rows]
        at = group.spots[user].place
        for number, part in enumerate(parts(user) or ()):
            if part is not value:
                continue
            if theirs.dependent[number] or not theirs.places[number]:
                return False
            if any(moved(each, theirs, at)[:rows] != own for each in theirs.places[number]):
                return False
    return True
