"""Modular sets: the numbers `coefficient * k + base` that an index term can be.

>>> from plica.analysis.index.bounds import knowledge
>>> from plica.analysis.index.context import EMPTY
>>> from plica.ir.type.dim import dim_var
>>> i = dim_var("i")
>>> residue((i * 8 + 5) // 4, knowledge(EMPTY))
Residue(coefficient=2, base=1)

Sound: every value the term takes at a point that the context allows is such a number.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import Final

from plica.analysis.index.knowledge import KINDS, Knowledge, Residue, mentions_data
from plica.analysis.index.polynomial import Key, Polynomial, Product
from plica.core import fold_into
from plica.ir.loop.scalar import FloorDiv, FloorMod, Lit, Scalar, dtype_of
from plica.ir.type import i64

ANY: Final = Residue(1, 0)


def residue(term: Scalar, known: Knowledge) -> Residue:
    """The modular set of an index term, with the tables of a context at hand."""
    memo = known.residue_of
    if (found := memo.get(term)) is not None:
        return found
    return fold_into(
        memo, term, lambda node: _parts(node, known), lambda node: _of_node(node, known)
    )


def residue_of_polynomial(of: Polynomial, known: Knowledge) -> Residue:
    """The modular set of a polynomial."""
    step, base = 0, of.constant
    for key, coefficient in of.terms.items():
        theirs = _of_key(key, known)
        step = gcd(step, theirs.coefficient * coefficient)
        base += theirs.base * coefficient
    found = _reduced(step, base)
    if known.residues and (said := known.residues.get(of.form)) is not None:
        found = _meet(found, _reduced(said.coefficient, said.base + of.constant))
    return found


def _of_key(key: Key, known: Knowledge) -> Residue:
    if not isinstance(key, Product):
        return residue(key, known)
    found = Residue(0, 1)
    for atom in key.atoms:
        found = _times(found, residue(atom, known))
    return found


def _times(a: Residue, b: Residue) -> Residue:
    """(m*k + p) * (n*l + q): every part but `p*q` is a multiple of the divisor of the others."""
    step = gcd(a.coefficient * b.coefficient, a.coefficient * b.base, b.coefficient * a.base)
    return _reduced(step, a.base * b.base)


def _parts(node: Scalar, known: Knowledge) -> Iterable[Scalar]:
    kind = KINDS.get(node.__class__)
    if kind is None or dtype_of(node) is not i64:
        return ()
    if kind == "sum":
        of = known.polynomial(node)
        if node not in of.terms:
            return of.atoms()
    elif kind == "division":
        return (node.left,) if isinstance(node.right, Lit) else ()  # type: ignore[attr-defined]  # the class was just seen
    elif kind == "select":
        return node.then, node.orelse  # type: ignore[attr-defined]  # the class was just seen
    return node.left, node.right  # type: ignore[attr-defined]  # a product may be too big


def _of_node(node: Scalar, known: Knowledge) -> Residue:
    memo = known.residue_of
    if isinstance(node, Lit) and node.dtype is i64:
        return Residue(0, int(node.value))
    kind = KINDS.get(node.__class__)
    parts = [] if kind == "sum" else [memo[part] for part in _parts(node, known)]
    found = ANY
    if kind == "sum" and dtype_of(node) is i64:
        found = _of_sum(node, known)
    elif isinstance(node, FloorDiv | FloorMod) and parts:
        assert isinstance(node.right, Lit)
        divide = _quotient if isinstance(node, FloorDiv) else _remainder
        found = divide(parts[0], int(node.right.value))
    elif parts:
        left, right = parts
        step = gcd(left.coefficient, right.coefficient, left.base - right.base)
        found = _reduced(step, left.base)
    if known.residues and (said := known.residues.get(frozenset({(node, 1)}))) is not None:
        found = _meet(found, said)
    return found


def _of_sum(node: Scalar, known: Knowledge) -> Residue:
    of = known.polynomial(node)
    if node in of.terms:  # a product too big to multiply out
        memo = known.residue_of
        found = _times(memo[node.left], memo[node.right])  # type: ignore[attr-defined]  # the class was just seen
    else:
        found = residue_of_polynomial(of, known)
    if mentions_data(node):  # it may wrap
        return _reduced(gcd(found.coefficient, 1 << 64), found.base)
    return found


def _quotient(of: Residue, divisor: int) -> Residue:
    if divisor == 0:
        return Residue(0, 0)
    if of.coefficient % divisor == 0:
        return _reduced(of.coefficient // divisor, of.base // divisor)
    return ANY


def _remainder(of: Residue, divisor: int) -> Residue:
    if divisor == 0:
        return Residue(0, 0)
    if of.coefficient % divisor == 0:
        return Residue(0, of.base % divisor)
    return _reduced(gcd(of.coefficient, divisor), of.base)


def _reduced(step: int, base: int) -> Residue:
    step = abs(step)
    return Residue(step, base % step if step else base)


def _meet(a: Residue, b: Residue) -> Residue:
    """Numbers in both: the finer of the two where one holds the other, otherwise by remainders."""
    if a.coefficient == 0 or b.coefficient == 0:
        return a if a.coefficient == 0 else b
    common = gcd(a.coefficient, b.coefficient)
    if (a.base - b.base) % common:
        return a  # a contradiction: the context allows no point, and anything is true
    step = a.coefficient // common * b.coefficient
    inverse = pow(a.coefficient // common, -1, b.coefficient // common)
    shift = (b.base - a.base) // common * inverse % (b.coefficient // common)
    return _reduced(step, a.base + a.coefficient * shift)
