"""Hoisting: what is made of constants alone is made before, and means what it did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.core.fold import map_bottom_up
from plica.core.name import Name
from plica.ir.graph.weight_array import ColumnwiseArray
from plica.ir.interpret.evaluate import evaluate
from plica.ir.loop.scalar import (
    And,
    Buffer,
    Cast,
    Le,
    Lit,
    Load,
    Lt,
    Scalar,
    ScalarVar,
    Select,
    index,
)
from plica.ir.loop.stage import Each, ExternStage, placeholder, stage
from plica.ir.loop.stages import Stages, compute_of, evaluate_stages, kernel_of, stages
from plica.ir.loop.tensor import axis, buffer, reduce
from plica.ir.type.dtype import DType, f32, i8, i32, i64
from plica.schedule.generate.stages import numbers
from plica.schedule.hoist import constants, hoist
from tests.schedule.begun import read_after

Array = np.ndarray[Any, Any]


@st.composite
def copies(draw: st.DrawFn) -> Each:
    """Elements in another order: affine places, strided, reversed, repeated, guarded or not."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    axes = [axis("i", number) for number in range(len(sizes))]
    places: list[Scalar] = []
    counts: list[int] = []
    tests: list[Scalar] = []
    guarded = draw(st.booleans())
    for _ in range(draw(st.integers(1, 3))):
        place: Scalar = index(0)
        low = high = 0
        for var in draw(st.lists(st.sampled_from(axes), max_size=2, unique=True)):
            factor = draw(st.sampled_from((1, 1, 2, 3, 4, -1, -2)))
            end = factor * (sizes[axes.index(var)] - 1)
            place, low, high = place + var * factor, low + min(0, end), high + max(0, end)
        start = draw(st.integers(0, 2)) - low
        if guarded:  # some places are outside, on either side
            start -= draw(st.integers(0, 3))
        place, low, high = place + start, low + start, high + start
        count = max(1, high + 1 + draw(st.integers(-3 if guarded else 0, 1)))
        places.append(place)
        counts.append(count)
        tests += [Le(index(0), place)] if low < 0 else []
        tests += [Lt(place, index(count))] if high >= count else []
    dtype: DType = draw(st.sampled_from((f32, i32, i8)))
    value: Scalar = Load(placeholder("w", counts, dtype), tuple(places))
    fill = Lit(draw(st.sampled_from((0, 0, 5))), dtype)
    joined = draw(st.booleans())
    if tests and joined:
        whole = tests[0]
        for each in tests[1:]:
            whole = And(whole, each)
        value = Select(whole, value, fill)
    else:
        for each in tests:
            value = Select(each, value, fill)
    return Each(placeholder("packed", sizes, dtype), tuple(axes), value)


@given(copies())
def test_a_strided_copy_is_what_the_stage_means(of: Each) -> None:
    weight = next(iter(compute_of(of).inputs))
    last = Each(placeholder("y", of.out.shape, of.out.dtype), of.axes, Load(of.out, of.axes))
    apart = hoist(stages((weight,), (of, last)), (True,))
    assert apart.before == (of,)
    values = numbers(1, tuple(compute_shape(weight)), weight.dtype)
    made = constants(apart, {0: values})[of.out]
    wanted = np.asarray(evaluate(compute_of(of), [values]))
    assert made.dtype == wanted.dtype
    assert made.flags.c_contiguous
    np.testing.assert_array_equal(made, wanted)


def tripled(parts: Array, into: Array) -> None:
    """Three rows of two: both of them, and their sum."""
    into[:2] = parts
    np.add(parts[0], parts[1], out=into[2])


