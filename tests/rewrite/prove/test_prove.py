"""Proofs of graph rules: what is proved, given which laws, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from plica.ir.contract import exact, reassociates, signless_zero
from plica.ir.graph.expression import Project
from plica.rewrite.check.verdict import Proved, Refuted
from plica.rewrite.make import tabled
from plica.rewrite.packs import find_pack
from plica.rewrite.packs.axes import (
    NamesAll,
    composed,
    every,
    exclusive,
    flipped,
    merged,
    remaining,
    through,
    united,
)
from plica.rewrite.packs.rearrange import CutBehind, larger, smaller
from plica.rewrite.packs.shape import is_explicit, is_order
from plica.rewrite.packs.word import CoversShape, Evaluated, HasElements, c, e, f, op, spread, v, w
from plica.rewrite.pattern import Rest, hole, holes
from plica.rewrite.prove import Unproved, attempt, prove
from plica.rewrite.prove.open_shape import SCALAR, NamedShape, PermutedShape
from plica.rewrite.prove.shape_facts import ShapeFacts
from plica.rewrite.prove.solver import answer, is_available

pytestmark = pytest.mark.skipif(not is_available("z3"), reason="z3 is not installed")

x, y, z = holes("x y z")
n: Any = hole("n", dtypes="i32")
p: Any = hole("p", when=is_order)
q: Any = hole("q", when=is_order)
transpose, maximum, where, relu = map(op, ["transpose", "maximum", "where", "nn.relu"])
r: Any = hole("r", when=is_explicit)
a, t, u = holes("a t u")
sum_, max_, concat = op("sum"), op("max"), op("concat")
negative, flip, exp, cast = map(op, ["negative", "flip", "exp", "cast"])

RIGHT: dict[str, tuple[Any, ...]] = {
    "double negation": (negative(-x), x, exact, ()),
    "sum with zero": (f + 0, f, signless_zero, ("one zero",)),
    "relu is a maximum": (maximum(f, 0), relu(f), exact, ()),
    "negated factors": ((-f) * (-y), f * y, exact, ()),
    "integers wrap around": (*spread((n + y) - y, n), exact, ()),
    "a sum of products": (f * y + f * z, f * (y + z), reassociates, ("real arithmetic",)),
    "transposes move": (transpose(f, p) + transpose(y, p), transpose(f + y, p), exact, ()),
    "a flip moves": (relu(flip(f, (0,))), flip(relu(f), (0,)), exact, ()),
    "a function with a law": (
        op("absolute")(exp(f)), exp(f), exact, ("exp has no sign",),
    ),
    "constants together": (
        (f + c) + e, Evaluated(f + w, c + e), reassociates, ("real arithmetic",),
    ),
    "a factor leaves a sum": (
        sum_(f * v, a, u), sum_(f, a, u) * v, reassociates, ("real arithmetic",),
    ),
    "a maximum turns round": (max_(-f, a, u), -op("min")(f, a, u), exact, ()),
    "whole floats": (op("floor")(cast(n, "f32")), cast(n, "f32"), exact, ()),
    "a reshape of a reshape": (
        op("reshape")(op("reshape")(f, r), t), op("reshape")(f, t), exact, (),
    ),
    "an extreme of some": (
        op("supremum")(f, a, u), max_(f, a, u), exact, (), HasElements("f", a),
    ),
    "kept axes are ones": (
        op("reshape")(sum_(f, a, True), r), op("reshape")(sum_(f, a, False), r), exact, (),
    ),
    "broadcast by the other": (
        f * op("broadcast_to")(y, t), f * y, exact, (), CoversShape("f", "t"),
    ),
    "a smaller right side": (*spread(where(y, f, f), f), exact, ()),
}  # fmt: skip

WRONG: dict[str, tuple[Any, ...]] = {
    "a sign": (negative(-x), -x, exact),
    "zero of the other sign": (f + 0, f, exact),
    "a shape that is lost": (f - f, op("zeros_like")(y) * 0 + f, reassociates),
    "one axis order for another": (transpose(transpose(f, p), p), f, exact),
    "a divisor that may be zero": (f + 0 * y, (f * y) / y, reassociates),
    "a choice that guards": (
        where(op("not_equal")(f, 0), y / f, 1), y / f, reassociates,
    ),
    "an extreme of none": (op("supremum")(f, a, u), max_(f, a, u), exact),
    "a transpose is no identity": (transpose(f, p), f, exact),
    "two flips of other axes": (flip(flip(f, a), t), f, exact),
    "parts exchanged": (concat((f, y), axis=a), concat((y, f), axis=a), exact),
    "parts of another axis": (
        concat((concat((f, y), axis=a), z), axis=t), concat((f, y, z), axis=a), exact,
    ),
    "a part for another": (
        concat((concat((f, y), axis=a), concat((-f, y), axis=a)), axis=a),
        concat((f, y, f, y), axis=a), exact,
    ),
    "a square leaves a sum": (sum_(f * f, a, u), op("square")(sum_(f, a, u)), reassociates),
    "a term leaves a sum": (sum_(f + v, a, u), sum_(f, a, u) + v, reassociates),
    "a maximum keeps its sign": (max_(-f, a, u), -max_(f, a, u), exact),
    "a factor that varies": (sum_(f * y, a, u), sum_(f, a, u) * y, reassociates),
    "broadcast without a guard": (f * op("broadcast_to")(y, t), f * y, exact),
    "reshapes of two shapes": (
        op("reshape")(f, r) + op("reshape")(y, r), op("reshape")(f + y, r), exact,
    ),
    "order of a sum": ((f + y) + z, f + (y + z), exact),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right_rules_are_proved_with_their_laws(name: str) -> None:
    left, right, contract, laws, *guard = RIGHT[name]
    made = tabled(name, left, right, float=contract, when=guard[0] if guard else None)
    verdict = attempt(made)
    assert isinstance(verdict, Proved), verdict
    assert set(verdict.laws) == set(laws)
    assert all(answer(script) == "unsat" for script in verdict.certificate)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules_are_not_proved(name: str) -> None:
    left, right, contract = WRONG[name]
    assert isinstance(attempt(tabled(name, left, right, float=contract)), Unproved)


def test_a_wrong_rule_is_refuted_with_a_counterexample() -> None:
    verdict = prove(tabled("lost-sign", op("absolute")(f), f), examples=30)
    assert isinstance(verdict, Refuted)
    assert verdict.counterexample.inputs[0][1].size <= 1


@pytest.mark.skipif(not is_available("cvc5"), reason="cvc5 is not installed")
def test_two_solvers_accept_a_certificate() -> None:
    verdict = attempt(tabled("negated-maximum", maximum(-f, -y), -op("minimum")(f, y)))
    assert isinstance(verdict, Proved)
    assert verdict.certificate
    assert {answer(each, "cvc5") for each in verdict.certificate} == {"unsat"}


def test_shipped_logic_is_proved() -> None:
    verdicts = [attempt(rule) for rule in find_pack("logic").rules[56:]]
    assert all(isinstance(each, Proved) for each in verdicts), [str(each) for each in verdicts]


def test_what_is_not_modelled_is_named() -> None:
    verdict = attempt(tabled("sorted", op("sort")(op("sort")(x)), op("sort")(x)))
    assert isinstance(verdict, Unproved)
    assert "sort is not modelled" in verdict.why


def test_a_permutation_reaches_into_a_broadcast_only_where_ranks_agree() -> None:
    facts = ShapeFacts()
    a, b = NamedShape("a"), NamedShape("b")
    turned = (PermutedShape(a, p), PermutedShape(b, p))
    assert facts.broadcast(turned) is not PermutedShape(facts.broadcast((a, b)), p)
    facts.learn_rank(a, p)
    facts.learn_rank(b, p)
    assert facts.broadcast(turned) is PermutedShape(facts.broadcast((a, b)), p)
    assert facts.broadcast((SCALAR, a)) is a


LAWS_OF_SHAPES = {
    "add-of-transposes": "a transpose comes out of a broadcast",
    "add-of-broadcasts": "a broadcast of a broadcast is one",
    "transpose-transpose": "a transpose of a transpose is one",
    "reshape-reshape": "a reshape of a reshape is one",
    "broadcast-of-reshape": "axes of size 1 in front change no position",
    "transpose-of-ones": "to move axes of size 1 changes no position",
    "sum-of-transpose": "axes keep their names when they move",
    "sum-of-all-reshaped": "a reduction of all axes goes over positions, whatever the shape",
    "max-of-broadcast": "along an axis that a broadcast makes all elements are one",
}


@pytest.mark.parametrize("name", LAWS_OF_SHAPES)
def test_a_verdict_names_the_laws_of_shapes_that_it_uses(name: str) -> None:
    rules = [*find_pack("simplify")]
    verdict = attempt(next(rule for rule in rules if rule.name == name))
    assert isinstance(verdict, Proved)
    assert LAWS_OF_SHAPES[name] in verdict.theorems
    assert LAWS_OF_SHAPES[name] in str(verdict)


reshape, broadcast_to = op("reshape"), op("broadcast_to")
o = holes("o")[0]
split, tril, triu = map(op, ["split", "tril", "triu"])
OF_AXES: dict[str, tuple[Any, ...]] = {
    "two sums are one": (
        sum_(sum_(f, a, False), o, False), sum_(f, merged(a, o, f), False), reassociates,
    ),
    "kept axes of two sums": (
        sum_(sum_(n, a, True), o, True), sum_(n, united(a, o, n), True), exact,
    ),
    "a transpose leaves a maximum": (
        max_(transpose(f, p), a, u),
        transpose(max_(f, through(p, a), u), remaining(p, a, u)), exact,
    ),
    "a reshape is forgotten": (
        sum_(reshape(n, r), a, False), sum_(n, every(n), False), exact, NamesAll("a", "r"),
    ),
    "two transposes are one": (
        transpose(transpose(f, p), q), transpose(f, composed(p, q)), exact,
    ),
}  # fmt: skip
OF_PLACES: dict[str, tuple[Any, ...]] = {
    "two flips are one": (flip(flip(f, a), o), flipped(f, exclusive(a, o, f)), exact),
    "a part of a join": (
        Project(split(concat((f, y), axis=a), t, axis=a), 1), y, exact, CutBehind("t", "f", "a"),
    ),
    "all parts of a split": (
        concat((Project(split(f, 2, axis=a), 0), Project(split(f, 2, axis=a), 1)), axis=a), f,
        exact,
    ),
    "triangles of triangles": (tril(tril(f, a), o), tril(f, smaller(a, o)), exact),
    "any number of parts": (
        concat((concat((Rest("s"),), axis=a), Rest("t")), axis=a),
        concat((Rest("s"), Rest("t")), axis=a), exact,
    ),
}  # fmt: skip
NOT_OF_PLACES: dict[str, tuple[Any, ...]] = {
    "flips of both axes": (flip(flip(f, a), o), flipped(f, exclusive(a, a, f)), exact),
    "the other part of a join": (
        Project(split(concat((f, y), axis=a), t, axis=a), 0), y, exact, CutBehind("t", "f", "a"),
    ),
    "a part of a join without a guard": (
        Project(split(concat((f, y), axis=a), t, axis=a), 1), y, exact,
    ),
    "parts exchanged": (
        concat((Project(split(f, 2, axis=a), 1), Project(split(f, 2, axis=a), 0)), axis=a), f,
        exact,
    ),
    "parts of another axis": (
        concat((Project(split(f, 2, axis=a), 0), Project(split(f, 2, axis=a), 1)), axis=o), f,
        exact,
    ),
    "the larger triangle": (tril(tril(f, a), o), triu(f, larger(a, o)), exact),
    "any number of parts exchanged": (
        concat((Rest("s"), Rest("t")), axis=a), concat((Rest("t"), Rest("s")), axis=a), exact,
    ),
    "other blocks": (
        op("nn.depth_to_space")(op("nn.space_to_depth")(f, a), o), f, exact,
    ),
    "an extreme of none that is scaled": (
        op("supremum")(-f, a, u), -op("infimum")(f, a, u) + 0 * op("supremum")(f, a, u), exact,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_PLACES)
def test_rules_of_places_are_proved(name: str) -> None:
    left, right, contract, *guard = OF_PLACES[name]
    verdict = attempt(tabled(name, left, right, float=contract, when=guard[0] if guard else None))
    assert isinstance(verdict, Proved), verdict


@pytest.mark.parametrize("name", NOT_OF_PLACES)
def test_wrong_rules_of_places_have_no_proof(name: str) -> None:
    left, right, contract, *guard = NOT_OF_PLACES[name]
    made = tabled(name, left, right, float=contract, when=guard[0] if guard else None)
    assert isinstance(attempt(made), Unproved)


NOT_OF_AXES: dict[str, tuple[Any, ...]] = {
    "the order of sums of floats": (
        sum_(sum_(f, a, False), o, False), sum_(f, merged(a, o, f), False), exact,
    ),
    "axes counted before the first sum": (
        sum_(sum_(n, a, False), o, False), sum_(n, united(a, o, n), False), exact,
    ),
    "axes counted after the first sum": (
        sum_(sum_(n, a, True), o, True), sum_(n, merged(a, o, n), True), exact,
    ),
    "axes in another order": (
        sum_(sum_(n, a, False), o, False), sum_(n, merged(o, a, n), False), exact,
    ),
    "axes behind a transpose": (
        max_(transpose(f, p), a, True), transpose(max_(f, a, True), p), exact,
    ),
    "an order that is too long": (
        max_(transpose(f, p), a, False), transpose(max_(f, through(p, a), False), p), exact,
    ),
    "some axes of a reshape": (
        sum_(reshape(n, r), a, False), sum_(n, every(n), False), exact,
    ),
    "transposes exchanged": (
        transpose(transpose(f, p), q), transpose(f, composed(q, p)), exact,
    ),
    "sums and maxima": (
        sum_(max_(n, a, False), o, False), max_(sum_(n, a, False), o, False), exact,
    ),
    "a kept axis counted again": (
        sum_(max_(n, a, True), a, True), sum_(max_(n, a, True) + n * 0, a, True), exact,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_AXES)
def test_rules_with_functions_of_axes_are_proved(name: str) -> None:
    left, right, contract, *guard = OF_AXES[name]
    verdict = attempt(tabled(name, left, right, float=contract, when=guard[0] if guard else None))
    assert isinstance(verdict, Proved), verdict


@pytest.mark.parametrize("name", NOT_OF_AXES)
def test_wrong_functions_of_axes_have_no_proof(name: str) -> None:
    left, right, contract = NOT_OF_AXES[name]
    assert isinstance(attempt(tabled(name, left, right, float=contract)), Unproved)


def test_a_composite_operator_is_its_definition() -> None:
    verdicts = [attempt(rule) for rule in find_pack("composite") if "unfolded" in rule.name]
    assert all(isinstance(each, Proved) and not each.laws for each in verdicts)
