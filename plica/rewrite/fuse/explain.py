"""Explaining fusion: for every edge between two operators whether they are one kernel, and why.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Apply, Function, Var
>>> from plica.ir.type.infer import infer
>>> from plica.ir.graph.module import module
>>> from plica.ir.type.term import tensor
>>> x, main = Var(Name("x"), tensor((2, 3), "f32")), Var(Name("main"), None)
>>> top = Apply("max", (x,), (("axis", (1,)), ("keepdims", True)))
>>> of = infer(module({main: Function((), (), (x,), None, (x - top) * 2.0)}, main))
>>> print(table(explain(of)))
producer    kind       consumer    kind       fused  reason   because
max.0       reduction  subtract.1  broadcast  yes    row
subtract.1  broadcast  multiply.2  broadcast  yes    inlined
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from plica.ir.graph import Expr, Module
from plica.ir.loop.fusion_kind import Kind
from plica.ir.type import infer
from plica.rewrite.fuse.decide import REASONS, Decisions, Reason
from plica.rewrite.fuse.group import along_rows, is_primitive
from plica.rewrite.fuse.limit import DEFAULT_LIMITS, FusionLimits
from plica.rewrite.fuse.reading import operator, reading


@frozen(eq=False)
class FusionNode:
    """An operator of a program: the term, its kind, and a name with its number in the function."""

    term: Expr
    kind: Kind
    label: str

    def __str__(self) -> str:
        return self.label


@frozen(eq=False)
class EdgeDecision:
    """Whether a producer is computed with one of its consumers, and why.

    `because` is the use that prevents fusion, if any.
    """

    producer: FusionNode
    consumer: FusionNode
    fused: bool
    reason: Reason
    because: str | None

    @property
    def kinds(self) -> tuple[Kind, Kind]:
        return self.producer.kind, self.consumer.kind

    def __str__(self) -> str:
        verb = "is fused into" if self.fused else "is not fused into"
        why = f"{self.producer} {verb} {self.consumer}: {REASONS[self.reason]}"
        return f"{why} ({self.because})." if self.because else f"{why}."


def explain(module: Module, limits: FusionLimits = DEFAULT_LIMITS) -> tuple[EdgeDecision, ...]:
    """Every edge between two operators of a module, in the order in which they are computed."""
    decisions: list[EdgeDecision] = []
    for _, function in infer(module).functions():
        if not is_primitive(function):
            decisions += _edges(along_rows(function.body, limits))
    return tuple(decisions)


def _edges(decisions: Decisions) -> list[EdgeDecision]:
    nodes: dict[Expr, FusionNode] = {}
    for term in decisions.order:
        if term in decisions.verdicts:
            of = reading(term)
            kind = "opaque" if of is None else of.kind
            nodes[term] = FusionNode(term, kind, f"{operator(term)}.{len(nodes)}")
    found: list[EdgeDecision] = []
    for term, node in nodes.items():
        verdict = decisions.verdicts[term]
        use = verdict.because
        because = None if use is None else nodes[use].label if use in nodes else _word(use)
        for user in decisions.users[term]:
            if user in nodes:
                found.append(
                    EdgeDecision(node, nodes[user], verdict.fused, verdict.reason, because)
                )
    return found


def _word(use: Expr) -> str:
    return type(use).__name__.lower()


def table(decisions: Sequence[EdgeDecision]) -> str:
    """The decisions in columns."""
    rows = [("producer", "kind", "consumer", "kind", "fused", "reason", "because")]
    for each in decisions:
        first, second = each.kinds
        ends = (str(each.producer), first, str(each.consumer), second)
        rows.append((*ends, "yes" if each.fused else "no", each.reason, each.because or ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join(lines)
