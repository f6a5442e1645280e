"""Shared: rows for several cores mean what they meant, without races."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, strategies as st

import plica
from plica.codegen.lower.shared import shared
from plica.core.binding import free_vars
from plica.core.name import Name
from plica.ir.graph.expression import Function, Var
from plica.ir.interpret.evaluate import evaluate
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Lit, ScalarVar
from plica.ir.loop.statement import For, Kernel, Seq, Store, statements
from plica.ir.loop.tensor import buffer, compute, reduce
from plica.ir.op.reduction import sum_
from plica.ir.type.dtype import f32, i64
from plica.ir.type.term import tensor
from plica.op import nn
from tests.codegen.native import assert_close, shape_of
from tests.codegen.nests import nest
from tests.strategies import arrays, computes


def kinds(of: Kernel) -> list[str]:
    return [each.kind for each in statements(of.body) if isinstance(each, For)]


@given(st.data())
def test_a_shared_nest_means_what_it_meant(data: st.DataObject) -> None:
    of = data.draw(computes())
    assume(not free_vars(of))
    given_ = [data.draw(arrays(each.dtype, shape_of(each))) for each in of.inputs]
    (found,) = run_kernel(shared(nest(of), least=1), given_)  # which looks for races
    assert_close(found, np.asarray(evaluate(of, given_)))


def test_the_first_loop_of_several_rows_is_shared() -> None:
    x = buffer("x", (1, 8, 6), f32)
    of = nest(compute((x,), (1, 8, 12), lambda i, j, k: x[i, j, k // 2]))
    assert kinds(shared(of, least=1)) == ["serial", "parallel", "vectorized"]


def test_little_work_is_not_shared() -> None:
    x = buffer("x", (8, 6), f32)
    of = nest(compute((x,), (8, 12), lambda i, j: x[i, j // 2]))
    assert shared(of) is of
    assert shared(of, least=97) is of
    assert shared(of, least=96) is not of


def test_sums_in_one_place_are_not_shared() -> None:
    x = buffer("x", (64,), f32)
    of = nest(compute((x,), (), lambda: reduce("sum", (64,), lambda k: x[k])))
    assert shared(of, least=1) is of


def test_rows_that_read_one_another_are_not_shared() -> None:
    i, out = ScalarVar(Name("i"), i64), buffer("out", (8,), f32)
    first = For(i, Lit(8, i64), "serial", Store(out, (i,), Lit(1.0, f32)))
    before = For(i, Lit(8, i64), "serial", Store(out, (i,), out[(i + 7) % 8] + out[i]))
    made = shared(Kernel((), (out,), 0, Seq((first, before))), least=1)
    assert kinds(made) == ["parallel", "serial"]


def test_gradients_of_pools_are_shared_by_cores() -> None:
    x = Var(Name("x"), tensor((16, 16, 32, 32), "f32"))
    y = nn.max_pool(nn.relu(x), kernel=2, strides=2)
    of = plica.grad(Function((), (), (x,), None, sum_(y * y)))
    text = plica.compile(of, threads=2).source("kernel")
    kernels = [each for each in text.split("@plica.kernel") if "window" in each]
    assert kernels
    assert all("parallel" in each for each in kernels)
    value = np.random.default_rng(0).standard_normal((16, 16, 32, 32)).astype(np.float32)
    one, two = (plica.compile(of, threads=count)(value) for count in (1, 2))
    np.testing.assert_array_equal(one, two)
