"""Checking rules of index terms: they are proved, or what could be shown is said plainly.

>>> from plica.rewrite.make import rule
>>> from plica.rewrite.pattern import index_holes
>>> (x,) = index_holes("x")
>>> print(check_index(rule("div-mul", (x // 4) * 4, x)))
div-mul: refuted, the sides differ at x = 1: 0 on the left and 1 on the right
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from plica.analysis.index import verdict
from plica.analysis.index.point import value
from plica.core import Term, post_order
from plica.ir.loop.scalar import Add, FloorDiv, FloorMod, Le, Lit, Lt, Mul, Scalar, ScalarVar, Sub
from plica.ir.type import bool_
from plica.rewrite.check.report import as_comment, slug
from plica.rewrite.check.verdict import Counterexample, Proved, Refuted, Tested, Untested, Verdict
from plica.rewrite.pattern import IndexHole
from plica.rewrite.rule import Rule

Values: TypeAlias = Sequence[tuple[Scalar, int]]


def check_index(rule: Rule) -> Verdict:
    """The verdict on an index rule."""
    match verdict.prove_rule(rule):
        case verdict.ForAll(how, _):
            return Proved(rule.name, how)
        case verdict.InWindow(low, high, instances):
            note = f"each instance with constants from {low} to {high} is proved"
            return Tested(rule.name, instances, note=note)
        case verdict.ByInstance(instances, undecided):
            what = "a computed right side" if rule.computed else "a predicate is a function"
            note = f"{what}: each instance is proved, {undecided} left open"
            return Tested(rule.name, instances, note=note)
        case verdict.OpenQuestion(why):
            return Untested(rule.name, why)
        case verdict.WrongRule(point, instance):
            if instance is not None:
                return Refuted(rule.name, _counterexample(rule, point, *instance))
            assert isinstance(rule.left, Scalar)
            assert isinstance(rule.right, Scalar)
            named = dict(point)
            holes = {h.name: h for h in post_order(rule.left) if isinstance(h, IndexHole)}
            at = [(holes[name], named[name]) for name in sorted(holes) if name in named]
            return Refuted(rule.name, _counterexample(rule, point, rule.left, rule.right, at))


def _counterexample(
    rule: Rule, point: tuple[tuple[str, int], ...], left: Scalar, right: Scalar, at: Values
) -> Counterexample:
    where = ", ".join(f"{name} = {number}" for name, number in point)
    a, b = value(left, dict(at)), value(right, dict(at))
    reason = f"the sides differ at {where}: {a} on the left and {b} on the right"
    text = as_pytest(rule.name, reason, left, right, at)
    return Counterexample(left, right, point, a, b, reason, text)


def as_pytest(name: str, reason: str, left: Scalar, right: Scalar, at: Values) -> str:
    """A test that fails as long as the sides differ at a point."""
    used = sorted({word for side in (left, right) for word in _classes(side)})
    classes = ", ".join([*used, "ScalarVar", "index"])
    words = {atom: f"v{number}" for number, (atom, _) in enumerate(at)}
    words |= {atom: str(atom.name) for atom, _ in at if isinstance(atom, IndexHole | ScalarVar)}
    made = "".join(f'    {words[a]} = ScalarVar(Name("{words[a]}"), {_dtype(a)})\n' for a, _ in at)
    point = ", ".join(f"{words[atom]}: {number}" for atom, number in at)
    return f"""from plica.core.name import Name
from plica.ir.type.dtype import bool_, i64
from plica.ir.loop.scalar import {classes}
from plica.analysis.index.point import value

{as_comment(f"{name}: {reason}")}


def test_{slug(name)}() -> None:
{made}    left = {as_python(left, words)}
    right = {as_python(right, words)}
    at = {{{point}}}
    assert value(left, at) == value(right, at)
"""


INFIX: Final[dict[type[Scalar], str]] = {
    Add: "+", Sub: "-", Mul: "*", FloorDiv: "//", FloorMod: "%", Lt: "<", Le: "<=",
}  # fmt: skip


def as_python(term: Scalar, words: dict[Scalar, str]) -> str:
    """An index term as Python that builds it, given a word for each atom."""
    shown: dict[Term, str] = {}
    for node in post_order(term):
        if not isinstance(node, Scalar):
            continue
        of: Any = node
        kids = [shown[kid] for kid in node._children if isinstance(kid, Scalar)]
        if node in words:
            shown[node] = words[node]
        elif isinstance(node, Lit):
            number = f"Lit({of.value!r}, bool_)" if of.dtype is bool_ else f"index({of.value})"
            shown[node] = number
        elif type(node) in INFIX:
            shown[node] = f"({kids[0]} {INFIX[type(node)]} {kids[1]})"
        else:
            shown[node] = f"{type(node).__name__}({', '.join(kids)})"
    return shown[term]


def _classes(term: Scalar) -> list[str]:
    """The classes that the term written as Python names."""
    return [
        type(node).__name__
        for node in post_order(term)
        if isinstance(node, Scalar)
        and type(node) not in INFIX
        and not isinstance(node, ScalarVar | IndexHole)
        and not (isinstance(node, Lit) and node.dtype is not bool_)
    ]


def _dtype(atom: Scalar) -> str:
    of: Any = atom
    return "bool_" if getattr(of, "dtype", None) is bool_ else "i64"
