"""Default schedules: form rules, and ordinary traces whose decisions are analytical."""

from plica.schedule.default.choose import (
    FORMS,
    candidates,
    default_schedule,
    default_trace,
    formed,
)
from plica.schedule.default.machine import Machine

__all__ = ["FORMS", "Machine", "candidates", "default_schedule", "default_trace", "formed"]
