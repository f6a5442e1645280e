"""Counts: how many operations on floats a kernel does, counted from its loops.

A sum and a product are one each, so is every function; indices are not counted, nor what moves
numbers only.  Both sides of a choice count, so a kernel with many is said to do more than it does.

>>> from plica.ir.type.dtype import f32
>>> from plica.codegen.lower.nest import nest
>>> from plica.ir.loop.stages import stages_of
>>> from plica.ir.loop.tensor import buffer, compute, reduce
>>> a = buffer("a", (4, 8), f32)
>>> sums = compute((a,), (4,), lambda i: reduce("sum", (8,), lambda k: a[i, k] * 2.0))
>>> operations(nest(stages_of(sums)))
64
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Final

from plica.core import Memo, post_order
from plica.ir.loop import For, Kernel, Stmt, Store, scalar as sc
from plica.ir.type import known

_COUNTED: Final = (sc.Add, sc.Sub, sc.Mul, sc.Div, sc.Max, sc.Min, sc.Pow, sc.Intrinsic)


OPERATIONS: Final[Memo[Kernel, int]] = Memo(512)
"""What was counted: another process that made a kernel has done so."""


def operations(kernel: Kernel) -> int:
    """The operations on floats one run of a kernel does, about."""
    return OPERATIONS.found(kernel, partial(_counted, kernel))


def _counted(kernel: Kernel) -> int:
    total = 0
    stack: list[tuple[Stmt, int]] = [(kernel.body, 1)]
    while stack:
        stmt, times = stack.pop()
        if isinstance(stmt, For):
            times *= known(stmt.extent) or 1
        elif isinstance(stmt, Store):
            total += times * _within(stmt.value)
        stack += [(child, times) for child in stmt._children if isinstance(child, Stmt)]
    return total


@lru_cache(maxsize=512)
def _within(value: sc.Scalar) -> int:
    """The operations of a value; those inside a reduction as often as it takes them."""
    found: dict[object, int] = {}
    for node in post_order(value):
        if not isinstance(node, sc.Scalar):
            continue
        kids = sum(found.get(kid, 0) for kid in node._children)
        if isinstance(node, sc.Load):
            kids = 0
        if isinstance(node, sc.Reduce):
            count = 1
            for extent in node.extents:
                count *= known(extent) or 1
            kids = count * (found.get(node.body, 0) + sc.dtype_of(node).is_float)
        elif isinstance(node, _COUNTED) and sc.dtype_of(node).is_float:
            kids += 1
        found[node] = kids
    return found.get(value, 0)
