"""Nest: a tensor expression and its loop nest mean the same; the nests of a few, as text."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from plica.codegen.lower.nest import nest as nest_of_stages, open_sizes
from plica.codegen.lower.scheduled import plain
from plica.codegen.memory_plan import workspace_plan
from plica.core.binding import free_vars
from plica.core.diagnostic import CompilerBug
from plica.core.fold import post_order
from plica.core.term import Term
from plica.ir.interpret.evaluate import evaluate
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.reduction import exposed
from plica.ir.loop.scalar import Cast, Lit, Load, Lt, Reduce, Scalar, ScalarVar, Select
from plica.ir.loop.stage import placeholder, stage
from plica.ir.loop.stages import Stages, evaluate_stages, stages, stages_of
from plica.ir.loop.statement import NOTHING, Alloc, For, Store, statements
from plica.ir.loop.tensor import Compute, buffer, compute, reduce
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import bool_, f16, f32, i64
from plica.pipeline import lower
from plica.rewrite.fuse.to_stages import alone
from plica.schedule.default.machine import Machine
from plica.schedule.generate.stages import KINDS, StagesCase
from tests.codegen.native import assert_close, shape_of
from tests.codegen.nests import nest
from tests.conftest import Golden
from tests.rewrite.fuse.graph import module_of, op
from tests.rewrite.fuse.test_to_stages import CASES, A, B, C, whole
from tests.strategies import arrays, computes

FEW = settings(max_examples=max(20, settings().max_examples // 2))


@given(st.data())
def test_the_nest_means_what_the_expression_means(data: st.DataObject) -> None:
    of = data.draw(computes())
    assume(not free_vars(of))
    given_ = [data.draw(arrays(each.dtype, shape_of(each))) for each in of.inputs]
    (found,) = run_kernel(nest(of), given_)
    assert_close(found, np.asarray(evaluate(of, given_)))


def matmul() -> Compute:
    a, b = buffer("a", (4, 5), f32), buffer("b", (5, 6), f32)
    return compute((a, b), (4, 6), lambda i, j: reduce("sum", (5,), lambda k: a[i, k] * b[k, j]))


def dense_f16() -> Compute:
    x, w = buffer("x", (4, 20), f16), buffer("w", (6, 20), f16)

    def element(i: Scalar, j: Scalar) -> Scalar:
        total = reduce("sum", (20,), lambda k: Cast(x[i, k], f32) * Cast(w[j, k], f32))
        return Cast(total, f16)

    return compute((x, w), (4, 6), element)


def mean_of_rows() -> Compute:
    x = buffer("x", (4, 5, 6), f16)

    def element(i: Scalar, j: Scalar) -> Scalar:
        return Cast(reduce("sum", (5,), lambda k: Cast(x[i, k, j], f32)) * 0.2, f16)

    return compute((x,), (4, 6), element)


def guarded() -> Compute:
    x = buffer("x", (4,), f32)

    def element(i: Scalar) -> Scalar:
        largest = reduce("max", (2,), lambda k: x[i + k])
        return Select(Lt(i, Lit(3, i64)), largest, x[i])

    return compute((x,), (4,), element)


def all_true() -> Compute:
    x = buffer("x", (3, 3), bool_)
    return compute((x,), (), lambda: reduce("all", (3, 3), lambda i, j: x[i, j]))


def spread() -> Compute:
    x, y = buffer("out", (3,), f32), buffer("y", (2, 1), f32)
    return compute((x, y), (2, 3), lambda i, j: x[j] + y[i, 0])


@pytest.mark.parametrize(
    "make", [matmul, dense_f16, mean_of_rows, guarded, all_true, spread], ids=lambda f: f.__name__
)
def test_text(make: Callable[[], Compute], golden: Golden) -> None:
    golden(show_kernel(nest(make()), make.__name__), f"nest_{make.__name__}")


def test_exposed_reductions_are_those_always_evaluated() -> None:
    assert len(exposed(matmul().body)) == 1
    assert exposed(guarded().body) == []


@pytest.mark.parametrize("length", [4097, 6144, 10_000])
def test_a_long_row_is_reduced_panel_by_panel(length: int) -> None:
    x = buffer("x", (3, length), f16)
    total = compute(
        (x,), (length,), lambda j: Cast(reduce("sum", (3,), lambda k: Cast(x[k, j], f32)), f16)
    )
    lanes = {1024, length % 1024} - {0}
    text = show_kernel(nest(total))
    assert all(f"= alloc(Buffer[({each},), f32])" in text for each in lanes)
    values = np.random.default_rng(length).integers(-9, 9, (3, length)).astype(np.float16)
    (found,) = run_kernel(nest(total), [values])
    np.testing.assert_array_equal(found, values.sum(0))


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 11, 12, 40])
def test_neighbours_are_reduced_side_by_side(rows: int) -> None:
    x = buffer("x", (rows, 20), f32)
    total = compute((x,), (rows, 1), lambda i, _: reduce("sum", (20,), lambda k: x[i, k]))
    assert ("for lane in" in show_kernel(nest(total))) == (rows not in (1, 11))
    values = np.arange(rows * 20, dtype=np.float32).reshape(rows, 20)
    (found,) = run_kernel(nest(total), [values])
    np.testing.assert_array_equal(found, values.sum(1, keepdims=True))


def test_two_reductions_have_two_accumulators() -> None:
    x = buffer("x", (3,), f32)
    spread_ = compute(
        (x,), (), lambda: reduce("max", (3,), lambda k: x[k]) - reduce("min", (3,), lambda k: x[k])
    )
    text = show_kernel(nest(spread_))
    assert "acc = alloc" in text
    assert "acc_1 = alloc" in text
    values = np.array([3, 7, 4], np.float32)
    assert run_kernel(nest(spread_), [values])[0] == 4


def test_a_reduction_over_an_axis_of_its_own_tensor_is_a_bug() -> None:
    x = buffer("x", (3,), f32)
    bad = compute((x,), (3,), lambda i: reduce("sum", (3,), lambda k: x[k], name="i"))
    with pytest.raises(CompilerBug, match="binds an axis"):
        nest(bad)


# --- stages ---------------------------------------------------------------------------------------


@FEW
@given(st.one_of([make() for make in KINDS.values()]))
def test_plain_loops_of_stages_mean_what_they_do(of: StagesCase) -> None:
    with np.errstate(all="ignore"):
        wanted = np.asarray(evaluate_stages(of.stages, of.arrays))
        found = run_kernel(nest_of_stages(of.stages), of.arrays)[-1]
    assert_close(found, wanted, [np.array(1e2)] if of.near else [])


def open_chain(count: ScalarVar) -> Stages:
    """Rows of an open number: each is divided by its sum."""
    x = placeholder("x", (count, 5), f32)
    total = stage("total", (count, 1), lambda i, _: reduce("sum", (5,), lambda k: x[i, k]))
    return stages((x,), (total, stage("y", (count, 5), lambda i, j: x[i, j] / total[i, 0])))


def open_sums(count: ScalarVar) -> Stages:
    """Sums of an open number of terms, and what is done to each."""
    x, b = placeholder("x", (count, 6), f32), placeholder("b", (6,), f32)
    total = stage("total", (6,), lambda j: reduce("sum", (count,), lambda k: x[k, j]))
    return stages((x, b), (total, stage("y", (6,), lambda j: total[j] + b[j])))


@pytest.mark.parametrize("make", [open_chain, open_sums])
@pytest.mark.parametrize("rows", [1, 7])
def test_open_sizes_are_dims_of_the_kernel(make: Callable[[ScalarVar], Stages], rows: int) -> None:
    count = dim_var("n")
    of = make(count)
    kernel = nest_of_stages(of)
    assert kernel.dims == of.dims == (count,)
    values = np.arange(1, rows * (5 if make is open_chain else 6) + 1, dtype=np.float32)
    given_ = [values.reshape(rows, -1), np.ones(6, np.float32)][: len(of.inputs)]
    wanted = evaluate_stages(of, given_, {count: rows})
    assert_close(run_kernel(kernel, given_)[-1], wanted)


def test_stages_of_a_row_share_its_loop() -> None:
    x = placeholder("x", (4, 40), f32)
    top = stage("top", (4, 1), lambda i, _: reduce("max", (40,), lambda k: x[i, k]))
    away = stage("away", (4, 40), lambda i, j: x[i, j] - top[i, 0])
    whole = stage("whole", (4, 1), lambda i, _: reduce("sum", (40,), lambda k: away[i, k]))
    last = stage("y", (4, 40), lambda i, j: away[i, j] / whole[i, 0])
    kernel = nest_of_stages(stages((x,), (top, away, whole, last)))
    assert isinstance(kernel.body, For)
    assert str(kernel.body.var.name) == "row"
    own = [each.buffer for each in statements(kernel.body) if isinstance(each, Alloc)]
    assert all(prod(shape_of(each)) <= 40 for each in own)  # what is kept is kept for a row


def test_a_reduction_is_computed_once() -> None:
    kernel = plain(whole(CASES["swish"])).kernel
    stores = [node for node in post_order(kernel.body) if isinstance(node, Store)]
    assert len(stores) == 3  # the accumulator begins, grows, and is used
    assert not any(isinstance(node, Reduce) for node in post_order(kernel.body))


def test_a_long_row_is_accumulated_where_it_ends() -> None:
    direct, cast = (plain(whole(CASES[name])).kernel for name in ("a long row", "a long row, cast"))
    assert not any(isinstance(node, Alloc) for node in post_order(direct.body))
    assert any(isinstance(node, Alloc) for node in post_order(cast.body))


def test_what_reads_nothing_loads_nothing() -> None:
    function, _ = alone(op("zeros_like", A))
    kernel = plain(function).kernel
    assert not any(isinstance(node, Load) for node in post_order(kernel.body))


def test_text_of_stages(golden: Golden) -> None:
    golden(show_kernel(plain(whole(CASES["a bias"])).kernel, "bias") + "\n", "fused_bias")
    golden(show_kernel(plain(whole(CASES["lanes, turned"])).kernel, "lanes") + "\n", "fused_lanes")


def test_no_memory_between() -> None:
    of = module_of(CASES["a bias"], A, B, C)
    assert workspace_plan(lower(of).program).size == 0


MACHINES = {
    "any": None,
    "short vectors": Machine(128, 32),
    "few registers": Machine(256, 16),
    "long vectors": Machine(512, 32),
}


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("sizes", [(5, 6, 3), (1, 3, 17), (6, 18, 0)])
def test_open_rows_are_what_they_mean_by_the_lanes_of_any_machine(
    name: str, sizes: tuple[int, ...]
) -> None:
    m, n, k = (dim_var(each) for each in "mnk")
    a, b, v = buffer("a", (m, k), f32), buffer("b", (k, n), f32), buffer("v", (k, 24), f32)
    cases = (
        ((a, b), (m, n), lambda i, j: reduce("sum", (k,), lambda h: a[i, h] * b[h, j], runs="box")),
        ((a, v), (m, 24), lambda i, j: reduce("sum", (k,), lambda h: a[i, h] * v[h, j])),
        ((a,), (m,), lambda i: reduce("sum", (k,), lambda h: a[i, h], runs="row")),
        ((a,), (m,), lambda i: reduce("max", (k,), lambda h: a[i, h])),
        ((b,), (k, n), lambda i, j: b[i, j] * 2.0),
    )
    known: dict[Term, int] = dict(zip((m, n, k), sizes, strict=True))
    random = np.random.default_rng(0)
    for inputs, shape, element in cases:
        of = stages_of(compute(inputs, shape, element))
        arrays_ = [
            random.standard_normal([known.get(s, 24) for s in each.shape]).astype(np.float32)
            for each in inputs
        ]
        kernel = nest_of_stages(of, True, MACHINES[name])
        (found,) = run_kernel(kernel, arrays_, known)
        meant = evaluate_stages(of, arrays_, known)
        np.testing.assert_allclose(found, meant, rtol=1e-5, atol=1e-5)


@given(st.permutations([f"d{number}" for number in range(9)]))
def test_dims_that_one_size_has_are_in_the_order_of_their_names(names: list[str]) -> None:
    of = buffer("x", (prod(map(dim_var, names)), 4, dim_var("a")), f32)
    assert [each.name.hint for each in open_sizes((of,), NOTHING)] == [*sorted(names), "a"]
