"""Packing: where values lie in memory, so that values that never meet share it.

>>> pack_arena((Allocation(100, 0, 1), Allocation(60, 1, 2), Allocation(100, 2, 3))).offsets
(0, 128, 0)

Laws: `check_plan(pack_arena(t)) == ()`; `least(t) <= pack_arena(t).size <= most(t)`.

Allocation: values that need memory for a while, and plans that say where.

    Allocation ::= Allocation(size, born, last, view_of, in_place_of)
    MemoryPlan ::= MemoryPlan(tenants, offsets, size, alignment)

Time is counted in steps: an allocation is live from the step that writes it to the last one that
reads it, inclusive. A view aliases another allocation. An allocation *in place of* another is
written over it by the step that reads the other last.

>>> plan = MemoryPlan((Allocation(8, 0, 1), Allocation(4, 1, 2)), (0, 64), 128)
>>> print(plan)
offset  size  steps  shares
     0     8  0-1
    64     4  1-2
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from attrs import frozen

from plica.core import CompilerBug

ALIGNMENT = 64  # bytes; a cache line, and the widest vector


@frozen
class Allocation:
    """A value that needs memory; tenants are named by their number."""

    size: int
    born: int
    last: int
    view_of: int | None = None
    in_place_of: int | None = None

    @property
    def shares(self) -> int | None:
        """The tenant whose memory this one has."""
        return self.view_of if self.view_of is not None else self.in_place_of


@frozen
class MemoryPlan:
    """The offset of each allocation in one arena of `size` bytes."""

    tenants: tuple[Allocation, ...]
    offsets: tuple[int, ...]
    size: int
    alignment: int = ALIGNMENT

    def __str__(self) -> str:
        lines = ["offset  size  steps  shares"]
        for tenant, offset in zip(self.tenants, self.offsets, strict=True):
            shares = "" if tenant.shares is None else str(tenant.shares)
            steps = f"{tenant.born}-{tenant.last}"
            lines.append(f"{offset:6}  {tenant.size:4}  {steps:5}  {shares}".rstrip())
        return "\n".join(lines)


def aligned(size: int, alignment: int) -> int:
    """The size in whole units of the alignment."""
    return -(-size // alignment) * alignment


MAX_STORAGES_SORTED: Final = 10_000  # how many storages are arranged by size
Numbers = np.ndarray[Any, np.dtype[np.int64]]


@frozen
class ArenaBlock:
    """Memory shared by allocations: its bytes and live range in steps."""

    size: int
    born: int
    last: int


def pack_arena(tenants: Sequence[Allocation], alignment: int = ALIGNMENT) -> MemoryPlan:
    """A plan for the tenants; the order of time, not of the tenants, matters."""
    owner, storages = storages_of(tenants, alignment)
    offsets = _in_time(storages)
    if len(storages) <= MAX_STORAGES_SORTED and _size(storages, offsets) > _least(storages):
        other = _by_size(storages)
        offsets = min(other, offsets, key=lambda found: _size(storages, found))
    where = tuple([offsets[each] for each in owner])
    return MemoryPlan(tuple(tenants), where, _size(storages, offsets), alignment)


def least(tenants: Sequence[Allocation], alignment: int = ALIGNMENT) -> int:
    """A lower bound for every plan: the maximum of live bytes over all steps."""
    return _least(storages_of(tenants, alignment)[1])


def _least(storages: Sequence[ArenaBlock]) -> int:
    changes: dict[int, int] = {}
    for each in storages:
        changes[each.born] = changes.get(each.born, 0) + each.size
        changes[each.last + 1] = changes.get(each.last + 1, 0) - each.size
    peak = now = 0
    for step in sorted(changes):
        now += changes[step]
        peak = max(peak, now)
    return peak


def most(tenants: Sequence[Allocation], alignment: int = ALIGNMENT) -> int:
    """The memory used if only declared aliases share it."""
    return sum(each.size for each in storages_of(tenants, alignment)[1])


def storages_of(
    tenants: Sequence[Allocation], alignment: int
) -> tuple[list[int], list[ArenaBlock]]:
    """For each tenant its storage, and the storages."""
    owner: list[int] = []
    found: list[list[int]] = []
    for number, each in enumerate(tenants):
        if (shares := each.shares) is None:
            owner.append(len(found))
            found.append([each.size, each.born, each.last])
            continue
        if shares >= number:
            raise CompilerBug(f"The tenant {number} shares memory with a later one, {shares}.")
        owner.append(owner[shares])
        whole = found[owner[shares]]
        whole[0] = max(whole[0], each.size)
        whole[1] = min(whole[1], each.born)
        whole[2] = max(whole[2], each.last)
    return owner, [ArenaBlock(aligned(size, alignment), born, last) for size, born, last in found]


def _size(storages: Sequence[ArenaBlock], offsets: Sequence[int]) -> int:
    return max([o + each.size for each, o in zip(storages, offsets, strict=True)], default=0)


def _by_size(storages: Sequence[ArenaBlock]) -> list[int]:
    """Places the largest first, each in the tightest gap among those live with it."""
    count = len(storages)
    offsets = [0] * count
    order = sorted(range(count), key=lambda n: (-storages[n].size, storages[n].born, n))
    # The placed blocks by offset: first byte, end, first step, last step.
    placed: Numbers = np.empty((4, count), np.int64)
    for done, number in enumerate(order):
        size, born, last = storages[number].size, storages[number].born, storages[number].last
        if size == 0:
            continue
        starts, ends, borns, lasts = placed[:, :done]
        meets = np.flatnonzero((borns <= last) & (lasts >= born))
        offset = _tightest(starts[meets], ends[meets], size) if len(meets) else 0
        at = int(np.searchsorted(starts, offset))
        placed[:, at + 1 : done + 1] = placed[:, at:done].copy()
        placed[:, at] = offset, offset + size, born, last
        offsets[number] = offset
    return offsets


def _tightest(starts: Numbers, ends: Numbers, size: int) -> int:
    """The smallest gap that is large enough, the first of those; or the end."""
    tops = np.maximum.accumulate(ends)
    gaps = np.empty(len(starts), np.int64)
    gaps[0] = starts[0]
    np.subtract(starts[1:], tops[:-1], out=gaps[1:])
    fits = np.flatnonzero(gaps >= size)
    if not len(fits):
        return int(tops[-1])
    best = int(fits[np.argmin(gaps[fits])])
    return 0 if best == 0 else int(tops[best - 1])


def _in_time(storages: Sequence[ArenaBlock]) -> list[int]:
    """In the order of time, each into the tightest gap; gaps that touch are one."""
    offsets = [0] * len(storages)
    free = _Gaps()
    order = sorted(range(len(storages)), key=lambda n: (storages[n].born, -storages[n].size, n))
    leaving = sorted(range(len(storages)), key=lambda n: (storages[n].last, n))
    gone = 0
    for number in order:
        each = storages[number]
        while storages[leaving[gone]].last < each.born:
            left = leaving[gone]
            free.give(offsets[left], storages[left].size)
            gone += 1
        offsets[number] = free.take(each.size)
    return offsets


class _Gaps:
    """The free parts of an arena that grows at its end."""

    def __init__(self) -> None:
        self.end = 0
        self.by_size: list[tuple[int, int]] = []  # size, offset
        self.starts: dict[int, int] = {}  # from offset to size
        self.ends: dict[int, int] = {}  # from the end to the offset

    def take(self, size: int) -> int:
        """The offset of a given number of bytes."""
        if size == 0:
            return 0
        at = bisect_left(self.by_size, (size, -1))
        if at < len(self.by_size):
            gap, offset = self.by_size[at]
            self._remove(offset, gap)
            if gap > size:
                self._add(offset + size, gap - size)
            return offset
        offset = self.end
        if offset in self.ends:  # what is free at the end grows
            offset = self.ends[self.end]
            self._remove(offset, self.end - offset)
        self.end = offset + size
        return offset

    def give(self, offset: int, size: int) -> None:
        """Take bytes back."""
        if size == 0:
            return
        if offset in self.ends:
            before = self.ends[offset]
            self._remove(before, offset - before)
            size += offset - before
            offset = before
        if offset + size in self.starts:
            after = self.starts[offset + size]
            self._remove(offset + size, after)
            size += after
        self._add(offset, size)

    def _add(self, offset: int, size: int) -> None:
        insort(self.by_size, (size, offset))
        self.starts[offset] = size
        self.ends[offset + size] = offset

    def _remove(self, offset: int, size: int) -> None:
        del self.by_size[bisect_left(self.by_size, (size, offset))]
        del self.starts[offset], self.ends[offset + size]
