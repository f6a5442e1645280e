"""Device limits as data, and the places where a kernel exceeds them.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.scalar import index
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, t = buffer("x", (4096,), f32), axis("t")
>>> wide = st.Kernel((), (x,), 0, st.For(t, index(4096), "threadIdx.x", st.Store(x, (t,), x[t])))
>>> [each.expected for each in within(wide)]
['at most 1024', 'at most 1024']
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attrs import frozen

from plica.ir.loop import statement as st
from plica.ir.loop.memory_scope import scopes
from plica.ir.loop.scalar import Lit, Scalar
from plica.ir.loop.verify import finding, peak_bytes
from plica.runtime.error import Diagnostic


@frozen
class DeviceLimits:
    """Limits of a device: threads per block, in total and along each axis; bytes; vector width."""

    threads: int
    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    shared_bytes: int
    local_bytes: int
    vector_bytes: int


GPU: Final = DeviceLimits(
    threads=1024,
    block=(1024, 1024, 64),
    grid=(2_147_483_647, 65_535, 65_535),
    shared_bytes=48 * 1024,
    local_bytes=512 * 1024,
    vector_bytes=16,
)
"""What every CUDA device of the last ten years allows."""


def within(kernel: st.Kernel, limits: DeviceLimits = GPU) -> tuple[Diagnostic, ...]:
    """The places where a kernel exceeds the limits of a device or runs outside of it."""
    return (
        *_grids(kernel, limits),
        *_device_memory(kernel, limits),
        *_vectors(kernel, limits),
        *_host_stores(kernel),
    )


def _grids(kernel: st.Kernel, limits: DeviceLimits) -> Iterator[Diagnostic]:
    for root in st.outermost(kernel.body, st.is_over_threads):
        extents: dict[str, Scalar] = {}
        for loop in st.statements(root):
            if not isinstance(loop, st.For) or loop.kind not in st.THREADS:
                continue
            before = extents.setdefault(loop.kind, loop.extent)
            if before is not loop.extent:
                message = f"Loops over {loop.kind} of one launch have different extents."
                yield finding("thread-extent", message, loop.var.name, _shown(before),
                           _shown(loop.extent))  # fmt: skip
        total = 1
        for tag, extent in sorted(extents.items()):
            of_block = tag.startswith("threadIdx")
            most = (limits.block if of_block else limits.grid)["xyz".index(tag[-1])]
            if not isinstance(extent, Lit):
                if of_block:
                    message = f"The number of threads along {tag} is not known."
                    yield finding("target-limit", message, tag, f"at most {most}")
                continue
            if of_block:
                total *= int(extent.value)
            if extent.value > most:
                message = f"A loop over {tag} is too long."
                yield finding("target-limit", message, tag, f"at most {most}", str(extent.value))
        if total > limits.threads:
            message = "A block has too many threads."
            yield finding(
                "target-limit", message, "threads", f"at most {limits.threads}", str(total)
            )


def _shown(extent: Scalar) -> str:
    return str(extent.value) if isinstance(extent, Lit) else "an extent of its own"


def _device_memory(kernel: st.Kernel, limits: DeviceLimits) -> Iterator[Diagnostic]:
    for reach, most in (("block", limits.shared_bytes), ("thread", limits.local_bytes)):
        names = [scope.name for scope in scopes() if scope.reach == reach]
        need = peak_bytes(kernel, names)
        if need > most:
            message = f"The memory of one {reach} is too small for its buffers."
            yield finding("target-limit", message, reach, f"at most {most} bytes", f"{need} bytes")


def _vectors(kernel: st.Kernel, limits: DeviceLimits) -> Iterator[Diagnostic]:
    for loop in st.statements(kernel.body):
        if not isinstance(loop, st.For) or loop.kind != "vectorized":
            continue
        if not isinstance(loop.extent, Lit):
            message = "A vectorized loop has no constant extent."
            yield finding("target-limit", message, loop.var.name)
            continue
        widths = [e.buffer.dtype.bytes for e in st.statements_of(st.Store, loop)]
        width = max(widths, default=0) * int(loop.extent.value)
        if width > limits.vector_bytes:
            message = "A vectorized loop is wider than the device's vectors."
            expected, found = f"at most {limits.vector_bytes} bytes", f"{width} bytes"
            yield finding("target-limit", message, loop.var.name, expected, found)


def _host_stores(kernel: st.Kernel) -> Iterator[Diagnostic]:
    for stmt in st.statements(kernel.body, lambda stmt: not st.is_over_threads(stmt)):
        if isinstance(stmt, st.Store | st.Invoke):
            where = str(stmt.buffer.name) if isinstance(stmt, st.Store) else stmt.name
            message = "A kernel for a device touches its memory outside all threads."
            hint = "Bind a loop around it to blockIdx or threadIdx."
            yield finding("host-access", message, where, None, None, hint)
