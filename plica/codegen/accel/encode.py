"""Encoding: instructions as words of bits, and back.

>>> from plica.codegen.accel.instruction import instruction
>>> from plica.codegen.accel.vta import vta
>>> word = encode(vta(), instruction(vta(), "load.inp", sram=3, x_size=4, tokens=("pop_next",)))
>>> hex(word)
'0x400000000000000000d10'
>>> decode(vta(), word).name
'load.inp'
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from plica.codegen.accel.declaration import FLAGS, Accelerator, Field, Operation
from plica.codegen.accel.instruction import AccelInstruction, BadInstruction, check, find
from plica.runtime.error import Diagnostic, Place


def encode(machine: Accelerator, each: AccelInstruction) -> int:
    """The word of an instruction."""
    check(machine, each)
    operation = find(machine, each.name)
    word, shifts = _form(operation)
    for (at, mask), value in zip(shifts, each.operands, strict=True):
        word |= (value & mask) << at
    for bit, at in _flags(operation):
        if each.tokens >> bit & 1:
            word |= 1 << at
    return word


def decode(machine: Accelerator, word: int) -> AccelInstruction:
    """The instruction of a word; a word that is none is an error."""
    if not 0 <= word < 1 << machine.bits:
        raise _bad(machine, word, f"A word of {machine.name} has {machine.bits} bits.")
    for operation in machine.operations:
        if all(_read(_field(operation, name), word) == value for name, value in operation.fixed):
            break
    else:
        raise _bad(machine, word, "The word is no operation of the machine.")
    if word & ~_used(operation):
        extra = f"{word & ~_used(operation):#x}"
        raise _bad(machine, word, f"Bits that {operation.name} does not use are set.", extra)
    operands = tuple(_read(field, word) for field in operation.operands)
    tokens = sum((word >> at & 1) << bit for bit, at in _flags(operation))
    made = AccelInstruction(operation.name, operands, tokens)
    check(machine, made)
    return made


def to_bytes(machine: Accelerator, code: Sequence[AccelInstruction]) -> bytes:
    """The words of a program one after the other, least byte first."""
    size = -(-machine.bits // 8)
    return b"".join([encode(machine, each).to_bytes(size, "little") for each in code])


def from_bytes(machine: Accelerator, data: bytes) -> tuple[AccelInstruction, ...]:
    """The program of a byte string; refuses incomplete words."""
    size = -(-machine.bits // 8)
    if len(data) % size:
        found = f"{len(data)} bytes"
        message = "The code is no whole number of words."
        place = Place(node=machine.name)
        wrong = Diagnostic("bad-instruction", message, place, f"a multiple of {size} bytes", found)
        raise BadInstruction(wrong)
    words = range(0, len(data), size)
    return tuple(decode(machine, int.from_bytes(data[at : at + size], "little")) for at in words)


def encode_micro(machine: Accelerator, **fields: int) -> int:
    """The word of a micro-operation."""
    assert machine.micro is not None
    word = 0
    for field in machine.micro.fields:
        value = fields[field.name]
        if not field.least <= value <= field.most:
            place = Place(node="micro-operation")
            message = f"The field {field.name} of a micro-operation does not fit."
            room = f"{field.least} to {field.most}"
            hint = "Use smaller tiles."
            raise BadInstruction(
                Diagnostic("bad-instruction", message, place, room, str(value), hint)
            )
        word |= (value & (1 << field.bits) - 1) << field.at
    return word


def decode_micro(machine: Accelerator, word: int) -> dict[str, int]:
    """The fields of a micro-operation."""
    assert machine.micro is not None
    return {field.name: _read(field, word) for field in machine.micro.fields}


@lru_cache(maxsize=1024)
def _form(operation: Operation) -> tuple[int, tuple[tuple[int, int], ...]]:
    word = 0
    for name, value in operation.fixed:
        field = _field(operation, name)
        word |= (value & (1 << field.bits) - 1) << field.at
    return word, tuple((field.at, (1 << field.bits) - 1) for field in operation.operands)


@lru_cache(maxsize=1024)
def _flags(operation: Operation) -> tuple[tuple[int, int], ...]:
    at = {field.name: field.at for field in operation.fields}
    return tuple((bit, at[flag]) for bit, flag in enumerate(FLAGS) if flag in at)


@lru_cache(maxsize=1024)
def _used(operation: Operation) -> int:
    return sum((1 << field.bits) - 1 << field.at for field in operation.fields)


def _field(operation: Operation, name: str) -> Field:
    return next(field for field in operation.fields if field.name == name)


def _read(field: Field, word: int) -> int:
    value = word >> field.at & (1 << field.bits) - 1
    return value - (1 << field.bits) if field.signed and value >> field.bits - 1 else value


def _bad(machine: Accelerator, word: int, message: str, found: str | None = None) -> BadInstruction:
    place = Place(node=machine.name)
    shown = found or f"{word:#x}"
    return BadInstruction(Diagnostic("bad-instruction", message, place, None, shown))
