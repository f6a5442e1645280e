"""Uses: who uses each expression, and how often.

A use is a place that holds the expression: an argument, a branch, the value of a let.  An
expression that is shared is counted by its places, not by how often a run would come by.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Tuple, Var
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((2,), "f32"))
>>> both = Tuple((x + 1, x + 1))
>>> use_counts(both)[x + 1], use_counts(both)[x]
(2, 1)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from plica.core import Term, post_order
from plica.ir.graph import Call, Defined, Definition, Expr, Module, Var
from plica.rewrite.graph.walk import expressions, operands


def use_counts(*roots: Expr) -> Counter[Expr]:
    """In how many places each expression stands; the roots themselves do not count."""
    counts: Counter[Expr] = Counter()
    for node in expressions(*roots):
        counts.update(operands(node))
    return counts


def users(*roots: Expr) -> dict[Expr, tuple[Expr, ...]]:
    """The expressions each expression is a direct part of, each once, in the order of a walk."""
    found: dict[Expr, dict[Expr, None]] = {}
    for node in expressions(*roots):
        found.setdefault(node, {})
        for part in operands(node):
            found[part][node] = None
    return {node: tuple(each) for node, each in found.items()}


def escaping(*roots: Expr) -> set[Var]:
    """The variables that stand somewhere else than in the place of a called function."""
    found: set[Var] = set()
    for node in expressions(*roots):
        parts = operands(node)
        if isinstance(node, Call):
            parts = parts[1:]
        found.update(part for part in parts if isinstance(part, Var))
    return found | {root for root in roots if isinstance(root, Var)}


def references(value: Definition, table: Mapping[Term, Definition]) -> dict[Defined, None]:
    """The definitions of a module that one of them mentions, in the order of a walk."""
    return {node: None for node in post_order(value) if node in table}  # type: ignore[misc]  # keys of the table are names


def reachable(module: Module, roots: Iterable[Defined]) -> dict[Defined, None]:
    """The definitions that some of them need, directly or not."""
    table = module.definitions()
    found: dict[Defined, None] = dict.fromkeys(root for root in roots if root in table)
    queue = list(found)
    for name in queue:
        for each in references(table[name], table):
            if each not in found:
                found[each] = None
                queue.append(each)
    return found


def recursive(module: Module) -> dict[Var, frozenset[Var]]:
    """For each function that may come to call itself, all with which it does so together."""
    from plica.ir.type.infer import components

    table = module.definitions()
    names = [name for name, _ in module.functions()]
    found: dict[Var, frozenset[Var]] = {}
    for group in components(names, table):
        if len(group) > 1 or group[0] in references(table[group[0]], table):
            found.update(dict.fromkeys(group, frozenset(group)))
    return found
