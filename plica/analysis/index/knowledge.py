"""Knowledge: what follows from a context at once, in tables made for fast look-up.

    rows         polynomials of several products that are not negative
    ranges       loop variables with symbolic ends, innermost first: least and greatest value
    forms        an interval for a polynomial without its constant, and so for each atom
    residues     `value = base (mod coefficient)` for a polynomial without its constant
    order        the place of each variable in canonical terms

`plica.analysis.index.bounds` makes them of a context.

The tables also remember answers already given under the context (`bounds`, `residue_of`,
`normal`); forgetting them changes speed, never a result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import attrs

from plica.analysis.index.context import Context
from plica.analysis.index.interval import Interval
from plica.analysis.index.polynomial import Key, Polynomial, polynomial
from plica.core import Term, fold_into
from plica.ir.loop import scalar as sc
from plica.ir.type import i64

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
    ranges: tuple[tuple[sc.Scalar, Polynomial, Polynomial], ...]
    forms: dict[Form, Interval]
    residues: dict[Form, Residue]
    order: dict[Term, int]
    impossible: bool  # the context has no point at all: anything may be said
    by_name: bool = False  # nothing is known, not even which variables there are
    polynomials: dict[Term, Polynomial] = attrs.field(factory=dict)
    bounds: dict[sc.Scalar, Interval] = attrs.field(factory=dict)
    residue_of: dict[sc.Scalar, Residue] = attrs.field(factory=dict)
    plain: dict[sc.Scalar, sc.Scalar] = attrs.field(factory=dict)
    normal: dict[sc.Scalar, sc.Scalar] = attrs.field(factory=dict)
    ranks: dict[Key, tuple[object, ...]] = attrs.field(factory=dict)
    marks: dict[sc.Scalar, bytes] = attrs.field(factory=dict)
    inner: dict[tuple[sc.Scalar, bool], Context] = attrs.field(factory=dict)

    def polynomial(self, term: sc.Scalar) -> Polynomial:
        """The polynomial of a term, remembered."""
        return polynomial(term, self.polynomials)

    def trim(self) -> None:
        """Evicts answers beyond the limit."""
        tables: tuple[dict[Any, Any], ...] = (  # Any: of whatever, it is only counted
            self.polynomials, self.bounds, self.residue_of,
            self.plain, self.normal, self.ranks, self.marks,
        )  # fmt: skip
        for table in tables:
            if len(table) > MAX_ANSWERS:
                table.clear()
        if len(self.inner) > MAX_INNER:
            self.inner.clear()


MAX_ANSWERS: Final = 100_000
MAX_INNER: Final = 256  # contexts inside this one that are kept for the next time


KINDS: Final[dict[type[sc.Scalar], str]] = {
    sc.Add: "sum", sc.Sub: "sum", sc.Mul: "sum", sc.FloorDiv: "division", sc.FloorMod: "division",
    sc.Min: "least", sc.Max: "greatest", sc.Select: "select",
}  # fmt: skip
"""The kind of each index term class; other classes are atoms."""

ARITHMETIC: Final = (sc.Add, sc.Sub, sc.Mul, sc.FloorDiv, sc.FloorMod)
_LOGIC: Final = frozenset({sc.Eq, sc.Ne, sc.Lt, sc.Le, sc.And, sc.Or, sc.Not})

_mentions: Final[WeakKeyDictionary[sc.Scalar, bool]] = WeakKeyDictionary()
"""The answers of `mentions_data`, whatever is known: each context asks about the same terms."""


def mentions_data(term: sc.Scalar) -> bool:
    """Whether the value of an index term depends on anything but variables."""
    memo = _mentions
    if (found := memo.get(term)) is not None:
        return found

    def depends(node: sc.Scalar) -> bool:
        if kids := arithmetic_parts(node):
            return any(memo[kid] for kid in kids)
        plain = isinstance(node, sc.Lit | sc.ScalarVar) or type(node).hole
        return sc.dtype_of(node) is i64 and not plain

    return fold_into(memo, term, arithmetic_parts, depends)


def arithmetic_parts(node: sc.Scalar) -> tuple[sc.Scalar, ...]:
    """The parts that laws of the integers may look at."""
    cls = node.__class__
    if cls in _LOGIC:
        return tuple([kid for kid in node._children if isinstance(kid, sc.Scalar)])
    kind = KINDS.get(cls)
    if kind is None or sc.dtype_of(node) is not i64:
        return ()
    if kind == "select":
        return node.condition, node.then, node.orelse  # type: ignore[attr-defined]  # the class was just seen
    return node.left, node.right  # type: ignore[attr-defined]  # the class was just seen


def parts(node: sc.Scalar, known: Knowledge) -> Iterable[sc.Scalar]:
    """The terms whose intervals, or residues, give that of a node; none of an atom."""
    kind = KINDS.get(node.__class__)
    if kind is None or sc.dtype_of(node) is not i64:
        return ()
    if kind == "sum":
        of = known.polynomial(node)
        if node not in of.terms:
            return of.atoms()
    elif kind == "select":
        return node.then, node.orelse  # type: ignore[attr-defined]  # the class was just seen
    return node.left, node.right  # type: ignore[attr-defined]  # a product may be too big


def inequalities(condition: sc.Scalar) -> tuple[tuple[sc.Scalar, sc.Scalar, int], ...]:
    """A condition as non-negative differences `a - b + c`; empty if it is none."""
    match condition:
        case sc.Lt(left, right) if sc.dtype_of(left) is i64:
            return ((right, left, -1),)
        case sc.Le(left, right) if sc.dtype_of(left) is i64:
            return ((right, left, 0),)
        case sc.Eq(left, right) if sc.dtype_of(left) is i64:
            return (right, left, 0), (left, right, 0)
        case _:
            return ()
