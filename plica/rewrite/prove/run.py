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

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import attrs

from plica.core import IllTyped, Term, map_bottom_up, post_order
from plica.ir.contract import APPROX
from plica.ir.graph.expression import Apply, Expr
from plica.ir.type import DTYPES, DType
from plica.rewrite.check.run import check
from plica.rewrite.check.verdict import Proved, Refuted
from plica.rewrite.packs.word import Evaluated, LikeLeft, w
from plica.rewrite.pattern import Dominator, Hole, Outputs, Recursive, Rest, alternatives
from plica.rewrite.prove.element import IllTypedRule, OpenTensor, RuleReading, Unprovable
from plica.rewrite.prove.equality import Claim, equal_folds
from plica.rewrite.prove.open_shape import ROOT
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


def attempt(rule: Rule) -> Proved | Unproved:
    """A proof of a rule, or why there is none."""
    try:
        return _proof(rule)
    except Unprovable as reason:
        return Unproved(rule.name, str(reason))


def _proof(rule: Rule) -> Proved:
    left, right = _sides(rule)
    cases = typings = 0
    laws: dict[str, None] = {}
    scripts: dict[str, None] = {}
    for each in alternatives(left):
        assert isinstance(each, Expr)
        for dtypes in dtypes_of(each):
            typings += 1
            if typings > MAX_TYPINGS:
                raise Unprovable(f"more than {MAX_TYPINGS:,} choices of dtypes")
            try:
                reading = RuleReading(dtypes)
                reading.guarded(rule.when)
                before = reading.left(each)
            except (IllTypedRule, IllTyped):
                continue
            after = _arranged(reading, before, reading.tensor(right), rule.right)
            laws.update(_same_elements(reading, before, after, Claim(rule.contract, scripts)))
            cases += 1
    if not cases:
        raise Unprovable("no choice of dtypes makes a term of the left side")
    how = "one term" if not scripts else f"{len(scripts)} scripts"
    return Proved(rule.name, f"{how} for {cases} choices of dtypes", tuple(laws), tuple(scripts))


def _sides(rule: Rule) -> tuple[Term, Expr]:
    """The sides as terms."""
    if rule.contract.level >= APPROX:
        raise Unprovable(f"the contract is {rule.contract}: sides may differ")
    if not isinstance(rule.left, Expr):
        raise Unprovable("the left side is no graph term")
    for node in post_order(rule.left):
        if isinstance(node, Dominator | Outputs | Recursive | Rest):
            raise Unprovable(f"a left side with {type(node).__name__}")
    match rule.right:
        case LikeLeft(_, Expr() as part) | (Expr() as part):
            return rule.left, part
        case Evaluated(Expr() as whole, Expr() as part):
            filled = map_bottom_up(lambda node: part if node is w else node, whole)
            assert isinstance(filled, Expr)
            return rule.left, filled
    raise Unprovable("the right side is a function")


def _arranged(
    reading: RuleReading, before: OpenTensor, after: OpenTensor, right: object
) -> OpenTensor:
    """The right side in the shape of the left one, where the rule brings it there."""
    if not isinstance(right, LikeLeft) or after.shape is before.shape:
        return after
    change = reading.broadcast if right.by == "broadcast_to" else reading.reshape
    return change(after, before.shape)


def _same_elements(
    reading: RuleReading, before: OpenTensor, after: OpenTensor, claim: Claim
) -> dict[str, None]:
    """The laws under which the sides have one dtype, one shape and the same elements."""
    if before.dtype is not after.dtype:
        raise Unprovable(f"the sides are of {before.dtype} and {after.dtype}")
    if before.shape is not after.shape:
        raise Unprovable("the sides may have different shapes")
    a, b = before.at(ROOT), after.at(ROOT)
    return {} if a is b else dict.fromkeys(equal_folds(reading, a, b, claim))


def dtypes_of(left: Expr) -> Iterator[dict[str, DType]]:
    """Choices of dtypes for the holes of a left side, among which are all that make it a term."""
    holes: dict[str, tuple[DType, ...]] = {}
    for node in post_order(left):
        if isinstance(node, Apply):
            for arg in node.args:
                if isinstance(arg, Hole):
                    holes[arg.name] = arg.constraint.dtypes or DTYPES
            for name, value in node.attrs:
                if name == "dtype" and isinstance(value, Hole):
                    holes[value.name] = DTYPES
        elif not isinstance(node, Hole):
            for kid in node._children:
                if isinstance(kid, Hole):
                    holes[kid.name] = kid.constraint.dtypes or DTYPES
    parts = [node for node in post_order(left) if isinstance(node, Apply)]
    yield from _chosen({}, list(holes.items()), parts)


def _chosen(
    known: dict[str, DType], rest: list[tuple[str, tuple[DType, ...]]], parts: Sequence[Expr]
) -> Iterator[dict[str, DType]]:
    """Complete choices; those that make no term of a part are left out early."""
    if not rest:
        yield known
        return
    (name, options), *others = rest
    for each in options:
        chosen = {**known, name: each}
        if all(_is_term(part, chosen) for part in parts if _is_settled(part, chosen, others)):
            yield from _chosen(chosen, others, parts)


def _is_settled(part: Expr, chosen: dict[str, DType], rest: Sequence[tuple[str, Any]]) -> bool:
    names = {node.name for node in post_order(part) if isinstance(node, Hole)}
    return names.isdisjoint(name for name, _ in rest)


def _is_term(part: Expr, dtypes: dict[str, DType]) -> bool:
    try:
        RuleReading(dtypes).left(part)
    except (IllTypedRule, IllTyped):
        return False
    except Unprovable:
        return True
    return True
