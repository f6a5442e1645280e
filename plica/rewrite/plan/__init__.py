"""plan: where the values of a program lie in memory, as a value of its own with a checker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "ALIGNMENT",
    "Conflict",
    "Event",
    "MemoryPlan",
    "Step",
    "Tenant",
    "arrange",
    "check_plan",
    "checked",
    "least",
    "most",
    "tenants_of",
    "timeline",
]

if TYPE_CHECKING:
    from plica.rewrite.plan.arrange import arrange, least, most
    from plica.rewrite.plan.check import Conflict, check_plan, checked
    from plica.rewrite.plan.line import Event, Step, tenants_of, timeline
    from plica.rewrite.plan.tenant import ALIGNMENT, MemoryPlan, Tenant
else:
    lazily(__name__)
