"""Default schedules: ordinary traces whose decisions come from rules of thumb."""

from plica.schedule.default.choose import default_schedule, default_trace, formed
from plica.schedule.default.contraction import Work
from plica.schedule.default.form import Formed, Packing
from plica.schedule.default.machine import Machine

__all__ = ["Formed", "Machine", "Packing", "Work", "default_schedule", "default_trace", "formed"]
