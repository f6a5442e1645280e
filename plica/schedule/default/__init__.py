"""Default schedules: form rules, and ordinary traces whose decisions are analytical."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "FORMS", "Machine", "RefusedTemplate", "candidates", "default_schedule", "default_trace",
    "fallback_schedule", "formed",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.schedule.default.choose import (
        FORMS,
        RefusedTemplate,
        candidates,
        default_schedule,
        default_trace,
        fallback_schedule,
        formed,
    )
    from plica.schedule.default.machine import Machine
else:
    lazily(__name__)
