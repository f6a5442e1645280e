from __future__ import annotations

from hypothesis import given, strategies as st

from plica.ir.graph.module import Module
from plica.rewrite.graph.lift import is_lifted, lift
from tests.conftest import Golden
from tests.rewrite.graph.law import WHOLE, doubling, function_chain, keeps_laws, let_chain, text
from tests.strategies import modules


@WHOLE
@given(st.data())
def test_it_keeps_the_laws(data: st.DataObject) -> None:
    keeps_laws(lift, data)


@WHOLE
@given(modules())
def test_doing_it_twice_changes_nothing(module: Module) -> None:
    once = lift(module)
    assert lift(once) is once


def test_local_functions_become_definitions(golden: Golden) -> None:
    source = """
@plica.function
def apply(
    f: Fn[(Tensor[("n",), f32],), Tensor[("n",), f32]], x: Tensor[("n",), f32]
) -> Tensor[("n",), f32]:
    return f(x)

@plica.function
def main(x: Tensor[("n",), f32], y: Tensor[("n",), f32]) -> Tensor[("n",), f32]:
    def loop(k: Tensor[(), i64], z: Tensor[("n",), f32]) -> Tensor[("n",), f32]:
        return z if k <= 0 else loop(k - 1, z * y)
    def closed(z: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
        return z + z
    def value(z: Tensor[("n",), f32]) -> Tensor[("n",), f32]:
        return loop(i64(1), z) - x
    return apply(value, loop(i64(2), x)) + op.sum(closed(const([1.0, 2.0], f32)))
"""
    made = lift(text(source))
    assert is_lifted(made)
    golden(str(made))


def test_deep_and_shared_terms() -> None:
    for given_ in (let_chain(2_000), doubling(60)):
        assert lift(given_) is given_
    assert is_lifted(lift(function_chain(300)))