@given(copies(), st.booleans())
def test_columns_are_made_where_they_are_wanted(of: Each, rows_first: bool) -> None:
    weight = next(iter(compute_of(of).inputs))
    row, size = axis("row", 0), index(3)
    sizes = (size, *of.out.shape) if rows_first else (*of.out.shape, size)
    axes = (row, *of.axes) if rows_first else (*of.axes, row)
    made = placeholder("made", (size, *weight.shape), weight.dtype)

    def with_row(load: Load) -> Load:
        return Load(made, (row, *load.indices))

    value = map_bottom_up(lambda e: with_row(e) if isinstance(e, Load) else e, of.value)
    assert isinstance(value, Scalar)
    packed = Each(placeholder("packed", sizes, weight.dtype), axes, value)
    last = Each(placeholder("y", sizes, weight.dtype), axes, Load(packed.out, axes))
    apart = hoist(stages((made,), (packed, last)), (True,))
    source = numbers(2, (2, *compute_shape(weight)), weight.dtype)
    columns = ColumnwiseArray("tripled", source, 3, tripled)
    found = constants(apart, {0: columns})[packed.out]
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, constants(apart, {0: columns.whole()})[packed.out])


def test_columns_that_are_summed_are_made_first() -> None:
    made, x = placeholder("made", (3, 4), f32), placeholder("x", (4,), f32)
    sums = stage("s", (4,), lambda i: reduce("sum", (3,), lambda k: made[k, i]))
    turned = stage("t", (4, 3), lambda i, k: made[k, i])
    last = stage("y", (4,), lambda i: sums[i] + x[i] + turned[i, 0])
    apart = hoist(stages((made, x), (sums, turned, last)), (True, False))
    columns = ColumnwiseArray("tripled", numbers(3, (2, 4), f32), 3, tripled)
    found = constants(apart, {0: columns})
    np.testing.assert_array_equal(found[turned.out], columns.whole().T)
    np.testing.assert_array_equal(found[sums.out], columns.whole().sum(0))


def compute_shape(of: Any) -> list[int]:
    return [size.value for size in of.shape]


def chain() -> Stages:
    """Two weights, one of which is packed twice over; the data is never known."""
    x, w = placeholder("x", (2, 3), f32), placeholder("w", (3, 4), f32)
    b = placeholder("b", (4,), f32)
    turned = stage("t", (4, 3), lambda i, j: w[j, i])
    sums = stage("s", (4,), lambda i: reduce("sum", (3,), lambda k: turned[i, k]))
    both = stage("u", (4,), lambda i: sums[i] + b[i])
    out = stage("y", (2, 4), lambda i, j: reduce("sum", (3,), lambda k: x[i, k] * turned[j, k]))
    last = stage("z", (2, 4), lambda i, j: out[i, j] + both[j])
    return stages((x, w, b), (turned, sums, both, out, last), (both.out, last.out))


@pytest.mark.parametrize("constant", [(x, w, b) for x in (0, 1) for w in (0, 1) for b in (0, 1)])
def test_whatever_is_known_means_the_same(constant: tuple[int, ...]) -> None:
    of, known = chain(), tuple(map(bool, constant))
    arrays = [numbers(seed, tuple(compute_shape(each)), f32) for seed, each in enumerate(of.inputs)]
    apart = hoist(of, known)
    found = evaluate_stages(apart.rest, read_after(of, known, arrays))
    np.testing.assert_array_equal(found, evaluate_stages(of, arrays))
    assert set(of.stages) == {*apart.before, *apart.rest.stages}
    assert apart.rest.result is of.result
    names = {str(each.out.name) for each in apart.before}
    data, weight, bias = known
    wanted = {"t": weight, "s": weight, "u": weight and bias, "y": data and weight}
    assert names == {name for name, is_before in wanted.items() if is_before}


def test_nothing_known_leaves_everything() -> None:
    of = chain()
    apart = hoist(of, (False, False, False))
    assert apart.rest is of
    assert apart.before == ()
    assert apart.reads == (0, 1, 2)
    assert constants(apart, {}) == {}


def test_the_result_is_never_made_before() -> None:
    w = placeholder("w", (3,), f32)
    of = stages((w,), (stage("y", (3,), lambda i: w[i] * 2),))
    apart = hoist(of, (True,))
    assert apart.before == ()
    assert apart.rest is of


