"""Tree ensembles as tables: the nodes of all trees in a row, the two below a node side by side.

A sample starts at the root of every tree, and descends one level per iteration:

    next = first[at] + (x[feature[at]] <= split[at])

A leaf points to itself: its split is NaN, so no comparison holds. All tests become this form, `x >
s` by swapping the children, `x < s` by the next lower float; `x == s` is a second form, and the
branch for NaN features is a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import attrs
import numpy as np

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.storage import Array

Test: TypeAlias = Literal["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"]
TESTS: Final[tuple[Test, ...]] = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
"""In the order of their numbers in `TreeEnsemble`; behind them is the test for a set."""

OPPOSITE: Final[Mapping[Test, Test]] = {"GT": "LEQ", "GTE": "LT", "NEQ": "EQ"}

MOST_WEIGHTS: Final = 1 << 26  # the maximum number of leaves times targets

Weights: TypeAlias = Sequence[tuple[int, float]]
"""The contribution of a leaf: targets and increments of their scores."""


@attrs.frozen
class TreeBranch:
    """A test of a feature, and the indices of its two successors."""

    feature: int
    test: Test
    split: float
    ends: tuple[int, int]  # the successors if it holds, and if it does not
    missing_holds: bool = False  # whether the test holds for NaN


@attrs.frozen
class SameNode:
    """A node that is another one, which is no higher: several tests lead there."""

    place: int


TreeNode: TypeAlias = "TreeBranch | SameNode | Weights"


@attrs.frozen
class EnsembleTable:
    """All nodes, level by level."""

    roots: Array
    first: Array
    feature: Array
    split: Array
    equal: Array  # whether a node tests for equality, not for at most
    missing: Array  # whether NaN features take the second branch
    leaf: Array  # the row of `weights` that a leaf has
    weights: Array  # a row for each leaf, a column for each target
    always: Array  # for each target whether some tree has a weight for it in every leaf
    dense: bool  # whether every leaf has a weight for every target
    depth: int


def table_of(
    node: OnnxNode, nodes: Sequence[TreeNode], roots: Sequence[int], targets: int, number: type
) -> EnsembleTable:
    """The nodes that can be reached from the roots; splits and weights are of the type `number`."""
    rows = list(roots)  # of the table, as places of the file
    tree, level = list(range(len(roots))), [0] * len(roots)
    seen: set[int] = set()
    branches: list[tuple[int, int, TreeBranch]] = []
    leaves: list[tuple[int, Weights]] = []
    same: list[tuple[int, int]] = []
    at = 0
    while at < len(rows):
        row = nodes[rows[at]]
        if isinstance(row, SameNode):
            same.append((at, row.place))
        elif not isinstance(row, TreeBranch):
            leaves.append((at, row))
        elif rows[at] in seen:  # a leaf may be shared, which is no loop
            node.malformed("A node of a tree is below two others.", "one above each", str(rows[at]))
        else:
            seen.add(rows[at])
            branches.append((at, len(rows), row))
            rows += row.ends if row.test in OPPOSITE else reversed(row.ends)
            tree += [tree[at]] * 2
            level += [level[at] + 1] * 2
        at += 1
    if len(branches) != sum(isinstance(each, TreeBranch) for each in nodes):
        node.malformed("A node of a tree is below no root.", "trees", "a loop, or no root")
    if len(leaves) * targets > MOST_WEIGHTS:
        message = "The trees have too many leaves and targets."
        node.refused_for_good(
            message, f"at most {MOST_WEIGHTS} weights", str(len(leaves) * targets)
        )
    count = len(rows)
    first, feature = np.arange(count, dtype=np.int32), np.zeros(count, np.int32)
    split: Array = np.full(count, np.nan, number)
    leaf = np.zeros(count, np.int32)
    equal, missing = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    for at, below, branch in branches:
        first[at], feature[at] = below, branch.feature
        plain = OPPOSITE.get(branch.test, branch.test)
        split[at] = _lowered(split.dtype.type(branch.split)) if plain == "LT" else branch.split
        equal[at] = plain == "EQ"
        missing[at] = (branch.missing_holds or branch.test == "NEQ") != (branch.test in OPPOSITE)
    where_is = {place: at for at, place in enumerate(rows)}
    for at, place in same:
        first[at] = where_is[place]
    weights: Array = np.zeros((len(leaves), targets), number)
    lacking = np.zeros((len(roots), targets), np.bool_)
    for place, (at, given) in enumerate(leaves):
        leaf[at] = place
        there = np.zeros(targets, np.bool_)
        for target, weight in given:
            weights[place, target] += weight
            there[target] = True
        lacking[tree[at]] |= ~there
    always: Array = np.logical_not(np.all(lacking, axis=0))
    return EnsembleTable(
        np.arange(len(roots), dtype=np.int32), first, feature, split, equal, missing, leaf,
        weights, always, not lacking.any(), max(level),
    )  # fmt: skip


def weights_in(nodes: Sequence[TreeNode]) -> list[tuple[int, float]]:
    """What all leaves give."""
    leaves = [node for node in nodes if not isinstance(node, TreeBranch | SameNode)]
    return [entry for leaf in leaves for entry in leaf]


def _lowered(split: np.floating[Any]) -> np.floating[Any]:
    """The next lower float; NaN if there is none."""
    lowest = np.isneginf(split)
    return split.dtype.type(np.nan) if lowest else np.nextafter(split, -np.inf, dtype=split.dtype)
