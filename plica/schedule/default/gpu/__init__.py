"""gpu: schedules by rules of thumb for machines with blocks of threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = ["Gpu", "contracted", "gpu_schedule", "gpu_trace"]

if TYPE_CHECKING:
    from plica.schedule.default.gpu.choose import contracted, gpu_schedule, gpu_trace
    from plica.schedule.default.gpu.machine import Gpu
else:
    lazily(__name__)