def test_what_is_packed_takes_the_place_of_its_source() -> None:
    of = chain()
    apart = hoist(of, (False, True, False))
    turned, sums = of.made[:2]
    assert apart.reads == (0, turned, 2, sums)
    scratch = hoist(of, (False, True, True))
    assert scratch.rest.outputs == (of.result,)  # what was memory of the launch is an input now


def test_an_input_in_another_shape_is_seen_in_that_of_the_stages() -> None:
    w, x = placeholder("w", (2, 3), f32), placeholder("x", (3, 2), f32)
    turned = stage("t", (3, 2), lambda i, j: w[j, i])
    last = stage("y", (3, 2), lambda i, j: turned[i, j] + x[i, j])
    apart = hoist(stages((w, x), (turned, last)), (True, False))
    made = constants(apart, {0: np.arange(6, dtype=np.float32)})[turned.out]
    np.testing.assert_array_equal(made, np.arange(6).reshape(2, 3).T)


def test_what_is_no_copy_is_evaluated() -> None:
    w, x = placeholder("w", (6,), i32), placeholder("x", (6,), i32)
    narrow = stage("n", (6,), lambda i: Cast(w[i], i8))
    spread = stage("s", (6,), lambda i: w[i // 2 * 2])
    last = stage("y", (6,), lambda i: Cast(narrow[i], i32) + spread[i] + x[i])
    apart = hoist(stages((w, x), (narrow, spread, last)), (True, False))
    values = np.array([1, 200, -3, 4, 5, -129], np.int32)
    made = constants(apart, {0: values})
    assert made[narrow.out].tolist() == [1, -56, -3, 4, 5, 127]
    assert made[spread.out].tolist() == [1, 1, -3, -3, 5, 5]


def test_a_guard_about_something_else_is_no_border() -> None:
    w, x = placeholder("w", (4,), f32), placeholder("x", (4,), f32)
    odd = stage("o", (4,), lambda i: Select(Lt(index(0), i % 2), w[i], Lit(9, f32)))
    last = stage("y", (4,), lambda i: odd[i] + x[i])
    apart = hoist(stages((w, x), (odd, last)), (True, False))
    made = constants(apart, {0: np.arange(4, dtype=np.float32)})[odd.out]
    assert made.tolist() == [9, 1, 9, 3]


def test_statements_stay() -> None:
    w = buffer("w", (4,), f32)
    packed = stage("p", (4,), lambda i: w[3 - i])
    kernel = kernel_of(stages((packed.out,), (stage("y", (4,), lambda i: packed[i] * 2),)))
    result = kernel.params[-1]
    of = stages((w,), (packed, ExternStage((result,), kernel.body)))
    apart = hoist(of, (True,))
    assert apart.before == (packed,)
    assert apart.rest.stages == of.stages[1:]
    assert apart.rest.inputs == (packed.out,)


def test_names_are_no_matter() -> None:
    one, two = (ScalarVar(Name(name), i64) for name in "ij")
    w = placeholder("w", (4,), f32)
    a = Each(placeholder("t", (4,), f32), (one,), Load(w, (index(3) - one,)))
    b = Each(placeholder("t", (4,), f32), (two,), Load(w, (index(3) - two,)))
    values = np.arange(4, dtype=np.float32)
    for each in (a, b):
        last = stage("y", (4,), lambda i, each=each: each[i])
        (made,) = (constants(hoist(stages((w,), (each, last)), (True,)), {0: values})[each.out],)
        assert made.tolist() == [3, 2, 1, 0]


def test_registers_are_never_made_before() -> None:
    """What a thread holds is no memory that others could fill."""
    w = buffer("w", (4,), f32)
    i, held = axis("i"), Buffer(Name("own"), (index(4),), f32, "local")
    own = Each(held, (i,), w[i] * 2.0)
    last = stage("y", (4,), lambda j: held[j] + 1.0)
    assert hoist(stages((w,), (own, last)), (True,)).before == ()
