"""Operation counts: how often each kind of arithmetic occurs in the value of a store.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, i = buffer("x", (4,), f32), axis("i")
>>> dict(zip(KINDS, operations(x[i] * x[i] + x[i]), strict=True))["float-multiply-add"]
1.0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from plica.core import free_vars
from plica.ir.loop import scalar as sc

Operations: TypeAlias = tuple[float, ...]

_ARITHMETIC: Final = ("multiply-add", "add", "multiply", "divide", "compare", "function", "other")
KINDS: Final = (
    *[f"float-{each}" for each in _ARITHMETIC],
    *[f"int-{each}" for each in _ARITHMETIC],
    "logic",
    "select",
)
"""The kinds, in the order of the counts."""

_DTYPE_INDEPENDENT_COSTS: Final = ("logic", "select")  # costs that are the same for all dtypes
_NUMBER: Final = {kind: number for number, kind in enumerate(KINDS)}


def operations(value: sc.Scalar | None) -> Operations:
    """The counts for a value, each term once; an opaque intrinsic is one multiply-add."""
    counts = [0.0] * len(KINDS)
    if value is None:
        counts[0] = 1.0
        return tuple(counts)
    stack, seen = [value], {value}
    while stack:
        node = stack.pop()
        if not _reads(node):
            continue
        if (kind := _kind(node)) is not None:
            counts[_NUMBER[kind]] += 1
        for operand in _operands(node):
            if operand not in seen:
                seen.add(operand)
                stack.append(operand)
    return tuple(counts)


def place_operations(
    roots: Iterable[sc.Scalar], bound: Mapping[sc.ScalarVar, sc.Scalar]
) -> Operations:
    """The number of divisions and remainders, and of comparisons and selects, in the address
    computations and guards; definitions count at each use.

    >>> from plica.ir.loop.tensor import axis
    >>> i = axis("i")
    >>> place_operations([i // 4, sc.Select(sc.Lt(i, sc.index(3)), i, sc.index(0))], {})
    (1.0, 2.0)
    """
    counts = [0.0, 0.0]
    stack = list(roots)
    seen = set(stack)
    while stack:
        node = stack.pop()
        if isinstance(node, sc.ScalarVar):
            more = [bound[node]] if node in bound else []
        else:
            more = [child for child in node._children if isinstance(child, sc.Scalar)]
            if isinstance(node, sc.Load):
                more = list(node.indices)
            elif not isinstance(node, sc.Lit) and not _reads(node):
                row = sc.row_of(node)
                cost = "other" if row is None else row.cost
                counts[0] += cost == "divide"
                counts[1] += cost in ("compare", *_DTYPE_INDEPENDENT_COSTS)
        for scalar in more:
            if scalar not in seen:
                seen.add(scalar)
                stack.append(scalar)
    return tuple(counts)


def _reads(node: sc.Scalar) -> bool:
    return any(isinstance(var, sc.Buffer) for var in free_vars(node))


def _operands(node: sc.Scalar) -> list[sc.Scalar]:
    if isinstance(node, sc.Load):
        return []
    kids = [child for child in node._children if isinstance(child, sc.Scalar)]
    if isinstance(node, sc.Add) and _has_product(node):
        factors: list[sc.Scalar] = []
        for child in kids:
            if isinstance(child, sc.Mul) and child is _fused(node):
                factors += [child.left, child.right]
            else:
                factors.append(child)
        return factors
    return kids


def _has_product(of: sc.Add) -> bool:
    return isinstance(of.left, sc.Mul) or isinstance(of.right, sc.Mul)


def _fused(whole: sc.Add) -> sc.Scalar:
    """The product that is added in the same step: the right one, if both sides are products."""
    return whole.right if isinstance(whole.right, sc.Mul) else whole.left


def _kind(node: sc.Scalar) -> str | None:
    if isinstance(node, sc.Load | sc.Lit | sc.ScalarVar):
        return None
    row = sc.row_of(node)
    cost = "other" if row is None else row.cost
    if cost in _DTYPE_INDEPENDENT_COSTS:
        return cost
    operand = node.left if isinstance(node, sc.Eq | sc.Ne | sc.Lt | sc.Le) else node
    family = "float" if sc.dtype_of(operand).is_float else "int"
    if isinstance(node, sc.Add) and _has_product(node):
        return f"{family}-multiply-add"
    return f"{family}-{cost}"
