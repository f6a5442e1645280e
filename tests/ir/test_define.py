"""Define: kernels of blocks mean what the tensor expressions and operators they come from mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from plica.core.binding import free_vars
from plica.core.diagnostic import IllTyped
from plica.core.name import Name
from plica.ir.interpret.combine import combine
from plica.ir.interpret.evaluate import evaluate
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.combiner import Combine
from plica.ir.loop.define import define, defined
from plica.ir.loop.scalar import (
    And,
    Buffer,
    Cast,
    Eq,
    Le,
    Lit,
    Lt,
    Or,
    Reduce,
    Scalar,
    Select,
    index,
)
from plica.ir.loop.stage import Each, Scatter, extern, fold, placeholder, recurrence, stage
from plica.ir.loop.statement import Block, For, Kernel, Store, statements
from plica.ir.loop.tensor import Compute, axis, buffer, compute, reduce
from plica.ir.loop.verify import well_formed
from plica.ir.op import find, names
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32, i32, i64
from tests.codegen.native import assert_close, shape_of
from tests.conftest import Golden
from tests.ir.reference import CASES, attributes, run, types_of
from tests.strategies import arrays, computes

Array = np.ndarray[Any, Any]


def whole(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> Array:
    """Small whole numbers, so that sums of floats are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def labels(kernel: Kernel) -> list[str]:
    return [str(each.label) for each in statements(kernel.body) if isinstance(each, Block)]


# --- tensor expressions --------------------------------------------------------------------------


@given(st.data())
def test_the_kernel_means_what_the_expression_means(data: st.DataObject) -> None:
    of = data.draw(computes())
    assume(not free_vars(of))
    given_ = [data.draw(arrays(each.dtype, shape_of(each))) for each in of.inputs]
    kernel = defined(of)
    assert well_formed(kernel) == ()
    (found,) = run_kernel(kernel, given_)
    assert_close(found, np.asarray(evaluate(of, given_)))


def matmul(m: Any = 4, k: Any = 5, n: Any = 6) -> Compute:
    a, b = buffer("a", (m, k), f32), buffer("b", (k, n), f32)
    return compute((a, b), (m, n), lambda i, j: reduce("sum", (k,), lambda p: a[i, p] * b[p, j]))


def softmax() -> Compute:
    x = buffer("x", (2, 3), f32)
    return compute(
        (x,), (2, 3), lambda i, j: x[i, j] / (reduce("sum", (3,), lambda k: x[i, k]) + 1)
    )


def nested() -> Compute:
    x = buffer("x", (2, 3, 4), f32)

    def element(i: Scalar) -> Scalar:
        return reduce(
            "sum", (3,), lambda k: reduce("max", (4,), lambda m: x[i, k, m], "m") + x[i, k, 0]
        )

    return compute((x,), (2,), element)


def guarded() -> Compute:
    x = buffer("x", (4,), f32)

    def element(i: Scalar) -> Scalar:
        largest = reduce("max", (2,), lambda k: x[i + k])
        return Select(Lt(i, Lit(3, i64)), largest, x[i])

    return compute((x,), (4,), element)


def padded() -> Compute:
    x, w = buffer("x", (5,), f32), buffer("w", (3,), f32)

    def element(i: Scalar) -> Scalar:
        def term(k: Scalar) -> Scalar:
            at = i + k - 1
            inside = And(index(0) <= at, at < 5)
            return Select(inside, x[at], Lit(0, f32)) * w[k]

        return reduce("sum", (3,), term)

    return compute((x, w), (5,), element)


@pytest.mark.parametrize(
    "make", [matmul, softmax, nested, guarded, padded], ids=lambda f: f.__name__
)
def test_the_kernel_as_text(make: Any, golden: Golden) -> None:
    of = make()
    golden(show_kernel(defined(of)), f"define_{make.__name__}")
    given_ = [whole(shape_of(each)) for each in of.inputs]
    (found,) = run_kernel(defined(of), given_)
    np.testing.assert_array_equal(found, evaluate(of, given_))


def test_namesakes_of_two_sizes_are_kept_apart() -> None:
    x, i, k = buffer("x", (2, 3), f32), axis("i"), axis("k")
    row = Reduce("max", (axis("l"),), (Lit(2, i64),), x[axis("l"), k])
    short = Reduce("sum", (k,), (Lit(2, i64),), row)
    long = Reduce("sum", (k,), (Lit(3, i64),), row * row)
    of = Compute((x,), (i,), (Lit(4, i64),), short + long)
    given_ = [whole((2, 3))]
    np.testing.assert_array_equal(run_kernel(defined(of), given_)[0], evaluate(of, given_))


