"""Regions: where a step may run, against a model that walks up parent by parent."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.codegen.lower.region import RegionTree


@st.composite
def trees(draw: st.DrawFn) -> tuple[RegionTree, list[int], dict[int, int]]:
    """A tree, the parent of each region, and the other branch of each branch."""
    tree, parents = RegionTree(), [0]
    siblings: dict[int, int] = {}
    for _ in range(draw(st.integers(0, 12))):
        parent = draw(st.integers(0, len(parents) - 1))
        if draw(st.booleans()):
            then, orelse = tree.branches(parent)
            siblings |= {then: orelse, orelse: then}
            parents += [parent, parent]
        else:
            tree.child(parent)
            parents.append(parent)
    return tree, parents, siblings


def above(region: int, parents: list[int]) -> list[int]:
    """The region and all its ancestors, outwards."""
    path = [region]
    while path[-1] != 0:
        path.append(parents[path[-1]])
    return path


@given(trees(), st.data())
def test_common_is_the_deepest_region_around_all(
    made: tuple[RegionTree, list[int], dict[int, int]], data: st.DataObject
) -> None:
    tree, parents, _ = made
    some = data.draw(st.lists(st.integers(0, len(parents) - 1), min_size=1, max_size=5))
    around = [above(region, parents) for region in some]
    shared = [region for region in around[0] if all(region in path for path in around)]
    assert tree.common(some) == shared[0]


@given(trees(), st.data())
def test_reduced_is_where_the_use_is_certain(
    made: tuple[RegionTree, list[int], dict[int, int]], data: st.DataObject
) -> None:
    tree, parents, siblings = made
    some = set(data.draw(st.lists(st.integers(0, len(parents) - 1), min_size=1, max_size=8)))
    certain = set(some)
    changed = True
    while changed:  # both branches of an `If` make its region certain; so does an ancestor
        more = {parents[r] for r in certain if siblings.get(r) in certain} - certain
        more |= {r for r in range(len(parents)) if set(above(r, parents)[1:]) & certain} - certain
        more -= {0} if 0 in certain else set()
        changed = bool(more)
        certain |= more
    outermost = {r for r in certain if r == 0 or parents[r] not in certain}
    assert tree.reduced(some) == sorted(outermost)


def test_deep_trees_are_no_trouble() -> None:
    tree = RegionTree()
    at, sides = 0, []
    for _ in range(20_000):
        at, other = tree.branches(at)
        sides.append(other)
    assert tree.common([at, sides[0]]) == 0
    assert tree.common([at, sides[-1]]) == tree.common([at, sides[-1], at])
    assert tree.reduced([at, *sides]) == [0]
