from __future__ import annotations

import pytest

from plica.core.fold import post_order
from plica.ir.graph.expression import Call, If, Match, Project
from plica.ir.graph.module import Module
from plica.ir.type.infer import infer
from plica.rewrite.graph.dataflow import to_dataflow
from plica.rewrite.graph.known import KNOWN
from plica.rewrite.pack import rewrite
from tests.conftest import Golden
from tests.rewrite.graph.law import means_the_same, text, vector

HEAD = """
@plica.data
class Tree:
    Leaf: (Tensor[(2,), f32],)
    Node: (Tree, Tree)

@plica.function
def main(c: Tensor[(), bool], x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
"""
CASES = {
    "project-tuple": "    return (x + 1, x)[0]",
    "if-true": "    return x + 1 if True else x",
    "if-false": "    return x if False else x + 1",
    "beta": "    return (lambda y, x: y * x + x)(x + 1, x)",
    "match-known": """
    match Node(Leaf(x), Node(Leaf(x + 1), Leaf(x))):
        case Node(Node(_, _), _): return x
        case Node(_, Node(Leaf(y), Leaf(z))): return y + z
        case _: return x
""",
}


def rewritten(module: Module, *rules: str) -> tuple[Module, tuple[str, ...]]:
    used = [rule for rule in KNOWN if rule.name in rules]
    after, derivation = rewrite(module, used)
    assert isinstance(after, Module)
    return infer(after), tuple(step.rule.name for step in derivation.steps)


@pytest.mark.parametrize("name", sorted(CASES))
def test_each_rule_decides_what_it_is_for(name: str, golden: Golden) -> None:
    module = text(HEAD + CASES[name])
    after, steps = rewritten(module, name)
    assert steps == (name,)
    for c in (True, False):
        means_the_same(module, after, (c, vector(1, -2)))
    golden(str(after), f"known_{name}")


OPEN = {
    "if-true": "    return x + 1 if c else x",
    "match-known": """
    t = Leaf(x) if c else Node(Leaf(x), Leaf(x))
    match t:
        case Leaf(y): return y
        case _: return x
""",
    "beta": """
    f = (lambda y: y) if c else (lambda y: y + x)
    return f(x)
""",
}


@pytest.mark.parametrize("name", sorted(OPEN))
def test_what_is_not_known_stays(name: str) -> None:
    module = to_dataflow(text(HEAD + OPEN[name]))
    after, steps = rewritten(module, name)
    assert steps == ()
    assert after is module


def test_all_rules_together() -> None:
    module = text(HEAD + "    return (lambda t: t[0] if True else t[1])((x * 2, x))")
    names = [rule.name for rule in KNOWN]
    after, _ = rewritten(module, *names)
    after, _ = rewritten(to_dataflow(after), *names)
    means_the_same(module, after, (True, vector(1, -2)))
    nodes = post_order(after.main_function().body)
    assert not any(isinstance(each, If | Match | Project | Call) for each in nodes)
