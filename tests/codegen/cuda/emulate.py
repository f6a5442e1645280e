"""Kernels for a GPU run by the emulator, over arrays."""

from __future__ import annotations

import ctypes

import numpy as np

from plica.codegen.cuda.fold import KernelCode
from plica.runtime.emulator.gpu import Bytes, compiler, launch, loaded, tile_words

COMPILER = compiler()


def run(code: KernelCode, arrays: list[Bytes], *, watched: bool = False) -> None:
    """Run all launches of a kernel over its buffers, in place."""
    functions = loaded(code.text, [each.function for each in code.launches], watched=watched)
    scratch: list[Bytes] = [np.full(size, 0xFF, np.uint8) for size in code.scratch]
    memory = [*arrays, *scratch]
    addresses = [each.ctypes.data for each in memory]
    for each in code.launches:
        maps = [tile_words(one, addresses[one.argument]) for one in each.maps]
        given = [*addresses, *[ctypes.addressof(one) for one in maps]]
        launch(functions, each, given, memory)
