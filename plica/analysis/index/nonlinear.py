"""Nonlinear proofs: conditions with products of unknowns and quotients by unknowns.

A quotient `q = a // b` is an unknown with `0 <= a - b*q <= b - 1` for positive `b`, mirrored for
negative `b`, and 0 for `b = 0`: three cases. What remains are non-negative polynomials (rows). A
proof is a list of deductions that derive more rows, and multiples of rows that add up to a negative
number.

>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.loop.scalar import Eq, Lt, index
>>> from plica.analysis.index.context import EMPTY
>>> x, c = dim_var("x"), dim_var("c")
>>> isinstance(proof(Eq((x * c) // c, x), EMPTY.where(Lt(index(0), c))), Nonlinear)
True

`follows` re-checks a proof by polynomial arithmetic alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final, TypeAlias

import attrs

from plica.analysis.index import deduction
from plica.analysis.index.case import LinearConstraint, System, contrary, split
from plica.analysis.index.context import Context
from plica.analysis.index.deduction import adds_up, contradiction
from plica.analysis.index.point import innermost, replacing
from plica.analysis.index.polynomial import Key, Polynomial, polynomial
from plica.core import Name, all_of, fresh
from plica.ir.loop.scalar import Add, FloorDiv, FloorMod, Mul, Scalar, ScalarVar, Sub, index
from plica.ir.type import i64


@attrs.frozen
class RefutedSystem:
    """Why one system has no integer solution: rows made, and the multiples that add up."""

    made: tuple[deduction.Made, ...]
    multiples: tuple[tuple[int, Fraction], ...]


@attrs.frozen
class Nonlinear:
    """For each case of the contrary, in order, why it cannot be."""

    cases: tuple[RefutedSystem, ...]


MAX_DEDUCTION_ROUNDS: Final = 4
MAX_ROWS: Final = 72
MAX_SYSTEMS: Final = 256


def proof(condition: Scalar, context: Context) -> Nonlinear | str:
    """A proof that the condition holds in its context, or the reason why none was found."""
    if (systems := polynomial_systems(condition, context)) is None:
        return "there are too many cases"
    found: list[RefutedSystem] = []
    for rows in systems:
        if (refuted := _refuted(rows)) is None:
            return "a case with products of unknowns was not refuted"
        found.append(refuted)
    return Nonlinear(tuple(found))


def follows(condition: Scalar, context: Context, why: Nonlinear) -> bool:
    """Whether the proof shows that the condition holds in its context."""
    systems = polynomial_systems(condition, context)
    if systems is None or len(systems) != len(why.cases):
        return False
    for start, case in zip(systems, why.cases, strict=True):
        rows = list(start)
        for each in case.made:
            if (made := deduction.make(each, rows)) is None:
                return False
            rows.append(made)
        multiples = [Fraction(0)] * len(rows)
        for i, times in case.multiples:
            multiples[i] = times
        if not adds_up(rows, multiples):
            return False
    return True


def polynomial_systems(condition: Scalar, context: Context) -> list[list[Polynomial]] | None:
    """The cases of the contrary as rows that are not negative, quotients being unknowns."""
    if isinstance(systems := split(contrary(condition, context)), int):
        return None
    work: list[System] = list(reversed(systems))
    found: list[list[Polynomial]] = []
    while work:
        system = work.pop()
        if (rows := _rows(system)) is None:
            continue
        if (division := _innermost_division(system)) is None:
            found.append(rows)
        else:
            work += reversed(_without(division, system))
        if len(found) + len(work) > MAX_SYSTEMS:
            return None
    return found


def _rows(system: System) -> list[Polynomial] | None:
    """The rows of a system, or None if it is trivially contradictory."""
    rows: dict[tuple[int, frozenset[tuple[Key, int]]], Polynomial] = {}
    least: dict[frozenset[tuple[Key, int]], int] = {}
    for term, equality in system:
        row = polynomial(term)
        for each in (row, row.scaled(-1)) if equality else (row,):
            form = each.form
            rows.setdefault((each.constant, form), each)
            least[form] = min(each.constant, least.get(form, each.constant))
            if least[form] + least.get(each.scaled(-1).form, 0 if not form else INFINITE) < 0:
                return None
    return [row for row in rows.values() if row.terms]


INFINITE: Final = 1 << 200  # above any constant of a row


def _innermost_division(system: System) -> Scalar | None:
    terms = [constraint.term for constraint in system]
    return innermost(lambda node: isinstance(node, FloorDiv | FloorMod), terms)


def _without(division: Scalar, system: System) -> list[System]:
    """The cases in which a quotient is an unknown, by the sign of the divisor."""
    assert isinstance(division, FloorDiv | FloorMod)
    a, b = division.left, division.right
    inside = all_of(ScalarVar, *[constraint.term for constraint in system])
    used = {node.name for node in inside}
    q = ScalarVar(fresh(Name("quotient"), used), i64)
    rest = Sub(a, Mul(b, q))

    def with_(quotient: Scalar, remainder: Scalar, *said: Scalar) -> System:
        put = replacing({FloorDiv(a, b): quotient, FloorMod(a, b): remainder})
        changed = [LinearConstraint(put(term), equality) for term, equality in system]
        return (*(LinearConstraint(scalar, False) for scalar in said), *changed)

    zero = with_(index(0), index(0), b, Sub(index(0), b))
    above = with_(q, rest, Sub(b, index(1)), rest, Sub(Sub(b, index(1)), rest))
    below = with_(
        q, rest, Sub(Sub(index(0), b), index(1)), Sub(index(0), rest), Sub(rest, Add(b, index(1)))
    )
    of = polynomial(b)
    if not of.terms:
        return [above if of.constant > 0 else below if of.constant < 0 else zero]
    return [above, below, zero]


# --- search --------------------------------------------------------------------------------------


def _refuted(start: list[Polynomial]) -> RefutedSystem | None:
    rows = list(start)
    made: list[deduction.Made] = []
    seen = {(row.constant, row.form) for row in rows}

    def add(step: deduction.Made) -> None:
        row = deduction.make(step, rows)
        if row is None or len(rows) > 4 * MAX_ROWS:
            return
        if not row.terms and row.constant >= 0:
            return
        key = (row.constant, row.form)
        if key not in seen:
            seen.add(key)
            rows.append(row)
            made.append(step)

    live = list(range(len(rows)))  # rows not yet replaced by ones with fewer unknowns
    for i, j in itertools.combinations(list(live), 2):  # 0 <= y < m says that m is positive
        if deduction.sign_of(rows[i].plus(rows[j])) is not None:
            before = len(rows)
            add(deduction.Total(i, j))
            live += range(before, len(rows))
    for _ in range(MAX_DEDUCTION_ROUNDS):
        if (done := _ended(rows, made, live)) is not None:
            return done
        before = len(rows)
        live = _with_equalities(rows, live, add)
        live = _with_strips(rows, live, add)
        live = _with_equalities(rows, live, add)
        if len(rows) == before:
            break
    else:
        if (done := _ended(rows, made, live)) is not None:
            return done
    signs = [i for i in live if len(rows[i].terms) == 1]  # bounds of unknowns and of divisors
    before = len(rows)
    for i in live:
        for j in signs:
            if i >= j or i not in signs:
                add(deduction.Times(i, j))
    return _ended(rows, made, [*live, *range(before, len(rows))])


def _ended(
    rows: list[Polynomial], made: list[deduction.Made], live: Sequence[int]
) -> RefutedSystem | None:
    chosen = list(live)[:MAX_ROWS]
    if (fractions := contradiction([rows[i] for i in chosen])) is None:
        return None
    pairs = tuple((i, times) for i, times in zip(chosen, fractions, strict=True) if times)
    return RefutedSystem(tuple(made), pairs)


_Add: TypeAlias = Callable[[deduction.Made], None]


def _with_equalities(rows: list[Polynomial], live: list[int], add: _Add) -> list[int]:
    """Rows in which unknowns that equal something are replaced by it."""
    while True:
        by_key = {(rows[i].constant, rows[i].form): i for i in live}
        pair: tuple[int, int] | None = None
        for i in live:
            other = rows[i].scaled(-1)
            j = by_key.get((other.constant, other.form))
            if j is not None and deduction.solvable(rows[i]) is not None:
                pair = (i, j)
                break
        if pair is None:
            return live
        unknown = deduction.solvable(rows[pair[0]])
        kept: list[int] = []
        for i in live:
            if i in pair:
                continue
            if unknown in set(rows[i].atoms()):
                before = len(rows)
                add(deduction.Replace(i, *pair))
                kept += range(before, len(rows))
            else:
                kept.append(i)
        live = kept


def _with_strips(rows: list[Polynomial], live: list[int], add: _Add) -> list[int]:
    """Rows, and sums of two, without a factor that is known to be positive or negative."""
    signs = [(j, sign[0]) for j in live if (sign := deduction.sign_of(rows[j])) is not None]
    result = list(live)
    for j, unknown in signs:
        for i in live:
            if i != j and any(unknown in deduction.atoms_of(key) for key in rows[i].terms):
                before = len(rows)
                add(deduction.Strip(i, j))
                result += range(before, len(rows))
        odd = [(i, _indivisible(rows[i], unknown)) for i in live if i != j]
        for (a, mine), (b, theirs) in itertools.combinations(odd, 2):
            if mine and mine == {key: -c for key, c in theirs.items()}:
                before = len(rows)
                add(deduction.Total(a, b))
                if len(rows) > before:
                    add(deduction.Strip(before, j))
                    result += range(before, len(rows))
    return result


def _indivisible(row: Polynomial, unknown: Scalar) -> dict[Key, int]:
    return {k: c for k, c in row.terms.items() if unknown not in deduction.atoms_of(k)}
