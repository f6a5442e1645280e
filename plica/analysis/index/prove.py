"""Proofs: whether a condition holds at every integer point of a context.

    Answer ::= Proved(certificate) | Refuted(point) | Undecided(why)

>>> from plica.ir.type.dim import dim_var
>>> from plica.analysis.index.context import EMPTY
>>> x = dim_var("x")
>>> decide_equal((x // 3) // 4, x // 12)
Holds(certificate=Periodic(periods=((ScalarVar(Name(hint='x', index=0), DType('i64')), 12),)))
>>> decide_equal(x // -2, -(x // 2)).point
((ScalarVar(Name(hint='x', index=0), DType('i64')), 1),)
>>> can_prove(x % 8 < 8)
True

Complete for equations over + - ×constant, `//` and `%` by constants if the box of periods has at
most 10^6 points, and for any condition if the context has at most 10^6 points. Comparisons, minima,
maxima, selects and logic are split into systems of linear constraints; each is refuted by
elimination, residue by residue. Open cases of `decide` go to z3, if installed.

A proof is a certificate that `plica.analysis.index.certificate.holds` rechecks.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final, TypeAlias

import attrs
import numpy as np

from plica.analysis.index import certificate as certificates
from plica.analysis.index.bounds import knowledge, wraps
from plica.analysis.index.context import EMPTY, Context, negated
from plica.analysis.index.implication import is_implied
from plica.analysis.index.interval import EVERYTHING
from plica.analysis.index.modular import box, periods, slopes_of
from plica.analysis.index.point import all_values, atoms
from plica.ir.loop.scalar import And, Eq, Or, Scalar, dtype_of
from plica.ir.type import bool_
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.analysis.index.case import System, contrary, linear, linearised, split
    from plica.analysis.index.elimination import Refutation, refute, solutions
    from plica.analysis.index.nonlinear import proof
    from plica.analysis.index.solver import possible


@attrs.frozen
class Holds:
    """The condition holds at every point, with the certificate."""

    certificate: certificates.Certificate


@attrs.frozen
class Fails:
    """It fails at this point."""

    point: tuple[tuple[Scalar, int], ...]


@attrs.frozen
class Undecided:
    """Neither was shown."""

    why: str


Answer: TypeAlias = Holds | Fails | Undecided

FEW_POINTS: Final = 20_000
MAX_NUMBERS: Final = 8_000_000  # rows times residues that elimination may hold


def can_prove(condition: Scalar, context: Context = EMPTY, *, quick: bool = False) -> bool:
    """Whether the condition is proved to hold in its context.

    `quick` uses only bounds, residues and known inequalities. No solver is asked: what a schedule
    or a lowered kernel is does not depend on whether one is installed.
    """
    if is_implied(condition, knowledge(context)):
        return True
    return not quick and isinstance(decide(condition, context, solver=False), Holds)


def decide_equal(a: Scalar, b: Scalar, context: Context = EMPTY) -> Answer:
    """Whether two terms have one value at every point that the context allows."""
    return decide(same(a, b), context)


def decide(condition: Scalar, context: Context = EMPTY, *, solver: bool = True) -> Answer:
    """Decides whether a condition holds at every point of its context; z3 is asked last, if it is
    installed and `solver` allows it."""
    known = knowledge(context)
    if any(wraps(said, known) for said in (condition, *context.conditions())):
        return Undecided("arithmetic on data may wrap around 64 bits")
    if (wrong := certificates.counterexample(condition, context)) is not None:
        return _refuted(wrong)
    ways = _by_few_points, _by_periods, _by_cases, _by_products, _by_values, _by_points
    reasons: list[str] = []
    for way in (*ways, _by_solver) if solver else ways:
        answer = way(condition, context)
        if not isinstance(answer, Undecided):
            return answer
        if answer.why:
            reasons.append(answer.why)
    return Undecided("; ".join(reasons))


def same(a: Scalar, b: Scalar) -> Scalar:
    """The condition that two terms have one value."""
    if dtype_of(a) is bool_:
        return Or(And(a, b), And(negated(a), negated(b)))
    return Eq(a, b)


def _refuted(point: dict[Scalar, int]) -> Fails:
    return Fails(tuple(point.items()))


NOT_SO: Final = Undecided("")  # the way does not fit, and says nothing


def _by_points(condition: Scalar, context: Context, most: int = certificates.MAX_POINTS) -> Answer:
    """Look at every point, where the context states finite ranges for all unknowns."""
    stated = certificates.stated_ranges(context)
    ranges: list[tuple[Scalar, int, int]] = []
    for unknown in atoms(condition, *context.conditions()):
        low, high = stated.get(unknown, EVERYTHING)
        if low is None or high is None:
            return NOT_SO
        ranges.append((unknown, low, high))
    if prod(max(0, high - low + 1) for _, low, high in ranges) > most:
        few = most < certificates.MAX_POINTS  # then more of them are looked at later
        return NOT_SO if few else Undecided(f"the context leaves more than {most:,} points")
    points = certificates.points_of(ranges)
    assert points is not None
    wrong = certificates.violations(condition, context, points)
    if not wrong.any():
        return Holds(certificates.Exhausted(tuple(ranges)))
    place = int(np.nonzero(wrong)[0][0])
    point = {unknown: int(column[place]) for unknown, column in points.items()}
    return _refuted(certificates.smallest(condition, context, point))


_by_few_points: Final = partial(_by_points, most=FEW_POINTS)


def _by_periods(condition: Scalar, context: Context) -> Answer:
    """Compare the sides of an equation on one box of periods, whatever the context says."""
    if not isinstance(condition, Eq) or dtype_of(condition.left) is bool_:
        return NOT_SO
    if (term := certificates.difference(condition)) is None:
        return NOT_SO
    found = periods((term,))
    if slopes_of((term,))[term]:
        return NOT_SO  # different somewhere; whether the context allows that is another matter
    points = prod(found.values())
    if points > certificates.MAX_POINTS:
        return Undecided(f"the box of periods has {points:,} points")
    if np.any(all_values((term,), box(found))[0]):
        return NOT_SO
    return Holds(certificates.Periodic(tuple(found.items())))


def _by_cases(condition: Scalar, context: Context) -> Answer:
    """Refute each case of the contrary."""
    if isinstance(systems := split(contrary(condition, context)), int):
        return Undecided(f"there are more than {systems} cases")
    found: list[certificates.Contradiction] = []
    for system in systems:
        answer = _by_elimination(system, condition, context)
        if not isinstance(answer, certificates.Contradiction):
            return answer
        found.append(answer)
    return Holds(certificates.Contradictory(tuple(found)))


def _by_elimination(
    system: System, condition: Scalar, context: Context
) -> certificates.Contradiction | Fails | Undecided:
    if (plain := linearised(system)) is None:
        return Undecided("a number does not fit into an index")
    quick = refute(*certificates.rows_by_quotient(plain.system))
    if not quick.open.any():
        return certificates.Contradiction(None, quick.sums)
    terms = [constraint.term for constraint in plain.system]
    found = periods(terms)
    points = prod(found.values())
    if points > certificates.MAX_POINTS or points * len(terms) > MAX_NUMBERS:
        return Undecided(f"a case has {points:,} residues")
    slow = refute(*certificates.rows_by_residue(plain.system, found))
    if not slow.open.any():
        return certificates.Contradiction(tuple(found.items()), slow.sums)
    if plain.exact and (point := _witness(slow, found, condition, context)) is not None:
        return _refuted(certificates.smallest(condition, context, point))
    if not slow.complete:
        return Undecided("elimination made too many rows")
    return Undecided(
        "a case has rational solutions, and no integer one was found" if plain.exact else ""
    )


def _witness(
    of: Refutation, sizes: dict[Scalar, int], condition: Scalar, context: Context
) -> dict[Scalar, int] | None:
    """A point of an open case that is a counterexample indeed."""
    columns = box(sizes)
    unknowns = atoms(condition, *context.conditions())
    for number in np.nonzero(of.open)[0][:32]:
        for chosen in solutions(of, int(number)):
            point = dict.fromkeys(unknowns, 0)
            for place, (unknown, size) in enumerate(sizes.items()):
                point[unknown] = size * chosen.get(place, 0) + int(columns[unknown][number])
            if certificates.fails(point, condition, context):
                return point
    return None


def _by_products(condition: Scalar, context: Context) -> Answer:
    """Polynomial arithmetic, where unknowns are multiplied or divided by."""
    if linear(condition, context):
        return NOT_SO
    found = proof(condition, context)
    return Undecided(found) if isinstance(found, str) else Holds(found)


MAX_VALUES: Final = 24


def _by_values(condition: Scalar, context: Context) -> Answer:
    """One value after the other of a variable with few."""
    best: tuple[int, Scalar, int] | None = None
    for unknown, (low, high) in certificates.stated_ranges(context).items():
        if low is not None and high is not None and 0 <= high - low < MAX_VALUES:
            here = high - low, unknown, low
            best = here if best is None or here[0] < best[0] else best
    if best is None:
        return NOT_SO
    cases: list[certificates.Certificate] = []
    for number in range(best[0] + 1):
        answer: Answer = NOT_SO
        there = certificates.at_value(condition, context, best[1], best[2] + number)
        for way in (_by_few_points, _by_periods, _by_cases, _by_products, _by_values):
            answer = way(*there)
            if not isinstance(answer, Undecided):
                break
        if not isinstance(answer, Holds):
            return NOT_SO
        cases.append(answer.certificate)
    return Holds(certificates.ByValue(best[1], tuple(cases)))


def _by_solver(condition: Scalar, context: Context) -> Answer:
    if isinstance(answer := possible(contrary(condition, context)), str):
        return Undecided(answer)
    if answer is False:
        return Holds(certificates.BySolver("z3"))
    if isinstance(answer, dict):
        point = {**dict.fromkeys(atoms(condition, *context.conditions()), 0), **answer}
        if certificates.fails(point, condition, context):
            return _refuted(certificates.smallest(condition, context, point))
    return Undecided("z3 gave no answer within its steps")
