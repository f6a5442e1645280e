"""Tasks: what does the same is one, however it is called."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from plica.codegen.llvm.toolchain import host
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Var, const
from plica.ir.type.term import tensor
from plica.rewrite.contract import exact, reassociates
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.search.task import tasks
from tests.search.work import multiplied, of_main, product, task

MACHINE = host()


def test_what_occurs_twice_has_twice_the_weight() -> None:
    (found,) = tasks(multiplied(16, twice=True), DEFAULT_CONTRACT, (), MACHINE)
    (once,) = tasks(multiplied(16), DEFAULT_CONTRACT, (), MACHINE)
    assert (found.weight, once.weight) == (2, 1)
    assert found.key == once.key
    assert found.facts.constant == (False, True)


def test_weights_do_not_enter_the_key() -> None:
    def of(seed: int) -> str:
        x = Var(Name("x"), tensor((4, 8), "f32"))
        random = np.random.default_rng(seed)
        weight = const(random.standard_normal((8, 16)).astype(np.float32))
        (found,) = tasks(of_main(Apply("matmul", (x, weight)), x), DEFAULT_CONTRACT, (), MACHINE)
        return found.key

    assert of(0) == of(1)


@given(st.text("abc", min_size=1, max_size=4), st.text("xyz", min_size=1, max_size=4))
def test_names_do_not_enter_the_key(one: str, other: str) -> None:
    x, w = Var(Name(one), tensor((4, 8), "f32")), Var(Name(other), tensor((8, 16), "f32"))
    named = task(Apply("matmul", (x, w)), x, w, constant=(False, True))
    assert named.key == product(4, 16, 8).key


def test_what_may_be_done_enters_the_key() -> None:
    keys = [
        tasks(multiplied(16), each, (), MACHINE)[0].key
        for each in (exact, reassociates, DEFAULT_CONTRACT)
    ]
    assert len(set(keys)) == 3
    assert product(4, 16, 8).key != product(4, 16, 8, constant=False).key
    assert product(4, 16, 8).key != product(4, 8, 16).key