def test_a_reduction_under_two_guards_stays_in_place() -> None:
    x = buffer("x", (6,), f32)

    def element(i: Scalar) -> Scalar:
        pair = reduce("sum", (2,), lambda k: x[i + k])
        return Select(i < 2, pair, Select(Or(i < 4, i < 1), pair + 1, x[i]))

    of = compute((x,), (6,), element)
    given_ = [whole((6,))]
    assert labels(defined(of)) == ["out"]
    np.testing.assert_array_equal(run_kernel(defined(of), given_)[0], evaluate(of, given_))


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 4, 2), (7, 5, 3)])
def test_one_symbolic_kernel_serves_all_sizes(sizes: tuple[int, int, int]) -> None:
    kernel = defined(matmul(*map(dim_var, "mpn")))
    assert [str(each.name) for each in kernel.dims] == ["m", "p", "n"]
    m, k, n = sizes
    a, b = whole((m, k)), whole((k, n), seed=1)
    np.testing.assert_array_equal(run_kernel(kernel, (a, b))[0], a @ b)


@pytest.mark.parametrize("k", [0, 1, 3])
def test_reductions_of_nothing(k: int) -> None:
    a, b = whole((2, k)), whole((k, 2))
    kernel = defined(matmul(2, dim_var("p"), 2), empty=True)
    np.testing.assert_array_equal(run_kernel(kernel, (a, b))[0], a @ b)
    np.testing.assert_array_equal(run_kernel(defined(matmul(2, k, 2)), (a, b))[0], a @ b)


def test_several_results_in_one_kernel() -> None:
    x = buffer("x", (4,), f32)
    halves = (compute((x,), (2,), lambda i: x[i]), compute((x,), (2,), lambda i: x[i + 2]))
    one, two = run_kernel(defined(halves), (whole((4,)),))
    np.testing.assert_array_equal(np.concatenate((one, two)), whole((4,)))


ONE_TWO_THREE: Array = np.array([1, 2, 3], np.int32)

# --- stages --------------------------------------------------------------------------------------


def test_a_chain_of_stages_is_one_kernel(golden: Golden) -> None:
    n = dim_var("n")
    x = placeholder("x", (n, 3), i32)
    total = stage("total", (n,), lambda i: reduce("sum", (3,), lambda k: x[i, k]))
    twice = stage("twice", (n,), lambda i: total[i] * 2)
    rest = stage("rest", (n, 3), lambda i, j: x[i, j] - twice[i])
    kernel = define(total, twice, rest)
    golden(show_kernel(kernel), "define_chain")
    for size in (1, 4):
        given_ = whole((size, 3), np.int32)
        wanted = given_ - 2 * given_.sum(1, keepdims=True, dtype=np.int32)
        np.testing.assert_array_equal(run_kernel(kernel, (given_,))[0], wanted)


def test_any_stage_may_be_an_output() -> None:
    x = placeholder("x", (3,), i32)
    one = stage("one", (3,), lambda i: x[i] + 1)
    two = stage("two", (3,), lambda i: one[i] * 2)
    found = run_kernel(define(one, two, outputs=(one.out, two.out)), (ONE_TWO_THREE,))
    assert [each.tolist() for each in found] == [[2, 3, 4], [4, 6, 8]]


def greatest() -> Combine:
    def join(old: Any, new: Any) -> tuple[Scalar, ...]:
        first = Or(Lt(new[0], old[0]), And(Eq(old[0], new[0]), old[1] <= new[1]))
        return Select(first, old[0], new[0]), Select(first, old[1], new[1])

    return combine((f32, i64), (float("-inf"), 1 << 40), join)


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 9))
@settings(max_examples=8)
def test_argmax_is_a_fold_of_pairs(rows: int, columns: int, seed: int) -> None:
    x = placeholder("x", (dim_var("n"), dim_var("m")), f32)
    best = fold(
        ("best", "at"), (dim_var("n"),), (dim_var("m"),), greatest(), lambda i, k: (x[i, k], k)
    )
    given_ = whole((rows, columns), seed=seed)
    values, places = run_kernel(define(best), (given_,))
    np.testing.assert_array_equal(values, given_.max(1))
    np.testing.assert_array_equal(places, given_.argmax(1))


