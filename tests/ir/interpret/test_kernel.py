"""Loop programs: what they compute, and every misuse of memory they are refused for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.core.binding import free_vars
from plica.core.diagnostic import EvaluationError
from plica.core.fold import map_bottom_up
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.interpret.evaluate import evaluate
from plica.ir.interpret.kernel import run_kernel
from plica.ir.interpret.value import Array
from plica.ir.loop.intrinsic import intrinsic
from plica.ir.loop.memory_scope import UnknownScope
from plica.ir.loop.scalar import (
    Broadcast,
    Buffer,
    Cast,
    Lit,
    Lt,
    Ramp,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    Shuffle,
    dtype_of,
    index,
)
from plica.ir.loop.statement import (
    Alloc,
    Barrier,
    Bind,
    Branch,
    For,
    Invoke,
    Kernel,
    LoopKind,
    Region,
    Seq,
    Stmt,
    Store,
    While,
    block,
    seq,
)
from plica.ir.loop.tensor import Compute, axis, buffer
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32, i32, i64
from plica.ir.type.size import Sizes, shape_of
from plica.runtime.error import InputError
from tests.same_value import same_value
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
                    Lt(x[i], Lit(0, f32)), Store(y, (i,), Lit(0, f32)), Store(y, (i,), local[0] * 2)
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
    for _ in range(2_000):
        value = value + 1
    for number in range(3_000, 5_000):
        value = Select(Lt(x[0], Lit(number, f32)), value + 1, value)
    body: Stmt = Store(y, (index(0),), value)
    for number in range(2_000):
        body = Branch(
            Lt(x[0], Lit(number - 1, f32)), Seq(()), For(axis("d", number), index(1), kind, body)
        )
    kernel = Kernel((n,), (x, y), 1, body)
    assert run_kernel(kernel, (floats([4_000]),))[0] == 6_999


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


# --- blocks --------------------------------------------------------------------------------------

vi, vj, vk = axis("vi"), axis("vj"), axis("vk")


def blocked_matmul(*kinds: LoopKind, tile: int = 2) -> Kernel:
    """A matrix product whose rows are split, with a predicate where the tile does not divide."""
    a, b, c = (buffer(name, (n, n), f32) for name in "abc")
    outer = axis("o")
    inside = block(
        "c",
        (vi, vj, vk),
        (n, n, n),
        "ssr",
        (outer * tile + i, j, k),
        Store(c, (vi, vj), c[vi, vj] + a[vi, vk] * b[vk, vj]),
        Store(c, (vi, vj), Lit(0, f32)),
        Lt(outer * tile + i, n),
    )
    words = (*kinds, *["serial"] * (4 - len(kinds)))
    extents = ((n + tile - 1) // tile, index(tile), n, n)
    body: Stmt = inside
    for var, extent, kind in reversed(list(zip((outer, i, j, k), extents, words, strict=True))):
        body = For(var, extent, kind, body)  # type: ignore[arg-type]  # words are kinds
    return Kernel((n,), (a, b, c), 2, body)


@pytest.mark.parametrize(
    "kinds",
    [(), ("parallel", "vectorized"), ("blockIdx.x", "threadIdx.x", "threadIdx.y"), ("virtual",)],
)
@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("sweeping", [True, False])
def test_blocks(kinds: tuple[LoopKind, ...], size: int, sweeping: bool) -> None:
    a = np.arange(size * size, dtype=np.float32).reshape(size, size)
    (found,) = run_kernel(blocked_matmul(*kinds), (a, a.T), sweeping=sweeping)
    assert (found == a @ a.T).all()


def test_a_binding_outside_its_range() -> None:
    inside = block("y", (vi,), (n,), "s", (i + 1,), Store(y, (vi,), x[vi]))
    error = refused(Kernel((n,), (x, y), 1, over(i, inside)), floats([1, 2]))
    assert error.code == "binding-out-of-range"
    assert error.diagnostics[0].found == "2"


def test_a_block_behind_a_false_predicate_does_nothing() -> None:
    inside = block("y", (vi,), (n,), "s", (i,), Store(y, (vi,), x[vi]), None, Lt(i, n - 1))
    kernel = Kernel((n,), (x, y), 1, seq(over(j, Store(y, (j,), Lit(7, f32))), over(i, inside)))
    assert same_value(run_kernel(kernel, (floats([1, 2, 3]),))[0], floats([1, 2, 7]))


def test_init_runs_where_all_reduce_variables_are_zero() -> None:
    inside = block(
        "y", (vi, vj, vk), (n, 2, 2), "srr", (i, j, k),
        Store(y, (vi,), y[vi] + 1), Store(y, (vi,), x[vi]),
    )  # fmt: skip
    body = over(i, over(j, over(k, inside, extent=index(2)), extent=index(2)))
    assert same_value(
        run_kernel(Kernel((n,), (x, y), 1, body), (floats([1, 5]),))[0], floats([5, 9])
    )


def test_a_block_speaks_of_its_own_variables() -> None:
    inside = block("y", (vi,), (n,), "s", (i,), Store(y, (i,), x[vi]))
    assert refused(Kernel((n,), (x, y), 1, over(i, inside)), floats([1])).code == "block-isolation"
    fine = block(
        "y", (vi,), (n,), "s", (i,), block("in", (vj,), (n,), "s", (vi,), Store(y, (vi,), x[vj]))
    )
    assert run_kernel(Kernel((n,), (x, y), 1, over(i, fine)), (floats([4]),))[0] == 4


# --- bindings and while loops --------------------------------------------------------------------


def test_a_bound_value_is_computed_once() -> None:
    t = ScalarVar(Name("t"), f32)
    body = Bind(t, y[i], seq(Store(y, (i,), t + 1), Store(y, (i,), t + 10)))
    kernel = Kernel((n,), (x, y), 1, over(i, seq(Store(y, (i,), x[i]), body)))
    assert same_value(run_kernel(kernel, (floats([1, 2]),))[0], floats([11, 12]))


def test_while() -> None:
    one = buffer("one", (), i64)
    start, doubled = Store(one, (), index(1)), Store(one, (), one[()] * 2)
    kernel = Kernel((), (one,), 0, seq(start, While(Lt(one[()], index(100)), doubled)))
    assert run_kernel(kernel, ())[0] == 128
    endless = Kernel((), (one,), 0, seq(start, While(Lt(index(0), one[()]), start)))
    with pytest.raises(EvaluationError) as caught:
        run_kernel(endless, (), turns=1000)
    assert caught.value.code == "endless-loop"
    assert "the while loop over" in str(caught.value)


# --- memory --------------------------------------------------------------------------------------


def test_strides_are_addresses() -> None:
    """Rows that overlap have elements in common."""
    window = Buffer(Name("window"), (index(3), index(2)), i32, strides=(index(1), index(1)))
    out = buffer("out", (3, 2), i32)
    fill = over(i, Store(window, (i, j), Cast(i * 10 + j, i32)), extent=index(3))
    copy = over(i, over(j, Store(out, (i, j), window[i, j]), extent=index(2)), extent=index(3))
    body = Alloc(window, seq(over(j, fill, extent=index(2)), copy))
    assert run_kernel(Kernel((), (out,), 0, body), ())[0].tolist() == [[0, 1], [1, 11], [11, 21]]


@pytest.mark.parametrize("sweeping", [True, False])
def test_padded_and_reversed_strides(sweeping: bool) -> None:
    local = Buffer(Name("local"), (n, n), f32, "local", (n + 3, index(-1)))
    square = buffer("square", (n, n), f32)
    fill = over(i, over(j, Store(local, (i, j), x[i] * 10 + x[j])))
    copy = over(i, over(j, Store(square, (i, j), local[j, i])))
    kernel = Kernel((n,), (x, square), 1, Alloc(local, seq(fill, copy)))
    given_ = np.arange(9, dtype=np.float32)
    (found,) = run_kernel(kernel, (given_,), sweeping=sweeping)
    assert (found == given_[None] * 10 + given_[:, None]).all()


def test_an_unknown_scope_is_refused() -> None:
    local = Buffer(Name("local"), (n,), f32, "shard")
    with pytest.raises(UnknownScope) as caught:
        run_kernel(
            Kernel((n,), (x, y), 1, Alloc(local, over(i, Store(y, (i,), x[i])))), (floats([1]),)
        )
    assert caught.value.diagnostics[0].suggestion == "Did you mean 'shared'?"


# --- vectors -------------------------------------------------------------------------------------


def test_vectors_by_lanes() -> None:
    four = Ramp(i * 4, index(1), 4)
    back = Shuffle((x[four],), (3, 2, 1, 0))
    kernel = Kernel(
        (n,), (x, y), 1, over(i, Store(y, (four,), back * Broadcast(x[i], 4)), extent=index(2))
    )
    given_ = floats([1, 2, 3, 4, 5, 6, 7, 8])
    assert run_kernel(kernel, (given_,))[0].tolist() == [4, 3, 2, 1, 16, 14, 12, 10]


def test_all_lanes_are_loaded_before_one_is_stored() -> None:
    swap, forth = Ramp(index(1), index(-1), 2), Ramp(index(0), index(1), 2)
    body = seq(Store(y, (forth,), x[forth]), Store(y, (forth,), y[swap]))
    assert run_kernel(Kernel((n,), (x, y), 1, body), (floats([1, 2]),))[0].tolist() == [2, 1]


def test_a_guard_holds_lane_by_lane() -> None:
    four = Ramp(index(0), index(1), 4)
    value = Select(Lt(four, Broadcast(n, 4)), x[four], Broadcast(Lit(0, f32), 4))
    wide = buffer("wide", (4,), f32)
    kernel = Kernel((n,), (x, wide), 1, Store(wide, (four,), value))
    assert run_kernel(kernel, (floats([1, 2]),))[0].tolist() == [1, 2, 0, 0]


def test_lanes_must_fit() -> None:
    four, two = Ramp(index(0), index(1), 4), Ramp(index(0), index(1), 2)
    for value in (
        x[two],
        x[four] + x[two],
        Shuffle((x[two],), (0, 1, 2, 3)),
        Ramp(four, index(1), 4),
    ):
        if dtype_of(value) is not f32:
            value = Cast(value, f32)
        assert refused(Kernel((n,), (x, y), 1, Store(y, (four,), value)), floats([1] * 4)).code == (
            "shape-conflict"
        )
    branch = Branch(Lt(two, Broadcast(n, 2)), Store(y, (index(0),), x[0]), Seq(()))
    assert refused(Kernel((n,), (x, y), 1, branch), floats([1])).code == "shape-conflict"


# --- threads -------------------------------------------------------------------------------------

b, t, u = axis("b"), axis("t"), axis("u")
wide, turned = buffer("wide", (2, 8), i32), buffer("turned", (2, 8), i32)
shared = Buffer(Name("shared"), (index(8),), i32, "shared")
ROWS = np.arange(16, dtype=np.int32).reshape(2, 8)
TURNED = ROWS[:, ::-1].tolist()


def grid(body: Stmt, allocated: bool = True) -> Kernel:
    inside = For(b, index(2), "blockIdx.x", body)
    return Kernel((), (wide, turned), 1, Alloc(shared, inside) if allocated else inside)


def threads(body: Stmt, var: ScalarVar = t, extent: int = 8, tag: LoopKind = "threadIdx.x") -> For:
    return For(var, index(extent), tag, body)


FETCH, USE = Store(shared, (t,), wide[b, t]), Store(turned, (b, t), shared[7 - t])
SYNC = Barrier("shared")
COOPERATING = {
    "one loop": grid(threads(seq(FETCH, SYNC, USE))),
    "two loops": grid(seq(threads(FETCH), SYNC, threads(USE))),
    "allocated by each thread": grid(threads(Alloc(shared, seq(FETCH, SYNC, USE))), False),
    "the same threads inside": grid(
        threads(seq(threads(Store(shared, (u,), wide[b, u]), u), SYNC, USE))
    ),
    "two axes": grid(
        threads(
            threads(
                seq(
                    Store(shared, (t * 4 + u,), wide[b, t * 4 + u]),
                    SYNC,
                    Store(turned, (b, t * 4 + u), shared[7 - t * 4 - u]),
                ),
                u, 4, "threadIdx.y",
            ),
            t, 2,
        )
    ),
    "again and again": grid(
        threads(
            seq(FETCH, SYNC, For(k, index(3), "serial", seq(USE, SYNC)))
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("kernel", COOPERATING.values(), ids=COOPERATING)
@pytest.mark.parametrize("sweeping", [True, False])
def test_threads_with_barriers(kernel: Kernel, sweeping: bool) -> None:
    assert run_kernel(kernel, (ROWS,), sweeping=sweeping)[0].tolist() == TURNED


def without_barriers(kernel: Kernel) -> Kernel:
    bare = map_bottom_up(lambda each: Seq(()) if isinstance(each, Barrier) else each, kernel)
    assert isinstance(bare, Kernel)
    return bare


@pytest.mark.parametrize("kernel", COOPERATING.values(), ids=COOPERATING)
def test_threads_without_barriers_race(kernel: Kernel) -> None:
    assert refused(without_barriers(kernel), ROWS).code == "data-race"


def test_reading_and_then_writing_needs_a_barrier_too() -> None:
    body = seq(FETCH, SYNC, USE, Store(shared, (t,), wide[b, t]))
    assert refused(grid(threads(body)), ROWS).code == "data-race"
    run_kernel(grid(threads(seq(FETCH, SYNC, USE, SYNC, Store(shared, (t,), wide[b, t])))), (ROWS,))


def test_blocks_of_threads_are_never_ordered() -> None:
    body = seq(
        Store(turned, (b, t), wide[b, t]), Barrier("global"), Store(turned, (1 - b, t), wide[b, t])
    )
    assert refused(grid(threads(body)), ROWS).code == "data-race"


def test_shared_memory_is_undefined_in_every_block() -> None:
    first = Branch(Lt(b, index(1)), FETCH, Seq(()))
    assert refused(grid(threads(seq(first, SYNC, USE))), ROWS).code == "uninitialised-read"


def test_local_memory_is_each_threads_own() -> None:
    own = Buffer(Name("own"), (index(1),), i32, "local")
    store, use = Store(own, (index(0),), wide[b, t]), Store(turned, (b, t), own[0] + own[0])
    apart = seq(threads(store), threads(use))
    for inside in (
        threads(seq(store, use)),
        apart,
        Alloc(own, apart),
        threads(Alloc(own, seq(store, use))),
    ):
        kernel = Kernel((), (wide, turned), 1, Alloc(own, For(b, index(2), "blockIdx.x", inside)))
        assert (run_kernel(kernel, (ROWS,))[0] == ROWS * 2).all()


def test_shared_memory_of_a_block() -> None:
    apart = seq(threads(FETCH), SYNC, threads(USE))
    kernel = grid(Alloc(shared, apart), False)
    assert run_kernel(kernel, (ROWS,))[0].tolist() == TURNED
    twice = grid(For(k, index(2), "serial", Alloc(shared, seq(apart, SYNC))), False)
    assert run_kernel(twice, (ROWS,))[0].tolist() == TURNED
    late = grid(
        For(
            k,
            index(2),
            "serial",
            Alloc(
                shared,
                seq(Branch(Lt(k, index(1)), threads(FETCH), Seq(())), SYNC, threads(USE), SYNC),
            ),
        ),
        False,
    )
    assert refused(late, ROWS).code == "uninitialised-read"


def test_warps_share() -> None:
    lanes, out = buffer("lanes", (64,), i32), buffer("out", (64,), i32)
    own = Buffer(Name("own"), (index(32),), i32, "warp")
    body = seq(Store(own, (t % 32,), lanes[t]), SYNC, Store(out, (t,), own[31 - t % 32]))
    kernel = Kernel((), (lanes, out), 1, Alloc(own, threads(body, extent=64)))
    (found,) = run_kernel(kernel, (np.arange(64, dtype=np.int32),))
    assert found.tolist() == [*range(31, -1, -1), *range(63, 31, -1)]


@pytest.mark.parametrize(
    "body",
    [
        seq(FETCH, Branch(Lt(t, index(4)), SYNC, Seq(()))),
        seq(FETCH, Branch(Lt(t, index(4)), SYNC, Seq((SYNC, SYNC)))),
        seq(FETCH, Branch(Lt(t, index(4)), SYNC, Barrier("global"))),
        seq(FETCH, For(k, t, "serial", SYNC)),
        seq(FETCH, For(k, index(2), "vectorized", SYNC)),
    ],
)
def test_a_barrier_that_not_all_threads_reach(body: Stmt) -> None:
    assert refused(grid(threads(body)), ROWS).code == "divergent-barrier"


def test_fewer_threads_at_a_barrier_than_elsewhere() -> None:
    few = threads(seq(FETCH, SYNC), extent=4)
    assert refused(grid(seq(few, threads(USE))), ROWS).code == "divergent-barrier"


def test_more_iterations_than_threads() -> None:
    body = threads(threads(Store(shared, (u,), wide[b, u]), u), extent=4)
    assert refused(grid(body), ROWS).code == "thread-extent"


def test_a_barrier_is_for_memory_in_common() -> None:
    assert refused(grid(threads(Barrier("local"))), ROWS).code == "unsupported"
    alone = Kernel((n,), (x, y), 1, seq(SYNC, over(i, Store(y, (i,), x[i]))))
    assert same_value(run_kernel(alone, (floats([1]),))[0], floats([1]))


def test_a_reduction_across_threads() -> None:
    total = buffer("total", (2,), i32)
    inside = block(
        "total", (vi, vk), (2, 8), "sr", (b, t),
        Store(total, (vi,), total[vi] + wide[vi, vk]), Store(total, (vi,), Lit(0, i32)),
    )  # fmt: skip
    body = For(b, index(2), "blockIdx.x", threads(inside))
    kernel = Kernel((), (wide, total), 1, body)
    assert run_kernel(kernel, (ROWS,))[0].tolist() == ROWS.sum(1).tolist()
    use = For(
        b, index(2), "blockIdx.x", seq(threads(inside), threads(Store(turned, (b, t), total[b])))
    )
    assert refused(Kernel((), (wide, total, turned), 1, use), ROWS).code == "data-race"


def test_many_threads_deep_inside() -> None:
    body: Stmt = USE
    for number in range(500):
        body = threads(body, axis("d", number))
    assert run_kernel(grid(threads(seq(FETCH, SYNC, body))), (ROWS,))[0].tolist() == TURNED


# --- intrinsics ----------------------------------------------------------------------------------


def test_an_invocation_means_its_kernel() -> None:
    left, right = buffer("left", (4,), i32), buffer("right", (4,), i32)
    add = Kernel(
        (), (left, right), 1, For(i, index(4), "serial", Store(right, (i,), right[i] + left[i]))
    )
    intrinsic("test.add", add)
    call = Invoke(
        "test.add", tuple(Region(each, (b, t * 4), (index(1), index(4))) for each in (wide, turned))
    )
    fill = For(b, index(2), "serial", threads(Store(turned, (b, t), Lit(1, i32)), tag="serial"))
    body = seq(fill, For(b, index(2), "parallel", threads(call, extent=2, tag="serial")))
    (found,) = run_kernel(Kernel((), (wide, turned), 1, body), (ROWS,))
    assert (found == ROWS + 1).all()
    outside = seq(fill, For(b, index(2), "serial", threads(call, extent=3, tag="serial")))
    assert refused(Kernel((), (wide, turned), 1, outside), ROWS).code == "index-out-of-bounds"


def test_an_invocation_of_nothing() -> None:
    kernel = Kernel((), (wide, turned), 1, Invoke("test.nothing", ()))
    assert refused(kernel, ROWS).code == "unknown-intrinsic"
