"""Sharing: whether work is worth waking other cores, from the cycles it takes on one.

>>> from plica.ir.loop.tensor import buffer
>>> machine = Machine(512, 32, cores=2)
>>> weights = buffer("w", (512, 784), f32)
>>> pays(machine, 512 * 784, (weights,))    # no product is used again: memory is what it takes
True
>>> pays(machine, 512 * 784, ())
False
>>> pays(Machine(512, 32, cores=1), 1 << 30, ())
False

Which of the loops around it cores share is a matter of how many iterations each of them gets.
Loops become one for that, but for a loop whose last iteration is cut short: as a part of another
its end could not be peeled off.

>>> share_of([("batch", 3, False), ("columns", 7, True), ("rows", 20, False)], 2)
['rows']
>>> share_of([("batch", 4, False), ("columns", 7, True)], 2)
['batch']
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Final, TypeVar

from plica.core.fold import post_order
from plica.ir.loop.scalar import Buffer, Load
from plica.ir.loop.statement import Store
from plica.ir.type.dim import known
from plica.ir.type.dtype import DType, f32
from plica.schedule.default.machine import Machine

H = TypeVar("H")

EVEN: Final = 0.9
"""Cores that are busy for so much of the time are not worth another loop."""

WORTH: Final = 40
"""How many times the cycles of a parallel region work must take on one core for the others to be
called: to wake cores that sleep takes some ten times as long as to call those that wait, and what
lies in the cache of one core comes to the other at the speed of a cache that both have."""

ALONE: Final = 1.1
"""Memory that all cores together get no more than so many times as much of is one core's."""


def pays(machine: Machine, operations: int, buffers: Iterable[Buffer], dtype: DType = f32) -> bool:
    """Whether so many operations of a lane on the elements of some buffers are worth sharing.

    None of them reads more than one element of a buffer.
    """
    if machine.cores < 2:
        return False
    moved = sum(each.dtype.bytes * min(operations, _elements(each)) for each in buffers)
    rates, least = machine.rates, WORTH * machine.rates.region
    computed = operations / (rates.fma * machine.lanes(dtype))
    # What waits for memory is worth sharing as far as memory serves several cores faster than one.
    waits = moved / rates.far if rates.far_all > ALONE * rates.far else 0.0
    return max(computed, waits) >= least


def share_of(loops: Sequence[tuple[H, int, bool]], cores: int) -> list[H]:
    """The loops that cores share, from the outermost on: each with its iterations, and whether the
    last of them is cut short.

    The first that keep all cores busy are taken, else those that keep them so for longest.
    """
    groups: list[tuple[int, list[H]]] = []
    joins = False
    for loop, extent, ragged in loops:
        whole = extent == 1 or not ragged
        if joins and whole:
            count, group = groups[-1]
            groups[-1] = (count * extent, [*group, loop])
        else:
            groups.append((extent, [loop]))
        joins = whole
    busy = [(count / (-(-count // cores) * cores), group) for count, group in groups]
    return next((group for share, group in busy if share >= EVEN), max(busy, key=lambda e: e[0])[1])


def _elements(of: Buffer) -> int:
    return prod(known(size) or 1 for size in of.shape)


def touched(of: Store) -> tuple[Buffer, ...]:
    """The buffers that a statement reads and writes."""
    read = [node.buffer for node in post_order(of.value) if isinstance(node, Load)]
    return tuple(dict.fromkeys((of.buffer, *read)))
