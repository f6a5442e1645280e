from __future__ import annotations

from hypothesis import given, strategies as st

from plica.core.digest import alpha_equal
from plica.ir.graph.expression import If
from plica.ir.graph.module import Module
from plica.rewrite.graph.anf import is_basic_block, to_basic_blocks
from tests.conftest import Golden
from tests.rewrite.graph.law import (
    WHOLE,
    X,
    doubling,
    if_chain,
    keeps_laws,
    let_chain,
    program,
    text,
)
from tests.strategies import modules


@WHOLE
@given(st.data())
def test_it_keeps_the_laws(data: st.DataObject) -> None:
    keeps_laws(to_basic_blocks, data, is_basic_block)


@WHOLE
@given(modules())
def test_doing_it_twice_changes_nothing_but_names(module: Module) -> None:
    once = to_basic_blocks(module)
    assert alpha_equal(to_basic_blocks(once), once)


def test_a_function_that_only_dead_code_makes_recursive() -> None:
    source = """
@plica.function
def main(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    def f(y: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
        unused = f(y)
        return y + x
    return f(x)
"""
    once = to_basic_blocks(text(source))
    assert alpha_equal(to_basic_blocks(once), once)


def test_a_node_in_two_scopes_is_no_block() -> None:
    module = if_chain(1)
    condition = module.main_function().params[0]
    assert is_basic_block(module)
    assert not is_basic_block(program(If(condition, X + X, -(X + X)), (condition, X)))


def test_what_two_scopes_use_has_a_name(golden: Golden) -> None:
    source = """
@plica.function
def main(c: Tensor[(), bool], x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return op.exp(x) + op.tanh(x) * op.tanh(x) if c else op.exp(x) * 2
"""
    golden(str(to_basic_blocks(text(source))))


def test_deep_and_shared_terms() -> None:
    for module in (let_chain(2_000), doubling(60), if_chain(200)):
        assert is_basic_block(to_basic_blocks(module))
