"""Devices: an accelerator as the runtime needs it, tables of numbers that came from a declaration.

    Device    ::= Device(name, bits, memories, kinds, finish, micro)
    Kind      ::= Kind(name, operands, fixed, flags, does)      one kind of instruction
    does      ::= Copy | Sweep | None

>>> from plica.runtime.typed_json import plain, read
>>> wide = InstructionKind("set", (("to", Bits(3, 5)),), ((Bits(0, 3), 2),), (), None)
>>> device = AccelDevice("toy", 8, (DeviceMemory("m", 4, (2,), "int8"),), (wide,), "set", None)
>>> decoded(device, bytes([0b10010]))
[(0, (2,))]
>>> read(AccelDevice, plain(device)) == device
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from math import prod
from typing import TypeAlias

import numpy as np

from plica.runtime.accel.formula import ElementType, Formula
from plica.runtime.error import ArtefactError, Diagnostic, Place
from plica.runtime.typed_json import OPTIONAL, Annotated, ClassVar, dataclass

Code: TypeAlias = Sequence[tuple[int, tuple[int, ...]]]
"""Instructions: the number of a kind, and the operands."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """A memory of the accelerator: `depth` elements, each a little tensor."""

    name: str
    depth: Annotated[int, range(1, 1 + (1 << 24))]
    shape: tuple[Annotated[int, range(1, 1 + (1 << 12))], ...]
    dtype: ElementType

    @property
    def is_possible(self) -> bool:
        return len(self.shape) < 8

    @property
    def bytes(self) -> int:
        """The bytes of one element."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Bits:
    """A part of a word."""

    at: Annotated[int, range(128)]
    count: Annotated[int, range(1, 129)]
    signed: Annotated[bool, bool] = False

    def read(self, word: int) -> int:
        """The field's value in a word."""
        value = word >> self.at & (1 << self.count) - 1
        return value - (1 << self.count) if self.signed and value >> self.count - 1 else value

    @property
    def end(self) -> int:
        """The first bit behind it."""
        return self.at + self.count

    @property
    def mask(self) -> int:
        """The bits that are its own."""
        return (1 << self.count) - 1 << self.at


@dataclass(frozen=True, slots=True)
class CopyOperands:
    """Which operands say what a copy moves; -1 for none."""

    sram: int
    dram: int
    width: int
    rows: int = -1
    stride: int = -1


@dataclass(frozen=True, slots=True)
class RowCopy:
    """Rows copied between main memory and a memory."""

    WORD: ClassVar = "copy"

    memory: str
    out: bool
    by: CopyOperands
    pads: tuple[int, ...] = ()
    kind: str = field(default="", metadata=OPTIONAL)
    """The memory of which elements lie in main memory, where it is another one."""

    @property
    def lying(self) -> str:
        """The memory of which elements lie in main memory."""
        return self.kind or self.memory

    def fits(self, device: AccelDevice, words: Sequence[str]) -> bool:
        """Whether the device has what it names."""
        shapes = {memory.name: memory.shape for memory in device.memories}
        by, operands = self.by, range(len(words))
        return (
            all(at in operands for at in (by.sram, by.dram, by.width, *self.pads))
            and all(at in range(-1, len(words)) for at in (by.rows, by.stride))
            and len(self.pads) in (0, 4)
            and {self.memory, self.lying} <= shapes.keys()
            and shapes[self.memory] == shapes[self.lying]
        )


@dataclass(frozen=True, slots=True)
class OperandReach:
    """The element that a turn touches: a base, and an operand that is the stride of each loop.

    The base is an operand, or a field of the micro-operation if there are any.
    """

    memories: tuple[str, ...]
    base: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeviceSweep:
    """For every turn of the loops, and each micro-operation: what the first of `reaches` touches
    becomes the formula of what the others do."""

    WORD: ClassVar = "sweep"

    loops: tuple[int, ...]
    micro: tuple[int, ...]
    reaches: tuple[OperandReach, ...]
    formula: Formula

    @property
    def writes(self) -> OperandReach:
        return self.reaches[0]

    @property
    def reads(self) -> tuple[OperandReach, ...]:
        return self.reaches[1:]

    def fits(self, device: AccelDevice, words: Sequence[str]) -> bool:
        """Whether the device has what it names."""
        shapes = {memory.name: memory.shape for memory in device.memories}
        fields = () if device.micro is None else device.micro[1]
        bases, operands = range(len(fields if self.micro else words)), range(len(words))
        touched = [{shapes.get(name) for name in reach.memories} for reach in self.reaches]
        if not touched or any(len(each) != 1 or None in each for each in touched):
            return False
        written, *read = [shape for (shape,) in touched if shape is not None]
        return (
            len(self.micro) in ((0, 2) if fields else (0,))
            and all(at in operands for at in (*self.loops, *self.micro))
            and all(reach.base in bases for reach in self.reaches)
            and all(len(reach.strides) == len(self.loops) for reach in self.reaches)
            and all(at in operands for reach in self.reaches for at in reach.strides)
            and self.formula.shape == written
            and self.formula.fits(read, words)
        )


