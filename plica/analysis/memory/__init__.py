"""Memory planning: live ranges, arena allocation, and a checker of the resulting plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "ALIGNMENT", "Allocation", "LiveRangeEvent", "MemoryPlan", "MemoryStep", "PlanConflict",
    "allocations_of", "check_plan", "checked", "least", "most", "pack_arena", "timeline",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.analysis.memory.live_range import (
        LiveRangeEvent,
        MemoryStep,
        allocations_of,
        timeline,
    )
    from plica.analysis.memory.packing import (
        ALIGNMENT,
        Allocation,
        MemoryPlan,
        PlanConflict,
        check_plan,
        checked,
        least,
        most,
        pack_arena,
    )
else:
    lazily(__name__)
