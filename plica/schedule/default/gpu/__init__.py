"""gpu: schedules by rules of thumb for machines with blocks of threads."""

from plica.schedule.default.gpu.choose import contracted, gpu_schedule, gpu_trace
from plica.schedule.default.gpu.machine import Gpu

__all__ = ["Gpu", "contracted", "gpu_schedule", "gpu_trace"]
