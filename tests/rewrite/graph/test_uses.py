from __future__ import annotations

from collections import Counter

from hypothesis import given

from plica.core.fold import post_order
from plica.ir.graph.expression import Call, Expr, Var
from plica.ir.graph.module import Module
from plica.rewrite.graph.walk import (
    escaping,
    expressions,
    operands,
    reachable,
    recursive,
    references,
    use_counts,
    users,
    with_operands,
)
from tests.rewrite.graph.law import WHOLE, doubling, text
from tests.strategies import modules


@WHOLE
@given(modules())
def test_parts_give_back_the_whole(module: Module) -> None:
    for _, function in module.functions():
        for node in expressions(function):
            assert with_operands(node, operands(node)) is node


@WHOLE
@given(modules())
def test_counts_and_users_agree_with_their_definitions(module: Module) -> None:
    for _, function in module.functions():
        inside = {each for each in post_order(function) if isinstance(each, Expr)}
        nodes = expressions(function)
        assert set(nodes) <= inside
        counts: Counter[Expr] = Counter(part for node in nodes for part in operands(node))
        assert use_counts(function) == counts
        for node, found in users(function).items():
            assert set(found) == {each for each in nodes if node in operands(each)}


@WHOLE
@given(modules())
def test_what_is_only_called_does_not_escape(module: Module) -> None:
    for _, function in module.functions():
        loose = escaping(function)
        for node in expressions(function):
            rest = operands(node)[1:] if isinstance(node, Call) else operands(node)
            assert all(each in loose for each in rest if isinstance(each, Var))


@WHOLE
@given(modules())
def test_what_is_needed_needs_nothing_else(module: Module) -> None:
    table = module.definitions()
    assert module.main is not None
    found = reachable(module, [module.main])
    for name in found:
        assert set(references(table[name], table)) <= set(found)


def test_functions_that_call_themselves() -> None:
    source = """
@plica.function
def even(n: Tensor[(), i64]) -> Tensor[(), bool]:
    return n == 0 if n <= 0 else odd(n - 1)

@plica.function
def odd(n: Tensor[(), i64]) -> Tensor[(), bool]:
    return n < 0 if n <= 0 else even(n - 1)

@plica.function
def main(n: Tensor[(), i64]) -> Tensor[(), bool]:
    return even(n)
"""
    found = recursive(text(source))
    assert sorted(str(each.name) for each in found) == ["even", "odd"]
    assert {len(group) for group in found.values()} == {2}


def test_shared_nodes_count_once_per_place() -> None:
    function = doubling(60).main_function()
    assert set(use_counts(function.body).values()) == {2}
