"""Integer regions: the graph between a byte value and the bytes and constants below it.

>>> import numpy as np
>>> from plica.ir.graph.expression import const
>>> from plica.ir.op.elementwise import cast
>>> from plica.ir.op.linear import matmul
>>> from plica.ir.type.term import tensor
>>> x, w = Var(Name("x"), tensor((3, 4), "i8")), const(np.ones((4, 2), np.int8))
>>> region = region_of(cast(matmul(cast(x, i32), cast(w, i32)), i8))
>>> [each.op for each in region.order], list(region.leaves.values()) == [x, w]
(['cast', 'cast', 'matmul', 'cast'], True)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from attrs import frozen

from plica.core import Name
from plica.ir.graph.expression import Apply, Const, Expr, Function, Var
from plica.ir.type import TensorType, i8, i32, type_of
from plica.rewrite.fuse.reading import reading
from plica.rewrite.graph.walk import operands, with_operands

MAX_OPERATORS: Final = 32  # between bytes and bytes no layer has more


@frozen(eq=False)
class IntegerRegion:
    """The graph between a byte value and the bytes and constants below it."""

    function: Function
    leaves: Mapping[Name, Expr]
    order: tuple[Expr, ...]


def _tensor(of: Expr) -> TensorType | None:
    kind = type_of(of)
    return kind if isinstance(kind, TensorType) else None


def region_of(root: Expr) -> IntegerRegion | None:
    """Operators on i32 below a value of i8, as a function of one value of i8 and of constants."""
    kind = _tensor(root)
    if not isinstance(root, Apply) or kind is None or kind.dtype is not i8:
        return None
    become: dict[Expr, Expr] = {}
    leaves: dict[Name, Expr] = {}
    order: list[Expr] = []
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, leaving = stack.pop()
        if node in become:
            continue
        if leaving:
            become[node] = with_operands(node, tuple([become[part] for part in operands(node)]))
            order.append(node)
            continue
        of = _tensor(node)
        if of is None or len(order) > MAX_OPERATORS:
            return None
        if isinstance(node, Const) or (of.dtype is i8 and node is not root):
            name = Name("leaf", len(leaves))
            become[node], leaves[name] = Var(name, of), node
            continue
        if not isinstance(node, Apply) or (node is not root and of.dtype is not i32):
            return None
        if reading(node) is None:
            return None
        stack.append((node, True))
        stack += [(part, False) for part in reversed(operands(node))]
    if sum(not isinstance(leaf, Const) for leaf in leaves.values()) != 1 or not _is_one(order):
        return None
    params = tuple([become[leaf] for leaf in leaves.values()])
    assert all(isinstance(param, Var) for param in params)
    function = Function((), (), params, kind, become[root])  # type: ignore[arg-type]  # as asserted
    return IntegerRegion(function, leaves, tuple(order))


def _is_one(order: Sequence[Expr]) -> bool:
    """Whether there is one reduction, whose elements are used elementwise only.

    No operator is needed at two places either.  So they are one layer, which can be fused.
    """
    after: set[Expr] = set()
    uses: Counter[Expr] = Counter()
    for node in order:
        of = reading(node)
        assert of is not None  # the region has no others
        for part, places in zip(operands(node), of.places, strict=True):
            uses[part] += len(places)
        reads = [at for at, part in enumerate(operands(node)) if part in after]
        if any(of.places[at] != (of.identity,) or of.inner[at] for at in reads):
            return False
        if reads or of.reduces:
            if after and of.reduces:
                return False
            after.add(node)
    return bool(after) and all(uses[node] <= 1 for node in order)


def joins(region: IntegerRegion, *leaves: Expr) -> Expr:
    """The first operator that depends on all of some leaves."""
    below: dict[Expr, set[Expr]] = {}
    for node in region.order:
        below[node] = {leaf for part in operands(node) for leaf in below.get(part, {part})}
        if below[node].issuperset(leaves):
            return node
    return region.order[-1]
