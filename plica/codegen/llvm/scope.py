"""Scopes: which emitted parts of a term may have accessed out-of-bounds indices.

A load that had to be checked is `unsafe`, and so is everything computed from it. Whether a failed
check matters is decided afterwards: it does if every guard above the load holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

from plica.analysis.constant_bound import MAX_FACTS, KnownBounds, facts_of
from plica.analysis.index.context import conjuncts, negated
from plica.codegen.emit.scalar import Frame
from plica.codegen.llvm.buffer_address import sizes_of
from plica.codegen.llvm.lane import FALSE, TRUE, Lanes, LaneValue
from plica.codegen.llvm.loop_context import LoopContext
from plica.ir.loop.scalar import And, Le, Load, Lt, Or, Reduce, Scalar, Select, index
from plica.ir.type import Polynomial, polynomial

Edge: TypeAlias = tuple[Scalar, Scalar | None, bool]
"""An operand, its guard, and the guard's required value."""


def unsafe(frame: Frame[LaneValue]) -> set[Scalar]:
    """The parts in a scope with a load below them that may have been outside."""
    scalars: set[Scalar] = set(frame.checked)
    if scalars:
        numbers = {frame.order.numbers[scalar] for scalar in scalars}
        for _, number, node, kids, _ in frame.order.steps:
            if not numbers.isdisjoint(kids):
                numbers.add(number)
                scalars.add(node)
    return scalars


def outside(
    frame: Frame[LaneValue],
    root: Scalar,
    around: LoopContext,
    operands_of: Callable[[Scalar], tuple[Scalar, ...]],
) -> LaneValue:
    """Whether an index was outside in a load that `root` really needed."""
    if not frame.checked:
        return FALSE
    doubtful = unsafe(frame)
    if root not in doubtful:
        return FALSE
    lanes: Lanes = around.lanes
    alive: dict[Scalar, LaneValue] = {root: TRUE}
    facts: dict[Scalar, tuple[Scalar, ...]] = {root: ()}
    found = FALSE
    for step in reversed(frame.order.steps):
        node = step.node
        if node not in doubtful or node not in alive:
            continue
        here = alive[node]
        if node in frame.checked and not _is_proved(node, facts[node], around):
            failed = lanes.negated(frame.checked[node])
            found = lanes.either(found, lanes.both(here, failed))
        for kid, guard, holds in _edges(node, operands_of):
            if kid not in doubtful:
                continue
            passes, known_here = here, facts[node]
            if guard is not None:
                test = frame.values[frame.order.numbers[guard]]
                passes = lanes.both(here, test if holds else lanes.negated(test))
                fact = guard if holds else negated(guard)
                known_here = (*known_here, fact)[-MAX_FACTS:]
            if kid in alive:
                alive[kid] = lanes.either(alive[kid], passes)
                facts[kid] = tuple([fact for fact in facts[kid] if fact in known_here])
            else:
                alive[kid], facts[kid] = passes, known_here
    return found


def _is_proved(node: Scalar, conditions: Sequence[Scalar], around: LoopContext) -> bool:
    """Whether the guards around a load show that its indices are inside."""
    if not isinstance(node, Load) or not conditions:
        return False
    given = tuple(conditions)
    for place, size in zip(node.indices, sizes_of(node.buffer.shape), strict=True):
        low, high = around.interval(place)
        above = low >= 0 or _said(place, given)
        below = isinstance(size, int) and (high < size or _said(index(size - 1) - place, given))
        if not (above and below) and not around.is_inside(place, size, _facts(given)):
            return False
    return True


def _facts(conditions: tuple[Scalar, ...]) -> list[Polynomial]:
    return [fact for condition in conditions for fact in facts_of(condition)]


@lru_cache(maxsize=1024)  # copies of an unrolled loop ask again
def _said(term: Scalar, conditions: tuple[Scalar, ...]) -> bool:
    """Whether conditions imply that an index is non-negative, wherever they occur."""
    return KnownBounds().is_natural(term, _facts(conditions))


def _edges(node: Scalar, operands_of: Callable[[Scalar], tuple[Scalar, ...]]) -> list[Edge]:
    """Each operand with its guard, and the guard's required value."""
    match node:
        # If the minimum is a single instruction there is no branch, and both operands are needed.
        case Select(condition, then, orelse) if condition in operands_of(node):
            return [(condition, None, True), (then, condition, True), (orelse, condition, False)]
        case And(left, right):
            return [(left, None, True), (right, left, True)]
        case Or(left, right):
            return [(left, None, True), (right, left, False)]
        case Reduce():
            return []  # what is inside was judged there
        case _:
            return [(kid, None, True) for kid in operands_of(node)]


@lru_cache(maxsize=4096)
def more_than_inside(choice: Select) -> tuple[Scalar, ...]:
    """The parts of a condition beyond the bounds of the load it guards."""
    load = choice.then
    assert isinstance(load, Load)
    known: list[Polynomial] = []
    for place, size in zip(load.indices, sizes_of(load.buffer.shape), strict=True):
        last = index(size - 1) if isinstance(size, int) else size - 1
        known += [_nonzero(place), _nonzero(last - place)]
    return tuple(
        [
            each
            for each in conjuncts(choice.condition)
            if not isinstance(each, Lt | Le)
            or _nonzero(each.right - each.left - (1 if isinstance(each, Lt) else 0)) not in known
        ]
    )


def _nonzero(of: Scalar) -> Polynomial:
    """The polynomial of an index without zero terms."""
    return {key: (atoms, count) for key, (atoms, count) in polynomial(of).items() if count}
