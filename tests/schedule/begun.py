"""The kernel that a schedule of stages begins with, and what that reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from plica.ir.loop.stages import Stages, kernel_of
from plica.ir.loop.statement import Kernel
from plica.ir.type.dim import known
from plica.schedule.hoist import constants, hoist

Array = np.ndarray[Any, Any]


def begun(form: Stages, constant: Sequence[bool]) -> Kernel:
    """The kernel that a schedule of some stages begins with."""
    return kernel_of(hoist(form, constant).rest)


def read_after(form: Stages, constant: Sequence[bool], arrays: Sequence[Array]) -> list[Array]:
    """What that kernel reads, given the inputs of the stages: constants are packed now."""
    apart = hoist(form, constant)
    before = constants(apart, {n: arrays[n] for n, told in enumerate(constant) if told})
    found = []
    for read, buffer in zip(apart.reads, apart.rest.inputs, strict=True):
        held = arrays[read] if isinstance(read, int) else before[read]
        shape = [known(size) for size in buffer.shape]
        found.append(held if None in shape else np.reshape(held, [n or 0 for n in shape]))
    return found
