"""Arena packing: offsets in one arena, where allocations that are never live together share bytes.

    Allocation ::= Allocation(size, born, last, view_of, in_place_of)
    MemoryPlan ::= MemoryPlan(tenants, offsets, size, alignment)

Time is counted in steps of the program. An allocation is live from the step `born`, which writes
it, to the step `last`, which reads it last, inclusive. A view aliases another allocation. An
allocation in place of another overwrites it in the step that reads the other last. Allocations
that alias each other form one `ArenaBlock`.

`pack_arena` packs the blocks in the order of time, and then, if that is not optimal, the largest
first; it returns the smaller arena.

>>> plan = pack_arena((Allocation(100, 0, 1), Allocation(60, 1, 2), Allocation(100, 2, 3)))
>>> print(plan)
offset  size  steps  shares
     0   100  0-1
   128    60  1-2
     0   100  2-3
>>> plan.size
192
>>> print(*check_plan(MemoryPlan((Allocation(8, 0, 2), Allocation(8, 1, 2)), (0, 0), 64)))
The tenants 0 and 1 overlap at step 1.

Laws: `check_plan(pack_arena(t)) == ()`; `least(t) <= pack_arena(t).size <= most(t)`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from attrs import frozen

from plica.core import CompilerBug

ALIGNMENT: Final = 64  # bytes: a cache line, and the widest vector
MAX_BLOCKS_PACKED_BY_SIZE: Final = 10_000
"""With more blocks, only the order of time is tried: the other one takes quadratic time."""


@frozen
class Allocation:
    """A value that needs memory; others are referred to by their position in the sequence."""

    size: int
    born: int
    last: int
    view_of: int | None = None
    in_place_of: int | None = None

    @property
    def shares(self) -> int | None:
        """The allocation whose memory this one uses, or None."""
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


Numbers = np.ndarray[Any, np.dtype[np.int64]]


@frozen
class ArenaBlock:
    """Allocations that alias each other: the bytes of the largest, and their live range."""

    size: int
    born: int
    last: int


def pack_arena(tenants: Sequence[Allocation], alignment: int = ALIGNMENT) -> MemoryPlan:
    """The smaller of two plans: blocks packed in the order of time, or the largest first."""
    owner, blocks = blocks_of(tenants, alignment)
    offsets = _packed_in_time(blocks)
    if len(blocks) <= MAX_BLOCKS_PACKED_BY_SIZE and _size(blocks, offsets) > _least(blocks):
        other = _packed_by_size(blocks)
        offsets = min(other, offsets, key=lambda found: _size(blocks, found))
    where = tuple([offsets[each] for each in owner])
    return MemoryPlan(tuple(tenants), where, _size(blocks, offsets), alignment)


def least(tenants: Sequence[Allocation], alignment: int = ALIGNMENT) -> int:
    """A lower bound for every plan: the maximum of live bytes over all steps."""
    return _least(blocks_of(tenants, alignment)[1])


def _least(blocks: Sequence[ArenaBlock]) -> int:
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.born] = changes.get(block.born, 0) + block.size
        changes[block.last + 1] = changes.get(block.last + 1, 0) - block.size
    peak = now = 0
    for step in sorted(changes):
        now += changes[step]
        peak = max(peak, now)
    return peak


def most(tenants: Sequence[Allocation], alignment: int = ALIGNMENT) -> int:
    """An upper bound: the bytes of all blocks together."""
    return sum(arena_block.size for arena_block in blocks_of(tenants, alignment)[1])


def blocks_of(tenants: Sequence[Allocation], alignment: int) -> tuple[list[int], list[ArenaBlock]]:
    """The block of each allocation, by number, and the blocks."""
    owner: list[int] = []
    found: list[list[int]] = []
    for number, allocation in enumerate(tenants):
        if (shares := allocation.shares) is None:
            owner.append(len(found))
            found.append([allocation.size, allocation.born, allocation.last])
            continue
        if shares >= number:
            raise CompilerBug(f"The allocation {number} shares memory with a later one, {shares}.")
        owner.append(owner[shares])
        whole = found[owner[shares]]
        whole[0] = max(whole[0], allocation.size)
        whole[1] = min(whole[1], allocation.born)
        whole[2] = max(whole[2], allocation.last)
    return owner, [ArenaBlock(aligned(size, alignment), born, last) for size, born, last in found]


def _size(blocks: Sequence[ArenaBlock], offsets: Sequence[int]) -> int:
    return max([o + block.size for block, o in zip(blocks, offsets, strict=True)], default=0)


def _packed_by_size(blocks: Sequence[ArenaBlock]) -> list[int]:
    """Offsets, the largest block first: each in the tightest gap between blocks live with it."""
    count = len(blocks)
    offsets = [0] * count
    order = sorted(range(count), key=lambda n: (-blocks[n].size, blocks[n].born, n))
    # The placed blocks by offset: first byte, end, first step, last step.
    placed: Numbers = np.empty((4, count), np.int64)
    for done, number in enumerate(order):
        size, born, last = blocks[number].size, blocks[number].born, blocks[number].last
        if size == 0:
            continue
        starts, ends, borns, lasts = placed[:, :done]
        live = np.flatnonzero((borns <= last) & (lasts >= born))
        offset = _tightest_gap(starts[live], ends[live], size) if len(live) else 0
        at = int(np.searchsorted(starts, offset))
        placed[:, at + 1 : done + 1] = placed[:, at:done].copy()
        placed[:, at] = offset, offset + size, born, last
        offsets[number] = offset
    return offsets


def _tightest_gap(starts: Numbers, ends: Numbers, size: int) -> int:
    """The offset of the smallest gap of at least `size` bytes, or the end of the last block."""
    tops = np.maximum.accumulate(ends)
    gaps = np.empty(len(starts), np.int64)
    gaps[0] = starts[0]
    np.subtract(starts[1:], tops[:-1], out=gaps[1:])
    fits = np.flatnonzero(gaps >= size)
    if not len(fits):
        return int(tops[-1])
    best = int(fits[np.argmin(gaps[fits])])
    return 0 if best == 0 else int(tops[best - 1])


def _packed_in_time(blocks: Sequence[ArenaBlock]) -> list[int]:
    """Offsets in the order of first steps: best fit among the gaps that are free by then."""
    offsets = [0] * len(blocks)
    free = _FreeList()
    order = sorted(range(len(blocks)), key=lambda n: (blocks[n].born, -blocks[n].size, n))
    by_last_step = sorted(range(len(blocks)), key=lambda n: (blocks[n].last, n))
    released = 0
    for number in order:
        arena_block = blocks[number]
        while blocks[by_last_step[released]].last < arena_block.born:
            ended = by_last_step[released]
            free.release(offsets[ended], blocks[ended].size)
            released += 1
        offsets[number] = free.allocate(arena_block.size)
    return offsets


class _FreeList:
    """The free parts of an arena that grows at its end."""

    def __init__(self) -> None:
        self.end = 0
        self.by_size: list[tuple[int, int]] = []  # size, offset
        self.starts: dict[int, int] = {}  # from offset to size
        self.ends: dict[int, int] = {}  # from the end to the offset

    def allocate(self, size: int) -> int:
        """Allocates bytes: in the tightest gap, or at the end of the arena."""
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

    def release(self, offset: int, size: int) -> None:
        """Frees bytes, and merges them with the gaps they touch."""
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


# --- checks memory plans -----------------------------------------------------------------------


@frozen
class PlanConflict:
    """A violation in a memory plan."""

    tenants: tuple[int, ...]
    message: str

    def __str__(self) -> str:
        return self.message


def check_plan(plan: MemoryPlan) -> tuple[PlanConflict, ...]:
    """Everything that is wrong with a plan."""
    return (*_misplaced(plan), *_overlaps(plan))


def checked(plan: MemoryPlan) -> MemoryPlan:
    """The plan, which must be right."""
    if wrong := check_plan(plan):
        raise CompilerBug(f"The memory plan is wrong: {wrong[0]}")
    return plan


def _misplaced(plan: MemoryPlan) -> list[PlanConflict]:
    wrong = []
    for number, (allocation, offset) in enumerate(zip(plan.tenants, plan.offsets, strict=True)):
        if offset < 0 or offset + allocation.size > plan.size:
            wrong.append(PlanConflict((number,), f"The tenant {number} lies outside of the arena."))
        if offset % plan.alignment:
            wrong.append(PlanConflict((number,), f"The tenant {number} is not aligned."))
        if allocation.last < allocation.born:
            wrong.append(PlanConflict((number,), f"The tenant {number} ends before it begins."))
        if allocation.view_of is not None and allocation.in_place_of is not None:
            message = f"The tenant {number} is a view, and in place of another."
            wrong.append(PlanConflict((number,), message))
        if allocation.shares is not None:
            of = allocation.shares
            if of >= number or plan.offsets[of] != offset:
                wrong.append(
                    PlanConflict((of, number), f"The tenant {number} does not lie on {of}.")
                )
            elif plan.tenants[of].born > allocation.born:
                message = f"The tenant {number} is there before {of}, whose memory it has."
                wrong.append(PlanConflict((of, number), message))
    return wrong


def _overlaps(plan: MemoryPlan) -> list[PlanConflict]:
    contents = _contents(plan)
    sizes = np.array([allocation.size for allocation in plan.tenants], np.int64)
    born = np.array([allocation.born for allocation in plan.tenants], np.int64)
    last = np.array([allocation.last for allocation in plan.tenants], np.int64)
    start = np.array(plan.offsets, np.int64)
    end = start + sizes
    wrong = []
    for i in range(len(plan.tenants)):
        if not sizes[i]:
            continue
        together = (born[:i] <= last[i]) & (last[:i] >= born[i])
        touch = (start[:i] < end[i]) & (end[:i] > start[i])
        for j in np.flatnonzero(together & touch).tolist():
            if not _may_share(plan, contents, j, i):
                step = max(plan.tenants[i].born, plan.tenants[j].born)
                message = f"The tenants {j} and {i} overlap at step {step}."
                wrong.append(PlanConflict((j, i), message))
    return wrong


def _contents(plan: MemoryPlan) -> list[int]:
    """For each tenant the one whose elements it shows: itself, unless it is a view."""
    found: list[int] = []
    for number, each in enumerate(plan.tenants):
        inside = each.view_of is not None and each.view_of < number
        found.append(found[each.view_of] if inside and each.view_of is not None else number)
    return found


def _may_share(plan: MemoryPlan, contents: list[int], a: int, b: int) -> bool:
    """Whether two tenants that meet in time and memory hold the same, or hand over."""
    old, new = sorted((contents[a], contents[b]))
    if old == new:
        return True
    step = plan.tenants[new].born
    of = plan.tenants[new].in_place_of
    handed = of is not None and contents[of] == old
    first = max(plan.tenants[a].born, plan.tenants[b].born)
    final = min(plan.tenants[a].last, plan.tenants[b].last)
    return handed and first == final == step
