"""Geometry: which elements an instruction touches, from its operands alone.

>>> from plica.runtime.accel.device import CopyOperands, RowCopy, DeviceMemory
>>> memory = DeviceMemory("m", 64, (4,), "int8")
>>> copy = RowCopy("m", False, CopyOperands(0, 1, 2, 3, 4))
>>> box(copy, memory, memory.bytes, (8, 2, 3, 2, 10))
CopyBox(start=8, stride=40, size=12, rows=2, at=8, pads=(0, 0, 0, 0))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plica.runtime.accel.device import AccelDevice, DeviceMemory, DeviceSweep, OperandReach, RowCopy
from plica.runtime.error import Diagnostic, EvaluationError, Place
from plica.runtime.port import Array


@dataclass(frozen=True, slots=True)
class CopyBox:
    """Rows of `size` bytes in main memory, `stride` apart, and elements from `at` on in a memory.

    In memory, padding rows precede and follow the data, and each row is padded.
    """

    start: int
    stride: int
    size: int
    rows: int
    at: int
    pads: tuple[int, int, int, int]

    @property
    def end(self) -> int:
        """The first byte behind the last row."""
        return self.start + (self.rows - 1) * self.stride + self.size

    def shape(self, size: int) -> tuple[int, int]:
        """Rows and columns in the memory, of elements of a given number of bytes."""
        top, bottom, left, right = self.pads
        return top + self.rows + bottom, left + self.size // size + right


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """The iterations of a sweep in order: the element each writes, and those it reads."""

    written: Array
    read: tuple[Array, ...]


def box(
    of: RowCopy, memory: DeviceMemory, size: int, operands: Sequence[int], name: str = "copy"
) -> CopyBox | None:
    """The region that a copy moves, or None if it is empty; out-of-bounds elements are errors.

    Elements have `size` bytes in main memory.
    """
    width = operands[of.by.width]
    rows = operands[of.by.rows] if of.by.rows >= 0 else 1
    if width == 0 or rows == 0:
        return None
    top, bottom, left, right = [operands[pad] for pad in of.pads] or (0, 0, 0, 0)
    stride = operands[of.by.stride] if of.by.stride >= 0 else width
    first = operands[of.by.sram]
    total = (top + rows + bottom) * (left + width + right)
    if first + total > memory.depth:
        raise out_of_range(name, of.memory, first + total - 1, memory.depth)
    start = operands[of.by.dram] * size
    return CopyBox(start, stride * size, width * size, rows, first, (top, bottom, left, right))


def turns(
    device: AccelDevice,
    of: DeviceSweep,
    operands: Sequence[int],
    words: Array | None,
    name: str = "sweep",
) -> Turns:
    """The iterations of a sweep whose micro-operations are `words`."""
    extents = [operands[loop] for loop in of.loops]
    depths = {memory.name: memory.depth for memory in device.memories}

    def places(reach: OperandReach) -> Array:
        if words is None or device.micro is None:
            at = np.array([operands[reach.base]])
        else:
            part = device.micro[1][reach.base]
            at = words >> part.at & (1 << part.count) - 1
        for extent, stride in zip(reversed(extents), reversed(reach.strides), strict=True):
            steps = np.arange(extent) * operands[stride]
            at = steps.reshape(-1, *(1,) * at.ndim) + at
        flat = at.reshape(-1)
        for memory in reach.memories:
            if len(flat) and int(flat.max()) >= depths[memory]:
                raise out_of_range(name, memory, int(flat.max()), depths[memory])
            if len(flat) and int(flat.min()) < 0:
                raise out_of_range(name, memory, int(flat.min()), depths[memory])
        return flat

    return Turns(places(of.writes), tuple([places(reach) for reach in of.reads]))


def out_of_range(name: str, space: str, found: int, depth: int) -> EvaluationError:
    """The error for an out-of-bounds access."""
    message = f"{name} touches an element outside of {space}."
    return EvaluationError(
        Diagnostic(
            "index-out-of-bounds", message, Place(node=name), f"0 to {depth - 1}", str(found)
        )
    )
