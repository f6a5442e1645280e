"""Kernels as native code: every scalar operation at its edges, guards, checks, deep bodies."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from plica.codegen.llvm import toolchain
from plica.codegen.llvm.fold import emit
from plica.codegen.target import Target
from plica.core.binding import free_vars
from plica.core.diagnostic import CompilerBug, EvaluationError
from plica.core.fold import post_order
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.interpret.array_arithmetic import cast as meant_cast
from plica.ir.interpret.evaluate import evaluate
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import (
    BINARY,
    COMPARISON,
    UNARY_FLOAT,
    And,
    Buffer,
    Cast,
    Div,
    Eq,
    FloorMod,
    Intrinsic,
    Le,
    Lit,
    Load,
    Lt,
    Not,
    Or,
    Pow,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    ShiftLeft,
    ShiftRight,
    dtype_of,
)
from plica.ir.loop.statement import For, Kernel, Store
from plica.ir.loop.tensor import axis, buffer, compute, reduce
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import (
    COMPUTED,
    DTYPES,
    DType,
    bool_,
    f4e2m1fn,
    f16,
    f32,
    f64,
    i8,
    i32,
    i64,
)
from tests.codegen.native import (
    PRECISION,
    assert_close,
    assert_same,
    native,
    native_all,
    native_kernel,
    shape_of,
)
from tests.codegen.nests import nest
from tests.deep import spread
from tests.strategies import arrays, computes, kernels

STORED = [each for each in DTYPES if each.is_storage]

Array = np.ndarray[Any, Any]

LIBRARY = frozenset(UNARY_FLOAT) - {
    "sqrt",
    "rsqrt",
    "floor",
    "ceil",
    "round",
    "trunc",
    "abs",
    "sign",
}
"""Functions of which numpy and the C library round differently in the last places."""


def is_exact(term: Term) -> bool:
    """Whether every operation in a term is correctly rounded everywhere."""
    for node in post_order(term):
        if isinstance(node, Intrinsic) and (node.name in LIBRARY or node.name == "atan2"):
            return False
        if isinstance(node, Pow) and dtype_of(node).is_float:
            return False
    return True


@given(st.data())
def test_tensor_expressions_compute_what_they_mean(data: st.DataObject) -> None:
    of = data.draw(computes())
    assume(is_exact(of) and not free_vars(of))
    given_ = [data.draw(arrays(each.dtype, shape_of(each))) for each in of.inputs]
    assert_same(native(of, *given_), np.asarray(evaluate(of, given_)))


@given(st.data())
def test_kernels_compute_what_they_mean(data: st.DataObject) -> None:
    of = data.draw(kernels())
    assume(is_exact(of) and not free_vars(of))
    given_ = [data.draw(arrays(each.dtype, shape_of(each))) for each in of.params[: of.inputs]]
    try:
        expected = run_kernel(of, given_)
    except EvaluationError:  # an output is written only in part: the kernel means nothing
        assume(False)
    code, found = native_kernel(of, given_)
    assert code == 0
    for ours, meant in zip(found, expected, strict=True):
        assert_same(ours, meant)


def edges(of: DType) -> Array:
    """Values at which an operation on a dtype might go wrong."""
    if of is bool_:
        return np.array([False, True])
    if of.is_integer:
        low, high = of.bounds
        some = [low, low + 1, high, high - 1, 0, 1, 2, 3, 5, 7, of.bits - 1, of.bits, of.bits + 1]
        some += [-1, -2, -3, -7] if low else []
        return np.array(some, of.numpy)
    bits, top = PRECISION[of.name]
    tiny, greatest = 2.0 ** (1 - top), (2 - 2.0 ** (1 - bits)) * 2.0**top
    floats = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0, 100.0, 1.1, 0.3]
    floats += [greatest, tiny, tiny * 2.0 ** (1 - bits), float("inf")]
    return np.array([*floats, *(-each for each in floats), float("nan")]).astype(of.numpy)


def admits(kind: type[Scalar], of: DType) -> bool:
    """Whether an operation has a meaning for a dtype."""
    if kind is Div:
        return of.is_float
    if kind in (ShiftLeft, ShiftRight):
        return of.is_integer
    if kind.__name__.startswith("Bit"):
        return not of.is_float
    return of is not bool_ or kind in (And, Or, *COMPARISON)


@pytest.mark.parametrize("of", COMPUTED, ids=str)
def test_operations_at_the_edges(of: DType) -> None:
    """All pairs of edge values, all operations of a dtype: equal to the bit where defined so."""
    values = edges(of)
    left, right = map(np.array, zip(*itertools.product(values, values), strict=True))
    left, right = left.astype(of.numpy), right.astype(of.numpy)
    count = len(left)
    x, y = buffer("x", (count,), of), buffer("y", (count,), of)
    logical = (And, Or) if of is bool_ else ()
    kinds = [kind for kind in (*BINARY, *COMPARISON, *logical) if admits(kind, of)]
    wholes = [compute((x, y), (count,), lambda i, kind=kind: kind(x[i], y[i])) for kind in kinds]
    for kind, whole, found in zip(kinds, wholes, native_all(wholes, left, right), strict=True):
        expected = evaluate(whole, (left, right))
        (assert_close if kind is Pow and of.is_float else assert_same)(found, expected)


@pytest.mark.parametrize("of", [*COMPUTED, *spread(STORED, 4)], ids=str)
def test_casts_at_the_edges(of: DType) -> None:
    values = edges(of)
    with np.errstate(all="ignore"):
        if of.is_float:
            values = np.concatenate([values, edges(f64).astype(of.numpy)])
        expected = [meant_cast(values, to) for to in DTYPES]
    x = buffer("x", (len(values),), of)
    wholes = [compute((x,), (len(values),), lambda i, to=to: Cast(x[i], to)) for to in DTYPES]
    for found, meant in zip(native_all(wholes, values), expected, strict=True):
        assert_same(found, meant)


@pytest.mark.parametrize(
    "of",
    [
        *[each for each in COMPUTED if each.is_float],
        *spread([each for each in STORED if each.is_float], 2),
    ],
    ids=str,
)
def test_functions_of_the_library(of: DType) -> None:
    grid = np.linspace(-4, 4, 81).astype(of.numpy)
    values = np.concatenate([edges(of), grid])
    x = buffer("x", (len(values),), of)
    wholes = [
        compute((x,), (len(values),), lambda i, name=name: Intrinsic(name, (x[i],)))
        for name in UNARY_FLOAT
    ]
    # Far from zero the library's own argument reduction decides: compare near it.
    near = abs(values.astype(np.float64)) <= 100
    if of.numpy == f4e2m1fn.numpy:  # nan becomes a zero here, of a sign that processors differ in
        near &= values.astype(np.float64) > 0
    for name, whole, found in zip(UNARY_FLOAT, wholes, native_all(wholes, values), strict=True):
        expected = evaluate(whole, (values,))
        (assert_close if name in LIBRARY else assert_same)(found[near], expected[near])


def test_signs_and_absolute_values_of_integers() -> None:
    for of in COMPUTED:
        if of.is_integer:
            values = edges(of)
            x = buffer("x", (len(values),), of)
            wholes = [
                compute((x,), (len(values),), lambda i, n=name, x=x: Intrinsic(n, (x[i],)))
                for name in ("abs", "sign")
            ]
            for whole, found in zip(wholes, native_all(wholes, values), strict=True):
                assert_same(found, evaluate(whole, (values,)))


@pytest.mark.skipif(toolchain.host().architecture != "x86_64", reason="needs an x86-64")
@pytest.mark.parametrize("features", [(), ("+f16c", "+avx")], ids=["bits", "machine"])
def test_every_f16_and_its_rounding(features: tuple[str, ...]) -> None:
    """The conversions written out bit by bit agree with those of the machine, and with numpy."""
    host = toolchain.host()
    assert not features or host.has_half or pytest.skip("this machine has no f16c")
    target = Target("cpu", host.triple, "x86-64", features)
    assert target.has_half == bool(features)
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    x = buffer("x", (2**16,), f16)
    widened = native(compute((x,), (2**16,), lambda i: Cast(x[i], f32)), every, target=target)
    assert_same(widened, every.astype(np.float32))
    random = np.random.default_rng(0)
    wide = random.integers(0, 2**32, 2**16, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        halfway = (np.nextafter(every, np.float16(np.inf)).astype(np.float32) + every) / 2
        for values, of in ((wide, f32), (halfway, f32), (wide.astype(np.float64) * 1.0001, f64)):
            y = buffer("y", (2**16,), of)
            whole = compute((y,), (2**16,), lambda i, y=y: Cast(y[i], f16))
            assert_same(native(whole, values, target=target), values.astype(np.float16))


def test_a_guarded_load_never_happens() -> None:
    x = buffer("x", (3,), f32)

    def element(i: Scalar) -> Scalar:
        inside = And(Le(Lit(0, i64), i - 2), Lt(i - 2, Lit(3, i64)))
        return Select(inside, x[i - 2], Lit(-1.0, f32))

    values = np.array([1, 2, 3], np.float32)
    found = native(compute((x,), (7,), element), values)
    assert found.tolist() == [-1, -1, 1, 2, 3, -1, -1]
    # Guards that prove it leave nothing to check.
    assert not emit(nest(compute((x,), (7,), element)), "k").can_fail


def test_a_guard_that_does_not_protect_is_found_out() -> None:
    x = buffer("x", (3,), f32)
    whole = compute((x,), (5,), lambda i: Select(Lt(i, Lit(4, i64)), x[i], Lit(0, f32)))
    code, _ = native_kernel(nest(whole), [np.zeros(3, np.float32)])
    assert code == 1
    with pytest.raises(EvaluationError):
        evaluate(whole, [np.zeros(3, np.float32)])


@pytest.mark.parametrize(("picked", "code"), [((0, 2), 0), ((0, 3), 1), ((-1, 0), 1)])
def test_indices_from_data_are_checked(picked: tuple[int, ...], code: int) -> None:
    x, at = buffer("x", (3,), f32), buffer("at", (2,), i64)
    whole = compute((x, at), (2,), lambda i: x[at[i]])
    found, (made,) = native_kernel(
        nest(whole), [np.array([5, 6, 7], np.float32), np.array(picked, np.int64)]
    )
    assert found == code
    if code == 0:
        assert made.tolist() == [5, 7]


def test_a_check_behind_a_false_guard_does_not_count() -> None:
    x, at, on = buffer("x", (3,), f32), buffer("at", (4,), i64), buffer("on", (4,), bool_)
    lazy = [
        Select(on[axis("i")], x[at[axis("i")]], Lit(0, f32)),
        Select(Not(on[axis("i")]), Lit(0, f32), x[at[axis("i")]]),
        Cast(And(on[axis("i")], Lt(Lit(0, f32), x[at[axis("i")]])), f32),
        Cast(Or(Not(on[axis("i")]), Lt(Lit(0, f32), x[at[axis("i")]])), f32),
    ]
    values = np.array([1, 2, 3], np.float32)
    for body in lazy:
        whole = compute((x, at, on), (4,), lambda i: body)  # noqa: B023  # used at once
        fine = [np.array([0, 9, 2, -5]), np.array([True, False, True, False])]
        bad = [np.array([0, 9, 2, -5]), np.array([True, False, True, True])]
        assert native_kernel(nest(whole), [values, *fine])[0] == 0
        assert native_kernel(nest(whole), [values, *bad])[0] == 1


def test_reductions_behind_guards_and_inside_each_other() -> None:
    x = buffer("x", (3, 4), f32)
    values = np.arange(12, dtype=np.float32).reshape(3, 4)

    def rows(i: Scalar) -> Scalar:
        inner = reduce("max", (4,), lambda k: x[i - 1, k])
        return Select(Lt(Lit(0, i64), i), inner, Lit(-1, f32))

    whole = compute((x,), (4,), rows)
    assert native(whole, values).tolist() == [-1, 3, 7, 11]
    assert run_kernel(nest(whole), [values])[0].tolist() == [-1, 3, 7, 11]

    def nested() -> Scalar:
        return reduce(
            "max", (3,), lambda k: reduce("sum", (4,), lambda m: x[k, m], name="m"), name="k"
        )

    assert native(compute((x,), (), nested), values) == 38


def test_nothing_to_read_and_nothing_to_write() -> None:
    empty = buffer("x", (0, 3), f32)
    nothing = np.zeros((0, 3), np.float32)
    total = compute((empty,), (3,), lambda j: reduce("sum", (0,), lambda k: empty[k, j]))
    assert native(total, nothing).tolist() == [0, 0, 0]
    least = compute((empty,), (3,), lambda j: reduce("min", (0,), lambda k: empty[k, j]))
    assert native(least, nothing).tolist() == [np.inf] * 3
    assert native(compute((empty,), (0, 3), lambda i, j: empty[i, j]), nothing).shape == (0, 3)
    guarded = compute((empty,), (2,), lambda i: Select(Eq(i, i), Lit(1, f32), empty[i, i]))
    assert native(guarded, nothing).tolist() == [1, 1]


def test_floats_are_not_fused() -> None:
    x = buffer("x", (4,), f32)
    whole = compute((x,), (4,), lambda i: x[i] * x[i] - x[i] * x[i])
    values = np.array([1.1, 2.3, 1e-3, 7.7], np.float32)
    assert native(whole, values).tolist() == [0, 0, 0, 0]


def test_a_deep_and_shared_body() -> None:
    x = buffer("x", (8,), f32)
    body: Scalar = x[axis("i")]
    for _ in range(10_000):
        body = body + 1
    for _ in range(60):
        body = Select(Lt(body, Lit(0, f32)), body * 0.5, body * 0.5 + body * 0.25)
    whole = compute((x,), (8,), lambda i: body)
    lines = emit(nest(whole), "deep").lines
    assert len(lines) < 15_000
    total: Scalar = x[axis("i")]
    for _ in range(2_000):
        total = total + 1
    found = native(compute((x,), (8,), lambda i: total), np.zeros(8, np.float32))
    assert found.tolist() == [2000] * 8


def test_shared_checks_are_emitted_once() -> None:
    x, at = buffer("x", (3,), f32), buffer("at", (2,), i64)
    body: Scalar = x[at[axis("i")]]
    for _ in range(60):
        body = Select(Lt(body, Lit(0, f32)), body + 1, body * 0.5)
    lines = emit(nest(compute((x, at), (2,), lambda i: body)), "k").lines
    assert len(lines) < 800


def test_a_store_that_may_be_outside_is_our_bug() -> None:
    x, i = buffer("x", (3,), f32), axis("i")
    body = For(i, Lit(4, i64), "serial", Store(x, (i,), Lit(0, f32)))
    with pytest.raises(CompilerBug, match="A store to x may be outside of it"):
        emit(Kernel((), (x,), 0, body), "k")


def test_a_buffer_of_open_size_needs_its_dim() -> None:
    n, i = dim_var("n"), ScalarVar(Name("i"), i64)
    x = Buffer(Name("x"), (n,), f32)
    with pytest.raises(CompilerBug, match="bound"):
        emit(Kernel((), (x,), 0, For(i, n, "serial", Store(x, (i,), Lit(0, f32)))), "k")


def test_small_integers_wrap() -> None:
    x = buffer("x", (2,), i8)
    whole = compute((x,), (2,), lambda i: x[i] * 2 + FloorMod(x[i], Lit(7, i8)))
    values = np.array([100, -100], np.int8)
    assert_same(native(whole, values), np.asarray(evaluate(whole, [values])))


def test_a_reduction_in_an_index() -> None:
    x, at = buffer("x", (5,), f32), buffer("at", (3,), i32)
    where = Reduce("max", (axis("k"),), (Lit(3, i64),), Load(at, (axis("k"),)))
    whole = compute((x, at), (), lambda: x[Cast(where, i64)])
    assert native(whole, np.arange(5, dtype=np.float32), np.array([1, 4, 2], np.int32)) == 4
