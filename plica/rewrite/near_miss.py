"""Near misses: why a rule does not apply to a term, and which part of its pattern fails.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.op import find
>>> from plica.ir.type.term import tensor
>>> from plica.rewrite.make import rule
>>> from plica.rewrite.pattern import holes
>>> (x,) = holes("x")
>>> relu, exp = find("nn.relu"), find("exp")
>>> a = Var(Name("a"), tensor((2,), "f32"))
>>> print(near_miss(rule("relu-relu", relu(relu(x)), relu(x)), relu(exp(a))))
fits 1 of 3 parts: nn.relu, argument 1: expected nn.relu, found exp
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from attrs import frozen

from plica.core import RuleRefused, Term, field_names, post_order
from plica.ir.graph.expression import Apply, Const, Expr, Literal, Var
from plica.ir.graph.module import Module
from plica.ir.type import TensorType, infer, type_of
from plica.rewrite import pattern as pt
from plica.rewrite.match import Filling, Matcher, PatternMatch, part_matcher
from plica.rewrite.rule import Rule


@frozen
class NearMiss:
    """How far a pattern fits a term, and at which part it stops; `part` is empty where all of it
    fits, and `expected` says then who declines."""

    term: Term
    parts: int
    fitting: int
    part: tuple[str, ...]
    expected: str
    found: str

    def __str__(self) -> str:
        if not self.part:
            return f"fits, but {self.expected}{f': {self.found}' if self.found else ''}"
        where = ", ".join(self.part)
        wanted = f"expected {self.expected}, found {self.found}"
        return f"fits {self.fitting} of {self.parts} parts: {where}: {wanted}"


def near_miss(rule: Rule, term: Term) -> NearMiss | None:
    """Why a rule does not apply to a term, by its closest alternative; None if it applies."""
    misses = []
    for pattern, (_, matcher) in zip(pt.alternatives(rule.left), rule.matchers, strict=True):
        if (miss := _missed(rule, pattern, matcher, term)) is None:
            return None
        misses.append(miss)
    return max(misses, key=lambda each: (not each.part, each.fitting / each.parts))


def near_misses(rule: Rule, module: Module) -> tuple[list[Term], list[NearMiss]]:
    """The terms of a module that a rule applies to, and those that at least its head fits, the
    nearest first."""
    applied: list[Term] = []
    missed: list[NearMiss] = []
    for node in _nodes(infer(module).values):
        if (miss := near_miss(rule, node)) is None:
            applied.append(node)
        elif miss.fitting:
            missed.append(miss)
    return applied, sorted(missed, key=lambda each: -each.fitting / each.parts)


def _nodes(values: Iterable[Term]) -> Iterator[Term]:
    yield from dict.fromkeys(
        node for value in values for node in post_order(value)
        if isinstance(node, Expr) and not isinstance(node, Var)
    )  # fmt: skip


def _missed(rule: Rule, pattern: Term, matcher: Matcher, term: Term) -> NearMiss | None:
    parts = _size(pattern)
    if isinstance(pattern, pt.Dominator | pt.Outputs):
        what = "a region" if isinstance(pattern, pt.Dominator) else "several terms"
        return NearMiss(term, parts, 0, ("the left side",), what, "a single term")
    filling: Filling = {}
    try:
        if (stop := _stop(pattern, term, filling, ())) is not None:
            fitting, part, expected, found = stop
            return NearMiss(term, parts, fitting, part, expected, found)
        if not matcher(term, {}):  # all parts fit, but a variable is used outside of its scope
            return NearMiss(term, parts, parts, (), "a bound variable is used outside", "")
        if rule.apply(matcher, term) is not None:
            return None
        asked = rule.when is not None and not rule.when(PatternMatch(dict(filling)))
    except RuleRefused as refused:
        return NearMiss(term, parts, parts, (), "it fails", str(refused.diagnostics[0].found))
    who = "the guard declines" if asked else "the right side declines"
    shown = ", ".join(f"{name} = {_show(value)}" for name, value in filling.items())
    return NearMiss(term, parts, parts, (), who, shown)


_Stop = tuple[int, tuple[str, ...], str, str]  # parts that fit, the path, expected, found


def _stop(pattern: Any, value: Any, filling: Filling, path: tuple[str, ...]) -> _Stop | None:
    """The place at which a pattern stops matching, or None. Recursion over a pattern."""
    if isinstance(pattern, Apply):
        return _stop_apply(pattern, value, filling, path)
    before = dict(filling)
    if part_matcher(pattern)(value, filling):
        return None
    filling.clear()
    filling.update(before)
    if isinstance(pattern, pt.Hole | pt.IndexHole):
        return 0, (*path, f"the hole {pattern.name}"), *_demand(pattern, value, filling)
    if not isinstance(pattern, Term) or type(pattern) is not type(value):
        return 0, path or ("the head",), _show(pattern), _show(value)
    count = 1
    for name in field_names(type(pattern)):
        inner = _stop(getattr(pattern, name), getattr(value, name), filling, (*path, name))
        if inner is not None:
            return count + inner[0], *inner[1:]
        count += _size(getattr(pattern, name))
    return count, path or ("the head",), _show(pattern), _show(value)


def _stop_apply(
    pattern: Apply, value: Any, filling: Filling, path: tuple[str, ...]
) -> _Stop | None:
    here = path or ("the head",)
    if not isinstance(value, Apply) or value.op != pattern.op:
        return 0, here, pattern.op, _show(value)
    fixed = [expr for expr in pattern.args if not isinstance(expr, pt.Rest)]
    wanted, found = len(fixed), len(value.args)
    if found < wanted or (found > wanted and wanted == len(pattern.args)):
        return 1, (*path, pattern.op), f"{wanted} arguments", str(found)
    count = 1
    for number, (inside, arg) in enumerate(zip(fixed, value.args, strict=False), start=1):
        at = (*path, pattern.op, f"argument {number}")
        if (stop := _stop(inside, arg, filling, at)) is not None:
            return count + stop[0], *stop[1:]
        count += _size(inside)
    for (name, inside), (_, held) in zip(pattern.attrs, value.attrs, strict=True):
        stop = _stop(inside, held, filling, (*path, pattern.op, f"attribute {name}"))
        if stop is not None:
            return count + stop[0], *stop[1:]
        count += _size(inside)
    for rest in (each for each in pattern.args if isinstance(each, pt.Rest)):
        filling.setdefault(rest.name, value.args[wanted:])
    return None


def _demand(hole: pt.Hole | pt.IndexHole, value: Any, filling: Filling) -> tuple[str, str]:
    """The constraint of a hole that a value violates."""
    if hole.name in filling:
        return f"the same as before, {_show(filling[hole.name])}", _show(value)
    asked: pt.Constraint = hole.constraint
    found = type_of(value) if isinstance(value, Expr) else None
    of = found if isinstance(found, TensorType) else None
    if asked.constant and not isinstance(value, Const):
        return "a constant", _show(value)
    if asked.dtypes is not None and (of is None or of.dtype not in asked.dtypes):
        return f"of {' or '.join(map(str, asked.dtypes))}", str(found)
    if asked.ranks is not None and (of is None or len(of.shape) not in asked.ranks):
        return f"of rank {' or '.join(map(str, asked.ranks))}", str(found)
    if asked.shape is not None:
        return f"of shape {asked.shape}", str(found)
    if asked.when is not None:
        name = getattr(asked.when, "__name__", "")
        return "what its predicate wants" + (f" ({name})" if name.isidentifier() else ""), _show(
            value
        )
    return "a term of its kind", _show(value)


def _size(pattern: Any) -> int:
    """How many parts a pattern has: nodes, holes and attributes."""
    if isinstance(pattern, Apply):
        return 1 + sum(map(_size, pattern.args)) + sum(_size(each) for _, each in pattern.attrs)
    if isinstance(pattern, Term) and not type(pattern).hole and not isinstance(pattern, Literal):
        return 1 + sum(map(_size, pattern._children))
    return 1


def _show(value: Any) -> str:
    """A short description of a term."""
    match value:
        case Apply():
            return value.op
        case Literal():
            return str(value.value)
        case pt.Hole() | pt.IndexHole() | pt.Rest():
            return f"anything ({value.name})"
        case pt.Recursive():
            return f"a turn of {value.name}"
        case Const():
            return f"a constant {type_of(value)}"
        case Var():
            return f"the variable {value.name}"
        case Term():
            return type(value).__name__
        case _:
            return repr(value)
