"""Alignment: which steps of two traces are the same step.

>>> from plica.schedule.spelling import spell
>>> from plica.schedule.trace import Step
>>> found, other = (Step(spell("block", number=n, role="s")) for n in (0, 1))
>>> around = Step(spell("loops", block=Handle(0, 0, "block")))
>>> aligned(Trace((found, around)), Trace((other, around)))
((0, 0), (1, 1))
>>> aligned(Trace((found, around)), Trace((found, found, around)))
((0, 0), (1, 2))
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from attrs import frozen

from plica.core import Term, digest
from plica.schedule.handle import Handle
from plica.schedule.spelling import spelled
from plica.schedule.trace import Trace, handles

SAME: Final = 8  # how alike two steps of one kind are, from all of them to the kind alone
SAME_TEXT: Final = 4
SAME_TARGET: Final = 3
SAME_KIND: Final = 1


@frozen
class Signature:
    """The identity of a step apart from its number, at three levels of detail."""

    kind: str
    address: str  # the kind, and what it is done to
    text: str  # the kind, and what is written in it besides handles
    identity: str  # all of it


@lru_cache(maxsize=256)
def signatures(trace: Trace) -> tuple[Signature, ...]:
    """The signature of each step."""
    found: list[Signature] = []

    def address(handle: Handle) -> str:
        return f"{found[handle.step].address}.{handle.output}"

    def identity(handle: Handle) -> str:
        return f"{found[handle.step].identity}.{handle.output}"

    for step in trace.steps:
        kind, fields = spelled(step.instruction)
        values = tuple(fields.values())
        targets = [address(each) for each in handles(step.instruction)]
        plain = _spell(values, lambda handle: handle.sort)
        whole = _spell(values, identity)
        found.append(
            Signature(
                kind,
                _short(f"{kind}({', '.join(targets)})"),
                _short(f"{kind}{plain}{step.decision}"),
                _short(f"{kind}{whole}{step.decision}"),
            )
        )
    return tuple(found)


def aligned(a: Trace, b: Trace) -> tuple[tuple[int, int], ...]:
    """Pairs of steps that are the same step, in order in both, with the greatest likeness."""
    left, right = signatures(a), signatures(b)
    head = 0
    while head < min(len(a), len(b)) and left[head].identity == right[head].identity:
        head += 1
    tail = 0  # equal ends match: nothing is more alike
    while tail < min(len(a), len(b)) - head and left[~tail].identity == right[~tail].identity:
        tail += 1

    def likeness(i: int, j: int) -> int:
        return _likeness(left[head + i], right[head + j])

    inner = best_pairs(len(a) - head - tail, len(b) - head - tail, likeness)
    pairs = [*[(each, each) for each in range(head)], *[(head + i, head + j) for i, j in inner]]
    pairs += [(len(a) - each, len(b) - each) for each in range(tail, 0, -1)]
    return tuple(pairs)


def best_pairs(
    rows: int, columns: int, likeness: Callable[[int, int], int]
) -> list[tuple[int, int]]:
    """Pairs of numbers, in order in both, with the greatest likeness in all; 0 makes no pair.

    >>> best_pairs(3, 2, lambda i, j: int("abc"[i] == "ac"[j]))
    [(0, 0), (2, 1)]
    """
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        row, below = best[i], best[i + 1]
        for j in range(columns - 1, -1, -1):
            like = likeness(i, j)
            both = below[j + 1] + like if like else 0
            row[j] = max(both, below[j], row[j + 1])
    pairs = []
    i = j = 0
    while i < rows and j < columns:
        like = likeness(i, j)
        if like and best[i][j] == best[i + 1][j + 1] + like:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


def _likeness(a: Signature, b: Signature) -> int:
    if a.kind != b.kind:
        return 0
    if a.identity == b.identity:
        return SAME
    same_text, same_target = a.text == b.text, a.address == b.address
    if same_text and same_target:
        return SAME - 1
    return SAME_TEXT if same_text else SAME_TARGET if same_target else SAME_KIND


def _spell(value: Any, of: Callable[[Handle], str]) -> str:
    if isinstance(value, Handle):
        return of(value)
    if isinstance(value, Term):
        return digest(value)
    if type(value) is tuple:
        return f"({', '.join(_spell(each, of) for each in value)})"
    return f"{type(value).__name__}:{value!r}"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]
