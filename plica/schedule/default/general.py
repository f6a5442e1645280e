"""What stages take that the general template schedules, in cycles of one core as for all others.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x, w = buffer("x", (4, 8), f32), buffer("w", (8, 32), f32)
>>> dense = stage("y", (4, 32), lambda m, n: reduce("sum", (8,), lambda k: x[m, k] * w[k, n]))
>>> machine = Machine(512, 32)
>>> general_cycles(stages((x, w), (dense,)), machine) < 4 * 8 * 32
True
>>> across = stage("y", (4, 32), lambda m, n: reduce("sum", (8,), lambda k: x[m, k] * w[k, n // 2]))
>>> general_cycles(stages((x, w), (across,)), machine) > 4 * 8 * 32
True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plica.core import Term, fold, post_order
from plica.ir.loop import Block, For, Load, Reduce, Scalar, ScalarVar, Stages, Store, kernel_of
from plica.ir.loop.scalar import FloorDiv, FloorMod, row_of
from plica.ir.loop.scalar_row import Cost
from plica.ir.type import known
from plica.schedule.default.elementwise import COSTLY
from plica.schedule.default.lane import is_row
from plica.schedule.default.machine import Machine, f32
from plica.schedule.default.tile import reads_of

__all__ = ["counted", "counts", "f32", "general_cycles"]

SLOW: Final[dict[Cost, int]] = {"divide": 4, "function": COSTLY}
"""How many additions an operation is worth, where it is more than one."""


def lane_of(of: Block, machine: Machine) -> ScalarVar | None:
    """The axis of a block along which vectors go: the last one, where all that it touches is
    contiguous along it and it fills a vector."""
    spatial = [at for at, kind in enumerate(of.kinds) if kind == "spatial"]
    if not spatial or not isinstance(of.body, Store):
        return None
    var, size, store = of.vars[spatial[-1]], known(of.extents[spatial[-1]]), of.body
    if store.indices[-1:] != (var,) or (size or 0) < machine.lanes(store.buffer.dtype):
        return None
    nodes = post_order(store.value)
    if any(isinstance(node, Reduce | FloorDiv | FloorMod) for node in nodes):
        return None
    return var if is_row(store.value, var) else None


def general_cycles(of: Stages, machine: Machine) -> float:
    """About how many cycles stages take that the general template schedules."""

    def price(store: Store) -> float:
        reads, operations = counts(store.value)
        return 1 + max(reads / reads_of(machine.rates), operations / machine.rates.fma)

    def lanes(block: Block) -> int:
        if lane_of(block, machine) is None or not isinstance(block.body, Store):
            return 1
        return machine.lanes(block.body.buffer.dtype)

    return counted(of, price, lanes)


def counted(
    of: Stages, price: Callable[[Store], float], lanes: Callable[[Block], int] = lambda _: 1
) -> float:
    """The price of all that stages store, of which a block may do several at once.

    An open size counts as 1.
    """

    def algebra(node: Term, kids: tuple[float, ...]) -> float:
        match node:
            case Store():
                return price(node)
            case For():
                return sum(kids) * (known(node.extent) or 1)
            case Block():
                return sum(kids) / lanes(node)
            case _:
                return sum(kids)

    return fold(algebra, kernel_of(of))


def counts(of: Scalar) -> tuple[int, int]:
    """How many elements are read to make one, and how many additions its operations are worth.

    Address computation takes no floating-point units.
    """
    seen: dict[Scalar, None] = {}
    stack = [of]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen[node] = None
            if not isinstance(node, Load):
                stack += [child for child in node._children if isinstance(child, Scalar)]
    rows = [row for row in map(row_of, seen) if row is not None]
    return sum(isinstance(node, Load) for node in seen), sum(SLOW.get(row.cost, 1) for row in rows)
