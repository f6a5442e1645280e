"""Kernels of functions on a GPU: something always fits, and what did not is told."""

from __future__ import annotations

import pytest

from plica.codegen.cuda.scheduled import for_threads, threads
from plica.core.name import Name
from plica.ir.contract import exact, reassociates
from plica.ir.graph.expression import Apply, Expr, Function, Var
from plica.ir.type.term import tensor
from plica.schedule.default.gpu import Gpu
from plica.schedule.form import Facts


def product(dtype: str) -> Function:
    x, w = Var(Name("x"), tensor((70, 40), dtype)), Var(Name("w"), tensor((40, 90), dtype))
    return Function((), (), (x, w), tensor((70, 90), dtype), Apply("matmul", (x, w)))


FREE = Facts((False, False), (), reassociates)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_products_of_narrow_numbers_take_tensor_cores(dtype: str) -> None:
    made = for_threads(product(dtype), FREE, Gpu())
    assert made.origin is not None
    assert f"cuda.mma_{dtype}" in made.origin.trace.to_python()
    assert made.passed_over == ()


def test_what_was_passed_over_is_told() -> None:
    """A GPU whose blocks share little memory has no tiles, and computes all the same."""
    made = for_threads(product("f16"), FREE, Gpu(shared=1024))
    assert made.origin is not None
    assert "cuda.mma" not in made.origin.trace.to_python()
    assert made.passed_over
    for each in made.passed_over:
        assert each.startswith("tensor-core-tiles: The threads of a block")
        assert "1024 bytes at most" in each


def test_sums_stay_in_order_where_that_is_asked() -> None:
    scheduler = threads(Gpu(), exact)
    given: tuple[Expr, ...] = product("f16").params
    made = scheduler(product("f16"), given)
    assert made.origin is not None
    assert "cuda.mma" not in made.origin.trace.to_python()
    assert scheduler.facts(product("f16"), given) == Facts((False, False))
