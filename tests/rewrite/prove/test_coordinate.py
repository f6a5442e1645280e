"""Proofs by coordinates: what holds along every axis is proved, what fails along some is not."""

from __future__ import annotations

from itertools import product
from typing import Any, Final

import pytest

from plica.core import Name
from plica.ir.contract import exact
from plica.ir.graph.expression import Var
from plica.ir.type import tensor
from plica.rewrite.check.run import check
from plica.rewrite.check.verdict import Proved, Refuted
from plica.rewrite.make import tabled
from plica.rewrite.match import plain
from plica.rewrite.packs import per_axis as words
from plica.rewrite.packs.composite import dims
from plica.rewrite.packs.per_axis import (
    AlongEachAxis,
    along,
    beside,
    differences,
    extent_along,
    extents,
    flipped_along,
    in_bounds,
    sums,
    widths,
)
from plica.rewrite.packs.word import f, op, x, y
from plica.rewrite.pattern import holes
from plica.rewrite.prove.coordinate import coordinate_proof
from plica.rewrite.prove.equality import CASES
from plica.rewrite.prove.open_tensor import Unprovable
from plica.rewrite.prove.run import attempt
from plica.rewrite.prove.solver import answer, is_available
from plica.rewrite.rule import Rule
from tests.rewrite.prove.xla_rules import (
    XLA,
    along_axes,
    cut_of,
    full,
    joined,
    padded,
    sliced,
    stretched,
)

VECTORS = Var(Name("x"), tensor((2, 3), "f32"))
pytestmark = pytest.mark.skipif(not is_available("z3"), reason="z3 is not installed")

a, i, j, k, r, t, u, axis, e = holes("a i j k r t u axis e")
flip, pad, concat = map(op, ["flip", "pad", "concat"])
INSIDE: Final = in_bounds(x, i, j)


def wrong(name: str, left: Any, right: Any, *relations: Any) -> Rule:
    return tabled(name, left, right, when=along_axes(x, *relations) if relations else None)


# fmt: off
# ruff: noqa: E501  # a rule is one line
WRONG: Final = (
    wrong("stop-not-moved", sliced(sliced(x, i, j), k, r), sliced(x, sums(i, k), r), *INSIDE, (0, "<=", k), (k, "<=", r), (r, "<=", differences(j, i))),
    wrong("no-guard",       sliced(joined(x, y), i, j),    sliced(x, i, j)),
    wrong("past-the-first", sliced(joined(x, y), i, j),    sliced(x, i, j), (0, "<=", i), (i, "<=", j), (j, "<=", sums(extents(x), extent_along(y, axis)))),
    wrong("stop-unbounded", sliced(x, i, j),               x, (i, "==", 0), (extents(x), "<=", j)),
    wrong("other-side",     joined(full(t, u, e), x),      pad(x, widths(differences(t, t), along(axis, t)), "constant", u), (0, "<=", t)),
    wrong("other-axes",     joined(full(t, u, e), x),      pad(x, widths(beside(axis, t), differences(t, t)), "constant", u), (0, "<=", t)),
    wrong("not-turned",     sliced(flip(x, a), i, j),      flip(sliced(x, i, j), a), *INSIDE),
    wrong("all-turned",     sliced(flip(x, a), i, j),      flip(sliced(x, flipped_along(a, differences(extents(x), i), i), flipped_along(a, differences(extents(x), j), j)), a), *INSIDE),
    wrong("other-order",    joined(x, y),                  joined(y, x), (extents(x), "==", extents(y))),
    wrong("other-axis",     concat((concat((x, y), axis=axis), concat((x, y), axis=axis)), axis=a),
                            concat((concat((x, y), axis=a), concat((x, y), axis=a)), axis=axis), (extents(x), "==", extents(y))),
    tabled("axes-added", sliced(op("broadcast_to")(x, t), i, j), op("broadcast_to")(sliced(x, stretched(x, 0, i), stretched(x, 1, j)), differences(j, i)), when=AlongEachAxis("t", cut_of(t, i, j))),
    wrong("not-stretched",  sliced(op("broadcast_to")(x, t), i, j), op("broadcast_to")(sliced(x, i, j), differences(j, i)), *cut_of(t, i, j)),
    wrong("not-whole",      sliced(op("broadcast_to")(x, t), i, j), op("broadcast_to")(x, differences(j, i)), *cut_of(t, i, j)),
    wrong("other-places",   op("broadcast_to")(op("iota")(t, axis, e), k), op("iota")(k, axis, e), (0, "<=", t), (0, "<=", k), (0, "<=", extents(x))),
    wrong("padded-scalar",  sliced(pad(x, t, "constant", u), i, j), op("full_like")(sliced(pad(x, t, "constant", u), i, j), u, None),
          (0, "<=", i), (i, "<=", j), (j, "<=", words.before(t)), (j, "<=", padded(x, t))),
)
# fmt: on


