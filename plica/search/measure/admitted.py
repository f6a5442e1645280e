"""Admitted inputs: numbers that some work may be given, where not all may be.

`nn.conv_winograd` is a convolution only with a weight of `nn.winograd_weight`, so drawn numbers are
transformed as weights.

>>> made = transformed(TILES[2], np.ones((16, 1, 1), np.float32))
>>> made.reshape(4, 4)[0].tolist()
[1.0, 1.5, 0.5, 1.0]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plica.ir.loop import Each, Stages
from plica.ir.op.winograd import TILES, WinogradMatrices
from plica.runtime.port import Array
from plica.schedule.default.winograd_plan import found_open

__all__ = ["TILES", "admitted", "transformed"]


def admitted(work: Stages, inputs: Sequence[Array]) -> list[Array]:
    """Inputs that some work may be given, made of drawn ones."""
    found = list(inputs)
    for stage in work.stages:
        if not isinstance(stage, Each) or (of := found_open(stage)) is None:
            continue
        if of.weight in work.inputs:
            at = work.inputs.index(of.weight)
            found[at] = transformed(of.of, found[at])
    return found


def transformed(of: WinogradMatrices, drawn: Array) -> Array:
    """The first nine numbers of each pair of channels as a weight, transformed."""
    table = np.array([[float(each) for each in row] for row in of.weight])
    weight = drawn[:9].astype(np.float64).reshape(3, 3, *drawn.shape[1:])
    whole = np.einsum("ak,klco,bl->abco", table, weight, table, optimize=True)
    made: Array = np.ascontiguousarray(whole.reshape(drawn.shape).astype(drawn.dtype))
    return made
