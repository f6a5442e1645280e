"""Features, dependences, parts and labels of programs."""

from __future__ import annotations

import numpy as np
import pytest

import plica
from plica.ir.graph.expression import Apply, Expr
from plica.ir.interpret.interpreter import interpret
from plica.ir.text.script import from_text
from plica.ir.type.infer import infer
from plica.rewrite.graph.feature import dependences, features, label, labels, numbered, part
from plica.rewrite.graph.walk import expressions, operands
from plica.runtime.error import InputError

HEAD = """
from __future__ import annotations
import plica
from plica import op
from plica.op import nn
from plica.script import Tensor, f32, i64
"""
CHAIN = (
    HEAD
    + """
@plica.function
def main(x: Tensor[(4,), f32], z: Tensor[(4,), f32]) -> Tensor[(4,), f32]:
    a = op.exp(x)
    b = a + z
    return nn.relu(b) * a
"""
)
LOOP = (
    HEAD
    + """
@plica.function
def count(n: Tensor[(), i64]) -> Tensor[(), i64]:
    if n <= 0:
        r = n
    else:
        r = count(n - 1)
    return r

@plica.function
def main(n: Tensor[(), i64]) -> Tensor[(), i64]:
    return count(n)
"""
)


def test_what_a_program_uses() -> None:
    assert features(from_text(CHAIN)) >= {"operator", "variable"}
    assert "recursion" not in features(from_text(CHAIN))
    assert features(from_text(LOOP)) >= {"recursion", "if", "call", "operator", "constant"}


def test_dependences_are_those_of_paths() -> None:
    whole = infer(from_text(CHAIN)).main_function()
    of = dependences(whole)
    for one in of.nodes:
        assert of.needs(one) == reachable(one)
        assert of.reaches(one) == {each for each in of.nodes if one in reachable(each)}
    place = {each: at for at, each in enumerate(of.nodes)}
    assert all(place[p] < place[n] for n in of.nodes for p in operands(n) if p is not n)


def reachable(node: Expr) -> set[Expr]:
    """By definition: the expression and what its parts reach."""
    return {node}.union(*[reachable(each) for each in operands(node)])


def test_a_part_computes_what_the_whole_does_there() -> None:
    module = from_text(CHAIN)
    x, y = np.array([0.0, 1, -1, 2], np.float32), np.array([1.0, -5, 3, 0], np.float32)
    wanted = {"exp": np.exp(x), "add": np.exp(x) + y}
    for at, node in enumerate(numbered(module)):
        if isinstance(node, Apply) and node.op in wanted:
            for made in (part(module, at), part(module, node)):
                np.testing.assert_allclose(interpret(made, x, y), wanted[node.op], rtol=1e-6)
                np.testing.assert_allclose(plica.compile(made)(x, y), wanted[node.op], rtol=1e-4)


def test_parts_that_are_not_there_are_refused() -> None:
    module = from_text(CHAIN)
    with pytest.raises(InputError, match="There is no expression 99"):
        part(module, 99)
    with pytest.raises(InputError, match="has no such expression"):
        part(module, numbered(from_text(LOOP))[0])


def test_labels_are_of_contents() -> None:
    one = infer(from_text(CHAIN)).main_function()
    renamed = CHAIN.replace("a = ", "c = ").replace("b = a", "b = c").replace("* a", "* c")
    other = infer(from_text(renamed.replace("z", "w")))
    mine = sorted(labels(one).values())
    assert mine == sorted(labels(other.main_function()).values())
    applied = [each for each in expressions(one) if isinstance(each, Apply)]
    assert len({label(each) for each in applied}) == len(applied)
