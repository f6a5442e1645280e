"""gpu: default schedules for machines with blocks of threads."""

from plica.schedule.default.gpu.choose import GPU_FORMS, Candidate, candidates
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.thread import gpu_schedule, gpu_trace

__all__ = ["GPU_FORMS", "Candidate", "Gpu", "candidates", "gpu_schedule", "gpu_trace"]
