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

from plica.codegen.accel import instruction
from plica.codegen.accel.declaration import FLAGS, Accelerator, Field, Operation
from plica.codegen.accel.instruction import AccelInstruction, BadInstruction, check, find
from plica.core import did_you_mean
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


# --- assembly ----------------------------------------------------------------------------------


def show(machine: Accelerator, each: instruction.AccelInstruction) -> str:
    """One line."""
    given = [
        f"{name}={value}" for name, value in instruction.values(machine, each).items() if value
    ]
    return " ".join([each.name, *given, *(f"!{flag}" for flag in instruction.flags(each))])


def read(machine: Accelerator, line: str, number: int = 1) -> instruction.AccelInstruction:
    """The instruction of a line."""
    name, *words = line.split() or ("",)
    if not name:
        raise _bad_line(number, "There is no instruction here.", "an operation", repr(line))
    operation = instruction.find(machine, name)
    given = _given(operation.operands, words, number)
    tokens = 0
    for word in words:
        if word.startswith("!"):
            if word[1:] not in FLAGS:
                hint = did_you_mean(word[1:], FLAGS)
                raise _bad_line(number, f"There is no flag {word!r}.", ", ".join(FLAGS), word, hint)
            tokens |= 1 << FLAGS.index(word[1:])
    operands = tuple(given.get(field.name, 0) for field in operation.operands)
    made = instruction.AccelInstruction(name, operands, tokens)
    instruction.check(machine, made)
    return made


def show_stream(machine: Accelerator, stream: instruction.Stream) -> str:
    """The whole stream; `read_stream` gives the same back."""
    lines = [
        f".tensor {each.name} {each.scope} {each.at} {each.elements}" for each in stream.tensors
    ]
    for word in stream.micro:
        fields = decode_micro(machine, word)
        lines.append(" ".join([".micro", *(f"{key}={value}" for key, value in fields.items())]))
    lines += [show(machine, each) for each in stream.code]
    return "\n".join(lines) + "\n"


def read_stream(machine: Accelerator, text: str) -> instruction.Stream:
    """The stream of a text."""
    code: list[instruction.AccelInstruction] = []
    micro: list[int] = []
    tensors: list[instruction.Tensor] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if words[0] == ".tensor":
            if len(words) != 5 or not (words[3].isdecimal() and words[4].isdecimal()):
                raise _bad_line(
                    number, "A tensor has a name, a scope, a place and a size.", None, line
                )
            tensors.append(instruction.Tensor(words[1], words[2], int(words[3]), int(words[4])))
        elif words[0] == ".micro":
            if machine.micro is None:
                raise _bad_line(number, f"{machine.name} has no micro-operations.", None, line)
            given = _given(machine.micro.fields, words[1:], number)
            filled = {field.name: given.get(field.name, 0) for field in machine.micro.fields}
            micro.append(encode_micro(machine, **filled))
        else:
            code.append(read(machine, " ".join(words), number))
    return instruction.Stream(tuple(code), tuple(micro), tuple(tensors))


def _given(fields: tuple[object, ...], words: list[str], number: int) -> dict[str, int]:
    known = [str(getattr(field, "name", "")) for field in fields]
    given: dict[str, int] = {}
    for word in words:
        if word.startswith("!"):
            continue
        name, _, value = word.partition("=")
        if name not in known:
            hint = did_you_mean(name, known)
            raise _bad_line(number, f"There is no operand {name!r}.", ", ".join(known), word, hint)
        if name in given:
            raise _bad_line(number, f"The operand {name!r} is given twice.", None, word)
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
            raise _bad_line(number, f"The operand {name!r} is no number.", "digits", word)
        given[name] = int(value)
    return given


def _bad_line(
    line: int, message: str, expected: str | None, found: str, hint: str | None = None
) -> instruction.BadInstruction:
    place = Place(line=line)
    return instruction.BadInstruction(
        Diagnostic("bad-instruction", message, place, expected, found, hint)
    )