@pytest.mark.parametrize(
    ("law", "start", "join"),
    [
        ("the start", 1, lambda old, new: (old[0] + new[0],)),
        ("order", 0, lambda old, new: (new[0],)),
        ("grouping", 0, lambda old, new: ((old[0] + new[0]) // 2 * 2,)),
        ("order", 0, lambda old, new: (old[0] - new[0],)),
    ],
)
def test_a_combiner_that_breaks_a_law_is_refused(law: str, start: int, join: Any) -> None:
    with pytest.raises(IllTyped) as caught:
        combine((i32,), (start,), join)
    assert caught.value.code == "bad-combiner"


def test_scans_follow_their_rows() -> None:
    x = placeholder("x", (dim_var("n"), 3), i32)
    sums = recurrence(
        "sums", (dim_var("n"), 3), lambda t, i: x[t, i], lambda rows, t, i: rows[t - 1, i] + x[t, i]
    )
    given_ = whole((5, 3), np.int32)
    wanted = np.cumsum(given_, 0, dtype=np.int32)
    np.testing.assert_array_equal(run_kernel(define(sums), (given_,))[0], wanted)
    pairs = recurrence(
        "pairs", (6,), lambda t: Cast(t, i32), lambda r, t: r[t - 1] + r[t - 2], count=2
    )
    assert run_kernel(define(pairs), ())[0].tolist() == [0, 1, 1, 2, 3, 5]


def test_a_recurrent_network_is_a_scan() -> None:
    x, w = placeholder("x", (4, 3), i32), placeholder("w", (3, 3), i32)

    def step(rows: Any, t: Scalar, j: Scalar) -> Scalar:
        return x[t, j] + reduce("sum", (3,), lambda k: rows[t - 1, k] * w[k, j])

    state = recurrence("state", (4, 3), lambda t, j: x[t, j], step)
    given_, weight = whole((4, 3), np.int32), whole((3, 3), np.int32, 1)
    wanted = [given_[0]]
    for row in given_[1:]:
        wanted.append(row + wanted[-1] @ weight)
    np.testing.assert_array_equal(run_kernel(define(state), (given_, weight))[0], np.stack(wanted))


@given(st.lists(st.integers(-3, 6), max_size=8), st.booleans())
def test_terms_of_a_scatter_are_stored_in_their_order(places: list[int], adds: bool) -> None:
    at, x = placeholder("at", (len(places),), i64), placeholder("x", (len(places), 3), i32)
    out, i, j, k, w = buffer("out", (4, 3), i32), *(axis(name) for name in "ijkw")
    inside = And(Le(index(0), at[k]), Lt(at[k], index(4)))
    sizes, value = (index(len(places)), index(3)), out[at[k], w] * 2 + x[k, w]
    made = Scatter(
        out, (i, j), Cast(i, i32), (k, w), sizes, inside, (at[k], w), value if adds else x[k, w]
    )
    rows = whole((len(places), 3), np.int32)
    wanted = np.repeat(np.arange(4, dtype=np.int32)[:, None], 3, axis=1)
    for place, row in zip(places, rows, strict=True):
        if 0 <= place < 4:
            wanted[place] = wanted[place] * 2 + row if adds else row
    found = run_kernel(define(made, inputs=(at, x)), (np.array(places, np.int64), rows))
    np.testing.assert_array_equal(found[0], wanted)


def test_statements_of_ones_own_are_one_block() -> None:
    x = placeholder("x", (3,), i32)
    y, i = buffer("y", (3,), i32), axis("i")
    turned = extern((y,), lambda out: For(i, out.shape[0], "serial", Store(out, (i,), x[2 - i])))
    more = stage("more", (3,), lambda at: y[at] + 1)
    assert run_kernel(define(turned, more), (ONE_TWO_THREE,))[0].tolist() == [4, 3, 2]


# --- operators -----------------------------------------------------------------------------------


EXPRESSIONS = [
    name for name in names() if (found := find(name)) is not None and found.compute is not None
]
"""Operators that are a tensor expression; others are made of those, or are procedures."""


@pytest.mark.parametrize("name", EXPRESSIONS)
@settings(max_examples=max(1, settings().max_examples // 25))
@given(data=st.data())
def test_every_operator_is_a_kernel(name: str, data: st.DataObject) -> None:
    record, case = find(name), data.draw(CASES[name])
    assert record is not None
    assert record.compute is not None
    assume(sum(each.size for each in case.args) < 400)
    wanted = run(record, case.args, case.attrs)
    assume(wanted and sum(each.size for each in wanted) < 400)
    given_ = [
        Buffer(Name("x", at), each.shape, each.dtype) for at, each in enumerate(types_of(case.args))
    ]
    found = record.compute(attributes(record, case.attrs), *given_)
    made = [
        Each(Buffer(Name("y", at), each.shape, each.dtype), each.axes, each.body)
        for at, each in enumerate((found,) if isinstance(found, Compute) else found)
    ]
    kernel = define(*made, inputs=given_, outputs=[each.out for each in made])
    assert well_formed(kernel) == ()
    for ours, theirs in zip(run_kernel(kernel, case.args), wanted, strict=True):
        assert_close(ours, theirs)