@pytest.mark.parametrize("rule", WRONG, ids=lambda rule: str(rule.name))
def test_a_wrong_rule_has_no_proof(rule: Rule) -> None:
    assert not isinstance(attempt(rule), Proved)


def test_what_is_wrong_from_rank_two_on_has_no_proof() -> None:
    rule = next(each for each in WRONG if each.name == "other-axis")
    with pytest.raises(Unprovable, match="at rank 2"):
        coordinate_proof(rule)


def test_what_is_wrong_at_rank_zero_alone_has_no_proof() -> None:
    rule = next(each for each in WRONG if each.name == "padded-scalar")
    with pytest.raises(Unprovable, match="at rank 0"):
        coordinate_proof(rule)


def test_a_derived_left_side_is_refused() -> None:
    rule = tabled("derived-left", sliced(x, i, sums(i, j)), sliced(x, i, sums(j, i)))
    with pytest.raises(Unprovable, match="the left side is derived"):
        coordinate_proof(rule)


def test_arithmetic_is_no_proof_of_bits() -> None:
    sides = sliced(f, i, j) + op("full_like")(sliced(f, i, j), 0, None), sliced(f, i, j)
    guard = along_axes(f, *in_bounds(f, i, j))
    assert not isinstance(attempt(tabled("bits", *sides, when=guard, float=exact)), Proved)


@pytest.mark.parametrize("number", [11, 25, 27, 51, 83, 105, 108, 112, 115])
def test_no_instance_refutes_what_is_proved(number: int) -> None:
    proof = coordinate_proof(XLA[number])
    assert all(answer(script) == "unsat" for script in proof.certificate)
    assert not isinstance(check(XLA[number], 12), Refuted)


def test_functions_of_numbers_have_their_meaning() -> None:
    for first, second in product([(0, 2), (3, 1)], repeat=2):
        pairs = list(zip(first, second, strict=True))
        assert plain(words.sums.compute(first, second)) == tuple(m + n for m, n in pairs)
        assert plain(words.differences.compute(first, second)) == tuple(m - n for m, n in pairs)
        assert plain(words.greatest.compute(first, second)) == tuple(max(p) for p in pairs)
        assert words.widths.compute(first, second) == tuple(pairs)
        assert plain(words.before.compute(tuple(pairs))) == first
        assert plain(words.behind.compute(tuple(pairs))) == second
        assert plain(words.along.compute(-1, first)) == (0, first[1])
        assert plain(words.beside.compute(1, first)) == (first[0], 0)
        assert plain(words.flipped_along.compute((0,), first, second)) == (first[0], second[1])


def test_numbers_of_another_rank_are_refused() -> None:
    for each in (words.sums, words.differences, words.greatest, words.widths):
        assert each.compute((1,), (1, 2)) is None
    assert words.before.compute(3) is None
    assert words.counts.compute((0,), (1,), (0,)) is None
    assert plain(words.counts.compute((0, 1), (5, 5), 2)) == (3, 2)
    assert plain(words.where_zero.compute((0, 1), 5, (6, 7))) == (5, 7)
    assert words.along.compute(2, (1, 2)) is None


def test_two_pads_are_one_whatever_their_widths_are() -> None:
    first, second = holes("first second")

    def twice(together: Any) -> Rule:
        whole = pad(pad(x, first, "constant", u), second, "constant", u)
        return tabled("pads", whole, pad(x, together, "constant", u))

    proved = (words.widths_together(first, second, x), words.widths_together(second, first, x))
    assert all(isinstance(attempt(twice(each)), Proved) for each in proved)
    assert not isinstance(attempt(twice(words.widths_together(first, first, x))), Proved)
    assert not isinstance(attempt(twice(first)), Proved)
    assert words.widths_together.compute(1, ((0, 2), (3, 0)), VECTORS) == ((1, 3), (4, 1))


def test_places_are_those_of_one_axis_shape_and_dtype() -> None:
    like, iota = op("iota_like"), op("iota")
    assert isinstance(attempt(tabled("places", like(x, a, e), iota(dims(x), a, e))), Proved)
    for right in (iota(dims(x), 0, e), iota(dims(x), a, "i32"), like(x, 1, e)):
        assert not isinstance(attempt(tabled("places", like(x, a, e), right)), Proved)


def test_a_choice_comes_out_of_what_is_computed_of_it() -> None:
    size, square = op("absolute"), op("square")
    verdict = attempt(tabled("sizes", square(size(x)), square(x)))
    assert isinstance(verdict, Proved)
    assert CASES in verdict.theorems
    assert not isinstance(attempt(tabled("sizes", size(x) * x, square(x))), Proved)
