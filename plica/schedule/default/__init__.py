"""Default schedules: form rules, and ordinary traces whose decisions are analytical."""

from plica.schedule.default.choose import FORMS, default_schedule, default_trace, formed
from plica.schedule.default.machine import Machine

__all__ = ["FORMS", "Machine", "default_schedule", "default_trace", "formed"]
