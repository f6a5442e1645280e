"""Dominated regions: from a parent to the child at which all of its uses have joined again.

A pattern `dominates(parent, path, child)` matches at an expression `c` with a parent `p` when
- `c` matches `child` and `p` matches `parent`;
- every expression on a way from `p` to `c` matches `path`;
- nothing leaks: whoever uses `p` or an expression on a way is on a way too, or is `c`.
Of several such parents the nearest is taken: the one that comes last in the order of a walk.

The parts of a region are plain dataflow (operators, tuples, projections, calls); a let hides the
users of its value, so `to_dataflow` runs first.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.op import find
>>> from plica.ir.type.term import tensor
>>> from plica.rewrite.pattern import either, holes
>>> x, y = holes("x y")
>>> exp, relu = find("exp"), find("nn.relu")
>>> a = Var(Name("a"), tensor((2,), "f32"))
>>> diamond = relu(-exp(a) + exp(a) * 2)
>>> pattern = dominates(exp(x), either(-x, x * y, x + y), relu(y))
>>> [region.parent is exp(a) for region in regions(pattern, diamond)]
[True]
>>> list(regions(pattern, diamond + exp(a)))      # the exponential is used outside
[]

Finding all regions is linear in the size of the program: along the post-dominator tree, the
expressions outside the path are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from attrs import frozen

from plica.core import RuleRefused, Term, post_order, rebuild
from plica.ir.graph import Apply, Call, Expr, Module, Project, Tuple
from plica.rewrite.check.probe import types_differ
from plica.rewrite.derivation import Derivation, DerivationStep, RewriteSweep
from plica.rewrite.graph.dominator import PostDominators
from plica.rewrite.graph.walk import operands
from plica.rewrite.match import Filling, Matcher, PatternMatch, compiled
from plica.rewrite.pattern import Dominator, dominates
from plica.rewrite.rule import Rule, all_of_kind
from plica.runtime.error import Diagnostic

__all__ = ["DominatedRegion", "applied", "dominates", "regions", "rewrite_dominated"]

_PLAIN: Final = (Apply, Tuple, Project, Call)
MAX_ROUNDS: Final = 100  # the number of rounds after which rules are considered to loop


@frozen
class DominatedRegion:
    """A match: the parent, the expressions between in walk order, and the child."""

    parent: Expr
    path: tuple[Expr, ...]
    child: Expr
    filling: Filling

    @property
    def nodes(self) -> tuple[Expr, ...]:
        """All parts of the region, parts before wholes."""
        return (self.parent, *self.path, self.child)


Parts = Callable[[Expr], Iterable[Expr]]


def regions(pattern: Dominator, root: Expr, parts: Parts = operands) -> Iterator[DominatedRegion]:
    """The regions inside an expression, by their children, wholes before parts; they may overlap.

    `parts` returns the parts of an expression; another function may hide some.
    """
    dataflow = Dataflow(root, parts)
    for parent, child in dataflow.ends(pattern):
        yield dataflow.region(pattern, parent, child)


@lru_cache(maxsize=256)
def ways(pattern: Term) -> tuple[Matcher, ...]:
    """The matchers of the alternatives of a pattern."""
    return tuple(matcher for _, matcher in compiled(pattern))


def matches(pattern: Term, term: Expr) -> bool:
    """Whether a pattern matches a plain part of a program."""
    return isinstance(term, _PLAIN) and any(way(term, {}) for way in ways(pattern))


class Dataflow:
    """The users below an expression, and its post-dominators."""

    def __init__(self, root: Expr, parts: Parts = operands) -> None:
        self.root = root
        self.tree = PostDominators(root, parts)
        self.nodes: list[Expr] = self.tree.nodes
        self.users: dict[Expr, list[Expr]] = {node: [] for node in self.nodes}
        for node in self.nodes:
            for part in parts(node):
                self.users[part].append(node)
        self.order = {node: at for at, node in enumerate(self.nodes)}

    def ends(self, pattern: Dominator) -> Iterator[tuple[Expr, Expr]]:
        """The parents and children of all regions, by the children, wholes before parts."""
        nearest = self._nearest(pattern)
        for node in self.nodes:
            expr = nearest.get(node)
            if expr is None or not matches(pattern.child, node):
                continue
            if joint(pattern, expr, node) is not None:
                yield expr, node

    def region(self, pattern: Dominator, parent: Expr, child: Expr) -> DominatedRegion:
        """The region between two ends."""
        filling = joint(pattern, parent, child)
        assert filling is not None
        seen = {child, parent}
        path: list[Expr] = []
        stack = [parent]
        while stack:
            for user in self.users[stack.pop()]:
                if user not in seen:
                    seen.add(user)
                    path.append(user)
                    stack.append(user)
        path.sort(key=self.order.__getitem__, reverse=True)
        return DominatedRegion(parent, tuple(path), child, filling)

    def _nearest(self, pattern: Dominator) -> dict[Expr, Expr]:
        """For each expression the nearest parent whose every way leads to it along the path.

        `dirty[n]` counts the expressions from `n` up the tree of post-dominators that are not on
        the path themselves, or have others that are not between them and the next one.  All
        between an expression and its immediate post-dominator `d` are on the path where no user
        is dirtier than `d`.
        """
        dirty: dict[Expr, int] = {self.root: 1}
        clean: set[Expr] = set()
        on_path: set[Expr] = set()
        for node in self.nodes[1:]:  # wholes before parts
            above = self.tree.immediate(node)
            users = self.users[node]
            is_clean = all(dirty[user] == dirty[above] for user in users if user is not above)
            if is_clean:
                clean.add(node)
            if matches(pattern.path, node):
                on_path.add(node)
            dirty[node] = dirty[above] + (not (is_clean and node in on_path))
        best: dict[Expr, Expr] = {}
        for node in reversed(self.nodes[1:]):  # parts before wholes: what it dominates is known
            if node not in clean:
                continue
            mine = best.get(node) if node in on_path else None
            if matches(pattern.parent, node):
                mine = node
            above = self.tree.immediate(node)
            other = best.get(above)
            if mine is not None and (other is None or self.order[mine] < self.order[other]):
                best[above] = mine
        return best


def joint(pattern: Dominator, parent: Expr, child: Expr) -> Filling | None:
    """What fills the holes of both ends together."""
    for above in ways(pattern.parent):
        for below in ways(pattern.child):
            filling: Filling = {}
            if above(parent, filling) and below(child, filling):
                return filling
    return None


def rewrite_dominated(module: Module, rules: Iterable[Rule]) -> tuple[Module, Derivation]:
    """The module rewritten until no rule finds a region, and the derivation to it.

    In a round each expression is in at most one region; of overlapping ones the outer is taken.
    """
    used = all_of_kind(rules, Dominator, "is no region")
    steps: list[DerivationStep] = []
    current = module
    for _ in range(MAX_ROUNDS):
        new, taken = _round(current, used)
        if not taken:
            return current, Derivation(module, tuple(steps))
        steps += taken
        current = new
    names = list(dict.fromkeys(step.rule.name for step in steps[-50:]))
    raise RuleRefused(
        Diagnostic(
            "looping-rules",
            "Rewriting of regions does not come to an end.",
            steps[-1].rule.place,
            expected="rules that decrease some measure",
            found=f"a cycle through {', '.join(names)}",
        )
    )


def _round(module: Module, rules: tuple[Rule, ...]) -> tuple[Module, list[DerivationStep]]:
    """Every region that was found at once, replaced in one sweep."""
    if not (chosen := _disjoint(module, rules)):
        return module, []
    sweep = RewriteSweep("up")
    steps: list[DerivationStep] = []
    memo: dict[Term, Term] = {}
    for node in post_order(module):
        new = node
        if not type(node).variable:
            new = rebuild(node, tuple([memo[kid] for kid in node._children]))
        memo[node] = new
        if node in chosen:
            rule, region = chosen[node]
            after = applied(rule, region, memo)
            if after is not None and after is not new:
                steps.append(DerivationStep(rule, new, after, (), sweep, len(steps) + 1))
                memo[node] = after
    result = memo[module]
    assert isinstance(result, Module)
    return result, steps


def _disjoint(module: Module, rules: tuple[Rule, ...]) -> dict[Expr, tuple[Rule, DominatedRegion]]:
    """Regions to replace, by their children."""
    # One walk over all functions: what two of them share is used outside of each.
    whole = Tuple(tuple(function for _, function in module.functions()))
    dataflow = Dataflow(whole)
    taken: set[Expr] = set()
    chosen: dict[Expr, tuple[Rule, DominatedRegion]] = {}
    for rule in rules:
        assert isinstance(rule.left, Dominator)
        for parent, child in dataflow.ends(rule.left):
            if child is whole or child in taken or parent in taken:
                continue
            region = dataflow.region(rule.left, parent, child)
            if taken.isdisjoint(region.nodes) and applied(rule, region, None) is not None:
                taken.update(region.nodes)
                chosen[region.child] = rule, region
    return chosen


def applied(rule: Rule, region: DominatedRegion, memo: dict[Term, Term] | None) -> Expr | None:
    """The right side for a region in its current state: regions below may have been replaced."""

    def now(node: Expr) -> Any:
        return node if memo is None else memo[node]

    left = rule.left
    assert isinstance(left, Dominator)
    parent, child = now(region.parent), now(region.child)
    if (ends := joint(left, parent, child)) is None:
        return None
    filling = ends | {
        "parent": parent,
        "path": tuple(now(expr) for expr in region.path),
        "child": child,
    }
    if rule.when is not None and not rule.when(PatternMatch(filling)):
        return None
    made = rule.build(filling) if rule.build is not None else rule.right(PatternMatch(filling))  # type: ignore[operator]  # no plan: a function
    if made is None or made is child:
        return None
    if (wrong := types_differ(child, made)) is not None:
        message = f"The sides of {rule.name} cannot have one type."
        raise RuleRefused(Diagnostic("rule-types", message, rule.place, found=wrong))
    assert isinstance(made, Expr)
    return made
