"""Footprints: the elements that an instruction reads and writes, from its meaning alone.

>>> from plica.codegen.accel.instruction import Stream, instruction
>>> from plica.codegen.accel.vta import vta
>>> load = instruction(vta(), "load.inp", sram=8, y_size=2, x_size=3, x_stride=10, y_pad_0=1)
>>> touched = footprints(vta(), Stream((load,)))[0]
>>> [(patch.space, patch.elements.tolist()) for patch in touched.writes]
[('inp', [8, 9, 10, 11, 12, 13, 14, 15, 16])]
>>> touched.memory
Rows(start=0, size=48, rows=2, stride=160, writes=False)

What micro-operations say is known before anything runs: they are loaded from a tensor that nothing
writes, by the unit that uses them or in step with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import frozen

from plica.codegen.accel.declaration import Machine, Move, Reach, Sweep
from plica.codegen.accel.instruction import MICRO, Instruction, Stream, position
from plica.core.diagnostic import EvaluationError
from plica.runtime.error import Diagnostic, Place

Array = np.ndarray[Any, Any]


@frozen(eq=False)
class Patch:
    """Elements of a scope, sorted; equal patches of one stream are one object."""

    space: str
    elements: Array


@frozen
class Rows:
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
class Turns:
    """The turns of a sweep, in order: the element written, and those read, at each."""

    written: Array
    read: tuple[Array, ...]


@frozen(eq=False)
class Footprint:
    """What one instruction touches."""

    reads: tuple[Patch, ...] = ()
    writes: tuple[Patch, ...] = ()
    memory: Rows | None = None
    turns: Turns | None = None
    pads: int = 0


NOTHING = Footprint()


def footprints(machine: Machine, stream: Stream) -> list[Footprint]:
    """The footprint of each instruction; an access outside a scope is an error."""
    micro = _Micro(machine, stream)
    memo: dict[tuple[object, ...], Footprint] = {}
    patches: dict[tuple[str, bytes], Patch] = {}
    found: list[Footprint] = []
    for each in stream.code:
        does = machine.operation(each.name).does
        key: tuple[object, ...] = (each.name, each.operands)
        words: Array | None = None
        if isinstance(does, Sweep) and does.micro:
            words = micro.read(each, does)
            key += (words.tobytes(),)
        known = memo.get(key)
        if known is None:
            known = memo[key] = footprint(machine, each, words, patches)
        if isinstance(does, Move) and machine.micro and does.scope == machine.micro.scope:
            micro.load(each, known)
        found.append(known)
    return found


class _Micro:
    """What the scope of micro-operations holds as the stream goes on."""

    def __init__(self, machine: Machine, stream: Stream) -> None:
        self.machine = machine
        if machine.micro is None:
            return
        scope = machine.scope(machine.micro.scope)
        self.held = np.zeros(scope.depth, np.int64)
        self.at = next((each.at for each in stream.tensors if each.name == MICRO), 0)
        self.bytes = scope.bytes
        self.words = np.array(stream.micro, np.int64)

    def load(self, each: Instruction, known: Footprint) -> None:
        rows = known.memory
        if rows is None:
            return
        first = rows.start // self.bytes - self.at
        count = rows.size // self.bytes
        if first < 0 or first + count > len(self.words) or rows.rows != 1:
            raise out_of_range(each.name, "micro-operations", first + count, len(self.words))
        target = known.writes[0].elements
        self.held[target[0] : target[0] + count] = self.words[first : first + count]

    def read(self, each: Instruction, does: Sweep) -> Array:
        first, last = (each.operands[position(self.machine, each.name, w)] for w in does.micro)
        if last > len(self.held):
            raise out_of_range(each.name, "micro-operations", last, len(self.held))
        return self.held[first:last]


def footprint(
    machine: Machine,
    each: Instruction,
    words: Array | None,
    patches: dict[tuple[str, bytes], Patch],
) -> Footprint:
    """What an instruction touches where its micro-operations are `words`."""
    operation = machine.operation(each.name)
    does = operation.does
    value = dict(zip([field.name for field in operation.operands], each.operands, strict=True))

    def patch(space: str, elements: Array) -> Patch:
        return patches.setdefault((space, elements.tobytes()), Patch(space, elements))

    if isinstance(does, Move):
        width, rows = value[does.width], value[does.rows] if does.rows else 1
        top, bottom, left, right = (value[word] for word in does.pads) if does.pads else (0,) * 4
        if width == 0 or rows == 0:
            return NOTHING
        scope = machine.scope(does.scope)
        total = (top + rows + bottom) * (left + width + right)
        first = value[does.sram]
        if first + total > scope.depth:
            raise out_of_range(each.name, does.scope, first + total - 1, scope.depth)
        here = patch(does.scope, np.arange(first, first + total))
        stride = value[does.stride] if does.stride else width
        size = scope.bytes
        start = value[does.dram] * size
        memory = Rows(start, width * size, rows, stride * size, does.way == "out")
        if does.way == "out":
            return Footprint((here,), (), memory)
        return Footprint((), (here,), memory, None, total - rows * width)
    if isinstance(does, Sweep):
        turns = _turns(machine, does, each, value, words)
        if not len(turns.written):
            return NOTHING
        reads: dict[Patch, None] = {}
        writes: dict[Patch, None] = {}
        for reach, at in zip(does.reads, turns.read, strict=True):
            reads[patch(reach.scopes[0], distinct(machine, reach, at))] = None
        if words is not None and machine.micro is not None:
            first, last = (value[word] for word in does.micro)
            reads[patch(machine.micro.scope, np.arange(first, last))] = None
        unique = distinct(machine, does.writes, turns.written)
        for name in does.writes.scopes:
            writes[patch(name, unique)] = None
        return Footprint(tuple(reads), tuple(writes), None, turns)
    return NOTHING


def distinct(machine: Machine, reach: Reach, at: Array) -> Array:
    """The elements among many, sorted: quicker than sorting them."""
    mask = np.zeros(machine.scope(reach.scopes[0]).depth, bool)
    mask[at] = True
    return np.flatnonzero(mask)


def _turns(
    machine: Machine,
    does: Sweep,
    each: Instruction,
    value: dict[str, int],
    words: Array | None,
) -> Turns:
    extents = [value[word] for word in does.loops]
    fields = {field.name: field for field in machine.micro.fields} if machine.micro else {}

    def places(reach: Reach) -> Array:
        if words is None:
            base = np.array([value[reach.base]])
        else:
            field = fields[reach.base]
            base = words >> field.at & (1 << field.bits) - 1
        at = base
        for extent, word in zip(reversed(extents), reversed(reach.strides), strict=True):
            steps = np.arange(extent) * value[word]
            at = steps.reshape(-1, *(1,) * at.ndim) + at
        flat = at.reshape(-1)
        for name in reach.scopes:
            depth = machine.scope(name).depth
            if len(flat) and int(flat.max()) >= depth:
                raise out_of_range(each.name, name, int(flat.max()), depth)
        return flat

    return Turns(places(does.writes), tuple(places(reach) for reach in does.reads))


def out_of_range(name: str, space: str, found: int, depth: int) -> EvaluationError:
    """The error of an access that is outside of what it accesses."""
    message = f"{name} touches an element outside of {space}."
    return EvaluationError(
        Diagnostic("index-out-of-bounds", message, Place(node=name), f"< {depth}", str(found))
    )
