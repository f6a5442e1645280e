"""Contractions of any rank: rules of layers are proved, mistakes in them are not.

The laws of the prover's normal form are tested against numpy: sums as linear forms, and which
channel of a weight belongs to a channel of a layer's result and data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.core import Name
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Expr, const
from plica.ir.loop import scalar as sc
from plica.ir.op.activation import leaky_relu, relu
from plica.ir.op.elementwise import cast
from plica.ir.op.linear import dense, matmul
from plica.ir.type import bool_, f16, f32, f64, i8
from plica.rewrite.check.run import check
from plica.rewrite.check.verdict import Proved, Refuted
from plica.rewrite.closed import closed, value_of, varying
from plica.rewrite.make import tabled
from plica.rewrite.packs import find_pack
from plica.rewrite.packs.scale import (
    CHANNEL_SCALES,
    LAYERS,
    SHIFT_TOTALS,
    LinearLayer,
    ScalesInputs,
    ScalesOutputs,
    ShiftsInputs,
    positive,
)
from plica.rewrite.packs.word import OneShape, op, v
from plica.rewrite.pattern import hole, holes
from plica.rewrite.prove import Unproved, attempt
from plica.rewrite.prove.linear import linear_form
from plica.rewrite.prove.open_shape import ROOT, SCALAR, AxesOf, BoundIndex, NamedShape
from plica.rewrite.prove.open_tensor import OpenFold
from plica.rewrite.prove.rule_facts import RuleFacts
from plica.rewrite.prove.solver import is_available

pytestmark = pytest.mark.skipif(not is_available("z3"), reason="z3 is not installed")

CONV, TRANSPOSED, DENSE, MATMUL, LEFT, BATCH = LAYERS
x: Any = varying("x", dtypes=(f32,))
w: Any = closed("w", dtypes=(f32,))
s, a, b = (closed(name, dtypes=(f32,)) for name in "sab")
t, u = holes("t u")
sum_ = op("sum")


def scaled(layer: LinearLayer, end: Any, factor: Any = s) -> Any:
    return layer.on(x, layer.scaled_weight(end, w, factor))


@pytest.mark.parametrize(
    "layer", [pytest.param(each, marks=pytest.mark.slow) if each is not LEFT else each
              for each in LAYERS], ids=lambda layer: layer.slug,
)  # fmt: skip
def test_shipped_rules_of_layers_are_proved_and_name_their_laws(layer: LinearLayer) -> None:
    rules = {rule.name: rule for rule in find_pack("scale")}
    for name in ("relu-scale", "scaled-data", "shifted-data"):
        if (rule := rules.get(f"{layer.slug}-{name}")) is not None:
            verdict = attempt(rule)
            assert isinstance(verdict, Proved), verdict
            assert verdict.laws == ("real arithmetic",)
            assert f"channels of {layer.record.name}" in verdict.theorems


@pytest.mark.parametrize("name", ["wide", "wide-scale"])
def test_products_of_narrow_floats_are_products_of_wide_ones(name: str) -> None:
    rules = [rule for rule in find_pack(name) if "pool" not in rule.name]
    verdicts = [attempt(rule) for rule in rules]
    assert all(isinstance(each, Proved) for each in verdicts), verdicts
    assert all(not each.laws for each in verdicts if isinstance(each, Proved)) is (name == "wide")


WRONG: dict[str, tuple[Any, ...]] = {
    "no guard": (CONV.on(x, w) * s, scaled(CONV, "outputs"), None),
    "channels of the other end": (
        CONV.on(x, w) * s, scaled(CONV, "inputs"), ScalesOutputs(CONV),
    ),
    "the guard of the other end": (
        CONV.on(x, w) * s, scaled(CONV, "outputs"), ScalesInputs(CONV),
    ),
    "the guard of another layer": (
        DENSE.on(x, w) * s, scaled(DENSE, "outputs"), ScalesOutputs(MATMUL),
    ),
    "channels of the other operand": (
        MATMUL.on(x, w) * s, MATMUL.on(x, LEFT.scaled_weight("outputs", w, s)),
        ScalesOutputs(MATMUL),
    ),
    "a summand that is not scaled": (
        (CONV.on(x, w) + a) * s, scaled(CONV, "outputs") + a, ScalesOutputs(CONV),
    ),
    "a summand of the other sign": (
        (CONV.on(x, w) - a) * s, scaled(CONV, "outputs") + a * s, ScalesOutputs(CONV),
    ),
    "relu of any sign": (
        relu(DENSE.on(x, w)) * s, relu(scaled(DENSE, "outputs")), ScalesOutputs(DENSE),
    ),
    "another slope": (
        leaky_relu(DENSE.on(x, w), t) * positive,
        leaky_relu(DENSE.on(x, DENSE.scaled_weight("outputs", w, positive)), u)
        + 0 * leaky_relu(DENSE.on(x, w), t),
        ScalesOutputs(DENSE),
    ),
    "a shift of padding": (
        CONV.on(x + b, w),
        CONV.on(x, w) + SHIFT_TOTALS["conv"](CONV.scaled_weight("inputs", w, b), x),
        None,
    ),
    "a shift that is scaled": (
        DENSE.on(x + b, w),
        DENSE.on(x, w) * SHIFT_TOTALS["dense"](DENSE.scaled_weight("inputs", w, b), x),
        ShiftsInputs(DENSE),
    ),
    "operands exchanged": (matmul(x, w) * 1, matmul(w, x), None),
    "another operator": (matmul(x, w) * 1, dense(x, w), None),
    "a product that is rounded early": (
        matmul(x, cast(w, dtype=f16)), matmul(cast(x, dtype=f16), cast(w, dtype=f16)), None,
    ),
    "a factor twice": (matmul(x * s, w), matmul(x * s, w * s), None),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_in_rules_of_layers_have_no_proof(name: str) -> None:
    left, right, guard = WRONG[name]
    made = tabled(name, left, right, float=reassociates, when=guard)
    assert isinstance(attempt(made), Unproved)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a summand that is not scaled", "relu of any sign"])
def test_mistakes_in_rules_of_layers_are_refuted(name: str) -> None:
    left, right, guard = WRONG[name]
    made = tabled(name, left, right, float=reassociates, when=guard)
    assert isinstance(check(made, 60), Refuted)


y: Any = hole("y", dtypes=(f32,))
SUMS: dict[str, tuple[Any, Any]] = {
    "sums split": (sum_(x + y, t, u), sum_(x, t, u) + sum_(y, t, u)),
    "a common factor of two": (sum_(x * v + y * v, t, u), v * sum_(x + y, t, u)),
    "products of sums": (sum_((x + v) * y, t, u), sum_(x * y, t, u) + v * sum_(y, t, u)),
}  # fmt: skip
NO_SUMS: dict[str, tuple[Any, Any]] = {
    "a divisor leaves an empty sum": (sum_(x / v, t, u), sum_(x, t, u) * (1 / v)),
    "a sum that may be undefined": (
        x + 0 * sum_(y, t, False), x + 0 * sum_(1 / y, t, False),
    ),
    "a choice that guards a sum": (
        op("where")(op("not_equal")(x, 0), sum_(1 / y, t, False), v),
        op("where")(op("not_equal")(x, 0), sum_(1 / y, t, False), v) + 0 * sum_(1 / y, t, False),
    ),
    "a sum of no index": (sum_(x + v, t, u), sum_(x, t, u) + v),
    "sums of products": (sum_(x * y, t, u), sum_(x, t, u) * sum_(y, t, u)),
    "one of two factors": (sum_(x * v + y * v, t, u), v * sum_(x, t, u) + sum_(y, t, u)),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_linear_forms_prove(name: str) -> None:
    guard = OneShape("x", "y")
    verdict = attempt(tabled(name, *SUMS[name], when=guard, float=reassociates))
    assert isinstance(verdict, Proved), verdict
    assert verdict.theorems


@pytest.mark.parametrize("name", NO_SUMS)
def test_linear_forms_do_not_prove(name: str) -> None:
    made = tabled(name, *NO_SUMS[name], when=OneShape("x", "y"), float=reassociates)
    verdict = attempt(made)
    assert isinstance(verdict, Unproved)
    assert "the sides differ" in verdict.why or "z3 does not decide" in verdict.why


# --- the laws against numpy -----------------------------------------------------------------------

AXES = (AxesOf(t, NamedShape("x")),)
PLACE = BoundIndex(ROOT, AXES, NamedShape("x"))


@st.composite
def bodies(draw: st.DrawFn, dtype: Any) -> tuple[RuleFacts, sc.Scalar]:
    """A scalar of some unknown numbers, of which `i…` depend on the index of a sum."""
    facts = RuleFacts({}, reorders=True)
    leaves = [facts.atom(("hole", f"i{n}", PLACE), dtype, f"i{n}") for n in range(2)]
    leaves += [facts.atom(("hole", f"c{n}", ROOT), dtype, f"c{n}") for n in range(2)]
    condition = facts.atom(("inside", PLACE), bool_, "p")

    def extended(parts: st.SearchStrategy[sc.Scalar]) -> st.SearchStrategy[sc.Scalar]:
        pair = st.tuples(parts, parts)
        return st.one_of(
            pair.map(lambda two: sc.Add(*two)),
            pair.map(lambda two: sc.Sub(*two)),
            pair.map(lambda two: sc.Mul(*two)),
            parts.map(lambda one: sc.Select(condition, one, sc.Lit(0, dtype))),
        )

    numbers = st.sampled_from([*leaves, *[sc.Lit(n, dtype) for n in (0, 1, 2, -3)]])
    return facts, draw(st.recursive(numbers, extended, max_leaves=6))


def value(term: sc.Scalar, at: dict[sc.Scalar, Any]) -> Any:
    """A scalar of vectors, by numpy."""
    if term in at:
        return at[term]
    match term:
        case sc.Lit(number):
            return np.asarray(number, at[sc.Lit(0, sc.dtype_of(term))].dtype)
        case sc.Add(left, right):
            return value(left, at) + value(right, at)
        case sc.Sub(left, right):
            return value(left, at) - value(right, at)
        case sc.Mul(left, right):
            return value(left, at) * value(right, at)
        case sc.Select(condition, then, orelse):
            return np.where(value(condition, at), value(then, at), value(orelse, at))
    raise AssertionError(term)


@pytest.mark.parametrize("dtype", [i8, f64], ids=str)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), size=st.integers(0, 4), seed=st.integers(0, 99))
def test_a_linear_form_has_the_value_of_the_sum(
    dtype: Any, data: st.DataObject, size: int, seed: int
) -> None:
    facts, body = data.draw(bodies(dtype))
    source, of = np.random.default_rng(seed), dtype.numpy
    at: dict[sc.Scalar, Any] = {sc.Lit(0, dtype): np.zeros((), of)}
    for key, atom in facts.atoms.items():
        shape = (size,) if PLACE in key else ()
        low, high = (0, 2) if sc.dtype_of(atom) is bool_ else (-3, 4)
        drawn = source.integers(low, high, shape)
        at[atom] = drawn.astype(bool if sc.dtype_of(atom) is bool_ else of)
    sums: dict[sc.Scalar, sc.Scalar] = {}

    def unknown(fold: OpenFold) -> sc.Scalar:
        found = sc.ScalarVar(Name("sum", len(sums)), dtype)
        sums[found] = fold.body
        return found

    found = linear_form(facts, OpenFold("sum", PLACE, AXES, SCALAR, None, False, body), unknown)

    def total(term: sc.Scalar) -> Any:
        return np.broadcast_to(value(term, at), (size,)).sum(dtype=of)

    with np.errstate(over="ignore"):
        wanted = total(body)
        at |= {each: total(term) for each, term in sums.items()}
        assert value(found, at) == wanted


CASES: dict[str, list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]]] = {
    "conv": [
        ((2, 4, 5), (6, 2, 3), {"groups": 2, "padding": 1, "strides": 2}),
        ((1, 3, 4, 5), (2, 3, 2, 3), {"dilation": 2}),
    ],
    "conv-transpose": [
        ((2, 4, 5), (4, 3, 3), {"groups": 2, "strides": 2, "padding": 1}),
        ((1, 3, 4, 3), (3, 2, 2, 2), {}),
    ],
    "dense": [((2, 3, 4), (5, 4), {}), ((4,), (2, 4), {})],
    "matmul": [((3, 4), (2, 4, 5), {}), ((4,), (4, 3), {})],
    "matmul-left": [((4, 3), (5, 4), {}), ((2, 4, 3), (2, 5, 4), {})],
    "batch-matmul": [
        ((2, 4, 3), (2, 5, 4), {"transpose_x": True, "transpose_y": True}),
        ((2, 3, 4), (1, 4, 5), {}),
    ],
}  # fmt: skip


def numbers(source: np.random.Generator, shape: tuple[int, ...]) -> Expr:
    return const(source.integers(-4, 5, shape).astype(np.float64), "f64")


@pytest.mark.parametrize(("slug", "number"), [(slug, n) for slug in CASES for n in range(2)])
def test_channels_of_a_weight_are_those_of_data_and_result(slug: str, number: int) -> None:
    layer, source = {each.slug: each for each in LAYERS}[slug], np.random.default_rng(number)
    of_data, of_weight, given = CASES[slug][number]
    values = {each.name: given.get(each.name, each.default) for each in layer.record.attributes}
    data, weight = numbers(source, of_data), numbers(source, of_weight)
    whole = layer.on(data, weight, values)
    for end in ("inputs", "outputs"):
        (axis, _), of = (layer.inputs, data) if end == "inputs" else (layer.outputs, whole)
        array = value_of(of)
        assert array is not None
        at = axis(values) % array.ndim
        shape = tuple(size if n == at else 1 for n, size in enumerate(array.shape))
        factor = numbers(source, shape)
        scale = CHANNEL_SCALES[slug, end]
        moved = value_of(layer.on(data, scale.compute(weight, factor, *values.values()), values))
        numbers_of = value_of(factor)
        assert numbers_of is not None
        other = const(array * numbers_of, "f64")
        plain = value_of(layer.on(other, weight, values)) if end == "inputs" else value_of(other)
        np.testing.assert_array_equal(moved, plain)
        if end == "inputs" and slug in SHIFT_TOTALS and not given.get("padding"):
            total = SHIFT_TOTALS[slug].compute(
                scale.compute(weight, factor, *values.values()), data
            )
            shifted = value_of(layer.on(const(array + numbers_of, "f64"), weight, values))
            np.testing.assert_array_equal(value_of(whole + total), shifted)
