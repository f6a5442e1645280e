"""Limits: launches that a GPU would not run are refused before they are compiled.

>>> check([KernelLaunch("k", (1, 1, 1), (2048, 1, 1), 0)], Gpu(), "k")
Traceback (most recent call last):
    ...
plica.analysis.statement.LoweringRefused: ...
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from plica.analysis.statement import refused
from plica.codegen.cuda.code import KernelLaunch
from plica.schedule.default.gpu.machine import (
    MAX_BLOCKS_X,
    MAX_BLOCKS_YZ,
    MAX_THREAD_BYTES,
    MAX_THREADS_Z,
    Gpu,
)


def check(launches: Iterable[KernelLaunch], gpu: Gpu, name: str) -> None:
    """Refuse launches of a kernel with more threads, blocks or memory than there can be."""
    for launch in launches:
        if prod(launch.block) > gpu.block or launch.block[2] > MAX_THREADS_Z:
            message = f"A block of the kernel {name} has more threads than can run together."
            expected = f"{gpu.block} threads at most, {MAX_THREADS_Z} of them along z"
            hint = "Split a loop that is bound to threads."
            raise refused(message, launch.function, expected, _by(launch.block), hint)
        if launch.grid[0] > MAX_BLOCKS_X or max(launch.grid[1:]) > MAX_BLOCKS_YZ:
            message = f"The kernel {name} has more blocks than can be launched."
            expected = f"{MAX_BLOCKS_X} along x, {MAX_BLOCKS_YZ} along y and z at most"
            hint = "Bind the longest loop to blockIdx.x."
            raise refused(message, launch.function, expected, _by(launch.grid), hint)
        if launch.shared > gpu.shared:
            message = f"The threads of a block of the kernel {name} share more memory than it has."
            hint = "Make the tiles that are kept there smaller, or have fewer of them under way."
            found = f"{launch.shared} bytes"
            raise refused(message, launch.function, f"{gpu.shared} bytes at most", found, hint)
        if launch.own > MAX_THREAD_BYTES:
            message = f"A thread of the kernel {name} has more memory to itself than there is."
            hint = "Compute less of it at a time, or set the scope of what is large to 'global'."
            found = f"{launch.own} bytes"
            raise refused(
                message, launch.function, f"{MAX_THREAD_BYTES} bytes at most", found, hint
            )


def _by(extents: tuple[int, int, int]) -> str:
    return " x ".join(map(str, extents))
