"""Proofs of graph rules for tensors of every rank and every size.

    GraphVerdict ::= Proved(rule, how, laws, certificate) | Refuted(rule, counterexample)
                   | Unproved(rule, why)

Both sides are read at an arbitrary place of the result (`plica.rewrite.prove.element`), for each
choice of dtypes that the left side admits, and the two scalars that come out are compared: they are
one term, or a solver is asked (`plica.rewrite.prove.smt`).  The scripts are the certificate.

What a proof takes for granted is its `laws`:

- none: bit for bit, in IEEE 754 up to the payload of nan and in integers that wrap around;
- `one zero`: the same, where zeros of both signs are equal;
- `real arithmetic`: floats are reals; no rounding, no overflow, nothing infinite, one zero, and
  only places at which the left side is defined;
- `f is odd` and its like: what is said of a library function.

>>> from plica.rewrite.pattern import holes
>>> from plica.rewrite.make import rule
>>> x, y = holes("x y")
>>> prove(rule("twice-negative", -(-x), x)).laws
()
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import attrs

from plica.core import IllTyped, Term, map_bottom_up, post_order
from plica.ir.contract import APPROX, signless_zero
from plica.ir.graph.expression import Apply, Expr
from plica.ir.graph.operator import find
from plica.ir.type import DTYPES, DType
from plica.rewrite.check.run import check
from plica.rewrite.check.verdict import Proved, Refuted
from plica.rewrite.packs.word import ByDefinition, DtypesAre, Evaluated, FirstFilled, LikeLeft, w
from plica.rewrite.pattern import (
    Derived,
    Dominator,
    Hole,
    Outputs,
    Recursive,
    Rest,
    alternatives,
    hole_names,
)
from plica.rewrite.prove.coordinate import coordinate_proof
from plica.rewrite.prove.element import RuleReading
from plica.rewrite.prove.equality import REALS, Claim, equal_folds
from plica.rewrite.prove.guard import learn_guard
from plica.rewrite.prove.linear import undefined_atoms
from plica.rewrite.prove.open_shape import ROOT
from plica.rewrite.prove.open_tensor import IllTypedRule, Unprovable
from plica.rewrite.prove.parameter import learn_bounds
from plica.rewrite.prove.role import check_roles
from plica.rewrite.prove.rule_facts import Dtypes
from plica.rewrite.rule import Rule

MAX_TYPINGS: Final = 20_000


@attrs.frozen
class Unproved:
    """Neither proved nor refuted."""

    rule: str
    why: str

    def to_data(self) -> dict[str, Any]:
        return {"rule": self.rule, "verdict": "unproved", "why": self.why}

    def __str__(self) -> str:
        return f"{self.rule}: not proved, {self.why}"


GraphVerdict: TypeAlias = Proved | Refuted | Unproved


def prove(rule: Rule, *, examples: int = 100, seed: int = 0) -> GraphVerdict:
    """Whether a rule holds for every rank and size.

    Where there is no proof, a counterexample is looked for in that many `examples`.
    """
    found = attempt(rule)
    if isinstance(found, Proved) or not examples:
        return found
    tested = check(rule, examples, seed)
    return tested if isinstance(tested, Refuted) else found


def attempt(rule: Rule, at: Mapping[str, DType] = MappingProxyType({})) -> Proved | Unproved:
    """A proof of a rule, or why there is none; for these dtypes of some holes alone, if given."""
    try:
        return _proof(rule, at)
    except Unprovable as reason:
        try:
            return coordinate_proof(rule)
        except Unprovable:
            return Unproved(rule.name, str(reason))


def _proof(rule: Rule, at: Mapping[str, DType]) -> Proved:
    if isinstance(rule.right, ByDefinition) and rule.right.is_of(rule.left):
        return Proved(rule.name, f"the definition of {rule.right.record.name}", (), ())
    left, only = _sides(rule)
    cases = typings = 0
    theorems: dict[str, None] = {}
    laws: dict[str, None] = {}
    scripts: dict[str, None] = {}
    for each in alternatives(left):
        assert isinstance(each, Expr)
        if (right := _right(rule.right, each, only)) is None:
            continue  # the rule does not apply
        check_roles(each, right)
        flags = _flags(each, right)
        for dtypes in dtypes_of(each, at):
            if isinstance(rule.when, DtypesAre) and not rule.when.predicate(
                *(dtypes[name] for name in rule.when.names)
            ):
                continue
            typings += 1
            if typings > MAX_TYPINGS:
                raise Unprovable(f"more than {MAX_TYPINGS:,} choices of dtypes")
            for values in itertools.product((False, True), repeat=len(flags)):
                decided = dict(zip(flags, values, strict=True))
                try:
                    laws.update(_Case(rule, each, right, dtypes, decided, theorems).laws(scripts))
                except _IllTypedLeft:
                    continue
                cases += 1
    if not cases:
        raise Unprovable("no choice of dtypes makes a term of the left side")
    how = "one term" if not scripts else f"{len(scripts)} scripts"
    how = f"{how} for {cases} choices of dtypes"
    return Proved(rule.name, how, tuple(laws), tuple(scripts), tuple(theorems))


class _IllTypedLeft(Exception):
    """With these dtypes the left side is no term."""


def _flags(left: Expr, right: Expr) -> list[str]:
    """The conditions among the attributes of the left side by which the right side decides."""
    told = {
        arg for node in post_order(right) if isinstance(node, Derived)
        for arg in node.args if isinstance(arg, Hole)
    }  # fmt: skip
    kept = [dict(node.attrs).get("keepdims") for node in post_order(left)
            if isinstance(node, Apply)]  # fmt: skip
    return sorted({each.name for each in kept if isinstance(each, Hole) and each in told})


@attrs.frozen
class _Case:
    """One alternative of the sides of a rule, with dtypes and conditions chosen."""

    rule: Rule
    left: Expr
    right: Expr
    dtypes: Dtypes
    flags: dict[str, bool]
    theorems: dict[str, None]

    def laws(self, scripts: dict[str, None]) -> dict[str, None]:
        """The laws under which the sides are equal; scripts are added to those of other cases.

        Sums in another order are tried where sums in the same order do not do.
        """
        try:
            return self._laws(scripts, reorders=False)
        except Unprovable:
            if self.rule.contract <= signless_zero:
                raise
            return {REALS: None, **self._laws(scripts, reorders=True)}

    def _laws(self, scripts: dict[str, None], *, reorders: bool) -> dict[str, None]:
        try:
            reading = RuleReading(self.dtypes, self.flags, reorders)
            learn_guard(reading, self.rule.when, self.left)
            learn_bounds(reading, self.right)
            before = reading.left(self.left)
        except (IllTypedRule, IllTyped) as error:
            raise _IllTypedLeft from error
        after, word = reading.tensor(self.right), self.rule.right
        if isinstance(word, LikeLeft) and after.shape is not before.shape:
            change = reading.broadcast if word.by == "broadcast_to" else reading.reshape
            after = change(after, before.shape)
        if before.dtype is not after.dtype:
            raise Unprovable(f"the sides are of {before.dtype} and {after.dtype}")
        if before.shape is not after.shape:
            raise Unprovable("the sides may have different shapes")
        a, b = before.at(ROOT), after.at(ROOT)
        laws: Sequence[str] = ()
        if a is not b:
            claim = Claim(self.rule.contract, scripts, undefined_atoms(reading), reading.theorems)
            laws = equal_folds(reading, a, b, claim)
        self.theorems.update(reading.theorems)
        return dict.fromkeys(laws)


def _sides(rule: Rule) -> tuple[Term, Expr]:
    """The sides as terms."""
    if rule.contract.level >= APPROX:
        raise Unprovable(f"the contract is {rule.contract}: sides may differ")
    if not isinstance(rule.left, Expr):
        raise Unprovable("the left side is no graph term")
    for node in post_order(rule.left):
        if isinstance(node, Dominator | Outputs | Recursive):
            raise Unprovable(f"a left side with {type(node).__name__}")
    match rule.right:
        case LikeLeft(_, Expr() as part) | (Expr() as part):
            return rule.left, part
        case FirstFilled((Expr() as first, *_)):
            return rule.left, first
        case Evaluated(Expr() as whole, Expr() as part):
            filled = map_bottom_up(lambda node: part if node is w else node, whole)
            assert isinstance(filled, Expr)
            return rule.left, filled
    raise Unprovable("the right side is a function")


def _right(given: object, left: Expr, right: Expr) -> Expr | None:
    """The right side of an alternative of the left one, None where it has none."""
    if not isinstance(given, FirstFilled):
        return right
    found = given.among(hole_names(left))
    assert found is None or isinstance(found, Expr)
    return found


def dtypes_of(left: Expr, at: Mapping[str, DType] = MappingProxyType({})) -> Iterator[Dtypes]:
    """Choices of dtypes for the holes of a left side, among which are all that make it a term.

    Holes in `at` have the dtype that is given there.
    """
    holes: dict[str, tuple[DType | None, ...]] = {}
    for node in post_order(left):
        if isinstance(node, Apply):
            for arg in node.args:
                if isinstance(arg, Hole | Rest):
                    only = arg.constraint.dtypes if isinstance(arg, Hole) else None
                    holes[arg.name] = only or DTYPES
            record = find(node.op)
            assert record is not None
            default = {each.name: each.default for each in record.attributes}.get("dtype")
            for name, value in node.attrs:
                if name == "dtype" and isinstance(value, Hole):
                    holes[value.name] = DTYPES if default is not None else (*DTYPES, None)
        elif not isinstance(node, Hole):
            for kid in node._children:
                if isinstance(kid, Hole):
                    holes[kid.name] = kid.constraint.dtypes or DTYPES
    parts = [node for node in post_order(left) if isinstance(node, Apply)]
    options = [
        (name, (at[name],) if name in at and at[name] in of else of) for name, of in holes.items()
    ]
    yield from _chosen({}, options, parts)


def _chosen(
    known: Dtypes, rest: list[tuple[str, tuple[DType | None, ...]]], parts: Sequence[Expr]
) -> Iterator[Dtypes]:
    """Complete choices; those that make no term of a part are left out early."""
    if not rest:
        yield known
        return
    (name, options), *others = rest
    later = {other for other, _ in others}
    settled = [part for part in parts if name in (own := _names(part)) and own.isdisjoint(later)]
    for option in options:
        chosen = {**known, name: option}
        if all(_is_term(part, _of(part, chosen)) for part in settled):
            yield from _chosen(chosen, others, parts)


def _of(part: Expr, dtypes: Dtypes) -> tuple[tuple[str, DType | None], ...]:
    return tuple((name, of) for name, of in dtypes.items() if name in _names(part))


@lru_cache(maxsize=1024)
def _names(part: Expr) -> frozenset[str]:
    return frozenset(node.name for node in post_order(part) if isinstance(node, Hole | Rest))


@lru_cache(maxsize=65_536)
def _is_term(part: Expr, dtypes: tuple[tuple[str, DType | None], ...]) -> bool:
    try:
        RuleReading(dict(dtypes)).tensor(part)
    except (IllTypedRule, IllTyped):
        return False
    except Unprovable:
        return True
    return True
