from __future__ import annotations

from hypothesis import given, strategies as st

from plica.ir.graph.expression import Expr, Tuple
from plica.rewrite.graph.dominator import PostDominators, ScopeTree
from plica.rewrite.graph.walk import expressions, operands
from tests.rewrite.graph.law import X, doubling, let_chain, wide_lets


@st.composite
def graphs(draw: st.DrawFn) -> Expr:
    """A random dataflow graph whose result depends on everything in it."""
    nodes: list[Expr] = [X]
    for _ in range(draw(st.integers(1, 12))):
        parts = draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3))
        nodes.append(Tuple(tuple(parts)))
    return Tuple(tuple(nodes[-3:]))


def reaches(start: Expr, end: Expr, without: Expr) -> bool:
    """Whether a way leads from the result to a node, avoiding one."""
    stack, seen = [start], {without}
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        if node is end:
            return True
        seen.add(node)
        stack.extend(operands(node))
    return False


@given(graphs())
def test_it_agrees_with_the_definition(root: Expr) -> None:
    tree = PostDominators(root)
    nodes = expressions(root)
    for node in nodes:
        every = {each for each in nodes if each is node or not reaches(root, node, each)}
        assert every == {each for each in nodes if tree.dominates(each, node)}
        if node is not root:
            nearest = tree.immediate(node)
            assert nearest in every - {node}
            assert all(tree.dominates(each, nearest) for each in every - {node})


@given(graphs())
def test_the_preorder_has_each_subtree_in_one_piece(root: Expr) -> None:
    tree = PostDominators(root)
    order = tree.preorder()
    assert sorted(map(id, order)) == sorted(map(id, tree.nodes))
    for at, node in enumerate(order):
        size = sum(tree.dominates(node, each) for each in order)
        assert all(tree.dominates(node, each) for each in order[at : at + size])


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(0, 1000), st.integers(0, 1000))
def test_common_ancestors(parents: list[int], first: int, second: int) -> None:
    tree = ScopeTree()
    for number, parent in enumerate(parents, 1):
        assert tree.add(parent % number) == number
    a, b = first % (len(parents) + 1), second % (len(parents) + 1)

    def above(node: int) -> list[int]:
        found = [node]
        while found[-1] != ScopeTree.root:
            found.append(tree.parent[found[-1]])
        return found

    others = set(above(b))
    expected = next(each for each in above(a) if each in others)
    assert tree.common(a, b) == tree.common(b, a) == expected
    assert tree.is_inside(a, b) == (b in above(a))


def test_deep_and_shared_terms() -> None:
    for module in (let_chain(2_000), wide_lets(2_000), doubling(60)):
        body = module.main_function().body
        tree = PostDominators(body)
        assert tree.dominates(body, X)
