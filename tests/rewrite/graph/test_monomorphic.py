from __future__ import annotations

import pytest
from hypothesis import given, reject, strategies as st

from plica.ir.graph.module import Module, module
from plica.rewrite.graph.monomorphic import is_monomorphic, monomorphise
from plica.runtime.error import UnsupportedError
from tests.conftest import Golden
from tests.rewrite.graph.law import WHOLE, doubling, keeps_laws, let_chain, text


def attempted(given_: Module) -> Module:
    try:
        return monomorphise(given_)
    except UnsupportedError:
        reject()


@WHOLE
@given(st.data())
def test_it_keeps_the_laws(data: st.DataObject) -> None:
    made = keeps_laws(attempted, data, is_monomorphic)
    assert monomorphise(made) is made


def test_a_copy_for_every_type(golden: Golden) -> None:
    source = """
@plica.function(forall="A")
def twice(f: Fn[(A,), A], x: A) -> A:
    return f(f(x))

@plica.function
def main(x: Tensor[("n",), f32], k: Tensor[(), i64]):
    return twice(lambda a: a + 1, x), twice(lambda b: b * 2, k)
"""
    golden(str(monomorphise(text(source))))


def test_a_library_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="main function"):
        monomorphise(module(dict(doubling(2).items())))


def test_polymorphic_values_are_refused() -> None:
    source = """
@plica.function(forall="A")
def same(x: A) -> A:
    return x

@plica.function
def use(f: Fn[(A,), A, forall("A")], x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return f(x)

@plica.function
def main(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return use(same, x)
"""
    with pytest.raises(UnsupportedError, match="polymorphic same as a value"):
        monomorphise(text(source))


def test_types_without_end_are_refused() -> None:
    source = """
@plica.function(forall="A")
def grow(n: Tensor[(), i64], x: A) -> Tensor[(), i64]:
    return n if n <= 0 else grow(n - 1, (x, x))

@plica.function
def main(n: Tensor[(), i64]) -> Tensor[(), i64]:
    return grow(n, n)
"""
    with pytest.raises(UnsupportedError, match="different types"):
        monomorphise(text(source))


def test_deep_and_shared_terms() -> None:
    for given_ in (let_chain(2_000), doubling(60)):
        assert monomorphise(given_) is given_
