"""Knowledge: what follows from a context at once, in tables made for fast look-up.

    rows         polynomials of several products that are not negative
    ranges       loop variables with symbolic ends, innermost first: least and greatest value
    forms        an interval for a polynomial without its constant, and so for each atom
    residues     `value = base (mod coefficient)` for a polynomial without its constant
    order        the place of each variable in canonical terms

>>> from plica.ir.type.dim import dim_var
>>> from plica.analysis.index.context import EMPTY
>>> i, n = dim_var("i"), dim_var("n")
>>> knowledge(EMPTY.loop(i, 8)).forms[frozenset({(i, 1)})]
Interval(low=0, high=7)

The tables also remember answers already given under the context (`bounds`, `residue_of`,
`normal`); forgetting them changes speed, never a result.
"""

from __future__ import annotations

import weakref
from typing import Any, Final, NamedTuple, TypeAlias

import attrs

from plica.analysis.index.context import FALSE, NAMED, Context, Range
from plica.analysis.index.interval import Interval
from plica.analysis.index.polynomial import Key, Polynomial, polynomial
from plica.core.term import Term
from plica.ir.loop.scalar import Eq, FloorMod, Le, Lit, Lt, Scalar, dtype_of
from plica.ir.type.dtype import i64

Form: TypeAlias = frozenset[tuple[Key, int]]


class Residue(NamedTuple):
    """The numbers `coefficient * k + base`; a coefficient of 0 is the one number `base`."""

    coefficient: int
    base: int

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int):
            return False
        if self.coefficient == 0:
            return value == self.base
        return (value - self.base) % self.coefficient == 0


@attrs.define(eq=False)
class Knowledge:
    """The tables of one context."""

    rows: tuple[Polynomial, ...]
    ranges: tuple[tuple[Scalar, Polynomial, Polynomial], ...]
    forms: dict[Form, Interval]
    residues: dict[Form, Residue]
    order: dict[Term, int]
    impossible: bool  # the context has no point at all: anything may be said
    by_name: bool = False  # nothing is known, not even which variables there are
    polynomials: dict[Term, Polynomial] = attrs.field(factory=dict)
    bounds: dict[Scalar, Interval] = attrs.field(factory=dict)
    residue_of: dict[Scalar, Residue] = attrs.field(factory=dict)
    plain: dict[Scalar, Scalar] = attrs.field(factory=dict)
    normal: dict[Scalar, Scalar] = attrs.field(factory=dict)
    ranks: dict[Key, tuple[object, ...]] = attrs.field(factory=dict)
    marks: dict[Scalar, bytes] = attrs.field(factory=dict)
    inner: dict[tuple[Scalar, bool], Context] = attrs.field(factory=dict)

    def polynomial(self, term: Scalar) -> Polynomial:
        """The polynomial of a term, remembered."""
        return polynomial(term, self.polynomials)

    def trim(self) -> None:
        """Forget answers where there are too many."""
        tables: tuple[dict[Any, Any], ...] = (  # Any: of whatever, it is only counted
            self.polynomials, self.bounds, self.residue_of,
            self.plain, self.normal, self.ranks, self.marks,
        )  # fmt: skip
        for table in tables:
            if len(table) > MOST_ANSWERS:
                table.clear()
        if len(self.inner) > MOST_INNER:
            self.inner.clear()


MOST_ANSWERS: Final = 100_000
MOST_INNER: Final = 256  # contexts inside this one that are kept for the next time

_tables: Final[weakref.WeakKeyDictionary[Context, Knowledge]] = weakref.WeakKeyDictionary()


def knowledge(context: Context) -> Knowledge:
    """The tables of a context, made once."""
    if (found := _tables.get(context)) is None:
        found = _derive(context)
        _tables[context] = found
    return found


def inequalities(condition: Scalar) -> tuple[tuple[Scalar, Scalar, int], ...]:
    """A condition as differences `a - b + c` that are not negative; none where it is no such."""
    match condition:
        case Lt(left, right) if dtype_of(left) is i64:
            return ((right, left, -1),)
        case Le(left, right) if dtype_of(left) is i64:
            return ((right, left, 0),)
        case Eq(left, right) if dtype_of(left) is i64:
            return (right, left, 0), (left, right, 0)
        case _:
            return ()


