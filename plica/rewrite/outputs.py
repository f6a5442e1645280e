"""Multi-output patterns: several terms of a program that share parts, replaced together.

    outputs(x @ y, x @ z)                         two products of one input
    h = relu(x); outputs(exp(h), tanh(h), sole=h) two users of one value, which has no other

Equal parts of the patterns are one node, which expresses sharing; an output shares an argument hole
with an earlier one. A match consists of as many distinct terms of one function, none computed from
another, needed in the same scopes. `sole` parts are used by the matched terms only.

`plica.rewrite.rewrite_outputs` finds them in programs.

>>> from plica.rewrite.pattern import holes
>>> x, y, z = holes("x y z")
>>> edge(outputs(x @ y, -x @ z).patterns, 1)      # the second output uses x two steps below
('x', 2)
"""

from __future__ import annotations

from typing import Any

from plica.core import RuleRefused, Term, post_order
from plica.ir.graph.expression import Apply, Expr, Project, Tuple
from plica.rewrite.match import PatternMatch
from plica.rewrite.pattern import Hole, Outputs, Recursive, Rest, alternatives
from plica.runtime.error import Diagnostic


def outputs(*patterns: Any, sole: Any = ()) -> Any:
    """Several terms with shared parts; the right side is a tuple of their replacements.

    `sole` is a part of the patterns, or several, that nothing but the matched terms uses.
    """
    alone = tuple(sole) if isinstance(sole, tuple | list) else (sole,)
    if len(patterns) < 2 or not all(_has_structure(each) for each in patterns):
        found = ", ".join(map(repr, patterns))
        raise _refused("Several outputs are two patterns or more.", "operators around holes", found)
    parts = {node for each in patterns for node in post_order(each)}
    for each in alone:
        if each not in parts or each in patterns or len(alternatives(each)) > 1:
            message = "What is to be used by nothing else must be a part of the outputs."
            raise _refused(message, "a part without alternatives, no output itself", repr(each))
    made = Outputs(patterns, alone)
    for way in alternatives(made):
        assert isinstance(way, Outputs)
        for at in range(1, len(way.patterns)):
            if edge(way.patterns, at) is None:
                message = f"Output {at + 1} shares no argument with an output before it."
                raise _refused(message, "a hole that both use", repr(way.patterns[at]))
    return made


def _has_structure(pattern: object) -> bool:
    return isinstance(pattern, Expr) and not (
        type(pattern).hole or isinstance(pattern, Recursive | Outputs)
    )


def _refused(message: str, expected: str, found: str) -> RuleRefused:
    return RuleRefused(Diagnostic("bad-rule", message, None, expected, found))


def _depths(pattern: Term) -> dict[str, int]:
    """The depth of each argument hole below the root. Recursion over a pattern."""
    if isinstance(pattern, Hole):
        return {pattern.name: 0}
    parts = pattern.args if isinstance(pattern, Apply) else ()
    if isinstance(pattern, Tuple | Project):
        parts = pattern.items if isinstance(pattern, Tuple) else (pattern.value,)
    found: dict[str, int] = {}
    for part in parts:
        if isinstance(part, Rest):
            break
        for name, depth in _depths(part).items():
            found.setdefault(name, depth + 1)
    return found


def edge(patterns: tuple[Term, ...], at: int) -> tuple[str, int] | None:
    """A hole that an output shares with an earlier one, and its depth below the output."""
    before = {name for each in patterns[:at] for name in _depths(each)}
    shared = [(depth, name) for name, depth in _depths(patterns[at]).items() if name in before]
    return None if not shared else (min(shared)[1], min(shared)[0])


def several(right: Any) -> Any:
    """A right side of several outputs: a Python tuple is as good as a tuple term."""
    if isinstance(right, tuple):
        return Tuple(right)
    if isinstance(right, Term) or not callable(right):
        return right

    def computed(m: PatternMatch) -> Any:
        made = right(m)
        return Tuple(made) if isinstance(made, tuple) else made

    return computed
