"""Checks memory plans: values that are live at the same time share no byte.

>>> from plica.analysis.memory.packing import Allocation
>>> for each in check_plan(MemoryPlan((Allocation(8, 0, 2), Allocation(8, 1, 2)), (0, 0), 64)):
...     print(each)
The tenants 0 and 1 overlap at step 1.
"""

from __future__ import annotations

import numpy as np
from attrs import frozen

from plica.analysis.memory.packing import MemoryPlan
from plica.core import CompilerBug


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
    for number, (each, offset) in enumerate(zip(plan.tenants, plan.offsets, strict=True)):
        if offset < 0 or offset + each.size > plan.size:
            wrong.append(PlanConflict((number,), f"The tenant {number} lies outside of the arena."))
        if offset % plan.alignment:
            wrong.append(PlanConflict((number,), f"The tenant {number} is not aligned."))
        if each.last < each.born:
            wrong.append(PlanConflict((number,), f"The tenant {number} ends before it begins."))
        if each.view_of is not None and each.in_place_of is not None:
            message = f"The tenant {number} is a view, and in place of another."
            wrong.append(PlanConflict((number,), message))
        if each.shares is not None:
            of = each.shares
            if of >= number or plan.offsets[of] != offset:
                wrong.append(
                    PlanConflict((of, number), f"The tenant {number} does not lie on {of}.")
                )
            elif plan.tenants[of].born > each.born:
                message = f"The tenant {number} is there before {of}, whose memory it has."
                wrong.append(PlanConflict((of, number), message))
    return wrong


def _overlaps(plan: MemoryPlan) -> list[PlanConflict]:
    contents = _contents(plan)
    sizes = np.array([each.size for each in plan.tenants], np.int64)
    born = np.array([each.born for each in plan.tenants], np.int64)
    last = np.array([each.last for each in plan.tenants], np.int64)
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
