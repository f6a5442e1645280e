"""Evaluation: guards, bounds, order, depth, and agreement with one element at a time."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_array_equal

from plica.core.diagnostic import CompilerBug, EvaluationError
from plica.ir.graph.weight_array import chunks
from plica.ir.interpret import tape
from plica.ir.interpret.array_arithmetic import cast
from plica.ir.interpret.evaluate import at_once, evaluate, in_pieces, prepare
from plica.ir.loop.scalar import (
    And,
    Combiner,
    Intrinsic,
    Le,
    Lt,
    Or,
    Reduce,
    Scalar,
    Select,
    index,
    lit,
)
from plica.ir.loop.tensor import Compute, axis, buffer, compute, reduce
from plica.ir.op import find
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import DTYPES, bf16, dtype, f16, f32, f64, i8, i64, u8, u64
from tests.ir.reference import array, run

Array = np.ndarray[Any, Any]
X = buffer("x", (3,), f32)
THREE = np.array([1, 2, 3], np.float32)


def outside(made: Compute, *arrays: Array) -> EvaluationError:
    with pytest.raises(EvaluationError) as caught:
        evaluate(made, arrays)
    assert caught.value.code == "index-out-of-bounds"
    return caught.value


# --- guards and bounds ---------------------------------------------------------------------------


def test_a_load_behind_a_false_guard_does_not_happen() -> None:
    made = compute((X,), (5,), lambda i: Select(Lt(i, index(3)), X[i], lit(0, f32)))
    assert evaluate(made, [THREE]).tolist() == [1, 2, 3, 0, 0]


def test_a_load_outside_is_an_error_that_names_its_place() -> None:
    error = outside(compute((X,), (2, 2), lambda i, j: X[i + j + 1]), THREE)
    assert "(1, 1)" in str(error)
    assert "x" in str(error)
    assert "(3,)" in str(error)


@pytest.mark.parametrize("start", [-1, 1])
def test_both_ends_are_checked(start: int) -> None:
    outside(compute((X,), (3,), lambda i: X[i + start]), THREE)


def test_and_and_or_guard_their_right_side() -> None:
    inside = compute((X,), (5,), lambda i: And(Lt(i, index(3)), Lt(lit(1, f32), X[i])))
    assert evaluate(inside, [THREE]).tolist() == [False, True, True, False, False]
    either = compute((X,), (5,), lambda i: Or(Le(index(3), i), Lt(lit(1, f32), X[i])))
    assert evaluate(either, [THREE]).tolist() == [False, True, True, True, True]
    outside(compute((X,), (5,), lambda i: And(Lt(lit(1, f32), X[i]), Lt(i, index(3)))), THREE)


def test_the_chosen_side_is_still_checked() -> None:
    outside(compute((X,), (5,), lambda i: Select(Lt(index(2), i), X[i], lit(0, f32))), THREE)
    outside(compute((X,), (5,), lambda i: Select(Lt(X[i], lit(0, f32)), X[i], X[i])), THREE)


def test_guards_hold_inside_reductions() -> None:
    def window(i: Scalar) -> Scalar:
        return reduce("sum", (3,), lambda k: _padded(i + k - 1))

    assert evaluate(compute((X,), (3,), window), [THREE]).tolist() == [3, 6, 5]
    outside(compute((X,), (3,), lambda i: reduce("sum", (3,), lambda k: X[i + k - 1])), THREE)


def _padded(at: Scalar) -> Scalar:
    return Select(And(Le(index(0), at), Lt(at, index(3))), X[at], lit(0, f32))


def test_a_reduction_over_nothing_looks_at_nothing() -> None:
    made = compute((X,), (2,), lambda i: reduce("max", (0,), lambda k: X[i + 7]))
    assert evaluate(made, [THREE]).tolist() == [-math.inf, -math.inf]


def test_a_reduction_behind_a_guard_is_not_looked_at() -> None:
    made = compute(
        (X,),
        (4,),
        lambda i: Select(Lt(i, index(3)), reduce("sum", (1,), lambda k: X[i + k]), lit(9, f32)),
    )
    assert evaluate(made, [THREE]).tolist() == [1, 2, 3, 9]


def test_loads_from_an_empty_buffer() -> None:
    empty = buffer("e", (0,), f32)
    made = compute((empty,), (2,), lambda i: Select(Lt(i, index(0)), empty[i], lit(1, f32)))
    assert evaluate(made, [np.zeros(0, np.float32)]).tolist() == [1, 1]
    outside(compute((empty,), (2,), lambda i: empty[i]), np.zeros(0, np.float32))


def test_an_empty_result_reads_nothing() -> None:
    made = compute((X,), (0,), lambda i: X[i + 7])
    assert evaluate(made, [THREE]).shape == (0,)


def test_indices_that_are_elements_are_checked() -> None:
    take = find("take")
    assert take is not None
    with pytest.raises(EvaluationError) as caught:
        run(take, (THREE, np.array([0, 3])), {})
    assert caught.value.code == "index-out-of-bounds"


# --- agreement with one element at a time --------------------------------------------------------


@given(
    st.lists(st.integers(-2, 2), min_size=3, max_size=3),
    st.integers(-3, 3),
    st.tuples(*[st.integers(1, 4)] * 3),
    st.integers(1, 9),
    st.sampled_from(["sum", "max", "min", "prod"]),
)
def test_affine_stencils(
    factors: list[int], start: int, extents: tuple[int, ...], size: int, combiner: Any
) -> None:
    x = buffer("x", (size,), i64)
    values = np.arange(size) ** 2 + 1
    rows, columns, depth = extents

    def element(i: Scalar, j: Scalar) -> Scalar:
        def term(k: Scalar) -> Scalar:
            at = i * factors[0] + j * factors[1] + k * factors[2] + start
            inside = And(Le(index(0), at), Lt(at, index(size)))
            return Select(inside, x[at], index(1))

        return reduce(combiner, (depth,), term)

    combine: Any = {"sum": sum, "max": max, "min": min, "prod": math.prod}[combiner]
    wanted = []
    for i, j in itertools.product(range(rows), range(columns)):
        places = [i * factors[0] + j * factors[1] + k * factors[2] + start for k in range(depth)]
        wanted.append(combine([int(values[p]) if 0 <= p < size else 1 for p in places]))
    found = evaluate(compute((x,), (rows, columns), element), [values])
    assert found.ravel().tolist() == wanted


@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(0, 40), st.integers(1, 3)),
        elements=st.floats(-1e3, 1e3, width=32),
    )
)
def test_a_sum_goes_in_order_whatever_the_chunks(values: Array) -> None:
    rows, columns = values.shape
    x = buffer("x", values.shape, f32)
    made = compute((x,), (columns,), lambda j: reduce("sum", (rows, 1), lambda k, _: x[k, j]))
    total = np.zeros(columns, np.float32)
    for row in values:
        total = total + row
    assert evaluate(made, [values]).tobytes() == total.tobytes()


def test_chunks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(7, 11)).astype(np.float32)
    b = rng.normal(size=(11, 80)).astype(np.float32)
    matmul = find("matmul")
    assert matmul is not None
    results = []
    for size in (1, 100, 1000, 1 << 21):
        monkeypatch.setattr(tape, "CHUNK", size)
        prepare.cache_clear()
        results.append(run(matmul, (a, b), {})[0].tobytes())
    prepare.cache_clear()
    assert len(set(results)) == 1


def test_reductions_may_be_nested_and_share_names() -> None:
    x = buffer("x", (2, 3), f32)
    made = compute(
        (x,),
        (2,),
        lambda i: reduce("sum", (3,), lambda k: x[i, k] * reduce("max", (3,), lambda k: x[i, k])),
    )
    values = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    assert evaluate(made, [values]).tolist() == [18, 90]
    inner = compute(
        (x,),
        (),
        lambda: reduce("sum", (2,), lambda i: reduce("max", (3,), lambda k: x[i, k], "l"), "m"),
    )
    assert evaluate(inner, [values]) == 9


# --- sizes, arrays, dtypes -----------------------------------------------------------------------


def test_symbolic_sizes_come_from_arrays_or_are_given() -> None:
    n, m = dim_var("n"), dim_var("m")
    x = buffer("x", (n,), f32)
    made = compute((x,), (2 * n, m), lambda i, j: x[i // 2])
    assert evaluate(made, [THREE], {m: 2}).shape == (6, 2)
    with pytest.raises(CompilerBug, match="unknown"):
        evaluate(made, [THREE])


def test_arrays_of_another_shape_or_dtype_are_a_bug() -> None:
    made = compute((X,), (3,), lambda i: X[i])
    for wrong in (np.zeros(4, np.float32), np.zeros(3, np.float64)):
        with pytest.raises(CompilerBug):
            evaluate(made, [wrong])


def test_an_unbound_variable_is_a_bug() -> None:
    with pytest.raises(CompilerBug, match="does not bind"):
        prepare(Compute((X,), (), (), X[dim_var("stray")]))


def test_the_result_is_new_and_contiguous() -> None:
    x = buffer("x", (2, 3), f32)
    given_ = np.arange(12, dtype=np.float32).reshape(4, 3)[::2]
    same = evaluate(compute((x,), (2, 3), lambda i, j: x[i, j]), [given_])
    turned = evaluate(compute((x,), (3, 2), lambda i, j: x[j, i]), [given_])
    assert same.tolist() == given_.tolist()
    assert turned.tolist() == given_.T.tolist()
    for each in (same, turned):
        assert not np.shares_memory(each, given_)
        assert each.flags.c_contiguous
        assert each.flags.writeable


@pytest.mark.parametrize("of", DTYPES, ids=str)
def test_views_work_for_every_dtype(of: Any) -> None:
    x = buffer("x", (2, 3), of)
    values = np.arange(6).reshape(2, 3).astype(of.numpy)
    found = evaluate(compute((x,), (3, 2), lambda i, j: x[1 - j, 2 - i]), [values])
    assert found.tolist() == values[::-1, ::-1].T.tolist()
    assert found.dtype == of.numpy


@given(st.data())
def test_casts_obey_the_law(data: st.DataObject) -> None:
    source, target = (data.draw(st.sampled_from(DTYPES)) for _ in range(2))
    values = data.draw(array(source, (6,), wild=True))
    with np.errstate(all="ignore"):
        found = cast(values, target)
    for before, after in zip(values, found, strict=True):
        number = before.item() if not source.is_float else float(before)
        if target.name == "bool":
            wanted: Any = number != 0
        elif target.is_float:
            with np.errstate(all="ignore"):
                wanted = float(np.asarray(before).astype(target.numpy))
        elif source.is_float:
            low, high = target.bounds
            whole = 0 if math.isnan(number) else number
            wanted = min(max(whole, low), high) if math.isinf(whole) else int(whole)
            wanted = min(max(wanted, low), high)
        else:
            low, high = target.bounds
            wanted = (int(number) - low) % (high - low + 1) + low
        assert (after == wanted) or (math.isnan(after) and math.isnan(wanted))


def test_casts_at_the_edge() -> None:
    top = np.array([2.0**63, -(2.0**63), 2.0**64, np.nan, -0.9])
    with np.errstate(all="ignore"):
        assert cast(top, i64).tolist() == [2**63 - 1, -(2**63), 2**63 - 1, 0, 0]
        assert cast(top, u64).tolist() == [2**63, 0, 2**64 - 1, 0, 0]
        assert cast(np.array([65504, np.inf], np.float16), u8).tolist() == [255, 255]
        assert dtype(cast(top, bf16).dtype) is bf16


def test_no_warning_escapes() -> None:
    x = buffer("x", (4,), f16)
    values = np.array([np.nan, 65504, -1, 0], np.float16)
    made = compute(
        (x,), (4,), lambda i: Intrinsic("log", (x[i],)) / (x[i] * x[i]) + Intrinsic("exp", (x[i],))
    )
    y = buffer("y", (2,), i8)
    wrapped = compute((y,), (2,), lambda i: y[i] // (y[i] - y[i]) + y[i] * y[i])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(made, [values])
        assert evaluate(wrapped, [np.array([-128, 100], np.int8)]).tolist() == [0, 16]
        assert evaluate(compute((), (), lambda: lit(127, i8) + lit(1, i8)), []) == -128


# --- depth and sharing ---------------------------------------------------------------------------


def test_a_deep_term() -> None:
    term: Scalar = X[index(0)]
    for _ in range(20_000):
        term = term + 1
    assert evaluate(Compute((X,), (), (), term), [THREE]) == 20_001


def test_deeply_nested_reductions_are_refused() -> None:
    axes = [axis("k", level) for level in range(100)]
    body: Scalar = index(0)
    for each in axes:
        body = body + each
    for each in axes:
        body = Reduce("sum", (each,), (index(1),), body)
    with pytest.raises(EvaluationError) as caught:
        evaluate(Compute((), (), (), body), [])
    assert caught.value.code == "unsupported"


def test_a_doubling_term() -> None:
    x = buffer("x", (), f64)
    term: Scalar = x[()]
    for _ in range(60):
        term = term + term
    assert evaluate(Compute((x,), (), (), term), [np.array(1.0)]) == 2.0**60


def test_a_doubling_term_of_guarded_loads() -> None:
    """Each level is needed under two guards: still each is evaluated once."""

    def element(i: Scalar) -> Scalar:
        term = X[i]
        for _ in range(60):
            term = Select(Lt(i, index(3)), term, term + term)
        return Select(Lt(i, index(3)), term, lit(0, f32))

    assert evaluate(compute((X,), (5,), element), [THREE]).tolist() == [1, 2, 3, 0, 0]


# --- pieces --------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=3),
    st.integers(1, 4),
    st.sampled_from(["sum", "max"]),
    st.integers(1, 30),
)
def test_pieces_are_the_whole_bit_for_bit(
    shape: list[int], depth: int, combiner: Combiner, piece: int
) -> None:
    x, w = buffer("x", (*shape, depth), f32), buffer("w", (shape[-1],), f32)

    def element(*i: Scalar) -> Scalar:
        return reduce(combiner, (depth,), lambda k: x[(*i, k)] * w[i[-1]]) + w[i[-1]]

    made = compute((x, w), tuple(shape), element)
    random = np.random.default_rng(0)
    sizes = ((*shape, depth), (shape[-1],))
    arrays = [random.standard_normal(size).astype(np.float32) for size in sizes]
    whole = at_once(made, tuple(shape))(arrays)
    boxes = list(chunks(shape, piece))
    if len(boxes) > 1:
        assert_array_equal(in_pieces(made, tuple(shape), boxes)(arrays), whole, strict=True)
