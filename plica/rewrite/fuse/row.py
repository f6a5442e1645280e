"""Rows: groups that follow one another along the same rows become one.

A reduction along the last axes and the operators on its result read the same row, so they become
one kernel with a loop over rows around its *stages*, each a group:

    softmax   m[i]    = max over k of x[i, k]
              e[i, j] = exp(x[i, j] - m[i])            stages of one row,
              s[i]    = sum over k of e[i, k]          which stays in the nearest cache
              y[i, j] = e[i, j] / s[i]

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Apply, Var
>>> from plica.ir.type.infer import infer_expr
>>> from plica.ir.type.term import tensor
>>> from plica.rewrite.fuse.limit import DEFAULT_LIMITS, FusionLimits
>>> x = Var(Name("x"), tensor((2, 3), "f32"))
>>> root = infer_expr(x - Apply("max", (x,), (("axis", (1,)), ("keepdims", True))))
>>> whole = with_rows(decide(root, DEFAULT_LIMITS)).groups[root]
>>> whole.rows, [operator(each.sink) for each in whole.stages]
(1, ['max', 'subtract'])
>>> root = infer_expr(x - Apply("max", (x,), (("axis", (0,)), ("keepdims", True))))
>>> len(with_rows(decide(root, DEFAULT_LIMITS)).groups[root].stages)
0
>>> columns = FusionLimits(columns=lambda _: True)
>>> len(with_rows(decide(root, columns), columns).groups[root].stages)
2
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final, TypeAlias

from plica.ir.graph.expression import Expr
from plica.ir.loop.scalar import Scalar
from plica.ir.type import TensorType, known, type_of
from plica.rewrite.fuse.decide import Decisions, Group, Verdict, decide, moved
from plica.rewrite.fuse.limit import DEFAULT_LIMITS, FusionLimits
from plica.rewrite.fuse.reading import Index, operator, parts, reading

__all__ = ["decide", "operator", "with_rows"]

Size: TypeAlias = "int | Scalar"

MAX_STAGES: Final = 12


class _Line:
    """Groups along the same rows; grows from the last towards the inputs."""

    def __init__(self, last: Group) -> None:
        self.stages = [last]
        self.rows: tuple[Size, ...] | None = None
        self.across: tuple[Size, ...] | None = None
        """The axes that reductions keep, if rows are not along the last ones."""
        self.bytes = 0


def with_rows(
    decisions: Decisions,
    limits: FusionLimits = DEFAULT_LIMITS,
    is_wanted: Callable[[Group], bool] | None = None,
) -> Decisions:
    """The decisions once groups along the same rows are one; rows that are not along the last axes
    where that `is_wanted`."""
    groups = dict(decisions.groups)
    lines: dict[Group, _Line] = {}
    for node in reversed(decisions.order):
        group = groups.get(node)
        if group is None or group.sink is not node:
            continue
        line = _joined(group, decisions, lines, limits)
        lines[group] = _Line(group) if line is None else line
    verdicts = dict(decisions.verdicts)
    place = {node: number for number, node in enumerate(decisions.order)}
    for line in dict.fromkeys(lines.values()):
        if len(line.stages) == 1 or (line.rows is None and line.across is None):
            continue
        first, *others = line.stages
        whole = Group(first.sink, first.of, is_closed=True)
        spots = [pair for stage in line.stages for pair in stage.spots.items()]
        whole.spots = dict(sorted(spots, key=lambda pair: -place[pair[0]]))
        whole.stages, whole.rows = tuple(reversed(line.stages)), len(line.rows or ())
        if line.rows is None and is_wanted is not None and not is_wanted(whole):
            continue
        for node in whole.spots:
            groups[node] = whole
        for each in others:
            verdicts[each.sink] = Verdict("row")
    return Decisions(decisions.order, decisions.users, groups, verdicts)


def _joined(
    group: Group, decisions: Decisions, lines: dict[Group, _Line], limits: FusionLimits
) -> _Line | None:
    """The line of all users of a group, if it may be a stage of that."""
    users = decisions.users[group.sink]
    line: _Line | None = None
    for user in users:
        theirs = decisions.groups.get(user)
        if theirs is None or (line is not None and lines[theirs] is not line):
            return None
        line = lines[theirs]
    if line is None or len(line.stages) >= MAX_STAGES:
        return None
    if not all(map(_is_stage, (group, *line.stages))):
        return None
    sizes = _sizes(group)
    if sizes is None or any(_sizes(stage) is None for stage in line.stages):
        return None
    rows, across = _along(group, line, sizes, decisions), None
    if rows is None and limits.columns is not None:
        across = _across(group, line, sizes, decisions)
    if rows is None and across is None:
        return None
    own = sizes[len(rows) :] if rows is not None else _of_row(sizes, across or ())
    elements = _elements(own)
    if elements is None and (rows is None or not limits.open_rows):
        return None
    assert group.of is not None
    size = (elements or 0) * group.of.compute.dtype.bytes
    if line.bytes + size > limits.row_bytes:
        return None
    line.rows, line.across = rows, across
    line.bytes += size
    line.stages.append(group)
    return line


def _along(
    group: Group, line: _Line, sizes: tuple[Size, ...], decisions: Decisions
) -> tuple[Size, ...] | None:
    """The first axes, which say which row, if a group may be a stage along the last ones."""
    rows = line.rows
    if line.across is not None:
        return None
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
    places = [at for at, size in enumerate(rows) if size != 1]
    return rows if _read_at(group.sink, decisions, places) else None


def _across(
    group: Group, line: _Line, sizes: tuple[Size, ...], decisions: Decisions
) -> tuple[Size, ...] | None:
    """The axes kept by all reductions, if a group may be a stage along the others."""
    if line.rows is not None or (group.anchor is None and line.across is None):
        return None
    left = sizes if line.across is None else line.across
    if group.anchor is not None and sizes != left:
        return None
    whole = {found for stage in line.stages if (found := _sizes(stage)) != left}
    if not all(map(_is_whole, (group, *line.stages))) or len(whole | {sizes} - {left}) != 1:
        return None
    (of,) = whole | {sizes} - {left}
    if of is None or len(of) != len(left):
        return None
    if any(mine not in (1, theirs) for mine, theirs in zip(left, of, strict=True)):
        return None
    places = [at for at, size in enumerate(left) if size != 1]
    return left if _read_at(group.sink, decisions, places) else None


def _of_row(sizes: tuple[Size, ...], left: tuple[Size, ...]) -> tuple[Size, ...]:
    """The sizes of the axes along which rows lie."""
    return tuple([size for size, mine in zip(sizes, left, strict=True) if mine == 1])


def _is_stage(group: Group) -> bool:
    """Whether a group can be computed row by row: it reduces in the simplest way, if at all."""
    if group.is_closed or group.of is None or group.of.may_fail:
        return False
    return group.anchor is None or group.anchor_kind == "reduction"


def _is_straight(group: Group, rows: int) -> bool:
    """Whether the rows of a group's operand are those of its result, in the same order."""
    if group.anchor is None or group.of is None or group.anchor is group.sink:
        return True
    return group.spots[group.anchor].place[:rows] == group.of.identity[:rows]


