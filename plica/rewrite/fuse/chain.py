"""Chains: a product, row-wise operations on its result, and a second product become one kernel.

attention   s[i, k] = sum over d of q[i, d] * k[k, d]
            w[i, k] = softmax over k of s[i, k]              stages of one function,
            y[i, d] = sum over k of w[i, k] * v[k, d]        where a form can compute them so
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final

from plica.ir.graph.expression import Const, Expr
from plica.rewrite.fuse.decide import Decisions, Group, Verdict, inside, spot_of
from plica.rewrite.fuse.reading import operator, parts

MOVES: Final = ("broadcast_to", "repeat", "slice", "transpose")
"""Operators that only say where an element is read."""

PRODUCT: Final = "complex-out-fusable"  # the kind of operators that sum products of two tensors


def with_chains(decisions: Decisions, is_wanted: Callable[[Group], bool]) -> Decisions:
    """The decisions once products around rows are one group with those, where that is wanted."""
    groups, verdicts = dict(decisions.groups), dict(decisions.verdicts)
    place = {node: number for number, node in enumerate(decisions.order)}
    for node in reversed(decisions.order):
        last = groups.get(node)
        if last is None or last.sink is not node or not is_product(last):
            continue
        between = _before(last, decisions, groups, lambda each: bool(each.stages))
        first = None if between is None else _before(between, decisions, groups, is_product)
        if between is None or first is None:
            continue
        whole = Group(last.sink, last.of, is_closed=True)
        members = [first, between, last]
        members += _sides(members, decisions, groups)
        spots = [pair for member in members for pair in member.spots.items()]
        whole.spots = dict(sorted(spots, key=lambda pair: -place[pair[0]]))
        whole.stages, whole.rows = (first, *between.stages, last), between.rows
        if not is_wanted(whole):
            continue
        for spot in whole.spots:
            groups[spot] = whole
        for joined in (first, between, *members[3:]):
            verdicts[joined.sink] = Verdict("row")
    return Decisions(decisions.order, decisions.users, groups, verdicts)


def is_product(group: Group) -> bool:
    """Whether a group is a product with its prologue and epilogue."""
    if group.stages or group.anchor is None or group.anchor_kind != PRODUCT:
        return False
    return len(parts(group.anchor) or ()) == 2


def _sides(members: list[Group], decisions: Decisions, groups: dict[Expr, Group]) -> list[Group]:
    """Groups that only move, widen or scale what such a chain reads: it may as well read that."""
    inner = dict.fromkeys(node for member in members for node in member.spots)
    stages = [stage for member in members for stage in member.stages or (member,)]
    found: list[Group] = []
    for node in inner:
        for part in inside(node):
            theirs = groups.get(part)
            if theirs is None or part in inner or theirs.sink is not part or theirs in found:
                continue
            users = decisions.users[part]
            moves = all(operator(spot) in MOVES or _is_scaled(spot) for spot in theirs.spots)
            if (
                moves
                and not theirs.stages
                and all(_is_only(user, inner, decisions) for user in users)
                and all(_is_at_one_place(part, users, stage) for stage in stages)
            ):
                found.append(theirs)
    return found


def _is_at_one_place(value: Expr, users: Iterable[Expr], stage: Group) -> bool:
    """Whether a stage reads one element of a value at a time: not queries that are the keys."""
    here = [user for user in users if user in stage.spots]
    return not here or not isinstance(spot_of(value, here, stage), Verdict)


def _is_scaled(value: Expr) -> bool:
    """Whether each element is another dtype's, or multiplied by a number that is known."""
    if operator(value) in ("multiply", "divide"):
        args = parts(value) or ()
        return any(isinstance(arg, Const) and not arg.shape for arg in args[1:])
    return operator(value) == "cast"


def _is_only(user: Expr, inner: Container[Expr], decisions: Decisions) -> bool:
    """Whether a user is computed only inside; copies follow their users."""
    stack = [user]
    while stack:
        node = stack.pop()
        if node not in inner:
            return False
        if decisions.verdicts[node].reason == "copied":
            stack.extend(decisions.users[node])
    return True


def _before(
    group: Group, decisions: Decisions, groups: dict[Expr, Group], is_one: Callable[[Group], bool]
) -> Group | None:
    """The unique group of a kind whose result only one other group reads."""
    found: dict[Group, None] = {}
    for node in group.spots:
        for part in inside(node):
            theirs = groups.get(part)
            if theirs is None or theirs is group or theirs.sink is not part or not is_one(theirs):
                continue
            users = decisions.users[part]
            if all(_is_only(user, group.spots, decisions) for user in users):
                found[theirs] = None
    return next(iter(found)) if len(found) == 1 else None
