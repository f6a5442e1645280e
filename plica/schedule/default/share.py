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
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Final

from plica.core.fold import post_order
from plica.ir.loop.scalar import Buffer, Load
from plica.ir.loop.statement import Store
from plica.ir.type.dim import known
from plica.ir.type.dtype import DType, f32
from plica.schedule.default.machine import Machine
from plica.schedule.default.tile import AT_ONCE

REGION: Final = 16_000
"""Cycles of one core below which to call the others costs more than they save: the call and the
wait are some four thousand, more where a core has gone to sleep."""

FAR: Final = 10
"""Bytes that a core reads or writes in a cycle."""


def pays(machine: Machine, operations: int, buffers: Iterable[Buffer], dtype: DType = f32) -> bool:
    """Whether so many operations of a lane on the elements of some buffers are worth sharing.

    None of them reads more than one element of a buffer.
    """
    if machine.cores < 2:
        return False
    moved = sum(each.dtype.bytes * min(operations, _elements(each)) for each in buffers)
    return max(operations / (AT_ONCE * machine.lanes(dtype)), moved / FAR) >= REGION


def _elements(of: Buffer) -> int:
    return prod(known(size) or 1 for size in of.shape)


def touched(of: Store) -> tuple[Buffer, ...]:
    """The buffers that a statement reads and writes."""
    read = [node.buffer for node in post_order(of.value) if isinstance(node, Load)]
    return tuple(dict.fromkeys((of.buffer, *read)))