def _is_whole(group: Group) -> bool:
    """Whether a group's operand has the axes of its result, in the same order."""
    if group.anchor is None or group.of is None or group.anchor is group.sink:
        return True
    return group.spots[group.anchor].place == group.of.identity


def _sizes(group: Group) -> tuple[Size, ...] | None:
    """The shape of a group's result, unless it is known to be empty."""
    of = type_of(group.sink)
    if not isinstance(of, TensorType) or any(known(size) == 0 for size in of.shape):
        return None
    return tuple([known(size) or size for size in of.shape])


def _elements(sizes: tuple[Size, ...]) -> int | None:
    """The number of elements, or None if some size is open."""
    numbers = [size for size in sizes if isinstance(size, int)]
    return prod(numbers) if len(numbers) == len(sizes) else None


def _rows(sizes: tuple[Size, ...]) -> tuple[Size, ...] | None:
    """The axes that are left by a reduction; a single row may have none."""
    count = max((at + 1 for at, size in enumerate(sizes) if size != 1), default=min(1, len(sizes)))
    return sizes[:count] if count else None


def _read_at(value: Expr, decisions: Decisions, places: Sequence[int]) -> bool:
    """Whether all users of a value read the row they are part of: some of the axes say which."""
    for user in decisions.users[value]:
        theirs, group = reading(user), decisions.groups[user]
        assert theirs is not None
        assert group.of is not None
        own: Index = group.of.identity
        at = group.spots[user].place
        for number, part in enumerate(parts(user) or ()):
            if part is not value:
                continue
            if theirs.dependent[number] or not theirs.places[number]:
                return False
            for scalars in theirs.places[number]:
                there = moved(scalars, theirs, at)
                if [there[n : n + 1] for n in places] != [own[n : n + 1] for n in places]:
                    return False
    return True
