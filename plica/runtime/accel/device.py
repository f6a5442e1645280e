"""Devices: an accelerator as the runtime needs it, tables of numbers that came from a declaration.

    Device    ::= Device(name, bits, memories, kinds, finish, micro)
    Kind      ::= Kind(name, operands, fixed, flags, does)      one kind of instruction
    does      ::= Copy | Sweep | None

>>> wide = InstructionKind("set", (("to", Bits(3, 5)),), ((Bits(0, 3), 2),), (), None)
>>> device = AccelDevice("toy", 8, (DeviceMemory("m", 4, (2,), "int8"),), (wide,), "set", None)
>>> decoded(device, bytes([0b10010]))
[(0, (2,))]
>>> from_data(to_data(device)) == device
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, TypeAlias

import numpy as np

from plica.runtime.accel import formula
from plica.runtime.accel.formula import Formula
from plica.runtime.error import ArtefactError, Diagnostic, Place, damaged

Code: TypeAlias = Sequence[tuple[int, tuple[int, ...]]]
"""Instructions: the number of a kind, and the operands."""

_MAX_ELEMENTS: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """A memory of the accelerator: `depth` elements, each a little tensor."""

    name: str
    depth: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        """The bytes of one element."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Bits:
    """A part of a word."""

    at: int
    count: int
    signed: bool = False

    def read(self, word: int) -> int:
        """The field's value in a word."""
        value = word >> self.at & (1 << self.count) - 1
        return value - (1 << self.count) if self.signed and value >> self.count - 1 else value

    @property
    def mask(self) -> int:
        """The bits that are its own."""
        return (1 << self.count) - 1 << self.at


@dataclass(frozen=True, slots=True)
class RowCopy:
    """Rows copied between main memory and a memory; the numbers are operands, -1 for none."""

    memory: str
    out: bool
    sram: int
    dram: int
    width: int
    rows: int = -1
    stride: int = -1
    pads: tuple[int, ...] = ()
    kind: str = ""  # the memory of which elements lie in main memory, where it is another one

    @property
    def lying(self) -> str:
        """The memory of which elements lie in main memory."""
        return self.kind or self.memory


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
    """For every turn of the loops, and each micro-operation: `writes` becomes the formula."""

    loops: tuple[int, ...]
    micro: tuple[int, ...]
    writes: OperandReach
    reads: tuple[OperandReach, ...]
    formula: Formula


@dataclass(frozen=True, slots=True)
class InstructionKind:
    """A kind of instruction: its operands by name, its opcode bits and its token flags."""

    name: str
    operands: tuple[tuple[str, Bits], ...]
    fixed: tuple[tuple[Bits, int], ...]
    flags: tuple[int, ...]
    does: RowCopy | DeviceSweep | None


@dataclass(frozen=True)
class AccelDevice:
    """An accelerator; `micro` are the memory of micro-operations and the parts of one."""

    name: str
    bits: int
    memories: tuple[DeviceMemory, ...]
    kinds: tuple[InstructionKind, ...]
    finish: str
    micro: tuple[str, tuple[Bits, ...]] | None

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


def to_data(of: AccelDevice) -> Mapping[str, object]:
    """The device as JSON data."""
    return {
        "name": of.name,
        "bits": of.bits,
        "memories": [[each.name, each.depth, list(each.shape), each.dtype] for each in of.memories],
        "kinds": [
            {
                "name": kind.name,
                "operands": [[name, _plain(bits)] for name, bits in kind.operands],
                "fixed": [[_plain(bits), value] for bits, value in kind.fixed],
                "flags": list(kind.flags),
                "does": _does(kind.does),
            }
            for kind in of.kinds
        ],
        "finish": of.finish,
        "micro": None if of.micro is None else [of.micro[0], [_plain(b) for b in of.micro[1]]],
    }


def _plain(of: Bits) -> list[int]:
    return [of.at, of.count, int(of.signed)]


def _does(of: RowCopy | DeviceSweep | None) -> object:
    if isinstance(of, RowCopy):
        places = [of.sram, of.dram, of.width, of.rows, of.stride]
        kind = [of.kind] if of.kind else []
        return ["copy", of.memory, of.out, places, list(of.pads), *kind]
    if isinstance(of, DeviceSweep):
        reaches = [[list(r.memories), r.base, list(r.strides)] for r in (of.writes, *of.reads)]
        return ["sweep", list(of.loops), list(of.micro), reaches, formula.to_data(of.formula)]
    return None


def from_data(given: object) -> AccelDevice:
    """The device in JSON; nothing in it is believed before it is checked."""
    match given:
        case {
            "name": str(name),
            "bits": int(bits),
            "memories": [*memories],
            "kinds": [*kinds],
            "finish": str(finish),
            "micro": micro,
        } if 0 < bits <= 128 and 0 < len(memories) < 64 and 0 < len(kinds) < 256:
            pass
        case _:
            raise _damaged(given)
    held = {memory.name: memory for memory in map(_memory, memories)}
    parts: tuple[str, tuple[Bits, ...]] | None = None
    match micro:
        case [str(where), [*fields]] if where in held and held[where].shape == ():
            parts = where, tuple([_bits(field, 64) for field in fields])
        case None:
            pass
        case _:
            raise _damaged(micro)
    read = tuple([_kind(kind, bits, held, parts) for kind in kinds])
    if finish not in [kind.name for kind in read] or len(held) < len(memories):
        raise _damaged(finish)
    return AccelDevice(name, bits, tuple(held.values()), read, finish, parts)


