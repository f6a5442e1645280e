"""Scheduled: the kernel of a primitive function for threads.

By rule of thumb where there is one for it; else each element has its thread; and what has no
tensor expression at all is done by one thread, as a processor would.
"""

from __future__ import annotations

from functools import lru_cache

from attrs import frozen

from plica.codegen.lower.fused import fused
from plica.codegen.lower.passes import lower
from plica.codegen.program import Origin
from plica.core.digest import digest
from plica.ir.graph import Function
from plica.ir.loop import Kernel
from plica.ir.staged import kernel_of
from plica.runtime.error import UnsupportedError
from plica.schedule.default.gpu import Gpu, gpu_schedule


@frozen(eq=False)
class ForThreads:
    """A lowered kernel, its digest, which parameters of the function it reads, and its origin."""

    kernel: Kernel
    digest: str
    reads: tuple[int, ...]
    origin: Origin | None


@lru_cache(maxsize=1024)
def for_threads(function: Function, gpu: Gpu) -> ForThreads:
    """The kernel of a primitive function."""
    try:
        whole = kernel_of(function)
    except UnsupportedError:
        whole = None
    made = None if whole is None else gpu_schedule(whole, gpu)
    if whole is None or made is None:
        plain = fused(function)
        return ForThreads(plain.kernel, plain.digest, plain.reads, None)
    kernel = lower(made[1], "gpu")
    reads = tuple(range(len(function.params)))
    return ForThreads(kernel, digest(kernel), reads, Origin(whole, made[0]))
