"""Kernels of a running program."""

from __future__ import annotations

import plica
from plica.script import Buffer, Tensor, f32, parallel

FACTOR = 4


@plica.kernel
def scale(x: Buffer[("n",), f32], y: Buffer[("n",), f32]):
    """A kernel that uses a number of the program around it."""
    for i in parallel(n):
        y[i] = x[i] * FACTOR


@plica.function
def scaled(x: Tensor[("n",), f32]) -> Tensor[("n",), f32]:
    return scale(x) + 1.0