def _memory(given: object) -> DeviceMemory:
    match given:
        case [str(name), int(depth), [*shape], str(dtype)] if (
            0 < depth <= _MAX_ELEMENTS
            and formula.is_dtype(dtype)
            and all(type(size) is int and 0 < size <= 1 << 12 for size in shape)
            and len(shape) < 8
        ):
            return DeviceMemory(
                name, depth, tuple([size for size in shape if isinstance(size, int)]), dtype
            )
    raise _damaged(given)


def _bits(given: object, most: int) -> Bits:
    match given:
        case [int(at), int(count), int(signed)] if at >= 0 < count and at + count <= most:
            return Bits(at, count, bool(signed))
    raise _damaged(given)


def _kind(
    given: object,
    bits: int,
    held: Mapping[str, DeviceMemory],
    micro: tuple[str, tuple[Bits, ...]] | None,
) -> InstructionKind:
    match given:
        case {
            "name": str(name),
            "operands": [*operands],
            "fixed": [*fixed],
            "flags": [*flags],
            "does": does,
        } if all(type(flag) is int and 0 <= flag < bits for flag in flags):
            pass
        case _:
            raise _damaged(given)
    named: list[tuple[str, Bits]] = []
    for operand in operands:
        match operand:
            case [str(word), place]:
                named.append((word, _bits(place, bits)))
            case _:
                raise _damaged(operand)
    known: list[tuple[Bits, int]] = []
    for each in fixed:
        match each:
            case [place, int(value)]:
                known.append((_bits(place, bits), value))
            case _:
                raise _damaged(each)
    reader = _Reader(held, [word for word, _ in named], () if micro is None else micro[1])
    return InstructionKind(name, tuple(named), tuple(known), tuple(flags), reader.does(does))


class _Reader:
    """What an instruction may refer to: memories, operands, fields of micro-operations."""

    def __init__(
        self, held: Mapping[str, DeviceMemory], words: Sequence[str], parts: Sequence[Bits]
    ) -> None:
        self.held, self.words, self.parts = held, words, parts

    def does(self, given: object) -> RowCopy | DeviceSweep | None:
        match given:
            case None:
                return None
            case ["copy", str(memory), bool(out), [*places], [*pads], *kinds] if (
                memory in self.held
                and len(places) == 5
                and len(pads) in (0, 4)
                and self.fits(memory, kinds)
            ):
                sram, dram, width = self.operands(places[:3])
                rows, stride = (
                    -1 if place == -1 else self.operands([place])[0] for place in places[3:]
                )
                kind = str(kinds[0]) if kinds else ""
                given_pads = self.operands(pads)
                return RowCopy(memory, out, sram, dram, width, rows, stride, given_pads, kind)
            case ["sweep", [*loops], [*micro], [writes, *reads], meaning] if len(micro) in (
                (0, 2) if self.parts else (0,)
            ):
                bases = len(self.parts) if micro else len(self.words)
                target = self.reach(writes, bases, len(loops))
                read = tuple([self.reach(each, bases, len(loops)) for each in reads])
                shapes = [self.held[reach.memories[0]].shape for reach in read]
                made = formula.from_data(meaning, shapes, self.words)
                if made.shape != self.held[target.memories[0]].shape:
                    raise _damaged(meaning)
                return DeviceSweep(self.operands(loops), self.operands(micro), target, read, made)
        raise _damaged(given)

    def fits(self, memory: str, kinds: Sequence[object]) -> bool:
        """Whether elements of the kind, if one is given, have the shape of a memory's own."""
        shape = self.held[memory].shape
        shapes = {name: each.shape for name, each in self.held.items()}
        return not kinds or (len(kinds) == 1 and shapes.get(str(kinds[0])) == shape)

    def operands(self, given: Sequence[object]) -> tuple[int, ...]:
        found = [each for each in given if type(each) is int and 0 <= each < len(self.words)]
        if len(found) < len(given):
            raise _damaged(given)
        return tuple(found)

    def reach(self, given: object, bases: int, loops: int) -> OperandReach:
        match given:
            case [[*names], int(base), [*strides]] if 0 <= base < bases and len(strides) == loops:
                memories = [name for name in names if isinstance(name, str) and name in self.held]
                shapes = {self.held[memory].shape for memory in memories}
                if len(memories) == len(names) and len(shapes) == 1:
                    return OperandReach(tuple(memories), base, self.operands(strides))
        raise _damaged(given)


def _damaged(given: object) -> ArtefactError:
    return damaged("The device in the artefact is damaged.", repr(given)[:80])
