"""gpu: default schedules for machines with blocks of threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = ["GPU_FORMS", "Gpu", "GpuCandidate", "candidates", "gpu_schedule", "gpu_trace"]

if TYPE_CHECKING:
    from plica.schedule.default.gpu.choose import GPU_FORMS, GpuCandidate, candidates
    from plica.schedule.default.gpu.machine import Gpu
    from plica.schedule.default.gpu.thread import gpu_schedule, gpu_trace
else:
    lazily(__name__)
