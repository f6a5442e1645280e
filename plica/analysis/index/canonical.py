"""Canonical form: sums of products, with quotients and remainders split and recombined.

    quotient      (8*i + j + 12) // 8     is  i + (j + 4) // 8 + 1
    remainder     (8*i + j) % 16          is  8*(i % 2) + j          where 0 <= j < 8
    gathered      4*(x // 4) + x % 4      is  x

>>> from plica.ir.type.dim import dim_var
>>> from plica.analysis.index.context import EMPTY
>>> from plica.analysis.index.bounds import knowledge
>>> i, j = dim_var("i"), dim_var("j")
>>> nest = knowledge(EMPTY.loop(i, 4).loop(j, 8))
>>> quotient(nest.polynomial(8 * i + j), 8, nest) == nest.polynomial(i)
True

All three are equations over the integers at every point that the context allows.
"""

from __future__ import annotations

import hashlib
from math import gcd
from typing import Final

from plica.analysis.index.bounds import of_polynomial
from plica.analysis.index.implication import is_non_negative, is_nonzero
from plica.analysis.index.knowledge import Knowledge
from plica.analysis.index.modular import residue_of_polynomial
from plica.analysis.index.polynomial import (
    GREATEST,
    NOTHING,
    Key,
    Polynomial,
    Product,
    atom,
    literal,
    number,
    to_term,
)
from plica.core import Name, Term, digest, fold_into, free_vars
from plica.ir.loop.scalar import FloorDiv, FloorMod, Lit, Scalar

MAX_NESTED_REMAINDERS: Final = 40
"""How many remainders inside one another a quotient is pushed through."""


def term_of(of: Polynomial, known: Knowledge) -> Scalar | None:
    """The canonical term, or None if a coefficient does not fit into an index."""
    ordered = known.order or known.by_name
    return to_term(of, (lambda key: rank(key, known)) if ordered else None)


def rank(key: Key, known: Knowledge) -> tuple[object, ...]:
    """The place of a product in a canonical sum: by the variables' places, names do not matter.

    Products with variables outside the context come last, in order of occurrence. In the empty
    context, names decide the order.
    """
    if (found := known.ranks.get(key)) is not None:
        return found
    parts = key.atoms if isinstance(key, Product) else (key,)
    places: list[int] = []
    if known.by_name:
        names = sorted({_name(var) for part in parts for var in free_vars(part)})
        marks = sorted(_mark(part, known) for part in parts)
        known.ranks[key] = (0, names, len(parts), b"".join(marks))
        return known.ranks[key]
    for part in parts:
        for variable in free_vars(part):
            if (place := known.order.get(variable)) is None:
                known.ranks[key] = _LAST
                return _LAST
            places.append(place)
    if len(places) == 1 and len(parts) == 1 and key in known.order:
        found = (0, places[0], 0, b"")
    else:
        marks = sorted(_mark(part, known) for part in parts)
        found = (0, min(places, default=0), len(parts), b"".join(marks))
    known.ranks[key] = found
    return found


_LAST: Final = (1,)


def _name(of: Term) -> tuple[str, int]:
    name = getattr(of, "name", None)
    return (name.hint, name.index) if isinstance(name, Name) else (digest(of), 0)


def _mark(root: Scalar, known: Knowledge) -> bytes:
    """Bytes that order atoms by structure, with variables identified by their position."""
    memo = known.marks

    def parts(node: Scalar) -> list[Scalar]:
        return [kid for kid in node._children if isinstance(kid, Scalar)]

    def mark(node: Scalar) -> bytes:
        kids = parts(node)
        if isinstance(node, Lit):
            text = f"{node.value!r}{node.dtype}"
        elif node in known.order:
            text = f"#{known.order[node]}"
        else:
            text = f"{type(node).tag()}{digest(node) if not kids else ''}"
        inside = b"".join([memo[kid] for kid in kids])
        return hashlib.blake2b(text.encode() + inside, digest_size=16).digest()

    return fold_into(memo, root, parts, mark)


