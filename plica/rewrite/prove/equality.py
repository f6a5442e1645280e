"""Equality of scalars: by a solver, and of reductions by what the scalars in them do.

A function comes out of a reduction where it respects how terms are combined:

    fold(op, i: g(e[i])) = g(fold(op', i: e[i]))    if g(op'(a, b)) = op(g(a), g(b))
                                                    and g(unit of op') = unit of op

An extreme has one term or more, so nothing is asked of its unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from plica.core import Name, Term, map_bottom_up, post_order
from plica.ir.contract import Contract, exact, signless_zero
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.scalar import Intrinsic, Lit, Lt, Scalar, ScalarVar, Select, Sub, dtype_of
from plica.rewrite.prove.element import RuleReading
from plica.rewrite.prove.open_tensor import OpenFold, Unprovable
from plica.rewrite.prove.rounding import DETOUR, direct
from plica.rewrite.prove.smt import EqualityScript, FloatTheory, Unencodable, query
from plica.rewrite.prove.solver import MISSING, answer, is_available

CASES: Final = "a choice comes out of what is computed of it"
REALS: Final = "real arithmetic"
ONE_ZERO: Final = "one zero"
_THEORIES: Final[dict[bool, tuple[FloatTheory, ...]]] = {
    True: ("ieee", "reals"), False: ("reals",)
}  # fmt: skip
_SPOKEN: Final[dict[FloatTheory, str]] = {"ieee": "IEEE 754", "reals": REALS}


@attrs.frozen
class Claim:
    """How far the sides may differ, and the scripts that show that they do not, so far."""

    contract: Contract
    scripts: dict[str, None]
    partial: frozenset[Scalar] = frozenset()
    """Unknown numbers that may be undefined."""
    theorems: dict[str, None] = attrs.Factory(dict)
    """The laws of the normal form that were used."""
    keeps_bits: bool = True
    """Whether IEEE 754 can be asked: not where a sum in another order was made already."""


def equal_folds(reading: RuleReading, a: Scalar, b: Scalar, claim: Claim) -> Sequence[str]:
    """The laws under which two scalars with reductions are equal."""
    for whole, other in ((a, b), (b, a)):
        fold, inner = reading.folds.get(whole), _one_fold(reading, other)
        if fold is None or inner is None or reading.folds[inner].domain != fold.domain:
            continue
        if (found := _comes_out_of(reading, fold, inner, other, claim)) is not None:
            return found
    laws: list[str] = []
    return [*laws, *equal(a, _with_folds_of(reading, a, b, claim, laws), claim)]


def _with_folds_of(
    reading: RuleReading, a: Scalar, b: Scalar, claim: Claim, laws: list[str]
) -> Scalar:
    """The right side with reductions of the left one, where their terms are equal.

    Terms must agree to the bit where the contract says anything about bits: what a zero without a
    sign does inside of the right side is not looked at.
    """
    inside = attrs.evolve(claim, contract=exact) if claim.contract <= signless_zero else claim
    known, new = ([node for node in post_order(side) if node in reading.folds] for side in (a, b))
    same: dict[Term, Term] = {}
    for right in new:
        for left in known if right not in known else ():
            first, second = reading.folds[left], reading.folds[right]
            if (first.combiner, first.domain) == (second.combiner, second.domain):
                try:
                    laws += equal_folds(reading, first.body, second.body, inside)
                except Unprovable:
                    continue
                same[right] = left
                reading.use("reductions of equal terms are equal")
                break
    scalar = map_bottom_up(lambda node: same.get(node, node), b)
    assert isinstance(scalar, Scalar)
    return scalar


def _comes_out_of(
    reading: RuleReading, fold: OpenFold, inner: Scalar, other: Scalar, claim: Claim
) -> Sequence[str] | None:
    """The laws under which a reduction is a function of another, None if it is not known to be."""
    try:
        laws = _comes_out(fold, reading.folds[inner], inner, other, claim)
    except Unprovable:
        return None
    reading.use("a function comes out of a reduction")
    return laws


def _one_fold(reading: RuleReading, term: Scalar) -> Scalar | None:
    """The one reduction in a scalar; what it combines may hold others."""
    scalars = [node for node in post_order(term) if node in reading.folds]
    return scalars[0] if len(scalars) == 1 and isinstance(scalars[0], Scalar) else None


def _comes_out(
    whole: OpenFold, part: OpenFold, variable: Scalar, function: Scalar, claim: Claim
) -> Sequence[str]:
    """The laws under which a function of a reduction is a reduction of the function."""

    def applied(to: Scalar) -> Scalar:
        scalar = map_bottom_up(lambda node: to if node is variable else node, function)
        assert isinstance(scalar, Scalar)
        return scalar

    dtype = dtype_of(part.body)
    if {"sum", "prod"} & {whole.combiner, part.combiner}:
        claim = attrs.evolve(claim, keeps_bits=False)  # each step is rounded
    left, right = (ScalarVar(Name(name), dtype) for name in ("left", "right"))
    unit, join = MEANING[part.combiner]
    whole_unit, whole_join = MEANING[whole.combiner]
    goals = [
        (whole.body, applied(part.body)),
        (applied(join(left, right)), whole_join(applied(left), applied(right))),
    ]
    if whole.combiner not in ("max", "min") or whole.may_be_empty:
        goals.append((applied(unit(dtype)), whole_unit(dtype_of(function))))
    both_ways = [each for goal in goals for each in (goal, goal[::-1])]  # where both are defined
    return [law for sides in both_ways for law in equal(*sides, claim)]


def equal(a: Scalar, b: Scalar, claim: Claim) -> Sequence[str]:
    """The laws under which two scalars are equal."""
    if a is b:
        return ()
    if dtype_of(a) is not dtype_of(b):
        raise Unprovable(f"elements of {dtype_of(a)} and of {dtype_of(b)}")
    first, second = direct(a), direct(b)
    if first is not a or second is not b:
        claim.theorems[DETOUR] = None
        return equal(first, second, claim)
    if not is_available("z3"):
        raise Unprovable(MISSING["z3"])
    strict = claim.contract <= signless_zero and _has_floats(a, b)
    reasons: list[str] = []
    for floats in _THEORIES[strict and claim.keeps_bits]:
        try:
            asked = query(a, b, floats, signless=claim.contract is not exact, partial=claim.partial)
        except Unencodable as reason:
            reasons.append(str(reason))
            continue
        said = answer(asked.text)
        if said == "unsat":
            claim.scripts[asked.text] = None
            return _laws(asked, floats, claim.contract, (a, b))
        where = _SPOKEN[floats] if _has_floats(a, b) else "integers"
        if said == "sat" and asked.complete:
            reasons.append(f"the sides differ in {where}")
            break
        reasons.append(f"z3 does not decide it in {where}")
    if not _has_floats(a, b) and (cases := _cases(a, b)) is not None:
        claim.theorems[CASES] = None
        return [law for sides in cases for law in equal(*sides, claim)]
    raise Unprovable("; ".join(reasons))


def _cases(a: Scalar, b: Scalar) -> list[tuple[Scalar, Scalar]] | None:
    """Both sides where a condition in them holds and where it does not; None if there is none."""
    sides = [map_bottom_up(_chosen_absolute, side) for side in (a, b)]
    conditions = [it.condition for side in sides for it in post_order(side)
                  if isinstance(it, Select)]  # fmt: skip
    if not conditions:
        return None

    def where(side: Term, holds: bool) -> Scalar:
        def chosen(node: Term) -> Term:
            if isinstance(node, Select) and node.condition is conditions[0]:
                return node.then if holds else node.orelse
            return node

        found = map_bottom_up(chosen, side)
        assert isinstance(found, Scalar)
        return found

    return [(where(sides[0], holds), where(sides[1], holds)) for holds in (True, False)]


def _chosen_absolute(node: Term) -> Term:
    """The size of an integer as a choice."""
    if not isinstance(node, Intrinsic) or node.name != "abs":
        return node
    (value,) = node.args
    zero = Lit(0, dtype_of(value))
    return Select(Lt(value, zero), Sub(zero, value), value)


def _laws(
    of: EqualityScript, floats: FloatTheory, contract: Contract, terms: Sequence[Scalar]
) -> list[str]:
    if not _has_floats(*terms):
        return []
    if floats == "reals":
        return [REALS, *of.axioms]
    return [*([ONE_ZERO] if contract is not exact else []), *of.axioms]


def _has_floats(*terms: Scalar) -> bool:
    return any(
        dtype_of(node).is_float
        for term in terms for node in post_order(term) if isinstance(node, Scalar)
    )  # fmt: skip
