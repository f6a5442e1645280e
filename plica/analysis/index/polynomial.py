"""Polynomials: an index term as a sum of products, whatever is no sum or product being an atom.

>>> from plica.ir.type.dim import dim_var
>>> x, y = dim_var("x"), dim_var("y")
>>> same = polynomial((x + y) * (x - y)), polynomial(x * x - y * y)
>>> same[0] == same[1]
True

`polynomial` decomposes a term without changing its atoms; `to_term` builds the canonical term. A
product of several atoms is independent of their order; atoms and products stay in order of first
occurrence, because ordering by name would make digests depend on names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from math import gcd
from typing import Final, NamedTuple, TypeAlias

from plica.core import Term
from plica.ir.loop.scalar import Add, Lit, Mul, Scalar, Sub
from plica.ir.type import i64


class Product:
    """A product of two or more atoms, equal to any other of the same atoms."""

    __slots__ = ("_bag", "_hash", "atoms")

    def __init__(self, atoms: tuple[Scalar, ...]) -> None:
        self.atoms = atoms
        bag: dict[Scalar, int] = {}
        for atom in atoms:
            bag[atom] = bag.get(atom, 0) + 1
        self._bag = bag
        self._hash = hash(frozenset(bag.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Product) and self._bag == other._bag

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Product({self.atoms!r})"


Key: TypeAlias = Scalar | Product  # an atom, or a product of atoms


class Polynomial(NamedTuple):
    """A constant and a non-zero coefficient for each product. The map is never mutated."""

    constant: int
    terms: dict[Key, int]

    def plus(self, other: Polynomial, factor: int = 1) -> Polynomial:
        """`self + factor * other`."""
        if not other.terms:
            return Polynomial(self.constant + factor * other.constant, self.terms)
        terms = dict(self.terms)
        for key, coefficient in other.terms.items():
            if total := terms.get(key, 0) + factor * coefficient:
                terms[key] = total
            else:
                terms.pop(key, None)
        return Polynomial(self.constant + factor * other.constant, terms)

    def shifted(self, by: int) -> Polynomial:
        """The polynomial plus a number."""
        return Polynomial(self.constant + by, self.terms) if by else self

    def scaled(self, factor: int) -> Polynomial:
        """The polynomial times a number."""
        if factor == 1:
            return self
        if factor == 0:
            return NOTHING
        return Polynomial(self.constant * factor, {k: c * factor for k, c in self.terms.items()})

    def times(self, other: Polynomial) -> Polynomial:
        """The product, multiplied out."""
        if not other.terms:
            return self.scaled(other.constant)
        if not self.terms:
            return other.scaled(self.constant)
        total: dict[Key, int] = {}
        mine = [*self.terms.items(), *([(None, self.constant)] if self.constant else [])]
        theirs = [*other.terms.items(), *([(None, other.constant)] if other.constant else [])]
        constant = 0
        for a, x in mine:
            for b, y in theirs:
                if (key := _join(a, b)) is None:
                    constant += x * y
                elif (new := total.get(key, 0) + x * y) != 0:
                    total[key] = new
                else:
                    total.pop(key, None)
        return Polynomial(constant, total)

    def content(self) -> int:
        """The greatest common divisor of the coefficients, the constant left out."""
        return gcd(*self.terms.values())

    def exactly_divided(self, by: int) -> Polynomial:
        """The polynomial divided by a number that divides every part of it."""
        return Polynomial(self.constant // by, {k: c // by for k, c in self.terms.items()})

    @property
    def form(self) -> frozenset[tuple[Key, int]]:
        """The polynomial without its constant, as a key."""
        return frozenset(self.terms.items())

    def atoms(self) -> Iterator[Scalar]:
        """The atoms, in order, repeated for each product that contains them."""
        for key in self.terms:
            if isinstance(key, Product):
                yield from key.atoms
            else:
                yield key


NOTHING: Final = Polynomial(0, {})
Rank: TypeAlias = Callable[[Key], tuple[object, ...]]


def number(value: int) -> Polynomial:
    """A constant."""
    return Polynomial(value, {})


def atom(of: Scalar) -> Polynomial:
    """An atom alone."""
    return Polynomial(0, {of: 1})


def polynomial(term: Scalar, memo: MutableMapping[Term, Polynomial] | None = None) -> Polynomial:
    """The polynomial of an index term; its atoms are subterms as they stand."""
    known = memo if memo is not None else {}
    if (found := known.get(term)) is not None:
        return found
    stack: list[tuple[Scalar, bool]] = [(term, False)]
    while stack:
        node, leaving = stack.pop()
        if node in known:
            continue
        cls = node.__class__
        if cls is Lit and node.dtype is i64:  # type: ignore[attr-defined]  # the class was just seen
            known[node] = Polynomial(node.value, {})  # type: ignore[attr-defined]  # the class was just seen
        elif cls is Add or cls is Sub or cls is Mul:
            left: Scalar = node.left  # type: ignore[attr-defined]  # the class was just seen
            right: Scalar = node.right  # type: ignore[attr-defined]  # the class was just seen
            if not leaving:
                stack.append((node, True))
                stack.append((right, False))
                stack.append((left, False))
            elif cls is Mul:
                a, b = known[left], known[right]
                known[node] = a.times(b) if _small(a, b) else Polynomial(0, {node: 1})
            else:
                known[node] = known[left].plus(known[right], 1 if cls is Add else -1)
        else:
            known[node] = Polynomial(0, {node: 1})
    return known[term]


def to_term(of: Polynomial, rank: Rank | None = None) -> Scalar | None:
    """The canonical term: a positive product first, the constant last.

    None if a number does not fit into an index.
    """
    rows = list(of.terms.items())
    if rank is not None and len(rows) > 1:
        rows.sort(key=lambda row: rank(row[0]))
    if rows and rows[0][1] < 0:
        lead = next((i for i, row in enumerate(rows) if row[1] > 0), 0)
        rows.insert(0, rows.pop(lead))
    result: Scalar | None = None
    for key, coefficient in rows:
        size = coefficient if result is None else abs(coefficient)
        if not LEAST <= size <= GREATEST:
            return None
        part: Scalar | None = None if size == 1 else literal(size)
        for scalar in _in_order(key.atoms, rank) if isinstance(key, Product) else (key,):
            part = scalar if part is None else Mul(part, scalar)
        assert part is not None
        if result is None:
            result = part
        else:
            result = Add(result, part) if coefficient > 0 else Sub(result, part)
    if result is None:
        return literal(of.constant) if LEAST <= of.constant <= GREATEST else None
    if of.constant:
        if abs(of.constant) > GREATEST:
            return None
        last = literal(abs(of.constant))
        result = Add(result, last) if of.constant > 0 else Sub(result, last)
    return result


def literal(value: int) -> Scalar:
    """An index literal; small ones are cached."""
    lit = _LITERALS.get(value)
    return Lit(value, i64) if lit is None else lit


_LITERALS: Final = {value: Lit(value, i64) for value in range(-64, 1025)}


def _in_order(atoms: tuple[Scalar, ...], rank: Rank | None) -> list[Scalar]:
    return list(atoms) if rank is None else sorted(atoms, key=rank)


LEAST, GREATEST = i64.bounds

# Expansion must not blow up: beyond these sizes a product stays an atom.
MAX_TERMS: Final = 256
MAX_ATOMS: Final = 12


def _small(a: Polynomial, b: Polynomial) -> bool:
    if not a.terms or not b.terms:
        return True
    return len(a.terms) * len(b.terms) <= MAX_TERMS and _degree(a) + _degree(b) <= MAX_ATOMS


def _degree(of: Polynomial) -> int:
    return max(len(key.atoms) if isinstance(key, Product) else 1 for key in of.terms)


def _join(a: Key | None, b: Key | None) -> Key | None:
    if a is None:
        return b
    if b is None:
        return a
    left = a.atoms if isinstance(a, Product) else (a,)
    right = b.atoms if isinstance(b, Product) else (b,)
    return Product(left + right)
