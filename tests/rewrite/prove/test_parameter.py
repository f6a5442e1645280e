"""Unknown numbers among attributes: rules of bounds are proved, mistakes in them are not."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.core import Name, Term, map_bottom_up
from plica.ir.graph.expression import const
from plica.ir.loop import scalar as sc
from plica.ir.loop.tensor import Compute, buffer
from plica.ir.type import f32
from plica.rewrite.check.run import check
from plica.rewrite.check.verdict import Proved, Refuted
from plica.rewrite.closed import value_of
from plica.rewrite.make import tabled
from plica.rewrite.packs import find_pack
from plica.rewrite.packs.canonical import InOrder, bound, bounds_together, clipped_twice, is_plain
from plica.rewrite.packs.word import op
from plica.rewrite.pattern import hole
from plica.rewrite.prove import Unproved, attempt
from plica.rewrite.prove.parameter import PARAMETRIC
from plica.rewrite.prove.solver import is_available

pytestmark = pytest.mark.skipif(not is_available("z3"), reason="z3 is not installed")

clip, relu, maximum, minimum, leaky = map(
    op, ["clip", "nn.relu", "maximum", "minimum", "nn.leaky_relu"]
)
x: Any = hole("x", dtypes=("f32", "i8"))
g, h = (hole(name, constant=True, rank=0) for name in "gh")
low, high, less, more = (hole(name, when=is_plain) for name in ("low", "high", "less", "more"))
free: Any = hole("free")


@pytest.mark.parametrize(
    "name", ["clip-of-relu", "relu-of-clip", "clip-at-zero-is-relu", "minimum-of-maximum-is-clip",
             "maximum-of-minimum-is-clip", "relu-of-minimum-is-clip", "subtract-constant-is-add"]
)  # fmt: skip
def test_shipped_rules_of_bounds_are_proved(name: str) -> None:
    verdict = attempt(next(rule for rule in find_pack("canonical") if rule.name == name))
    assert isinstance(verdict, Proved), verdict
    assert not verdict.laws


WRONG: dict[str, tuple[Any, ...]] = {
    "bounds of the second clip alone": (clip(clip(x, low, high), less, more), clip(x, less, more)),
    "clips exchanged": (
        clip(clip(x, low, high), less, more), clipped_twice(x, less, more, low, high),
    ),
    "bounds exchanged": (clip(relu(x), low, high), clipped_twice(x, low, high, 0, None)),
    "a bound that may be nan": (maximum(x, 0), clip(x, free, None)),
    "a relu that is lost": (relu(clip(x, low, high)), clip(x, low, high)),
    "bounds in any order": (maximum(minimum(x, g), h), clip(x, bound(h), bound(g))),
    "bounds in the other order": (
        maximum(minimum(x, g), h), clip(x, bound(h), bound(g)), InOrder("g", "h"),
    ),
    "a bound that may be negative": (relu(minimum(x, h)), clip(x, 0, bound(h))),
    "another slope": (leaky(x, free), leaky(x, less)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules_of_bounds_have_no_proof(name: str) -> None:
    left, right, *guard = WRONG[name]
    assert isinstance(
        attempt(tabled(name, left, right, when=guard[0] if guard else None)), Unproved
    )


@pytest.mark.parametrize("name", ["bounds in any order", "a bound that may be negative"])
def test_wrong_rules_of_bounds_are_refuted(name: str) -> None:
    left, right, *_ = WRONG[name]
    assert isinstance(check(tabled(name, left, right), 60), Refuted)


limits = st.one_of(st.none(), st.sampled_from([-math.inf, math.inf, -1.5, 0.0, 2.0]))


@settings(max_examples=100, deadline=None)
@given(limits, limits, limits, limits)
def test_bounds_of_two_clips(
    first: float | None, second: float | None, third: float | None, fourth: float | None
) -> None:
    values = const([-math.inf, -2.0, -0.0, 0.0, 1.0, 3.0, math.inf, math.nan], "f32")
    twice = value_of(clip(clip(values, first, second), third, fourth))
    once = value_of(clip(values, *bounds_together((first, second), (third, fourth))))
    np.testing.assert_array_equal(once, twice)


@given(st.floats(-4, 4, width=32), st.floats(-4, 4, width=32))
def test_parameters_are_numbers_of_the_definition(one: float, other: float) -> None:
    element = sc.ScalarVar(Name("element"), f32)
    of = buffer("operand0", (), f32)
    for name, (function, names) in PARAMETRIC.items():
        numbers = dict(zip(names, (one, other), strict=False))
        record = op(name)
        given_ = {each.name: numbers.get(each.name, each.default) for each in record.attributes}
        made = record.compute(given_, of)
        assert isinstance(made, Compute)
        literals = [sc.Lit(number, f32) for number in numbers.values()]
        load = sc.Load(of, ())
        body = map_bottom_up(partial(_swapped, load, element), made.body)
        assert function(element, *literals) is body


def _swapped(load: Term, element: Term, node: Term) -> Term:
    return element if node is load else node
