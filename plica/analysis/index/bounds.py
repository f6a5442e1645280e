"""Bounds: the constant integer interval of an index term, and what follows from a context.

>>> from plica.ir.type.dim import dim_var
>>> from plica.analysis.index.context import EMPTY
>>> i, j = dim_var("i"), dim_var("j")
>>> nest = EMPTY.loop(i, 4).loop(j, 8)
>>> bounds(i * 8 + j, nest), bounds(i - i, nest), bounds((i * 8 + j) // 8 % 3, nest)
(Interval(low=0, high=31), Interval(low=0, high=0), Interval(low=0, high=2))
>>> modular(i * 4 + j * 6 + 3), modular((i * 8 + 5) // 4), modular((i * 8 + 5) % 4)
(Residue(coefficient=2, base=1), Residue(coefficient=2, base=1), Residue(coefficient=0, base=1))
>>> knowledge(EMPTY.loop(i, 8)).forms[frozenset({(i, 1)})]
Interval(low=0, high=7)

Sound: the interval contains every value the term takes at a point of the context. Tight for affine
terms over constant ranges, because like terms are collected first.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Final

from plica.analysis.index import knowledge as knowledges
from plica.analysis.index.context import EMPTY, FALSE, NAMED, Context, Range
from plica.analysis.index.interval import EVERYTHING, WORD, Interval
from plica.analysis.index.modular import residue
from plica.analysis.index.polynomial import Key, Polynomial, Product
from plica.core import Term, fold_into
from plica.ir.loop import scalar as sc
from plica.ir.type import i64


def bounds(term: sc.Scalar, context: Context = EMPTY) -> Interval:
    """The interval of an index term under the context."""
    return of_term(term, knowledge(context))


def modular(term: sc.Scalar, context: Context = EMPTY) -> knowledges.Residue:
    """The modular set of an index term under the context."""
    return residue(term, knowledge(context))


def of_term(term: sc.Scalar, known: knowledges.Knowledge) -> Interval:
    """As `bounds`, with the tables of the context at hand."""
    memo = known.bounds
    if (found := memo.get(term)) is not None:
        return found
    if known.impossible:
        return EVERYTHING
    inside = partial(knowledges.parts, known=known)
    return fold_into(memo, term, inside, partial(_of_node, known=known))


def of_polynomial(of: Polynomial, known: knowledges.Knowledge) -> Interval:
    """The interval of a polynomial: the sum of its parts' intervals, intersected with known facts
    about its form."""
    memo = known.bounds
    low: int | None = of.constant
    high: int | None = of.constant
    for key, coefficient in of.terms.items():
        below, above = memo.get(key) or of_key(key, known)  # type: ignore[arg-type]  # a map of atoms may be asked for any key
        if coefficient < 0:
            below, above = above, below
        low = None if low is None or below is None else low + coefficient * below
        high = None if high is None or above is None else high + coefficient * above
    total = Interval(low, high)
    if known.forms and len(of.terms) > 1:
        content = of.content()
        form = frozenset((k, c // content) for k, c in of.terms.items())
        if (said := known.forms.get(form)) is not None:
            total = total.meet(said.scaled(content).shifted(of.constant))
    return total


def of_key(key: Key, known: knowledges.Knowledge) -> Interval:
    """The interval of an atom or a product of atoms."""
    if isinstance(key, Product):
        found = Interval(1, 1)
        powers: dict[sc.Scalar, int] = {}
        for atom in key.atoms:
            powers[atom] = powers.get(atom, 0) + 1
        for atom, power in powers.items():
            found = found.times(_power(of_term(atom, known), power))
        said = known.forms.get(frozenset({(key, 1)})) if known.forms else None
        return found if said is None else found.meet(said)
    return of_term(key, known)


def wraps(term: sc.Scalar, known: knowledges.Knowledge) -> bool:
    """Whether some part of an index term that depends on data may leave 64 bits.

    Where it may, arithmetic is that of the machine, and no law of the integers is used on it.
    """
    if not knowledges.mentions_data(term):
        return False
    stack, seen = [term], {term}
    while stack:
        node = stack.pop()
        if isinstance(node, knowledges.ARITHMETIC) and sc.dtype_of(node) is i64:
            if known.impossible:  # nothing is known of its parts
                return True
            of_term(node, known)
            low, high = _exact(node, known)
            if low not in WORD or high not in WORD:
                return True
        for kid in knowledges.arithmetic_parts(node):
            if kid not in seen:
                seen.add(kid)
                stack.append(kid)
    return False


def _power(base: Interval, power: int) -> Interval:
    result = base
    for _ in range(power - 1):
        result = result.times(base)
    if power % 2 == 0 and (result.low is None or result.low < 0):
        result = Interval(0, result.high)
    return result


def _of_node(node: sc.Scalar, known: knowledges.Knowledge) -> Interval:
    kind = knowledges.KINDS.get(node.__class__)
    if kind is None or sc.dtype_of(node) is not i64:
        found = _of_atom(node)
    elif kind in ("sum", "division"):
        found = _exact(node, known)
        if (found.low not in WORD or found.high not in WORD) and knowledges.mentions_data(node):
            return WORD  # it may wrap
    else:
        a, b = (known.bounds[part] for part in knowledges.parts(node, known))
        found = (
            a.least(b) if kind == "least" else a.greatest(b) if kind == "greatest" else a.hull(b)
        )
    if known.forms and (said := known.forms.get(frozenset({(node, 1)}))) is not None:
        return found.meet(said)
    return found


def _of_atom(node: sc.Scalar) -> Interval:
    match node:
        case sc.Lit(value, dtype) if dtype.is_integer:
            return Interval(int(value), int(value))
        case sc.ScalarVar():
            return EVERYTHING
        case sc.Cast(value, dtype) if dtype is i64 and not (of := sc.dtype_of(value)).is_float:
            return Interval(*of.bounds) if of.bits < 64 else WORD
        case _ if type(node).hole or sc.dtype_of(node) is not i64:
            return EVERYTHING
        case _:
            return WORD


def _exact(node: sc.Scalar, known: knowledges.Knowledge) -> Interval:
    """The interval of a sum, product, quotient or remainder of integers of any size."""
    memo = known.bounds
    if isinstance(node, sc.FloorDiv):
        return _quotient(memo[node.left], memo[node.right])
    if isinstance(node, sc.FloorMod):
        return _remainder(node, memo[node.left], memo[node.right], known)
    of = known.polynomial(node)
    if node in of.terms:  # a product too big to multiply out
        return memo[node.left].times(memo[node.right])  # type: ignore[attr-defined]  # the class was just seen
    return of_polynomial(of, known)


def _quotient(a: Interval, b: Interval) -> Interval:
    if b.low is not None and b.low == b.high:
        return a // b.low
    if b.low is not None and b.low > 0:
        # For a positive divisor, the quotient lies between those of the divisor's bounds.
        low = None if a.low is None else _least_quotient(a.low, b.low, b.high)
        high = None if a.high is None else -_least_quotient(-a.high - 1, b.low, b.high) - 1
        return Interval(low, high)
    if a.low is None or a.high is None:
        return EVERYTHING
    size = max(abs(a.low), abs(a.high))
    return Interval(-size, size)


def _least_quotient(value: int, low: int, high: int | None) -> int:
    """The least `value // d` for `low <= d <= high`."""
    if value < 0:
        return value // low
    return 0 if high is None else value // high


def _remainder(
    node: sc.FloorMod, a: Interval, b: Interval, known: knowledges.Knowledge
) -> Interval:
    if b.low is not None and b.low == b.high:
        size = b.low
        found = a % size
        if size > 1 and found == Interval(0, size - 1):
            step, base = residue(node, known)
            if step == 0:
                return Interval(base, base)
            if step > 1:
                return Interval(base % step, size - step + base % step)
        return found
    if b.low is not None and b.low > 0:
        if a.low is not None and a.low >= 0:
            high = a.high
            if b.high is not None and (high is None or high > b.high - 1):
                high = b.high - 1
            return Interval(0, high)
        return Interval(0, None if b.high is None else b.high - 1)
    if b.high is not None and b.high < 0:
        return Interval(None if b.low is None else b.low + 1, 0)
    low = None if b.low is None else min(0, b.low + 1)
    return Interval(low, None if b.high is None else max(0, b.high - 1))


# --- what a context says --------------------------------------------------------------------------


_tables: Final[weakref.WeakKeyDictionary[Context, knowledges.Knowledge]] = (
    weakref.WeakKeyDictionary()
)


def knowledge(context: Context) -> knowledges.Knowledge:
    """The tables of a context, made once."""
    if (found := _tables.get(context)) is None:
        found = _derive(context)
        _tables[context] = found
    return found


def _derive(context: Context) -> knowledges.Knowledge:
    order: dict[Term, int] = {}
    for each in context.ranges:
        order.setdefault(each.var, len(order))
    known = knowledges.Knowledge((), (), {}, {}, order, FALSE in context.facts)
    known.by_name = context is NAMED
    rows: list[Polynomial] = []
    open_ranges: list[Range] = []
    for each in context.ranges:
        match each:
            case Range(
                var, sc.Lit(first), sc.Lit(stop)
            ):  # mostly: what its two conditions would say
                last = int(stop) - 1
                _narrow(known, frozenset({(var, 1)}), Interval(int(first), last))
                _narrow(known, frozenset({(var, -1)}), Interval(-last, -int(first)))
            case _:
                open_ranges.append(each)
    for condition in Context(tuple(open_ranges), context.facts).conditions():
        if wraps(condition, known):
            continue  # it speaks of numbers modulo 2^64
        for left, right, constant in knowledges.inequalities(condition):
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


def _note_form(row: Polynomial, known: knowledges.Knowledge) -> None:
    """`g*p + c >= 0` is `p >= ceil(-c / g)`, and the same of `-p` from above."""
    content = row.content()
    shape = Polynomial(0, {k: c // content for k, c in row.terms.items()})
    low = -(row.constant // content)
    _narrow(known, shape.form, Interval(low, None))
    _narrow(known, shape.scaled(-1).form, Interval(None, -low))


def _note_residue(condition: sc.Scalar, known: knowledges.Knowledge) -> None:
    match condition:
        case sc.Eq(sc.FloorMod(value, sc.Lit(modulus)), sc.Lit(base)) | sc.Eq(
            sc.Lit(base), sc.FloorMod(value, sc.Lit(modulus))
        ):
            pass
        case _:
            return
    if sc.dtype_of(value) is not i64 or int(modulus) == 0:
        return
    of = known.polynomial(value)
    if of.terms:
        size = abs(int(modulus))
        known.residues[of.form] = knowledges.Residue(size, (int(base) - of.constant) % size)


def _narrow(known: knowledges.Knowledge, form: knowledges.Form, to: Interval) -> bool:
    old = known.forms.get(form)
    new = to if old is None else old.meet(to)
    if new == old:
        return False
    known.forms[form] = new
    if new.empty:
        known.impossible = True
    return True


MAX_PROPAGATION_ROUNDS: Final = 4


def _propagate(known: knowledges.Knowledge) -> None:
    """Tightens the bounds of atoms: each row bounds each of its products by the others."""
    for _ in range(MAX_PROPAGATION_ROUNDS):
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
