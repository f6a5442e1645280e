"""Rewriting several outputs: the groups of terms of a program that a pattern matches.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Tuple, Var
>>> from plica.ir.type.term import tensor
>>> from plica.rewrite.output_groups import outputs
>>> from plica.rewrite.pattern import holes
>>> x, y, z = holes("x y z")
>>> a, b, c = (Var(Name(name), tensor((2, 2), "f32")) for name in "abc")
>>> whole = Tuple((a @ b, a @ c, b @ c))
>>> [first is a @ b for first, _ in output_groups(outputs(x @ y, x @ z), whole)]
[True, False]

Both orders of the two products are groups; in one rewriting each term is in at most one of them. A
let hides the users of its value, so `to_dataflow` runs first.

Multi-output patterns: several terms of a program that share parts, replaced together.

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

from collections.abc import Iterable, Iterator
from typing import Any, Final

from plica.core import RuleRefused, Term, free_vars, post_order, rebuild
from plica.ir.graph import Apply, Expr, Function, Module, Project, Tuple
from plica.rewrite.check.probe import types_differ
from plica.rewrite.derivation import Derivation, DerivationStep, RewriteSweep, rebuild_top_down
from plica.rewrite.graph.scope_placement import needed, regions
from plica.rewrite.graph.walk import expressions, operands
from plica.rewrite.match import Filling, Matcher, PatternMatch, covered, part_matcher
from plica.rewrite.pattern import Hole, Outputs, Recursive, Rest, alternatives
from plica.rewrite.rule import Rule, all_of_kind
from plica.runtime.error import Diagnostic

MAX_ROUNDS: Final = 100  # the number of rounds after which rules are considered to loop


def output_groups(pattern: Outputs, root: Expr) -> Iterator[tuple[Expr, ...]]:
    """The groups of terms inside an expression that a pattern matches; they may overlap."""
    dataflow = _Uses(root)
    for way in alternatives(pattern):
        assert isinstance(way, Outputs)
        yield from dataflow.groups(way)


class _Uses:
    """Who uses what inside a function, and in which scopes each value is needed."""

    def __init__(self, root: Expr) -> None:
        self.nodes = expressions(root)
        params = root.params if isinstance(root, Function) else ()
        self.outer = free_vars(root) | frozenset(params)
        self.at = {node: number for number, node in enumerate(self.nodes)}
        self.users: dict[Expr, list[Expr]] = {node: [] for node in self.nodes}
        for node in self.nodes:
            for part in dict.fromkeys(operands(node)):
                self.users[part].append(node)
        self.scopes: dict[Expr, list[int]] = {}
        roots = [root]
        for number, scope in enumerate(roots):
            for node in needed(scope):
                self.scopes.setdefault(node, []).append(number)
                roots.extend(regions(node))

    def groups(self, way: Outputs) -> Iterator[tuple[Expr, ...]]:
        """The groups that one alternative of a pattern matches, parts before wholes."""
        matchers = [part_matcher(pattern) for pattern in way.patterns]
        edges = [edge(way.patterns, at) for at in range(1, len(matchers))]
        for first in self.nodes:
            filling: Filling = {}
            if isinstance(first, Apply | Tuple | Project) and matchers[0](first, filling):
                yield from self._others(way, matchers, edges, (first,), filling)

    def _others(
        self,
        way: Outputs,
        matchers: list[Matcher],
        edges: list[tuple[str, int] | None],
        chosen: tuple[Expr, ...],
        filling: Filling,
    ) -> Iterator[tuple[Expr, ...]]:
        """Recursion over the outputs of a pattern."""
        if len(chosen) == len(matchers):
            if self._is_group(way, chosen):
                yield chosen
            return
        edge = edges[len(chosen) - 1]
        assert edge is not None  # it was looked for when the pattern was made
        name, depth = edge
        for node in self._above(filling[name], depth):
            trial = dict(filling)
            if node not in chosen and matchers[len(chosen)](node, trial):
                yield from self._others(way, matchers, edges, (*chosen, node), trial)

    def _above(self, node: Expr, depth: int) -> list[Expr]:
        """What uses an expression, or uses what uses it, a given number of times; in the order of a
        walk."""
        found = {node: None}
        for _ in range(depth):
            found = dict.fromkeys(user for expr in found for user in self.users[expr])
        return sorted(found, key=self.at.__getitem__)

    def _is_group(self, way: Outputs, chosen: tuple[Expr, ...]) -> bool:
        scopes = self.scopes.get(chosen[0])
        if any(self.scopes.get(expr) != scopes for expr in chosen[1:]):
            return False
        if len({frozenset(free_vars(expr) - self.outer) for expr in chosen}) > 1:
            return False  # under different binders
        inside = {
            node
            for pattern, term in zip(way.patterns, chosen, strict=True)
            for node in covered(pattern, term)
        }
        for alone in way.sole:
            for pattern, term in zip(way.patterns, chosen, strict=True):
                for node in _standing(alone, pattern, term):
                    if not inside.issuperset(self.users[node]):
                        return False
        return not any(self.below(operands(expr)) & set(chosen) for expr in chosen)

    def below(self, roots: tuple[Expr, ...]) -> set[Expr]:
        """All that some expressions are made of, themselves included."""
        return set(expressions(*roots))


def _standing(part: Term, pattern: Term, term: Term) -> list[Expr]:
    """The subterms of a term at a part of the pattern."""
    pairs: list[tuple[Term, Term]] = [(pattern, term)]
    for wanted, found in pairs:
        if not type(wanted).hole and len(wanted._children) == len(found._children):
            pairs.extend(zip(wanted._children, found._children, strict=True))
    return [found for wanted, found in pairs if wanted is part and isinstance(found, Expr)]


def rewrite_outputs(module: Module, rules: Iterable[Rule]) -> tuple[Module, Derivation]:
    """The module rewritten until no rule finds a group, and the derivation to it."""
    used = all_of_kind(rules, Outputs, "is one term")
    steps: list[DerivationStep] = []
    current = module
    for _ in range(MAX_ROUNDS):
        taken = [_round(at, child, used) for at, child in enumerate(current._children)]
        if not any(found for _, found in taken):
            return current, Derivation(module, tuple(steps))
        made = rebuild(current, tuple([child for child, _ in taken]))
        assert isinstance(made, Module)
        current = made
        steps += [step for _, found in taken for step in found]
    names = list(dict.fromkeys(step.rule.name for step in steps[-50:]))
    message = "Rewriting of several outputs does not come to an end."
    expected, found = "rules that decrease some measure", f"a cycle through {', '.join(names)}"
    raise RuleRefused(Diagnostic("looping-rules", message, steps[-1].rule.place, expected, found))


def _round(at: int, child: Term, rules: tuple[Rule, ...]) -> tuple[Term, list[DerivationStep]]:
    """A function with every group that was found at once replaced in one sweep.

    Groups are taken operands first, and never if one depends on another chosen group: so a joined
    term never depends on itself.
    """
    if not isinstance(child, Function):
        return child, []
    uses = _Uses(child)
    sweep = RewriteSweep("down")
    become: dict[Term, DerivationStep] = {}
    taken: set[Expr] = set()
    below: set[Expr] = set()
    for rule in rules:
        assert isinstance(rule.left, Outputs)
        for way, (_, matcher) in zip(alternatives(rule.left), rule.matchers, strict=True):
            assert isinstance(way, Outputs)
            for group in uses.groups(way):
                if not taken.isdisjoint(group) or not below.isdisjoint(group):
                    continue
                if (parts := _parts(rule, matcher, group)) is None:
                    continue
                taken.update(group)
                below |= uses.below(group)
                for old, new in zip(group, parts, strict=True):
                    if new is not old:
                        site = len(become) + 1
                        become[old] = DerivationStep(rule, old, new, (at,), sweep, site)
    if not become:
        return child, []
    term = rebuild_top_down(
        lambda node: become[node].after if node in become else node, lambda _old, _new: None, child
    )
    return term, list(become.values())


def _parts(rule: Rule, matcher: Matcher, group: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    """The replacements of a group's terms, or None if the rule does not apply."""
    whole = Tuple(group)
    if (made := rule.apply(matcher, whole)) is None:
        return None
    if (wrong := types_differ(whole, made)) is not None:
        message = f"The sides of {rule.name} cannot have one type."
        raise RuleRefused(Diagnostic("rule-types", message, rule.place, found=wrong))
    assert isinstance(made, Expr)
    numbers = range(len(group))
    parts = made.items if isinstance(made, Tuple) else tuple(Project(made, n) for n in numbers)
    changed = {old for old, new in zip(group, parts, strict=True) if new is not old}
    if changed & set(expressions(*parts)):
        message = f"The right side of {rule.name} holds what it replaces."
        expected = "terms made of the parts of the left side"
        raise RuleRefused(Diagnostic("looping-rules", message, rule.place, expected))
    return parts if changed else None


# --- multi-output patterns ---------------------------------------------------------------------


def outputs(*patterns: Any, sole: Any = ()) -> Any:
    """Several terms with shared parts; the right side is a tuple of their replacements.

    `sole` is a part of the patterns, or several, that nothing but the matched terms uses.
    """
    alone = tuple(sole) if isinstance(sole, tuple | list) else (sole,)
    if len(patterns) < 2 or not all(_has_structure(pattern) for pattern in patterns):
        found = ", ".join(map(repr, patterns))
        raise _refused("Several outputs are two patterns or more.", "operators around holes", found)
    parts = {node for pattern in patterns for node in post_order(pattern)}
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
    before = {name for pattern in patterns[:at] for name in _depths(pattern)}
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
