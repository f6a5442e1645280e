"""Patterns: each kind of hole matches what it should and refuses what it should not."""

from __future__ import annotations

from plica.core.name import Name
from plica.ir.graph.expression import Apply, If, Let, Tuple, Var, const
from plica.ir.graph.operator import Operator
from plica.ir.op import find
from plica.ir.type.term import tensor
from plica.rewrite import Rest, constants, either, hole, holes, match, optional

x, y, p = holes("x y p")
(c,) = constants("c")
a = Var(Name("a"), tensor((2, 3), "f32"))
b = Var(Name("b"), tensor((2, 3), "f32"))
whole = Var(Name("whole"), tensor((2, 3), "i64"))


def op(name: str) -> Operator:
    found = find(name)
    assert found is not None
    return found


def test_a_hole_fills_with_anything_and_twice_with_the_same() -> None:
    found = match(x + y, a + b)
    assert found is not None
    assert (found.x, found.y) == (a, b)
    assert match(x + x, a + a) is not None
    assert match(x + x, a + b) is None


def test_a_literal_is_found_in_every_dtype_but_not_as_another_value() -> None:
    for dtype in ("f32", "f64", "f16", "bf16"):
        assert match(x * 2, Apply("multiply", (a, const(2, dtype)))) is not None
    assert match(x * 2, a * const(3.0, "f32")) is None
    assert match(x * 2, a * const([2.0], "f32")) is None  # a tensor may change the shape
    assert match(x + 0, a + const(-0.0, "f32")) is None  # x + -0.0 is another rule's business


def test_constant_holes_take_constants_only() -> None:
    assert match(x * c, a * const(5.0, "f32")) is not None
    assert match(x * c, a * b) is None


def test_holes_with_demands() -> None:
    integer = hole("n", dtypes=["i64"])
    matrix = hole("m", rank=2)
    row = hole("r", shape=(None, 3))
    small = hole("s", when=lambda term: isinstance(term, Var))
    assert match(-integer, -whole) is not None
    assert match(-integer, -a) is None
    assert match(-matrix, -a) is not None
    assert match(-matrix, -const(1.0, "f32")) is None
    assert match(-row, -a) is not None
    assert match(-hole("r", shape=(3, None)), -a) is None
    assert match(-small, -a) is not None
    assert match(-small, Apply("negative", (-a,))) is None


def test_attributes_are_matched_as_values_or_by_holes() -> None:
    transpose = op("transpose")
    turned = transpose(a, (1, 0))
    found = match(transpose(x, p), turned)
    assert found is not None
    assert found.p == (1, 0)
    assert match(transpose(x, (1, 0)), turned) is not None
    assert match(transpose(x, (0, 1)), turned) is None
    assert match(transpose(transpose(x, p), p), transpose(turned, (1, 0))) is not None
    assert match(transpose(transpose(x, p), p), transpose(turned, (0, 1))) is None


def test_alternatives_and_optional_parts() -> None:
    relu, tanh = op("nn.relu"), op("tanh")
    both = either(relu(x), tanh(x))
    assert match(-both, Apply("negative", (relu(a),))) is not None
    assert match(-both, Apply("negative", (tanh(a),))) is not None
    assert match(-both, -a) is None
    maybe = -optional(relu, x)
    found = match(maybe, Apply("negative", (relu(a),)))
    assert found is not None
    assert found.x is a  # the longer match is preferred
    assert match(maybe, -a) is not None


def test_rest_takes_the_remaining_arguments() -> None:
    concat = op("concat")
    found = match(concat((x, Rest("xs")), axis=0), concat((a, b, a), axis=0))
    assert found is not None
    assert found.x is a
    assert found.xs == (b, a)


def test_other_nodes_match_by_structure() -> None:
    yes = Var(Name("yes"), tensor((), "bool"))
    found = match(If(p, x, y), If(yes, a, b))
    assert found is not None
    assert (found.p, found.x, found.y) == (yes, a, b)
    assert match(Tuple((x, x)), Tuple((a, a))) is not None
    assert match(Tuple((x, x)), Tuple((a, b))) is None
    assert match(Tuple((x,)), Tuple((a, b))) is None


def test_a_variable_in_a_pattern_is_that_variable() -> None:
    assert match(x + a, b + a) is not None
    assert match(x + a, a + b) is None
    assert match(Let(b, x, b), Let(b, a, b)) is not None
    assert match(Let(b, x, b), Let(a, b, a)) is None
