"""Right sides that cannot be built have no proof, and instances refute them."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from plica.ir.graph.expression import If, Literal
from plica.rewrite.check.run import refutation
from plica.rewrite.check.verdict import Proved
from plica.rewrite.make import tabled
from plica.rewrite.packs import OWN, PARTS, find_pack
from plica.rewrite.packs.axes import exclusive, flipped, united
from plica.rewrite.packs.canonical import one_number
from plica.rewrite.packs.composite import dims, number, own_dtype
from plica.rewrite.packs.word import FirstFilled, LikeLeft, b, d, op, x, y
from plica.rewrite.pattern import hole, holes
from plica.rewrite.prove import attempt
from plica.rewrite.prove.open_tensor import Unprovable
from plica.rewrite.prove.role import check_roles
from plica.rewrite.prove.solver import is_available

pytestmark = pytest.mark.skipif(not is_available("z3"), reason="z3 is not installed")

a, p, u = holes("a p u")
full_like, zeros_like, broadcast_to = map(op, ["full_like", "zeros_like", "broadcast_to"])
flip, sum_, repeat, either = map(op, ["flip", "sum", "repeat", "logical_or"])
exchanged = own_dtype(x, None)
FLIPPED = flip(flip(x, a), p)

WRONG: dict[str, tuple[Any, Any]] = {
    "a tensor for a default": (x * 1, broadcast_to(number(1, exchanged), dims(x))),
    "no dtype": (full_like(x, u, p), broadcast_to(number(u, p), dims(x))),
    "no dtype for zeros": (zeros_like(x, p), broadcast_to(number(0, p), dims(x))),
    "a shape for a tensor": (either(b, b), either(b, dims(b))),
    "a shape for a right side": (either(b, b), LikeLeft(b, dims(b), "broadcast_to", always=True)),
    "parts for a tensor": (either(b, b), either(b, op("split")(b, 2, axis=0))),
    "a tensor for a dtype": (op("cast")(x * 1, p), op("cast")(x, dtype=x)),
    "axes for one axis": (sum_(x * 1, a), sum_(repeat(x, 1, axis=a), a)),
    "axes for a rate": (sum_(x * 1, a), sum_(op("nn.dropout")(x, a), a)),
    "a variable for a constant": (x + (y - y), x + one_number(y)),
    "a condition for another": (If(Literal(True), x, y), y),
    "a union for a difference": (FLIPPED, flipped(x, united(a, p, x))),
}  # fmt: skip
RIGHT: dict[str, tuple[Any, Any]] = {
    "a default": (zeros_like(x, p), broadcast_to(number(0, own_dtype(p, x)), dims(x))),
    "a condition": (If(Literal(True), x, y), x),
    "a difference": (FLIPPED, flipped(x, exclusive(a, p, x))),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_built_is_not_proved(name: str) -> None:
    assert not isinstance(attempt(tabled("wrong", *WRONG[name])), Proved)


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_built_is_refuted(name: str) -> None:
    assert refutation(tabled("wrong", *WRONG[name]), 60) is not None


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_of_the_right_kind_is_proved(name: str) -> None:
    assert isinstance(attempt(tabled("right", *RIGHT[name])), Proved)


def test_no_term_of_some_does_not_apply() -> None:
    chosen = FirstFilled((b + d,))
    assert chosen.among(frozenset("b")) is None
    assert not isinstance(attempt(tabled("none", either(b, b), chosen)), Proved)


def test_a_definition_is_that_of_the_operator_on_the_left() -> None:
    of = next(rule for rule in find_pack("composite") if rule.name == "mean-unfolded")
    assert isinstance(attempt(of), Proved)
    wrong = attrs.evolve(of, left=op("sum")(x, a))
    assert not isinstance(attempt(wrong), Proved)


def test_a_hole_is_one_kind_of_thing() -> None:
    with pytest.raises(Unprovable, match="axis of flip is x"):
        check_roles(flip(x, a), flip(x, x))
    with pytest.raises(Unprovable, match="another kind of thing"):
        check_roles(flip(x, hole("k")), op("roll")(x, 1, axis=hole("k")))


def test_every_shipped_right_side_is_made_of_what_its_places_take() -> None:
    rules = [rule for name in OWN if name not in PARTS for rule in find_pack(name)]
    terms = [rule for rule in rules if rule.build is not None]
    assert len(terms) > 400
    for rule in terms:
        check_roles(rule.left, rule.right)  # type: ignore[arg-type]  # a plan is of a term
