"""Reductions: by which operation a block updates what it writes.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, k = buffer("x", (3,), f32), buffer("y", (), f32), axis("k")
>>> reducer(Store(y, (), sc.Add(y[()], x[k])))
'sum'

An operation that is named here may be applied in any order; floating-point sums and products then
differ by rounding.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from plica.core import free_vars
from plica.ir.loop import scalar as sc
from plica.ir.loop.statement import Alloc, Block, For, Seq, Stmt, Store, substatements
from plica.ir.type import bool_

# fmt: off
OPERATIONS: Final[dict[type[sc.Scalar], str]] = {
    sc.Add: "sum",  sc.Mul: "prod",   sc.Max: "max",     sc.Min: "min",
    sc.And: "all",  sc.Or: "any",     sc.BitAnd: "and",  sc.BitOr: "or",  sc.BitXor: "xor",
}
# fmt: on


@lru_cache(maxsize=2048)
def reducer(root: Stmt) -> str | None:
    """The operation by which a statement, or the body of a block, updates every element it stores.

    None if a store is no such update, or if two of them use different operations.
    """
    found: set[str | None] = set()
    stack: list[Stmt] = [root.body if isinstance(root, Block) else root]
    stores: list[Store] = []
    while stack:
        if isinstance(stmt := stack.pop(), Store):
            stores.append(stmt)
        elif isinstance(stmt, Block):  # the init of a block inside begins, it does not update
            stack.append(stmt.body)
        elif isinstance(stmt, For | Seq | Alloc):
            stack.extend(substatements(stmt))
        else:
            return None
    written = {store.buffer for store in stores}
    for store in stores:
        taken = update(store)
        if taken is None or not free_vars(taken).isdisjoint(written):
            return None
        found.add(OPERATIONS[type(store.value)])
    return found.pop() if len(found) == 1 else None


def update(store: Store) -> sc.Scalar | None:
    """The operand that an updating store combines with its element: `e` of `y[i] = y[i] + e`."""
    value = store.value
    if type(value) not in OPERATIONS:
        return None
    left, right = value.left, value.right  # type: ignore[attr-defined]  # every operation has both
    old = sc.Load(store.buffer, store.indices)
    if left is old:
        return right  # type: ignore[no-any-return]  # a field of a node that is known
    if right is old and not (isinstance(value, sc.And | sc.Or) and sc.dtype_of(left) is bool_):
        return left  # type: ignore[no-any-return]  # a field of a node that is known
    return None
