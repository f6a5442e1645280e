"""Bounds: what is known of an index before the program runs.

An interval for every integer term, from the ranges of the loops around it; and facts, the
conditions that hold where a guarded term is evaluated.  An index that neither proves to be inside
its buffer is checked at run time.

>>> from plica.ir.loop.tensor import axis
>>> i = axis("i")
>>> interval(i * 4 + 3, {i: (0, 9)}, {}), interval(i % 3, {i: (0, 9)}, {})
((3, 39), (0, 2))
>>> guard = i - 2 >= 0
>>> implied(i - 1, facts_of(guard))
True
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from attrs import frozen

from plica.core.term import Term
from plica.ir.loop import scalar as sc
from plica.ir.loop.scalar_interval import hull
from plica.ir.type.dim import Polynomial, polynomial
from plica.ir.type.dtype import DType, i64

Interval: TypeAlias = tuple[int, int]

FACTS: Final = 64
"""How many facts are kept for a term; knowing fewer is safe."""


def interval(
    root: sc.Scalar, ranges: Mapping[Term, Interval], memo: dict[Term, Interval]
) -> Interval:
    """The least and greatest value an integer term may have; `memo` is for these ranges only."""
    stack = [root]
    while stack:
        node = stack[-1]
        if node in memo:
            stack.pop()
            continue
        kids = _operands(node)
        pending = [kid for kid in kids if kid not in memo]
        if pending:
            stack.extend(pending)
            continue
        memo[node] = _here(node, [memo[kid] for kid in kids], ranges)
        stack.pop()
    return memo[root]


@frozen(eq=False)
class Bounds:
    """How the intervals of terms are found: what each is made from comes before it.

    Those of literals are always the same.
    """

    steps: tuple[tuple[sc.Scalar, str, tuple[sc.Scalar, ...]], ...]
    literals: Mapping[Term, Interval]


def bounds(roots: Iterable[sc.Scalar]) -> Bounds:
    """How the intervals of terms are found, to be gone through again for each of many ranges."""
    found: list[tuple[sc.Scalar, str, tuple[sc.Scalar, ...]]] = []
    done: set[sc.Scalar] = set()
    stack = [(root, False) for root in roots]
    while stack:
        node, leaving = stack.pop()
        if leaving:
            word = _WORDS.get(type(node), "") if _is_index(node) else ""
            found.append((node, word, _operands(node)))
        elif node not in done:
            done.add(node)
            stack.append((node, True))
            stack += [(kid, False) for kid in _operands(node) if kid not in done]
    steps = tuple([step for step in found if not isinstance(step[0], sc.Lit)])
    literals: dict[Term, Interval] = {
        node: _here(node, [], {}) for node, _, _ in found if isinstance(node, sc.Lit)
    }
    return Bounds(steps, literals)


def fill(of: Bounds, ranges: Mapping[Term, Interval], memo: dict[Term, Interval]) -> None:
    """Find the intervals of terms that are not known yet, as `interval` would."""
    memo.update(of.literals)
    for node, word, kids in of.steps:
        if node in memo:
            continue
        if word == "add":
            (a, b), (c, d) = memo[kids[0]], memo[kids[1]]
            low, high = a + c, b + d
        elif word == "sub":
            (a, b), (c, d) = memo[kids[0]], memo[kids[1]]
            low, high = a - d, b - c
        elif word == "mul":
            (a, b), (c, d) = memo[kids[0]], memo[kids[1]]
            if c == d >= 0:
                low, high = a * c, b * c
            else:
                corners = (a * c, a * d, b * c, b * d)
                low, high = min(corners), max(corners)
        elif word == "var":
            memo[node] = ranges.get(node, _WHOLE)
            continue
        else:
            memo[node] = _here(node, [memo[kid] for kid in kids], ranges)
            continue
        memo[node] = (low, high) if low >= _WHOLE[0] and high <= _WHOLE[1] else _WHOLE


_WORDS: Final[dict[type, str]] = {sc.Add: "add", sc.Sub: "sub", sc.Mul: "mul", sc.ScalarVar: "var"}
_WHOLE: Final = i64.bounds


def _operands(node: sc.Scalar) -> tuple[sc.Scalar, ...]:
    match node:
        case (
            sc.Add(left, right)
            | sc.Sub(left, right)
            | sc.Mul(left, right)
            | sc.FloorDiv(left, right)
            | sc.FloorMod(left, right)
            | sc.Min(left, right)
            | sc.Max(left, right)
        ) if sc.dtype_of(node).is_integer:
            return left, right
        case sc.Select(_, then, orelse) if sc.dtype_of(node).is_integer:
            return then, orelse
        case sc.Cast(value, to) if to.is_integer and sc.dtype_of(value).kind != "float":
            return (value,)
        case _:
            return ()


def _here(node: sc.Scalar, kids: list[Interval], ranges: Mapping[Term, Interval]) -> Interval:
    of = sc.dtype_of(node)
    if of.is_float:
        return (0, 0)  # nobody asks: an index is an integer
    whole = of.bounds
    found: Interval = whole
    match node, kids:
        case sc.Lit(value, _), _:
            found = (int(value), int(value))
        case sc.ScalarVar(), _:
            found = ranges.get(node, whole)
        case sc.Select(), [one, two]:
            found = hull(one, two)  # type: ignore[assignment]  # of integers
        case sc.Cast(), [only]:
            found = only
        case _, [one, two]:
            row = sc.row_of(node)
            of_row = None if row is None or row.range is None else row.range(one, two)
            found = whole if of_row is None else of_row  # type: ignore[assignment]  # of integers
    return found if whole[0] <= found[0] and found[1] <= whole[1] else whole


@lru_cache(maxsize=1024)  # copies of an unrolled loop ask again
def facts_of(condition: sc.Scalar) -> tuple[Polynomial, ...]:
    """Polynomials that are not negative where the condition holds."""
    found: list[Polynomial] = []
    stack = [condition]
    while stack and len(found) < FACTS:
        node = stack.pop()
        match node:
            case sc.And(left, right):
                stack += [right, left]
            case sc.Le(left, right) if _is_index(left):
                found.append(polynomial(right - left))
            case sc.Lt(left, right) if _is_index(left):
                found.append(polynomial(right - left - 1))
            case sc.Eq(left, right) if _is_index(left):
                found += [polynomial(right - left), polynomial(left - right)]
    return tuple(found)


def implied(term: sc.Scalar, facts: Iterable[Polynomial]) -> bool:
    """Whether some fact shows by itself that an index term is not negative."""
    ours = polynomial(term)
    for fact in facts:
        rest = {key: count for key, (_, count) in ours.items()}
        for key, (_, count) in fact.items():
            rest[key] = rest.get(key, 0) - count
        constant = rest.pop(frozenset(), 0)
        if constant >= 0 and not any(rest.values()):
            return True
    return False


def _is_index(node: sc.Scalar) -> bool:
    of: DType = sc.dtype_of(node)
    return of.kind == "int" and of.bits == 64
