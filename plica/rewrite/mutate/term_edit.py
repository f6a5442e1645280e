"""Mistakes in a right side made of terms: an operator, a sign, a number, an operand, an attribute.

Such mutants have both sides as terms, so that the prover can be tried on them.

>>> from plica.rewrite.make import rule
>>> from plica.rewrite.pattern import holes
>>> x, y = holes("x y")
>>> sorted(what for what, _ in term_edits(rule("swapped", x - (-y), x + y)))[:3]
['another sign', 'arctan2 for add', 'bitwise_and for add']
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Final

import attrs

from plica.core import Term, post_order
from plica.ir.graph.expression import Apply, Expr, Literal
from plica.ir.graph.operator import Mismatch, find, names
from plica.rewrite.instantiate import late_right_side
from plica.rewrite.mutate.mutant import replaced, spoilt
from plica.rewrite.mutate.rule_edit import NamedRule
from plica.rewrite.packs.axes import exclusive, explicit, longer, merged, united
from plica.rewrite.packs.rearrange import larger, smaller
from plica.rewrite.packs.word import Evaluated, FirstFilled, LikeLeft
from plica.rewrite.pattern import Derived, Hole
from plica.rewrite.rule import Rule

NEGATED: Final = "negative"
SAME_VALUE: Final = ("after", "copy", "on_device", "stop_gradient")
"""Operators that give their argument back: no mistake."""
TWINS: Final = ((merged, united, exclusive), (smaller, larger), (explicit, longer))
"""Functions of axes and numbers that take each other's arguments."""


def term_edits(base: Rule) -> Iterator[NamedRule]:
    """The rule with one change in its right side, where that is a term."""
    for what, right in _right_sides(base):
        build = late_right_side(base.left, right) if isinstance(right, Expr) else None
        yield what, spoilt(base, right=right, build=build)


def _right_sides(base: Rule) -> Iterator[tuple[str, Any]]:  # Any: terms, and words around them
    """Right sides with one change in one of their terms, or in the word around them."""
    match base.right:
        case Expr() as right:
            yield from _changes(right, base.left)
        case LikeLeft(by=by) as word:
            yield from _in_field(base, word, "part")
            if by == "broadcast_to":
                yield f"reshape for {by}", attrs.evolve(word, by="reshape")
            else:
                yield f"broadcast_to for {by}", attrs.evolve(word, by="broadcast_to")
        case Evaluated() as word:
            yield from _in_field(base, word, "right")
            yield from _in_field(base, word, "constant")
        case FirstFilled(terms) as word:
            for at, term in enumerate(terms):
                for what, made in _changes(term, base.left):
                    changed = (*terms[:at], made, *terms[at + 1 :])
                    yield f"{what} in term {at}", attrs.evolve(word, terms=changed)


def _in_field(base: Rule, word: Any, field: str) -> Iterator[tuple[str, Any]]:
    for what, term in _changes(getattr(word, field), base.left):
        yield what, attrs.evolve(word, **{field: term})


def _changes(right: Term, left: Term) -> Iterator[tuple[str, Term]]:
    operands = _operands(left)
    for node in post_order(right):
        for what, new in _of_node(node, operands):
            if new is not node:
                yield what, replaced(right, node, new)
    if isinstance(right, Expr) and not isinstance(right, Literal):
        yield "another sign", Apply(NEGATED, (right,), ())


def _operands(left: Term) -> list[Hole]:
    """The holes of the left side that stand for tensors."""
    args = [arg for node in post_order(left) if isinstance(node, Apply) for arg in node.args]
    return list(dict.fromkeys(arg for arg in args if isinstance(arg, Hole)))


def _of_node(node: Term, operands: list[Hole]) -> Iterator[tuple[str, Term]]:
    if isinstance(node, Hole) and node in operands:
        for other in operands:
            yield f"{other.name} for {node.name}", other
    if isinstance(node, Literal) and not isinstance(node.value, bool):
        yield f"{node.value + 1} for {node.value}", Literal(node.value + 1)
        yield f"{-node.value} for {node.value}", Literal(-node.value)
    if isinstance(node, Literal) and isinstance(node.value, bool):
        yield f"{not node.value} for {node.value}", Literal(not node.value)
    if isinstance(node, Derived):
        yield from _of_derived(node)
    if not isinstance(node, Apply):
        return
    for twin in twins(node.op):
        if _is_refused(twin, node):
            continue
        yield f"{twin} for {node.op}", Apply(twin, node.args, node.attrs)
    if len(node.args) > 1:
        yield f"operands of {node.op} exchanged", Apply(node.op, node.args[::-1], node.attrs)
    record = find(node.op)
    if len(node.args) == 1 and record is not None and record.pointwise:
        yield f"no {node.op}", node.args[0]
    for at, (name, value) in enumerate(node.attrs):
        if isinstance(value, bool):
            given = (*node.attrs[:at], (name, not value), *node.attrs[at + 1 :])
            yield f"{name} of {node.op}", Apply(node.op, node.args, given)


@functools.lru_cache(maxsize=512)
def twins(op: str) -> tuple[str, ...]:
    """Operators with the same arguments and attributes."""
    of = find(op)
    assert of is not None
    words = {attribute.name for attribute in of.attributes}
    found = []
    for name in names():
        other = find(name)
        assert other is not None
        alike = other.inputs == of.inputs and {each.name for each in other.attributes} == words
        if alike and name != op and name not in SAME_VALUE:
            found.append(name)
    return tuple(found)


def _is_refused(op: str, node: Apply) -> bool:
    """Whether an operator does not take the attributes of a node."""
    record = find(op)
    assert record is not None
    readers = {attribute.name: attribute.read for attribute in record.attributes}
    return any(
        isinstance(readers[name](value), Mismatch)
        for name, value in node.attrs if not isinstance(value, Derived | Hole)
    )  # fmt: skip


def _of_derived(node: Derived) -> Iterator[tuple[str, Term]]:
    """Another function of as many arguments, the first two exchanged, or a condition negated."""
    for group in TWINS:
        for other in group if node.function in group else ():
            if other is not node.function:
                yield f"{other.name} for {node.function.name}", Derived(other, node.args)
    first, *others = node.args
    if others:
        turned = (others[0], first, *others[1:])
        yield f"arguments of {node.function.name} exchanged", Derived(node.function, turned)
