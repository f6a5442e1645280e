from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.ir.graph.module import Module
from plica.rewrite.graph.eta import eta_expand, eta_reduce
from tests.conftest import Golden
from tests.rewrite.graph.law import WHOLE, doubling, keeps_laws, let_chain, text
from tests.strategies import modules

BOTH = pytest.mark.parametrize("run", [eta_expand, eta_reduce])


@WHOLE
@given(st.data())
def test_expansion_keeps_the_laws(data: st.DataObject) -> None:
    keeps_laws(eta_expand, data)


@WHOLE
@given(st.data())
def test_reduction_keeps_the_laws(data: st.DataObject) -> None:
    keeps_laws(eta_reduce, data)


@WHOLE
@given(modules())
def test_doing_it_twice_changes_nothing(module: Module) -> None:
    for run in (eta_expand, eta_reduce):
        once = run(module)
        assert run(once) is once


SOURCE = """
@plica.data
class Box:
    Full: (Tensor[(2,), f32],)

@plica.function
def half(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return x / 2

@plica.function(forall="A B")
def apply(f: Fn[(A,), B], x: A) -> B:
    return f(x)

@plica.function
def main(x: Tensor[(2,), f32]) -> tuple[Box, Tensor[(2,), f32]]:
    return apply(Full, apply(half, x)), half(x)
"""


def test_values_get_parameters_and_lose_them(golden: Golden) -> None:
    module = text(SOURCE)
    made = eta_expand(module)
    golden(str(made))
    assert eta_reduce(made) is module


def test_a_function_that_only_calls_itself_stays() -> None:
    source = """
@plica.function
def forever(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return forever(x)

@plica.function
def main(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    def loop(y: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
        return loop(y)
    return x if op.sum(x) < 0 else loop(forever(x))
"""
    module = text(source)
    assert eta_reduce(module) is module


@BOTH
def test_deep_and_shared_terms(run: object) -> None:
    assert callable(run)
    for given_ in (let_chain(2_000), doubling(60)):
        assert run(given_) is given_
