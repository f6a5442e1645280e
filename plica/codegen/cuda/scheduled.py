"""Scheduled: the kernel of a primitive function for threads.

By rule of thumb where there is one for it; else each element has its thread; and what has no
tensor expression at all is done by one thread, as a processor would.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from attrs import frozen

from plica.codegen.cuda.fold import fold
from plica.codegen.lower.fused import fused
from plica.codegen.lower.passes import LOWERING, lowered
from plica.codegen.lower.scheduled import Chosen, work_of
from plica.codegen.program import Origin
from plica.core.digest import digest
from plica.ir.dim import known
from plica.ir.graph import Function
from plica.ir.loop import Alloc, Kernel, statements
from plica.ir.staged import kernel_of
from plica.runtime.error import UnsupportedError
from plica.schedule.default import Packing
from plica.schedule.default.gpu import Gpu, contracted, gpu_schedule
from plica.schedule.trace import Trace


@frozen(eq=False)
class ForThreads:
    """A scheduled kernel, its digest, which parameters of the function it reads, and its origin."""

    kernel: Kernel
    digest: str
    reads: tuple[int, ...]
    origin: Origin | None
    packings: tuple[Packing, ...] = ()


@lru_cache(maxsize=1024)
def for_threads(
    function: Function, constant: tuple[bool, ...], gpu: Gpu, chosen: Chosen | None = None
) -> ForThreads:
    """The kernel of a primitive function; `constant` says which of its parameters are known.

    What was `chosen` by tuning takes the place of what rules of thumb would give.
    """
    plain = fused(function)
    if chosen is not None:
        kernel = chosen.kernel
        origin = Origin(chosen.form.kernel, chosen.trace)
        return ForThreads(kernel, digest(kernel), plain.reads, origin, chosen.form.packings)
    if not plain.stages:
        told = tuple([constant[each] for each in plain.reads])
        tiled = contracted(work_of(plain), told, gpu)
        if tiled is not None:
            kernel = tiled.kernel
            origin = Origin(tiled.form.kernel, tiled.trace)
            return ForThreads(kernel, digest(kernel), plain.reads, origin, tiled.form.packings)
    try:
        whole = kernel_of(function)
    except UnsupportedError:
        whole = None
    made = None if whole is None else threaded(whole, gpu)
    if whole is None or made is None:
        return ForThreads(plain.kernel, plain.digest, plain.reads, None)
    trace, kernel = made
    reads = tuple(range(len(function.params)))
    return ForThreads(kernel, digest(kernel), reads, Origin(whole, trace))


def threaded(kernel: Kernel, gpu: Gpu) -> tuple[Trace, Kernel] | None:
    """The schedule of a kernel by rule of thumb, and the kernel it makes.

    How much memory threads share is known when that is compacted: where it is more than there is,
    nothing is kept there.
    """
    found = gpu_schedule(kernel, gpu)
    if found is None:
        return None
    made = lowered(found[1], LOWERING["gpu"].passes)
    if _shared_at_most(made) > gpu.shared:
        most = max([each.shared for each in fold(made, "k").launches], default=0)
        other = gpu_schedule(kernel, gpu, rows=False) if most > gpu.shared else None
        if other is not None:
            return other
    return found


def _shared_at_most(kernel: Kernel) -> int:
    """Bytes of all buffers that threads share, some of which may lie in one place."""
    return sum(
        each.buffer.dtype.bytes * prod(known(size) or 1 for size in each.buffer.shape)
        for each in statements(kernel.body)
        if isinstance(each, Alloc) and each.buffer.scope == "shared"
    )