@dataclass(frozen=True, slots=True)
class InstructionKind:
    """A kind of instruction: its operands by name, its opcode bits and its token flags."""

    KEYED: ClassVar = True

    name: str
    operands: tuple[tuple[str, Bits], ...]
    fixed: tuple[tuple[Bits, int], ...]
    flags: tuple[int, ...]
    does: RowCopy | DeviceSweep | None

    def fits(self, device: AccelDevice) -> bool:
        """Whether the device has what it names."""
        parts = [*[bits for _, bits in self.operands], *[bits for bits, _ in self.fixed]]
        return (
            all(flag in range(device.bits) for flag in self.flags)
            and all(part.end <= device.bits for part in parts)
            and (self.does is None or self.does.fits(device, [name for name, _ in self.operands]))
        )


@dataclass(frozen=True)
class AccelDevice:
    """An accelerator; `micro` are the memory of micro-operations and the parts of one."""

    KEYED: ClassVar = True
    DAMAGED: ClassVar = "The device in the artefact is damaged."

    name: str
    bits: Annotated[int, range(1, 129)]
    memories: tuple[DeviceMemory, ...]
    kinds: tuple[InstructionKind, ...]
    finish: str
    micro: tuple[str, tuple[Bits, ...]] | None

    @property
    def is_possible(self) -> bool:
        held = {memory.name: memory for memory in self.memories}
        where, parts = self.micro or ("", ())
        return (
            0 < len(self.memories) == len(held) < 64
            and 0 < len(self.kinds) < 256
            and self.finish in [kind.name for kind in self.kinds]
            and (self.micro is None or (where in held and held[where].shape == ()))
            and all(part.end <= 64 for part in parts)
            and all(kind.fits(self) for kind in self.kinds)
        )

    def memory(self, name: str) -> DeviceMemory:
        """The memory of a name; there must be one."""
        return next(each for each in self.memories if each.name == name)


def decoded(device: AccelDevice, data: bytes) -> list[tuple[int, tuple[int, ...]]]:
    """The instructions of words; a word that is none is an error."""
    size = -(-device.bits // 8)
    if len(data) % size:
        raise _bad(device, "The code is no whole number of words.", f"{len(data)} bytes")
    used = [
        sum(1 << flag for flag in each.flags)
        + sum(bits.mask for _, bits in each.operands)
        + sum(bits.mask for bits, _ in each.fixed)
        for each in device.kinds
    ]
    known: dict[int, tuple[int, tuple[int, ...]]] = {}
    found: list[tuple[int, tuple[int, ...]]] = []
    for at in range(0, len(data), size):
        word = int.from_bytes(data[at : at + size], "little")
        if (one := known.get(word)) is None:
            number = _number(device, word)
            kind = device.kinds[number]
            if word & ~used[number]:
                extra = f"{word & ~used[number]:#x}"
                raise _bad(device, f"Bits that {kind.name} does not use are set.", extra)
            one = known[word] = number, tuple([bits.read(word) for _, bits in kind.operands])
        found.append(one)
    return found


def _number(device: AccelDevice, word: int) -> int:
    """The kind that a word is of."""
    for number, kind in enumerate(device.kinds):
        if all(bits.read(word) == value for bits, value in kind.fixed):
            return number
    raise _bad(device, "The word is no operation of the machine.", f"{word:#x}")


def _bad(device: AccelDevice, message: str, found: str) -> ArtefactError:
    place = Place(node=device.name)
    return ArtefactError(Diagnostic("bad-instruction", message, place, None, found))
