"""Tree files: the nodes of tree ensembles, in the two forms of ai.onnx.ml."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.ensemble import TESTS, SameNode, Test, TreeBranch, TreeNode


def reals_of(node: OnnxNode, name: str) -> list[float]:
    """Floats of a list, or of a tensor instead of it."""
    listed, tensor = node.reals(name), node.tensor(f"{name}_as_tensor")
    return list(listed or ()) if tensor is None else [float(each) for each in tensor.reshape(-1)]


def _alike(node: OnnxNode, **columns: Sequence[Any]) -> int:
    """How many rows columns have, which is one number."""
    sizes = {len(column) for column in columns.values()}
    if len(sizes) != 1 or not max(sizes):
        told = ", ".join(f"{name} {len(each)}" for name, each in columns.items())
        node.malformed("The lists of an ensemble are of one length.", "one length", told)
    return max(sizes)


def _test(node: OnnxNode, mode: str) -> Test:
    for arg in get_args(Test):
        if mode == f"BRANCH_{arg}":
            literal_type: Test = arg
            return literal_type
    expected = ", ".join(f"BRANCH_{test}" for test in TESTS)
    return node.malformed("A tree has a mode that there is not.", f"{expected}, LEAF", mode)


def nodes_by_id(node: OnnxNode, word: str) -> tuple[list[TreeNode], list[int]]:
    """The nodes of a file that calls them by numbers of tree and node, and the roots."""
    node.ignore("nodes_hitrates", "nodes_hitrates_as_tensor")
    trees, ids, features, then, other = (
        node.integers(f"nodes_{name}") or ()
        for name in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    )
    modes, splits = node.texts("nodes_modes") or (), reals_of(node, "nodes_values")
    missing = node.integers("nodes_missing_value_tracks_true") or (0,) * len(trees)
    columns = {"ids": ids, "features": features, "true": then, "false": other, "modes": modes}
    _alike(node, trees=trees, values=splits, missing=missing, **columns)
    place = {each: at for at, each in enumerate(zip(trees, ids, strict=True))}
    leaves = _weights_by_leaf(node, word)
    nodes: list[TreeNode] = []
    below: set[int] = set()
    for at, mode in enumerate(modes):
        if mode == "LEAF":
            nodes.append(leaves.pop((trees[at], ids[at]), ()))
            continue
        ends = [place.get((trees[at], each), -1) for each in (then[at], other[at])]
        if min(ends) < 0 or features[at] < 0:
            message = "A branch of a tree asks for a feature, and leads to nodes of the tree."
            node.malformed(message, "what is there", f"feature {features[at]}, nodes {ends}")
        holds = bool(missing[at])
        nodes.append(
            TreeBranch(features[at], _test(node, mode), splits[at], (ends[0], ends[1]), holds)
        )
        below.update(ends)
    if leaves:
        node.malformed("A weight is of no leaf.", "a leaf", str(next(iter(leaves))))
    roots = [at for at in range(len(nodes)) if at not in below]
    if len(place) != len(nodes) or sorted(trees[at] for at in roots) != sorted({*trees}):
        found = f"{len(roots)} in {len({*trees})} trees"
        node.malformed("Each tree has one root, and each node a number.", "one each", found)
    return nodes, roots


def _weights_by_leaf(node: OnnxNode, word: str) -> dict[tuple[int, int], list[tuple[int, float]]]:
    """The leaf contributions of a file, by tree and node numbers."""
    trees, ids, targets = (
        node.integers(f"{word}_{name}") or () for name in ("treeids", "nodeids", "ids")
    )
    weights = reals_of(node, f"{word}_weights")
    _alike(node, trees=trees, ids=ids, targets=targets, weights=weights)
    found: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
    for leaf, each in zip(
        zip(trees, ids, strict=True), zip(targets, weights, strict=True), strict=True
    ):
        found[leaf].append(each)
    return found


def nodes_by_place(node: OnnxNode) -> tuple[list[TreeNode], list[int]]:
    """The nodes of a file that calls them by their places, leaves behind all, and the roots."""
    node.ignore("nodes_hitrates")
    splits, modes, weights, sets = (
        [] if (array := node.tensor(name)) is None else [each.item() for each in array.reshape(-1)]
        for name in ("nodes_splits", "nodes_modes", "leaf_weights", "membership_values")
    )
    features, then, other, then_leaf, other_leaf = (
        node.integers(f"nodes_{name}") or ()
        for name in ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    )
    targets, roots = (node.integers(name) or () for name in ("leaf_targetids", "tree_roots"))
    missing = node.integers("nodes_missing_value_tracks_true") or (0,) * len(modes)
    columns = {"features": features, "true": then, "false": other, "missing": missing}
    count = _alike(node, splits=splits, modes=modes, a=then_leaf, b=other_leaf, **columns)
    leaves = _alike(node, leaf_targetids=targets, leaf_weights=weights)
    nodes: list[TreeNode] = [()] * count
    nodes += [[pair] for pair in zip(targets, weights, strict=True)]
    members = _member_sets(sets)
    for at in range(count):
        ends = [
            count + end if is_leaf and 0 <= end < leaves else end if 0 <= end < count else -1
            for end, is_leaf in ((then[at], then_leaf[at]), (other[at], other_leaf[at]))
        ]
        if min(ends) < 0 or features[at] < 0 or not 0 <= modes[at] <= len(TESTS):
            told = f"feature {features[at]}, mode {modes[at]}, nodes {ends}"
            node.malformed("A node has a feature, a mode and two ends.", "what is there", told)
        holds = bool(missing[at])
        if modes[at] < len(TESTS):
            nodes[at] = TreeBranch(
                features[at], TESTS[modes[at]], splits[at], (ends[0], ends[1]), holds
            )
            continue
        if not (values := next(members, ())):
            node.malformed("A set of values is missing.", "membership_values", "none")
        # One test per value: if none matches, the next one is tried.
        place = at
        for value in values[:-1]:
            nodes += [SameNode(ends[0]), ()]
            branch = TreeBranch(features[at], "EQ", value, (len(nodes) - 2, len(nodes) - 1), holds)
            nodes[place], place = branch, len(nodes) - 1
        nodes[place] = TreeBranch(features[at], "EQ", values[-1], (ends[0], ends[1]), holds)
    if not roots or not all(0 <= root < count for root in roots):
        node.malformed("A tree begins at a node.", f"0 to {count - 1}", str(roots))
    return nodes, list(roots)


def _member_sets(values: Sequence[float]) -> Iterator[list[float]]:
    """Sets of values, each terminated by NaN."""
    found: list[float] = []
    for value in values:
        if math.isnan(value):
            yield found
            found = []
        else:
            found.append(value)