def quotient(of: Polynomial, by: int, known: Knowledge, depth: int = 0) -> Polynomial | None:
    """`of // by` in canonical form; None if a number does not fit into an index."""
    if by == 0:
        return NOTHING
    if by < 0:
        of, by = of.scaled(-1), -by
    whole = NOTHING
    rest = of
    while by != 1:
        low, high = of_polynomial(rest, known)
        if low is not None and high is not None and low // by == high // by:
            return whole.shifted(low // by)
        out, rest = _pulled(rest, by)
        if out.terms or out.constant:
            whole = whole.plus(out)
            continue
        common = gcd(rest.content(), by)
        if common > 1:
            rest = _split(rest, common)[0]
            by //= common
            continue
        if (narrowed := _without_low_part(rest, by, known)) is not None:
            rest, common, _ = narrowed
            by //= common
            continue
        if isinstance(inside := _single(rest), FloorDiv):
            step = _literal(inside.right)
            if step is not None and step > 0 and step * by <= GREATEST:
                rest = known.polynomial(inside.left).shifted(rest.constant * step)
                by *= step
                continue
        elif isinstance(inside, FloorMod) and rest.constant == 0 and depth < MAX_NESTED_REMAINDERS:
            size = _literal(inside.right)
            if size is not None and size > 0 and size % by == 0:
                inner = quotient(known.polynomial(inside.left), by, known, depth + 1)
                part = None if inner is None else remainder(inner, size // by, known, depth + 1)
                return None if part is None else whole.plus(part)
        value = term_of(rest, known)
        return None if value is None else whole.plus(atom(FloorDiv(value, literal(by))))
    return whole.plus(rest)


def remainder(of: Polynomial, by: int, known: Knowledge, depth: int = 0) -> Polynomial | None:
    """`of % by` in canonical form; None if a number does not fit into an index."""
    if by < 0:
        found = remainder(of.scaled(-1), -by, known, depth)
        return None if found is None else found.scaled(-1)
    offset, scale, rest = NOTHING, 1, of
    while by > 1:
        low, high = of_polynomial(rest, known)
        if low is not None and high is not None and low // by == high // by:
            return offset.plus(rest.shifted(-(low // by) * by), scale)
        rest = _reduced(rest, by, known)
        step, base = residue_of_polynomial(rest, known)
        if step % by == 0:
            return offset.shifted(scale * (base % by))
        common = gcd(rest.content(), by)
        if common > 1:
            rest, low_part = _split(rest, common)
            offset = offset.shifted(scale * low_part.constant)
            scale *= common
            by //= common
            continue
        if (narrowed := _without_low_part(rest, by, known)) is not None:
            rest, common, low_part = narrowed
            offset = offset.plus(low_part, scale)
            scale *= common
            by //= common
            continue
        low, high = of_polynomial(rest, known)
        if low is not None and high is not None and low // by == high // by:
            continue
        value = term_of(rest, known)
        return None if value is None else offset.plus(atom(FloorMod(value, literal(by))), scale)
    return offset


def divided_by(
    of: Polynomial, by: Polynomial, known: Knowledge, *, whole: bool
) -> Polynomial | None:
    """`of // by` for a symbolic divisor if `whole`, else `of % by`; None if no multiple of the
    divisor can be taken out."""
    if (parts := _apart(of, by, known)) is None:
        return None
    out, rest = parts
    below = by.plus(rest, -1).shifted(-1)
    if rest == NOTHING or (is_non_negative(rest, known) and is_non_negative(below, known)):
        return out if whole else rest
    value, divisor = term_of(rest, known), term_of(by, known)
    if out == NOTHING or value is None or divisor is None:
        return None
    return out.plus(atom(FloorDiv(value, divisor))) if whole else atom(FloorMod(value, divisor))


def gathered(of: Polynomial, known: Knowledge) -> Polynomial | None:
    """Recombines quotients and remainders of the same term; each round removes one product."""
    while True:
        if not any(key.__class__ is FloorDiv or key.__class__ is FloorMod for key in of.terms):
            return of
        if (smaller := _gathered_once(of, known)) is None:
            return of
        of = smaller


def _gathered_once(of: Polynomial, known: Knowledge) -> Polynomial | None:
    for key, coefficient in of.terms.items():
        if isinstance(key, FloorMod) and (size := _literal(key.right)) is not None and size > 0:
            value, step = _view(key.left, known)
            wanted = coefficient * size
            for other, theirs in of.terms.items():
                if theirs == wanted:
                    joined = _joined(other, value, step, size, known)
                    if joined is not None:
                        rest = _dropped(of, key, other)
                        return rest.plus(joined, coefficient)
        elif isinstance(key, FloorDiv) and (size := _literal(key.right)) is not None and size > 0:
            # k*x - k*c*(x // c) is k*(x % c)
            times, odd = divmod(-coefficient, size)
            if not odd and of.terms.get(key.left) == times:
                part = remainder(known.polynomial(key.left), size, known)
                if part is not None:
                    return _dropped(of, key, key.left).plus(part, times)
    return None


def _joined(
    other: Key, value: Polynomial, step: int, size: int, known: Knowledge
) -> Polynomial | None:
    """`value // step` where `other` is the part of it that `(value // step) % size` leaves out."""
    if isinstance(other, FloorDiv):
        whole, again = _quotient_view(other, known)
        if again == step * size and _congruent(whole, value, again):
            return quotient(whole, step, known)
    elif isinstance(other, FloorMod):
        whole, again = _view(other.left, known)
        more = _literal(other.right)
        fits = more is not None and more > 0 and again == step * size
        if fits and _congruent(whole, value, again):
            inner = quotient(whole, step, known)
            return None if inner is None else remainder(inner, size * (more or 1), known)
    return None


def _congruent(a: Polynomial, b: Polynomial, modulus: int) -> bool:
    return a.terms == b.terms and (a.constant - b.constant) % modulus == 0


def _view(term: Scalar, known: Knowledge) -> tuple[Polynomial, int]:
    """A term as `value // step`; the step is 1 where it is no quotient."""
    of = known.polynomial(term)
    if isinstance(inside := _single(of), FloorDiv):
        value, step = _quotient_view(inside, known)
        if step:
            return value.shifted(of.constant * step), step
    return of, 1


def _quotient_view(of: FloorDiv, known: Knowledge) -> tuple[Polynomial, int]:
    step = _literal(of.right)
    return known.polynomial(of.left), step if step is not None and step > 0 else 0


def _single(of: Polynomial) -> Scalar | None:
    """The atom where the polynomial is that atom plus a number."""
    if len(of.terms) == 1:
        ((key, coefficient),) = of.terms.items()
        if coefficient == 1 and not isinstance(key, Product):
            return key
    return None


def _literal(of: Scalar) -> int | None:
    return int(of.value) if isinstance(of, Lit) else None


def _dropped(of: Polynomial, *keys: Key) -> Polynomial:
    return Polynomial(of.constant, {k: c for k, c in of.terms.items() if k not in keys})


def _pulled(of: Polynomial, by: int) -> tuple[Polynomial, Polynomial]:
    """Splits a polynomial into the multiple of `by`, divided by it, and the rest with coefficients
    below `by`."""
    out: dict[Key, int] = {}
    stays: dict[Key, int] = {}
    for key, coefficient in of.terms.items():
        q = coefficient // by if coefficient >= 0 else -(-coefficient // by)
        if q:
            out[key] = q
        if coefficient - q * by:
            stays[key] = coefficient - q * by
    constant, left = divmod(of.constant, by)
    return Polynomial(constant, out), Polynomial(left, stays)


def _reduced(of: Polynomial, by: int, known: Knowledge) -> Polynomial:
    """An equal remainder: coefficients below `by`, remainders inside opened where they can be."""
    _, rest = _pulled(of, by)
    while True:
        for key, coefficient in rest.terms.items():
            if isinstance(key, FloorMod):
                size = _literal(key.right)
                if size is not None and size != 0 and coefficient * size % by == 0:
                    opened = known.polynomial(key.left).scaled(coefficient)
                    _, rest = _pulled(_dropped(rest, key).plus(opened), by)
                    break
        else:
            return rest


def _split(of: Polynomial, by: int) -> tuple[Polynomial, Polynomial]:
    """`of = by * high + low` where only a number from 0 to `by - 1` is low."""
    high, low = divmod(of.constant, by)
    return Polynomial(high, {k: c // by for k, c in of.terms.items()}), number(low)


def _without_low_part(
    of: Polynomial, by: int, known: Knowledge
) -> tuple[Polynomial, int, Polynomial] | None:
    """`of = g*high + low` with `g` a divisor of `by` and `0 <= low < g`; the greatest such g."""
    divisors = sorted({gcd(c, by) for c in of.terms.values()} - {1}, reverse=True)
    for g in divisors:
        if not (low := {k: c for k, c in of.terms.items() if c % g}):
            continue
        part = Polynomial(of.constant % g, low)
        least, most = of_polynomial(part, known)
        if least is None or most is None or least // g != most // g:
            continue
        cell = least // g
        high = {k: c // g for k, c in of.terms.items() if c % g == 0}
        return Polynomial(of.constant // g + cell, high), g, part.shifted(-cell * g)
    return None


def _apart(
    of: Polynomial, by: Polynomial, known: Knowledge
) -> tuple[Polynomial, Polynomial] | None:
    """`of = whole * by + rest`, for a divisor that is not zero."""
    if not is_nonzero(by, known):
        return None
    if len(by.terms) == 1 and by.constant == 0:
        ((key, factor),) = by.terms.items()
        whole, rest = NOTHING, number(of.constant)
        for each, coefficient in of.terms.items():
            left = _left_over(each, key) if coefficient % factor == 0 else None
            if left is None:
                rest = rest.plus(Polynomial(0, {each: coefficient}))
            else:
                whole = whole.plus(left, coefficient // factor)
        return whole, rest
    lead, factor = next(iter(by.terms.items()))
    times, odd = divmod(of.terms.get(lead, 0), factor)
    if odd:
        return NOTHING, of
    return number(times), of.plus(by, -times)


def _left_over(of: Key, factor: Key) -> Polynomial | None:
    """`of / factor` where every atom of the factor is an atom of the product."""
    rest = list(of.atoms) if isinstance(of, Product) else [of]
    for scalar in factor.atoms if isinstance(factor, Product) else (factor,):
        if scalar not in rest:
            return None
        rest.remove(scalar)
    if not rest:
        return number(1)
    return atom(rest[0]) if len(rest) == 1 else Polynomial(0, {Product(tuple(rest)): 1})
