"""Tasks: what does the same is one, however it is called."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.codegen.llvm.toolchain import host
from plica.core.name import Name
from plica.ir.contract import exact, reassociates
from plica.ir.graph.expression import Apply, Var, const
from plica.ir.op.shape import reshape
from plica.ir.type.term import tensor
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.search.task import tasks
from plica.search.tuned import InPlace
from tests.search.work import multiplied, of_main, product, task

MACHINE = host()


def test_what_occurs_twice_has_twice_the_weight() -> None:
    (found,) = tasks(multiplied(16, twice=True), DEFAULT_CONTRACT, (), MACHINE)
    (once,) = tasks(multiplied(16), DEFAULT_CONTRACT, (), MACHINE)
    assert (found.weight, once.weight) == (2, 1)
    assert found.key == once.key
    assert found.facts.constant == (False, True)


@given(st.permutations((2, 4, 4)), st.permutations((4, 8)))
def test_views_are_no_tasks(before: list[int], after: list[int]) -> None:
    x = Var(Name("x"), tensor(tuple(before), "f32"))
    w = Var(Name("w"), tensor((8, 8), "f32"))
    shown = reshape(x, (4, 8))
    made = reshape(Apply("matmul", (shown, w)), tuple(after))
    (found,) = tasks(of_main(made, x, w), DEFAULT_CONTRACT, (), MACHINE)
    assert found.name == "matmul"


@pytest.mark.parametrize(("many", "words"), [(0, ""), (1, "1 kernel keeps its"), (2, "2 kernels")])
def test_kernels_that_keep_their_default_are_counted(many: int, words: str) -> None:
    said = str(InPlace(2e-3, 1e-3, ("matmul",) * many))
    assert words in said
    assert ("default" in said) is (many > 0)


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
