"""Rules that ask, and rules that fail: types and sizes of a match, errors with rule and line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import plica
from plica import op
from plica.core.diagnostic import RuleFailed, RuleRefused
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Tuple, Var
from plica.ir.loop.scalar import Scalar
from plica.ir.type.dtype import f32
from plica.ir.type.term import TensorType, tensor
from plica.op import nn
from plica.rewrite import holes, match, pack, rewrite, rule
from plica.rewrite.check.verdict import Refuted, Tested
from plica.rewrite.match import PatternMatch
from plica.rewrite.rule import Rule
from plica.runtime.error import PlicaError

x, y, shape = holes("x y shape")
PROGRAM = """
@plica.function
def main(v: Tensor[(2, "n"), f32]):
    return nn.relu(nn.relu(op.exp(v)))
"""
A = Var(Name("a"), tensor((2, 3), "f32"))


def found(pattern: Any, term: Expr) -> PatternMatch:
    made = match(pattern, term)
    assert made is not None
    return made


def test_a_match_tells_types_and_sizes() -> None:
    m = found(nn.relu(x), nn.relu(op.exp(A)))
    for asked in (m.x, x, "x", op.exp(A)):
        assert m.type(asked) == TensorType(A.type.shape, f32)  # type: ignore[union-attr]
        assert m.shape(asked) == (2, 3)
        assert [type(each) for each in m.shape(asked)] == [int, int]


def test_a_size_that_is_not_known_is_the_term_of_its_dim() -> None:
    (node,) = plica.from_text(PROGRAM).main_function().params
    m = found(nn.relu(x), nn.relu(node))
    first, second = m.shape(x)
    assert first == 2
    assert isinstance(second, Scalar)


def test_an_attribute_has_plain_integers() -> None:
    m = found(op.reshape(x, y), op.reshape(A, (3, 2)))
    assert m.y != (3, 2)
    assert m.value(y) == m.value("y") == m.value(m.y) == (3, 2)


def test_a_hole_of_such_a_name_comes_first() -> None:
    m = found(op.reshape(x, shape), op.reshape(A, (3, 2)))
    assert m.value(m.shape) == (3, 2)


def test_what_has_no_type_or_no_shape_is_refused() -> None:
    m = found(op.reshape(x, y), op.reshape(A, (3, 2)))
    with pytest.raises(RuleRefused, match="Only an expression has a type"):
        m.type(y)
    with pytest.raises(RuleRefused, match="Only a tensor has a shape"):
        m.shape(Tuple((A, A)))
    with pytest.raises(AttributeError, match="no hole 'z'"):
        m.z  # noqa: B018  # asking is the point


# It fails on operators alone: holes were filled with variables, and the rule passed.
def careless(m: PatternMatch) -> Expr | None:
    return nn.relu(m.x) if len(m.x.type.shape) < 9 else None  # line 79


def test_instances_have_operators_in_holes() -> None:
    verdict = plica.check(rule("careless", nn.relu(nn.relu(x)), careless), examples=50)
    assert isinstance(verdict, Refuted)
    assert "no attribute 'type'" in verdict.counterexample.reason
    careful = rule(
        "careful", nn.relu(nn.relu(x)), lambda m: nn.relu(m.x) if len(m.shape(x)) < 9 else None
    )
    assert isinstance(plica.check(careful, examples=50), Tested)


def in_compile(of: Rule) -> None:
    text = PROGRAM.replace('"n"', "3")
    plica.compile(plica.from_text(text), packs=[pack("p", of, version="1")])


def in_rewrite(of: Rule) -> None:
    rewrite(plica.from_text(PROGRAM), [of])


def at_a_term(of: Rule) -> None:
    of.at(nn.relu(nn.relu(op.exp(A))))


@pytest.mark.parametrize("use", [in_compile, in_rewrite, at_a_term])
def test_what_a_rule_raises_names_rule_file_and_line(use: Callable[[Rule], None]) -> None:
    with pytest.raises(RuleFailed, match="The rule careless fails") as caught:
        use(rule("careless", nn.relu(nn.relu(x)), careless))
    (told,) = caught.value.diagnostics
    assert told.code == "rule-fails"
    assert told.place is not None
    assert told.place.file == __file__
    assert told.place.line == careless.__code__.co_firstlineno + 1
    assert "AttributeError: 'Apply' object has no attribute 'type'" in str(told.found)


def test_a_guard_and_a_predicate_that_raise_are_named_too() -> None:
    from plica.rewrite import hole

    guarded = rule("guarded", nn.relu(nn.relu(x)), nn.relu(x), when=lambda m: m.x.type is None)
    with pytest.raises(RuleFailed, match="The rule guarded fails"):
        at_a_term(guarded)
    z = hole("z", when=lambda value: value.type is not None)
    picky = rule("picky", nn.relu(nn.relu(z)), nn.relu(z))
    with pytest.raises(RuleFailed, match="The rule picky fails"):
        at_a_term(picky)


def test_a_rule_that_fails_at_once_is_refused_at_birth() -> None:
    with pytest.raises(PlicaError, match="fails on an instance") as caught:
        rule("bad", nn.relu(nn.relu(x)), lambda m: 1 / 0)
    assert caught.value.diagnostics[0].found is not None
    assert "ZeroDivisionError" in caught.value.diagnostics[0].found
