"""Footprints: the elements that an instruction reads and writes, from its meaning alone.

>>> from plica.codegen.accel.instruction import Stream, instruction
>>> from plica.codegen.accel.vta import vta
>>> load = instruction(vta(), "load.inp", sram=8, y_size=2, x_size=3, x_stride=10, y_pad_0=1)
>>> touched = footprints(vta(), Stream((load,)))[0]
>>> [(patch.space, patch.elements.tolist()) for patch in touched.writes]
[('inp', [8, 9, 10, 11, 12, 13, 14, 15, 16])]
>>> touched.memory
ByteRows(start=0, size=48, rows=2, stride=160, writes=False)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import frozen

from plica.codegen.accel.declaration import Accelerator, Move, Sweep
from plica.codegen.accel.device import device_of, numbers
from plica.codegen.accel.instruction import MICRO, AccelInstruction, Stream, position
from plica.runtime.accel.device import DeviceSweep as Swept, RowCopy
from plica.runtime.accel.functional import distinct
from plica.runtime.accel.geometry import Turns, box, out_of_range, turns
from plica.runtime.error import Diagnostic, EvaluationError

Array = np.ndarray[Any, Any]


@frozen(eq=False)
class Patch:
    """Elements of a scope, sorted; equal patches of one stream are one object."""

    space: str
    elements: Array


@frozen
class ByteRows:
    """Bytes in memory: rows of `size`, `stride` apart."""

    start: int
    size: int
    rows: int
    stride: int
    writes: bool

    @property
    def end(self) -> int:
        """The first byte behind the last row."""
        return self.start + (self.rows - 1) * self.stride + self.size


@frozen(eq=False)
class Footprint:
    """What one instruction touches."""

    reads: tuple[Patch, ...] = ()
    writes: tuple[Patch, ...] = ()
    memory: ByteRows | None = None
    turns: Turns | None = None
    pads: int = 0


NOTHING = Footprint()


def footprints(
    machine: Accelerator, stream: Stream, outside: dict[int, Diagnostic] | None = None
) -> list[Footprint]:
    """The footprint of each instruction; an access outside a scope is an error.

    With a micro-operation table, such instructions write to it, and touch nothing else.
    """
    micro = _Micro(machine, stream)
    memo: dict[tuple[object, ...], Footprint] = {}
    patches: dict[tuple[str, bytes], Patch] = {}
    found: list[Footprint] = []
    for at, instruction in enumerate(stream.code):
        does = machine.operation(instruction.name).does
        key: tuple[object, ...] = (instruction.name, instruction.operands)
        words: Array | None = None
        try:
            if isinstance(does, Sweep) and does.micro:
                words = micro.read(instruction, does)
                key += (words.tobytes(),)
            if (known := memo.get(key)) is None:
                known = memo[key] = footprint(machine, instruction, words, patches)
            if isinstance(does, Move) and machine.micro and does.scope == machine.micro.scope:
                micro.load(instruction, known)
        except EvaluationError as error:
            if outside is None:
                raise
            outside[at] = error.diagnostics[0]
            known = NOTHING
        found.append(known)
    return found


class _Micro:
    """The contents of the micro-operation scope while the stream is scanned."""

    def __init__(self, machine: Accelerator, stream: Stream) -> None:
        self.machine = machine
        if machine.micro is None:
            return
        scope = machine.scope(machine.micro.scope)
        self.held = np.zeros(scope.depth, np.int64)
        self.at = next((tensor.at for tensor in stream.tensors if tensor.name == MICRO), 0)
        self.bytes = scope.bytes
        self.words = np.array(stream.micro, np.int64)

    def load(self, each: AccelInstruction, known: Footprint) -> None:
        if (rows := known.memory) is None:
            return
        first = rows.start // self.bytes - self.at
        count = rows.size // self.bytes
        if first < 0 or first + count > len(self.words) or rows.rows != 1:
            raise out_of_range(each.name, "micro-operations", first + count, len(self.words))
        target = known.writes[0].elements
        self.held[target[0] : target[0] + count] = self.words[first : first + count]

    def read(self, each: AccelInstruction, does: Sweep) -> Array:
        first, last = (each.operands[position(self.machine, each.name, w)] for w in does.micro)
        if last > len(self.held):
            raise out_of_range(each.name, "micro-operations", last, len(self.held))
        return self.held[first:last]


def footprint(
    machine: Accelerator,
    each: AccelInstruction,
    words: Array | None,
    patches: dict[tuple[str, bytes], Patch],
) -> Footprint:
    """The elements an instruction touches if its micro-operations are `words`."""
    number = numbers(machine)[each.name]
    device = device_of(machine)
    does = device.kinds[number].does
    operands = each.operands

    def patch(space: str, elements: Array) -> Patch:
        return patches.setdefault((space, elements.tobytes()), Patch(space, elements))

    if isinstance(does, RowCopy):
        size = device.memory(does.lying).bytes
        if (copy_box := box(does, device.memory(does.memory), size, operands, each.name)) is None:
            return NOTHING
        tall, wide = copy_box.shape(size)
        here = patch(does.memory, np.arange(copy_box.at, copy_box.at + tall * wide))
        rows = ByteRows(copy_box.start, copy_box.size, copy_box.rows, copy_box.stride, does.out)
        if does.out:
            return Footprint((here,), (), rows)
        pads = tall * wide - copy_box.rows * (copy_box.size // size)
        return Footprint((), (here,), rows, None, pads)
    if isinstance(does, Swept):
        over = turns(device, does, operands, words, each.name)
        if not len(over.written):
            return NOTHING
        reads: dict[Patch, None] = {}
        writes: dict[Patch, None] = {}
        for reach, at in zip(does.reads, over.read, strict=True):
            depth = machine.scope(reach.memories[0]).depth
            reads[patch(reach.memories[0], distinct(at, depth))] = None
        if words is not None and machine.micro is not None:
            first, last = (operands[at] for at in does.micro)
            reads[patch(machine.micro.scope, np.arange(first, last))] = None
        unique = distinct(over.written, machine.scope(does.writes.memories[0]).depth)
        for name in does.writes.memories:
            writes[patch(name, unique)] = None
        return Footprint(tuple(reads), tuple(writes), None, over)
    return NOTHING
