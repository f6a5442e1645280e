"""Folds: their laws, and that depth and sharing cost nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given

from plica.core.diagnostic import CompilerBug
from plica.core.fold import (
    fold,
    fold_into,
    map_bottom_up,
    map_top_down,
    map_within,
    parts_first,
    post_order,
    universe,
)
from plica.core.term import Term, children, rebuild
from tests.core.test_term import chain, doubling
from tests.strategies import terms, toys
from tests.strategies.term import Leaf, Many, Pair


def naive(algebra: Callable[[Term, tuple[object, ...]], object], term: Term) -> object:
    """What a fold means, by recursion."""
    return algebra(term, tuple(naive(algebra, kid) for kid in children(term)))


def show(node: Term, kids: tuple[object, ...]) -> object:
    return type(node).__name__, kids


@given(toys())
def test_fold_is_the_recursion_it_stands_for(term: Term) -> None:
    assert fold(show, term) == naive(show, term)


@given(toys())
def test_folding_into_a_table_is_the_fold_and_asks_for_nothing_twice(term: Term) -> None:
    memo: dict[Term, object] = {}
    asked: list[Term] = []

    def result(node: Term) -> object:
        asked.append(node)
        return show(node, tuple(memo[kid] for kid in children(node)))

    assert fold_into(memo, term, children, result) == fold(show, term)
    assert sorted(map(id, asked)) == sorted(map(id, post_order(term)))
    assert memo.keys() == set(asked)
    fold_into(memo, term, children, result)
    assert len(asked) == len(memo)


@given(terms())
def test_folding_with_rebuild_gives_the_term(term: Term) -> None:
    assert fold(rebuild, term) is term


@given(terms())
def test_mapping_the_identity_gives_the_term(term: Term) -> None:
    assert map_bottom_up(lambda node: node, term) is term
    assert map_top_down(lambda node: node, term) is term


@given(terms())
def test_post_order_is_every_node_once_children_first(term: Term) -> None:
    order = post_order(term)
    assert order == list(universe(term))
    assert len(set(order)) == len(order)
    assert order[-1] is term
    place = {node: i for i, node in enumerate(order)}
    assert all(place[kid] < place[node] for node in order for kid in children(node))


@given(terms(), terms())
def test_parts_come_first_as_children_do(one: Term, other: Term) -> None:
    assert parts_first(children, one, other) == post_order(one, other)
    assert parts_first(lambda _: (), one, other, one) == list(dict.fromkeys([one, other]))


@given(toys())
def test_an_algebra_sees_each_node_once(term: Term) -> None:
    seen: list[Term] = []

    def algebra(node: Term, kids: tuple[None, ...]) -> None:
        seen.append(node)

    fold(algebra, term)
    assert seen == post_order(term)


def grow(node: Term) -> Term:
    return Many("grown", node.items) if isinstance(node, Many) else node


@given(toys())
def test_a_map_stays_out_of_what_it_does_not_enter(term: Term) -> None:
    def has_many(node: Term) -> bool:
        return any(isinstance(each, Many) for each in universe(node))

    assert map_within(grow, term, has_many) is map_bottom_up(grow, term)
    assert map_within(grow, term, lambda node: False) is grow(term)


@given(toys())
def test_bottom_up_and_top_down_agree_where_order_does_not_matter(term: Term) -> None:
    assert map_bottom_up(grow, term) is map_top_down(grow, term)


def test_bottom_up_sees_new_children_and_top_down_old_ones() -> None:
    def swap(node: Term) -> Term:
        match node:
            case Leaf(1):
                return Leaf(2)
            case Pair(Leaf(2), right):
                return right
            case _:
                return node

    term: Term = Pair(Leaf(1), Leaf("right"))
    assert map_bottom_up(swap, term) is Leaf("right")
    assert map_top_down(swap, term) is Pair(Leaf(2), Leaf("right"))


def test_top_down_that_never_ends_is_said_to() -> None:
    with pytest.raises(CompilerBug, match="never ends"):
        map_top_down(lambda node: Many("around", (node,)), Leaf(1))  # type: ignore[arg-type]


def size(node: Term, kids: tuple[int, ...]) -> int:
    return 1 + sum(kids)


def renamed(node: Term) -> Term:
    return Leaf("other") if isinstance(node, Leaf) else node


@pytest.mark.parametrize(
    ("build", "depth", "expected"), [(chain, 20_000, 40_001), (doubling, 60, 2**61 - 1)]
)
def test_depth_and_sharing_cost_nothing(
    build: Callable[[int], Term], depth: int, expected: int
) -> None:
    term = build(depth)
    assert fold(size, term) == expected
    for mapped in (map_bottom_up(renamed, term), map_top_down(renamed, term)):
        assert mapped is not term
        assert fold(size, mapped) == expected
