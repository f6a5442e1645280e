"""Loop programs: what they compute, and every misuse of memory they are refused for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plica.core.binding import free_vars
from plica.core.diagnostic import EvaluationError
from plica.core.term import Term
from plica.ir.dim import dim_var
from plica.ir.dtype import f32, i32, i64
from plica.ir.evaluate import evaluate
from plica.ir.loop import Alloc, Branch, For, Kernel, LoopKind, Seq, Stmt, Store
from plica.ir.run import run_kernel
from plica.ir.scalar import Buffer, Lit, Lt, Reduce, Scalar, ScalarVar, Select, index
from plica.ir.size import Sizes, shape_of
from plica.ir.tensor import Compute, axis, buffer
from plica.ir.value import Array, same_value
from plica.runtime.error import InputError
from tests.strategies import arrays, computes, kernels

n = dim_var("n")
i, j, k = axis("i"), axis("j"), axis("k")
x, y, z = (buffer(name, (n,), f32) for name in "xyz")


def refused(kernel: Kernel, *given_: Any, sizes: Sizes | None = None) -> EvaluationError:
    with pytest.raises(EvaluationError) as caught:
        run_kernel(kernel, given_, sizes)
    return caught.value


def floats(values: list[float]) -> Array:
    return np.array(values, np.float32)


def over(var: Any, body: Stmt, kind: LoopKind = "serial", extent: Scalar = n) -> For:
    return For(var, extent, kind, body)


def matmul(outer: LoopKind = "serial", inner: LoopKind = "serial") -> Kernel:
    m = dim_var("m")
    a, b, c = (
        buffer(name, shape, f32)
        for name, shape in zip("abc", ((n, m), (m, n), (n, n)), strict=True)
    )
    update = Store(c, (i, j), c[i, j] + a[i, k] * b[k, j])
    body = Seq((Store(c, (i, j), Lit(0, f32)), For(k, m, inner, update)))
    return Kernel((n, m), (a, b, c), 2, over(i, over(j, body), outer))


@given(st.integers(0, 4), st.integers(0, 4), st.data())
def test_a_matrix_product(rows: int, inner: int, data: st.DataObject) -> None:
    a = data.draw(arrays(i32, (rows, inner))).clip(-9, 9).astype(np.float32)
    b = data.draw(arrays(i32, (inner, rows))).clip(-9, 9).astype(np.float32)
    for kind in ("serial", "parallel"):
        (c,) = run_kernel(matmul(kind), (a, b))
        assert same_value(c, a @ b)


def nest(compute: Compute) -> Kernel:
    """The loops of a tensor expression: one store for each element."""
    out = Buffer(axis("out").name, compute.shape, compute.dtype)
    body: Stmt = Store(out, compute.axes, compute.body)
    for var, extent in zip(reversed(compute.axes), reversed(compute.shape), strict=True):
        body = For(var, extent, "parallel", body)
    return Kernel((), (*compute.inputs, out), len(compute.inputs), body)


def arrays_for(of: Buffer) -> st.SearchStrategy[Array]:
    """Arrays for a buffer whose shape is known."""
    shape = shape_of(of.shape, {})
    assert shape is not None
    return arrays(of.dtype, shape)


def sizes_of(term: Term) -> st.SearchStrategy[Sizes]:
    """Numbers for the dims that are free in a term."""
    found = [each for each in free_vars(term) if isinstance(each, ScalarVar)]
    ordered: list[Term] = [*sorted(found, key=lambda each: each.name)]
    return st.fixed_dictionaries({each: st.integers(0, 3) for each in ordered})


@given(st.data())
def test_loops_mean_what_tensor_expressions_mean(data: st.DataObject) -> None:
    compute = data.draw(computes())
    given_ = [data.draw(arrays_for(each)) for each in compute.inputs]
    sizes = data.draw(sizes_of(compute))
    try:
        expected = evaluate(compute, given_, sizes)
    except EvaluationError as error:
        assert refused(nest(compute), *given_, sizes=sizes).code == error.code  # noqa: PT017
        return
    (found,) = run_kernel(nest(compute), given_, sizes)
    if compute.dtype.is_float:
        tiny = 4 * float(np.finfo(np.float32).eps if compute.dtype.bits > 16 else 1e-2)
        wide = np.float64
        np.testing.assert_allclose(found.astype(wide), expected.astype(wide), rtol=tiny, atol=1e-30)
    else:
        assert same_value(found, expected)


def test_a_reduction_is_a_loop_too() -> None:
    total = Reduce("max", (k,), (n,), x[k])
    one = buffer("one", (), f32)
    kernel = Kernel((n,), (x, one), 1, Store(one, (), total))
    assert run_kernel(kernel, (floats([3, 5, 4]),))[0] == 5
    assert run_kernel(kernel, (np.zeros(0, np.float32),))[0] == -np.inf


def test_reductions_nested_too_deep_are_refused() -> None:
    body: Scalar = Lit(1, f32)
    for number in range(60):
        body = Reduce("sum", (axis("r", number),), (index(1),), body)
    one = buffer("one", (), f32)
    assert refused(Kernel((), (one,), 0, Store(one, (), body))).code == "unsupported"


def test_a_local_buffer_and_a_branch() -> None:
    local = buffer("local", (2,), f32)
    body = Alloc(
        local,
        Seq(
            (
                Store(local, (index(0),), x[i]),
                Branch(
                    Lt(x[i], Lit(0, f32)),
                    Store(y, (i,), Lit(0, f32)),
                    Store(y, (i,), local[0] * 2),
                ),
            )
        ),
    )
    kernel = Kernel((n,), (x, y), 1, over(i, body, "parallel"))
    assert same_value(run_kernel(kernel, (floats([-1, 2]),))[0], floats([0, 4]))


def test_a_local_buffer_begins_undefined_each_time() -> None:
    local = buffer("local", (1,), f32)
    first = Branch(Lt(i, Lit(1, i64)), Store(local, (index(0),), x[i]), Seq(()))
    body = Alloc(local, Seq((first, Store(y, (i,), local[0]))))
    assert refused(Kernel((n,), (x, y), 1, over(i, body)), np.zeros(2, np.float32)).code == (
        "uninitialised-read"
    )


def test_an_inner_loop_may_reuse_a_variable() -> None:
    body = over(i, Seq((over(i, Store(y, (i,), x[i])), Store(z, (i,), y[i]))))
    kernel = Kernel((n,), (x, y, z), 1, body)
    given_ = floats([1, 2, 3])
    assert same_value(run_kernel(kernel, (given_,)), (given_, given_))


@pytest.mark.parametrize("shift", [-1, 1])
def test_reading_outside(shift: int) -> None:
    error = refused(
        Kernel((n,), (x, y), 1, over(i, Store(y, (i,), x[i + shift]))), np.zeros(3, np.float32)
    )
    assert error.code == "index-out-of-bounds"
    assert error.diagnostics[0].place is not None
    assert error.diagnostics[0].place.node == "x"


def test_writing_outside() -> None:
    kernel = Kernel((n,), (x, y), 1, over(i, Store(y, (i + 1,), x[i])))
    assert refused(kernel, np.zeros(3, np.float32)).code == "index-out-of-bounds"


def test_a_guarded_load_never_happens() -> None:
    guarded = Select(Lt(i + 1, n), x[i + 1], Lit(-1, f32))
    kernel = Kernel((n,), (x, y), 1, over(i, Store(y, (i,), guarded)))
    assert same_value(run_kernel(kernel, (floats([1, 2]),))[0], floats([2, -1]))


def test_reading_what_was_never_written() -> None:
    kernel = Kernel((n,), (x, y), 1, over(i, Store(y, (i,), y[i] + x[i])))
    assert refused(kernel, np.zeros(3, np.float32)).code == "uninitialised-read"


def test_an_output_must_be_written_everywhere() -> None:
    kernel = Kernel((n,), (x, y), 1, Store(y, (index(0),), x[0]))
    error = refused(kernel, np.zeros(3, np.float32))
    assert error.code == "uninitialised-read"
    assert error.diagnostics[0].found == "nothing at (1,)"
    assert run_kernel(kernel, (np.zeros(1, np.float32),))[0] == 0


RACES: list[Stmt] = [
    Store(y, (index(0),), x[i]),  # all write one element
    Seq((Store(y, (i,), x[i]), Store(z, (i,), y[n - 1 - i]))),  # one reads what another writes
    Seq((Store(y, (n - 1 - i,), x[i]), Store(z, (i,), y[n - 1 - i]), Store(y, (i,), x[i]))),
]


@pytest.mark.parametrize("kind", ["parallel", "vectorized"])
@pytest.mark.parametrize("body", RACES)
def test_races(body: Stmt, kind: LoopKind) -> None:
    ready = over(j, Seq((Store(y, (j,), x[j]), Store(z, (j,), x[j]))))
    racing = Kernel((n,), (x, y, z), 1, Seq((ready, over(i, body, kind))))
    assert refused(racing, floats([1, 2, 3, 4])).code == "data-race"
    run_kernel(racing, (floats([1]),))
    for harmless in ("serial", "unrolled"):
        run_kernel(
            Kernel((n,), (x, y, z), 1, Seq((ready, over(i, body, harmless)))),
            (floats([1, 2, 3, 4]),),
        )


def test_a_sum_over_a_parallel_loop_is_a_race() -> None:
    given_ = np.ones((2, 2), np.float32)
    assert refused(matmul("serial", "parallel"), given_, given_).code == "data-race"


def test_two_parallel_loops_after_one_another_do_not_race() -> None:
    body = Seq(
        (
            over(i, Store(y, (i,), x[i]), "parallel"),
            over(i, Store(z, (i,), y[n - 1 - i]), "parallel"),
        )
    )
    (_, found) = run_kernel(Kernel((n,), (x, y, z), 1, body), (floats([1, 2]),))
    assert same_value(found, floats([2, 1]))


def test_nested_parallel_loops_race_at_either_level() -> None:
    square = buffer("square", (n, n), f32)
    fine = over(i, over(j, Store(square, (i, j), x[i]), "parallel"), "parallel")
    run_kernel(Kernel((n,), (x, square), 1, fine), (floats([1, 2]),))
    for at in (i, j):
        body = over(i, over(j, Store(y, (at,), x[at]), "parallel"), "parallel")
        assert refused(Kernel((n,), (x, y), 1, body), floats([1, 2])).code == "data-race"


def test_arrays_must_fit_the_buffers() -> None:
    kernel = Kernel((n,), (x, y, z), 2, over(i, Store(z, (i,), x[i] + y[i])))
    with pytest.raises(InputError) as caught:
        run_kernel(kernel, (np.zeros(2, np.float32), np.zeros(3)))
    assert [each.code for each in caught.value.diagnostics] == ["input-shape", "input-dtype"]
    with pytest.raises(InputError) as caught:
        run_kernel(kernel, (np.zeros(2, np.float32),))
    assert caught.value.code == "wrong-arity"


def test_a_size_that_follows_from_nothing() -> None:
    kernel = Kernel((n,), (y,), 0, over(i, Store(y, (i,), Lit(0, f32))))
    assert refused(kernel).code == "cannot-infer"
    assert run_kernel(kernel, (), {n: 3})[0].shape == (3,)


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_deep_statements_and_scalars(kind: LoopKind) -> None:
    value: Scalar = x[0]
    for _ in range(5_000):
        value = value + 1
    for number in range(5_000):
        value = Select(Lt(x[0], Lit(number, f32)), value + 1, value)
    body: Stmt = Store(y, (index(0),), value)
    for number in range(2_000):
        body = Branch(
            Lt(x[0], Lit(number - 1, f32)), Seq(()), For(axis("d", number), index(1), kind, body)
        )
    kernel = Kernel((n,), (x, y), 1, body)
    assert run_kernel(kernel, (floats([4_000]),))[0] == 9_999


@given(st.data())
def test_any_kernel_runs_or_is_refused(data: st.DataObject) -> None:
    kernel = data.draw(kernels())
    given_ = [data.draw(arrays_for(each)) for each in kernel.params[: kernel.inputs]]
    sizes = data.draw(sizes_of(kernel))
    try:
        found = run_kernel(kernel, given_, sizes)
    except EvaluationError as error:
        assert error.code in ("uninitialised-read", "data-race")  # noqa: PT017
        return
    assert [each.dtype for each in found] == [
        each.dtype.numpy for each in kernel.params[kernel.inputs :]
    ]
