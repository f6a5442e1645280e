from __future__ import annotations

from hypothesis import given, strategies as st

from plica.core.digest import alpha_equal
from plica.ir.graph.module import Module
from plica.rewrite.graph.dataflow import is_dataflow, to_dataflow
from tests.conftest import Golden
from tests.rewrite.graph.law import WHOLE, doubling, keeps_laws, let_chain, text, wide_lets
from tests.strategies import modules


@WHOLE
@given(st.data())
def test_it_keeps_the_laws(data: st.DataObject) -> None:
    keeps_laws(to_dataflow, data, is_dataflow)


@WHOLE
@given(modules())
def test_doing_it_twice_changes_nothing(module: Module) -> None:
    once = to_dataflow(module)
    assert to_dataflow(once) is once
    assert alpha_equal(once, to_dataflow(module))


def test_lets_become_sharing_unless_a_function_captures_them(golden: Golden) -> None:
    source = """
@plica.function
def main(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    unused = op.sqrt(x)
    shared = op.exp(x)
    captured = op.tanh(x)
    alias = captured
    def f(y: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
        return y * alias
    return f(shared) + shared
"""
    golden(str(to_dataflow(text(source))))


def test_deep_and_shared_terms() -> None:
    for module in (let_chain(2_000), wide_lets(1_000), doubling(60)):
        assert is_dataflow(to_dataflow(module))
