from __future__ import annotations

import pytest
from hypothesis import given, reject, strategies as st

from plica.ir.graph.module import Module
from plica.rewrite.graph.defunctionalize import defunctionalize, is_first_order
from plica.runtime.error import UnsupportedError
from tests.conftest import Golden
from tests.rewrite.graph.law import (
    WHOLE,
    doubling,
    function_chain,
    keeps_laws,
    let_chain,
    means_the_same,
    text,
    vector,
)


def attempted(given_: Module) -> Module:
    try:
        return defunctionalize(given_)
    except UnsupportedError:
        reject()


@WHOLE
@given(st.data())
def test_it_keeps_the_laws(data: st.DataObject) -> None:
    made = keeps_laws(attempted, data, is_first_order)
    assert defunctionalize(made) is made


def test_functions_become_data(golden: Golden) -> None:
    source = """
@plica.data(forall="A")
class List:
    Nil: ()
    Cons: (A, List[A])

@plica.function(forall="A B")
def fold(f: Fn[(A, B), B], start: B, items: List[A]) -> B:
    match items:
        case Nil(): return start
        case Cons(head, tail): return f(head, fold(f, start, tail))

@plica.function
def compose(
    f: Fn[(Tensor[(2,), f32],), Tensor[(2,), f32]], x: Tensor[(2,), f32]
) -> Tensor[(2,), f32]:
    return f(x)

@plica.function
def half(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return x / 2

@plica.function
def main(c: Tensor[(), bool], x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    pick = half if c else (lambda v: v * x)
    functions = Cons(half, Cons(pick, Nil()))
    return fold(compose, x, functions)
"""
    module = text(source)
    made = defunctionalize(module)
    assert is_first_order(made)
    for c in (True, False):
        means_the_same(module, made, (c, vector(1.5, -2)))
    golden(str(made))


REFUSED = {
    "interface of main": """
@plica.function
def main(f: Fn[(Tensor[(2,), f32],), Tensor[(2,), f32]], x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return f(x)
""",
    "takes a function": """
each = plica.extern(
    "each", Fn[(Fn[(Tensor[(), f32],), Tensor[(), f32]], Tensor[(2,), f32]), Tensor[(2,), f32]]
)

@plica.function
def main(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return each(lambda v: v + 1, x)
""",
    "whose dims vary": """
@plica.function
def use(f: Fn[(Tensor[(), f32],), Tensor[(), f32]]) -> Tensor[(), f32]:
    return f(1.0) + use(f)

@plica.function
def main(x: Tensor[("n",), f32]) -> Tensor[(), f32]:
    return use(lambda v: v + op.sum(x))
""",
    "dims from outside": """
@plica.function
def use(
    f: Fn[(Tensor[("n",), f32],), Tensor[("n",), f32]], x: Tensor[("n",), f32]
) -> Tensor[("n",), f32]:
    return use(f, f(x))

@plica.function
def main(x: Tensor[("n",), f32]) -> Tensor[("n",), f32]:
    return use(lambda v: v + 1, x)
""",
}


@pytest.mark.parametrize("reason", sorted(REFUSED))
def test_what_no_data_type_can_say_is_refused(reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        defunctionalize(text(REFUSED[reason]))


def test_deep_and_shared_terms() -> None:
    for given_ in (let_chain(2_000), doubling(60)):
        assert defunctionalize(given_) is given_
    assert is_first_order(defunctionalize(function_chain(300)))