def _derive(context: Context) -> Knowledge:
    order: dict[Term, int] = {}
    for each in context.ranges:
        order.setdefault(each.var, len(order))
    known = Knowledge((), (), {}, {}, order, FALSE in context.facts)
    known.by_name = context is NAMED
    from plica.analysis.index.bounds import wraps  # bounds looks up the tables made here

    rows: list[Polynomial] = []
    open_ranges: list[Range] = []
    for each in context.ranges:
        match each:
            case Range(var, Lit(first), Lit(stop)):  # mostly: what its two conditions would say
                last = int(stop) - 1
                _narrow(known, frozenset({(var, 1)}), Interval(int(first), last))
                _narrow(known, frozenset({(var, -1)}), Interval(-last, -int(first)))
            case _:
                open_ranges.append(each)
    for condition in Context(tuple(open_ranges), context.facts).conditions():
        if wraps(condition, known):
            continue  # it speaks of numbers modulo 2^64
        for left, right, constant in inequalities(condition):
            row = known.polynomial(left).plus(known.polynomial(right), -1).shifted(constant)
            if row.terms:
                rows.append(row)
                _note_form(row, known)
                known.bounds.clear()
            elif row.constant < 0:
                known.impossible = True
        _note_residue(condition, known)
    known.rows = tuple(row for row in rows if len(row.terms) > 1)
    if open_ranges:
        known.ranges = tuple([
            (each.var, known.polynomial(each.start), known.polynomial(each.stop).shifted(-1))
            for each in reversed(context.ranges)
        ])  # fmt: skip
    if known.rows:
        _propagate(known)
    return known


def _note_form(row: Polynomial, known: Knowledge) -> None:
    """`g*p + c >= 0` is `p >= ceil(-c / g)`, and the same of `-p` from above."""
    content = row.content()
    shape = Polynomial(0, {k: c // content for k, c in row.terms.items()})
    low = -(row.constant // content)
    _narrow(known, shape.form, Interval(low, None))
    _narrow(known, shape.scaled(-1).form, Interval(None, -low))


def _note_residue(condition: Scalar, known: Knowledge) -> None:
    match condition:
        case Eq(FloorMod(value, Lit(modulus)), Lit(base)) | Eq(
            Lit(base), FloorMod(value, Lit(modulus))
        ):
            pass
        case _:
            return
    if dtype_of(value) is not i64 or int(modulus) == 0:
        return
    of = known.polynomial(value)
    if of.terms:
        size = abs(int(modulus))
        known.residues[of.form] = Residue(size, (int(base) - of.constant) % size)


def _narrow(known: Knowledge, form: Form, to: Interval) -> bool:
    old = known.forms.get(form)
    new = to if old is None else old.meet(to)
    if new == old:
        return False
    known.forms[form] = new
    if new.empty:
        known.impossible = True
    return True


ROUNDS: Final = 4


def _propagate(known: Knowledge) -> None:
    """Bounds of atoms from the rows: each row bounds each of its products by the others."""
    from plica.analysis.index.bounds import of_key  # bounds looks up the tables made here

    for _ in range(ROUNDS):
        changed = False
        for row in known.rows:
            parts = {key: of_key(key, known).scaled(c) for key, c in row.terms.items()}
            open_ends = [key for key, part in parts.items() if part.high is None]
            if len(open_ends) > 1:
                continue
            total = row.constant + sum(part.high or 0 for part in parts.values())
            for key in open_ends or list(parts):
                rest = total - (parts[key].high or 0)  # coefficient * key >= -rest
                coefficient = row.terms[key]
                if coefficient > 0:
                    low = -(rest // coefficient)
                    changed |= _narrow(known, frozenset({(key, 1)}), Interval(low, None))
                else:
                    high = rest // -coefficient
                    changed |= _narrow(known, frozenset({(key, 1)}), Interval(None, high))
        known.bounds.clear()
        if not changed:
            return
