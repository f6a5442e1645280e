"""gpu: default schedules for machines with blocks of threads.

Importing it declares the instructions of tensor cores that traces name.
"""

from plica.schedule.default.gpu.choose import GPU_FORMS, GpuCandidate, candidates
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.thread import gpu_schedule, gpu_trace

__all__ = ["GPU_FORMS", "Gpu", "GpuCandidate", "candidates", "gpu_schedule", "gpu_trace"]
