"""Certificates: evidence that a condition holds in its context, as data that can be rechecked.

    Certificate ::= Periodic(periods)         equal slopes, and equal values on a box of periods
                  | Exhausted(ranges)         true at each of finitely many points
                  | Contradictory(cases)      every case of the contrary has no integer solution
                  | Nonlinear(cases)          the same with products of unknowns
                  | ByValue(variable, cases)  so for each of the few values of one variable
                  | BySolver(name)            an outside solver says so; not checked again

`holds` rechecks a certificate. It uses the case split, evaluation at points and sums of rows, but
none of the search that found the certificate.

>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.loop.scalar import Eq
>>> from plica.analysis.index.context import EMPTY
>>> x = dim_var("x")
>>> same = Eq(x // 4 * 4 + x % 4, x)
>>> holds(same, EMPTY, Periodic(((x, 4),))), holds(same, EMPTY, Periodic(((x, 3),)))
(True, False)

Search: small points at which a condition fails, found by looking.

>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.loop.scalar import Eq
>>> from plica.analysis.index.context import EMPTY
>>> x = dim_var("x")
>>> counterexample(Eq((x + 1) // 2, x // 2 + 1), EMPTY)
{ScalarVar(Name(hint='x', index=0), DType('i64')): 0}

Points are made of the numbers that the condition mentions, their neighbours and the ends of ranges:
that is where wrong rules are wrong.  The one found is made as small as it gets.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Final, TypeAlias

import attrs
import numpy as np

from plica.analysis.index.bounds import knowledge, of_term
from plica.analysis.index.context import Context, Range
from plica.analysis.index.interval import EVERYTHING, Interval
from plica.analysis.index.modular import Periods, box, repeats, slopes_of
from plica.analysis.index.point import (
    Values,
    all_values,
    atoms,
    is_structure,
    structure_nodes,
    value,
)
from plica.analysis.index.polynomial import literal
from plica.core import substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.scalar import Lit, Scalar, dtype_of
from plica.ir.type import bool_
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.analysis.index.case import LinearConstraint, System, contrary, linearised, split
    from plica.analysis.index.elimination import Row, RowSum, Vector, contradicted
    from plica.analysis.index.nonlinear import Nonlinear, follows


POINTS: Final = 4_096
MACHINE_INTEGER_LIMIT: Final = 1 << 62  # numbers below are put into arrays of machine integers


def counterexample(condition: Scalar, context: Context) -> dict[Scalar, int] | None:
    """A point that the context allows and where the condition is false; None: none was met."""
    unknowns = atoms(condition, *context.conditions())
    columns = _columns(unknowns, condition, context)
    wrong = violations(condition, context, columns)
    if not wrong.any():
        return None
    best = 0
    if columns:
        sizes = [_size(column[wrong].astype(np.int64)) for column in columns.values()]
        best = int(np.argmin(np.sum(sizes, axis=0)))
    point = {unknown: int(columns[unknown][wrong][best]) for unknown in unknowns}
    return smallest(condition, context, point)


def violations(condition: Scalar, context: Context, points: Mapping[Scalar, Values]) -> Values:
    """At which points the context holds and the condition does not."""
    truth, *allowed = all_values((condition, *context.conditions()), points)
    wrong = ~truth
    for array in allowed:
        wrong &= array
    return wrong


def _size(of: Values) -> Values:
    """Small numbers first, and of two that differ in sign the positive one."""
    return 2 * np.minimum(np.abs(of), 1 << 40) + (of < 0)


def smallest(condition: Scalar, context: Context, point: dict[Scalar, int]) -> dict[Scalar, int]:
    """Shrinks a counterexample: moves each unknown towards 0 while it remains one."""
    tries = MAX_TRIES
    changed = True
    while changed and tries > 0:
        changed = False
        for unknown, old in point.items():
            sign, size = (1, old) if old > 0 else (-1, -old)
            for less in sorted({0, size // 2, size - size // 4, size - 1}):
                if not 0 <= less < size:
                    continue
                tries -= 1
                new = {**point, unknown: sign * less}
                if fails(new, condition, context):
                    point = new
                    changed = True
                    break
    return point


MAX_TRIES: Final = 240


def fails(point: dict[Scalar, int], condition: Scalar, context: Context) -> bool:
    """Whether the context allows the point and the condition is false there."""
    return all(value(term, point) for term in context.conditions()) and not value(condition, point)


def _columns(
    unknowns: tuple[Scalar, ...], condition: Scalar, context: Context
) -> dict[Scalar, Values]:
    """Arrays of points: all combinations where they are few, a fixed sample otherwise."""
    numbers = _numbers((condition, *context.conditions()))
    known = knowledge(context)
    choices: dict[Scalar, list[int]] = {}
    for unknown in unknowns:
        if dtype_of(unknown) is bool_:
            choices[unknown] = [0, 1]
            continue
        low, high = of_term(unknown, known)
        ends = [e + k for e in (low, high) if e is not None for k in (0, 1, -1)]
        near = [s * n + k for n in numbers for s in (1, -1) for k in (0, 1, -1)]
        pool = dict.fromkeys([*range(-4, 5), *ends, *near, *range(-9, 10)])
        choices[unknown] = [
            v for v in pool if (low is None or low <= v) and (high is None or v <= high)
        ] or [0 if low is None else low]
    total = 1
    for options in choices.values():
        total *= len(options)
    if total <= POINTS:
        return _product(choices)
    source = random.Random(0)
    head = min(POINTS // 2, 9 ** min(len(unknowns), 3))
    columns: dict[Scalar, Values] = {}
    for number, (unknown, options) in enumerate(choices.items()):
        small = [options[(i // 9**number) % min(9, len(options))] for i in range(head)]
        rest = source.choices(options, k=POINTS - head)
        kind = np.bool_ if dtype_of(unknown) is bool_ else object
        columns[unknown] = _packed([*small, *rest], kind)
    return columns


def _product(choices: dict[Scalar, list[int]]) -> dict[Scalar, Values]:
    total = 1
    for options in choices.values():
        total *= len(options)
    columns: dict[Scalar, Values] = {}
    inner = total
    for unknown, options in choices.items():
        inner //= len(options)
        kind = np.bool_ if dtype_of(unknown) is bool_ else object
        columns[unknown] = np.resize(np.repeat(_packed(options, kind), inner), total)
    return columns


def _packed(of: list[int], kind: type) -> Values:
    if kind is object and max(map(abs, of), default=0) < MACHINE_INTEGER_LIMIT:
        return np.array(of, dtype=np.int64)
    return np.array(of, dtype=kind)


def _numbers(terms: tuple[Scalar, ...]) -> list[int]:
    literals = [node for node in structure_nodes(*terms) if isinstance(node, Lit)]
    return sorted({abs(int(literal.value)) for literal in literals})[:24]


MAX_POINTS: Final = 1_000_000


@attrs.frozen
class Periodic:
    """An equation of quasi-affine terms: both sides agree on one box, and so everywhere."""

    periods: tuple[tuple[sc.Scalar, int], ...]


@attrs.frozen
class Exhausted:
    """The context leaves finitely many points, and the condition is true at each."""

    ranges: tuple[tuple[sc.Scalar, int, int], ...]


@attrs.frozen
class Contradiction:
    """A system without integer solutions: for each residue of the unknowns by their periods, or
    (no periods) with an unknown for each quotient, some sums of rows are contradictory."""

    periods: tuple[tuple[sc.Scalar, int], ...] | None
    sums: tuple[RowSum, ...]


@attrs.frozen
class Contradictory:
    """For each case of the contrary, in order, why it cannot be."""

    cases: tuple[Contradiction, ...]


@attrs.frozen
class ByValue:
    """For each value of a variable whose range the context states, from the least up."""

    variable: sc.Scalar
    cases: tuple[Certificate, ...]


@attrs.frozen
class BySolver:
    """Said by a solver that gives no certificate."""

    name: str


Certificate: TypeAlias = "Periodic | Exhausted | Contradictory | Nonlinear | ByValue | BySolver"


def holds(condition: sc.Scalar, context: Context, why: Certificate) -> bool:
    """Whether the certificate proves the condition in its context."""
    match why:
        case Periodic(given):
            return isinstance(condition, sc.Eq) and _periodic(condition, dict(given))
        case Exhausted(ranges):
            return _exhausted(condition, context, ranges)
        case Contradictory(cases):
            return _contradictory(condition, context, cases)
        case ByValue(variable, cases):
            low, high = stated_ranges(context).get(variable, EVERYTHING)
            if low is None or high is None or len(cases) != high - low + 1:
                return False
            return all(
                holds(*at_value(condition, context, variable, low + i), case)
                for i, case in enumerate(cases)
            )
        case BySolver():
            return False
        case _:  # `Nonlinear`, whose file is loaded where there is one
            return follows(condition, context, why)


def difference(condition: sc.Eq) -> sc.Scalar | None:
    """The difference of the sides as a quasi-affine term, or None.

    Products of unknowns count as unknowns, so a difference that is 0 was 0 before.
    """
    if any(isinstance(node, sc.Min | sc.Max | sc.Select) for node in structure_nodes(condition)):
        return None
    plain = linearised((LinearConstraint(sc.Sub(condition.left, condition.right), True),))
    return None if plain is None else plain.system[0].term


def rows_by_residue(
    system: System, periods: Mapping[sc.Scalar, int]
) -> tuple[list[Row], list[Vector]]:
    """A system of quasi-affine constraints as rows over the quotients by the periods.

    With `x = L*q + r` each constraint is linear in the `q`, for each residue `r`; only its
    constant depends on the residue.
    """
    terms = [constraint.term for constraint in system]
    slopes = slopes_of(tuple(terms))
    # An unknown of period 1 has one residue, so its column of the box is a single 0.
    numbers = all_values(terms, box(periods))
    matrix: list[Row] = []
    constants: list[Vector] = []
    for (term, equality), constant in zip(system, numbers, strict=True):
        row = tuple(
            _whole(slopes[term].get(unknown, Fraction(0)) * period)
            for unknown, period in periods.items()
        )
        matrix.append(row)
        constants.append(constant)
        if equality:
            matrix.append(tuple(-c for c in row))
            constants.append(-constant)
    return matrix, constants


def rows_by_quotient(system: System) -> tuple[list[Row], list[Vector]]:
    """A system of quasi-affine constraints as rows with an unknown for each quotient.

    `q = t // c` says `0 <= t - c*q <= c - 1` for a positive `c`, and the contrary for a negative.
    """
    columns: dict[sc.Scalar, int] = {}
    forms: dict[sc.Scalar, tuple[dict[int, int], int]] = {}
    extra: list[tuple[dict[int, int], int]] = []
    for constraint in system:
        for node in slopes_of((constraint.term,)):
            if node not in forms:
                forms[node] = _form(node, forms, columns, extra)
    rows: list[tuple[dict[int, int], int]] = []
    for term, equality in system:
        form, constant = forms[term]
        rows.append((form, constant))
        if equality:
            rows.append(({u: -c for u, c in form.items()}, -constant))
    rows += extra
    matrix = [tuple(form.get(u, 0) for u in range(len(columns))) for form, _ in rows]
    return matrix, [np.array([constant], dtype=object) for _, constant in rows]


def _periodic(condition: sc.Eq, periods: Periods) -> bool:
    term = difference(condition)
    if term is None or periods.keys() != set(atoms(term)):
        return False
    if any(size < 1 for size in periods.values()) or prod(periods.values()) > MAX_POINTS:
        return False
    if not repeats((term,), periods) or slopes_of((term,))[term]:
        return False
    return not np.any(all_values((term,), box(periods))[0])


def _exhausted(
    condition: sc.Scalar, context: Context, ranges: Sequence[tuple[sc.Scalar, int, int]]
) -> bool:
    """Each range must follow from the context by itself: the context states it with numbers."""
    stated = stated_ranges(context)
    unknowns = atoms(condition, *context.conditions())
    given = {variable: Interval(low, high) for variable, low, high in ranges}
    if given.keys() != set(unknowns) or any(stated.get(v) != given[v] for v in given):
        return False
    if (points := points_of(ranges)) is None:
        return False
    return not violations(condition, context, points).any()


def stated_ranges(context: Context) -> dict[sc.Scalar, Interval]:
    """The variables whose range the context states in numbers."""
    return {
        each.var: Interval(value(each.start, {}), value(each.stop, {}) - 1)
        for each in context.ranges
        if not atoms(each.start, each.stop)
    }


def at_value(
    condition: sc.Scalar, context: Context, variable: sc.Scalar, value_: int
) -> tuple[sc.Scalar, Context]:
    """The condition and the context where a variable has a value."""

    def put(term: sc.Scalar) -> sc.Scalar:
        return substitute(term, {variable: literal(value_)})

    ranges = tuple(
        Range(each.var, put(each.start), put(each.stop))
        for each in context.ranges
        if each.var is not variable
    )
    return put(condition), Context(ranges, tuple(map(put, context.facts)))


def points_of(ranges: Sequence[tuple[sc.Scalar, int, int]]) -> dict[sc.Scalar, Values] | None:
    """Every point of a box, or None if there are too many."""
    sizes = {variable: max(0, high - low + 1) for variable, low, high in ranges}
    if prod(sizes.values()) > MAX_POINTS:
        return None
    if 0 in sizes.values():
        return {variable: np.zeros(0, dtype=np.int64) for variable in sizes}
    return {
        v: column + low for (v, low, _), column in zip(ranges, box(sizes).values(), strict=True)
    }


def _contradictory(condition: sc.Scalar, context: Context, cases: Sequence[Contradiction]) -> bool:
    systems = split(contrary(condition, context))
    if isinstance(systems, int) or len(systems) != len(cases):
        return False
    return all(_contradicts(system, why) for system, why in zip(systems, cases, strict=True))


def _contradicts(system: System, why: Contradiction) -> bool:
    if (plain := linearised(system)) is None:
        return False
    if why.periods is None:
        matrix, constants = rows_by_quotient(plain.system)
    else:
        terms = [constraint.term for constraint in plain.system]
        periods = dict(why.periods)
        if periods.keys() != set(atoms(*terms)) or prod(periods.values()) > MAX_POINTS:
            return False
        if not repeats(terms, periods):
            return False
        matrix, constants = rows_by_residue(plain.system, periods)
    return bool(np.all(contradicted(matrix, constants, why.sums)))


def _form(
    node: sc.Scalar,
    forms: Mapping[sc.Scalar, tuple[dict[int, int], int]],
    columns: dict[sc.Scalar, int],
    extra: list[tuple[dict[int, int], int]],
) -> tuple[dict[int, int], int]:
    """A part of a term as coefficients of columns and a constant; quotients get a column."""
    if isinstance(node, sc.Lit):
        return {}, int(node.value)
    if isinstance(node, sc.FloorDiv | sc.FloorMod):
        inner, constant = forms[node.left]
        assert isinstance(node.right, sc.Lit)
        divisor = int(node.right.value)
        key = sc.FloorDiv(node.left, node.right)
        fresh = key not in columns
        column = columns.setdefault(key, len(columns))
        rest = {**inner, column: inner.get(column, 0) - divisor}  # t - c*q
        if fresh:
            sign = 1 if divisor > 0 else -1
            extra.append(({u: sign * c for u, c in rest.items()}, sign * constant))
            extra.append(
                ({u: -sign * c for u, c in rest.items()}, abs(divisor) - 1 - sign * constant)
            )
        return ({column: 1}, 0) if isinstance(node, sc.FloorDiv) else (rest, constant)
    if not is_structure(node):
        return {columns.setdefault(node, len(columns)): 1}, 0
    total: dict[int, int] = {}
    constant = 0
    for factor, kid in _summands(node):
        form, plus = forms[kid]
        constant += factor * plus
        for unknown, coefficient in form.items():
            total[unknown] = total.get(unknown, 0) + factor * coefficient
    return total, constant


def _summands(node: sc.Scalar) -> list[tuple[int, sc.Scalar]]:
    match node:
        case sc.Add(a, b):
            return [(1, a), (1, b)]
        case sc.Sub(a, b):
            return [(1, a), (-1, b)]
        case sc.Mul(sc.Lit(factor), b):
            return [(int(factor), b)]
        case sc.Mul(a, sc.Lit(factor)):
            return [(int(factor), a)]
    raise AssertionError(node)


def _whole(of: Fraction) -> int:
    if of.denominator != 1:
        raise ValueError("A slope over a whole period is an integer.")
    return of.numerator
