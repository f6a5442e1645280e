"""Assembly: instructions and streams as text, one instruction a line, and back.

>>> from plica.codegen.accel.instruction import instruction
>>> from plica.codegen.accel.vta import vta
>>> each = instruction(vta(), "load.inp", dram=64, y_size=6, x_size=8, tokens=("pop_next",))
>>> print(show(vta(), each))
load.inp dram=64 y_size=6 x_size=8 !pop_next
>>> read(vta(), show(vta(), each)) is each
True
"""

from __future__ import annotations

from plica.codegen.accel import instruction
from plica.codegen.accel.declaration import FLAGS, Accelerator
from plica.codegen.accel.encode import decode_micro, encode_micro
from plica.core import did_you_mean
from plica.runtime.error import Diagnostic, Place


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
        raise _bad(number, "There is no instruction here.", "an operation", repr(line))
    operation = instruction.find(machine, name)
    given = _given(operation.operands, words, number)
    tokens = 0
    for word in words:
        if word.startswith("!"):
            if word[1:] not in FLAGS:
                hint = did_you_mean(word[1:], FLAGS)
                raise _bad(number, f"There is no flag {word!r}.", ", ".join(FLAGS), word, hint)
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
                raise _bad(number, "A tensor has a name, a scope, a place and a size.", None, line)
            tensors.append(instruction.Tensor(words[1], words[2], int(words[3]), int(words[4])))
        elif words[0] == ".micro":
            if machine.micro is None:
                raise _bad(number, f"{machine.name} has no micro-operations.", None, line)
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
            raise _bad(number, f"There is no operand {name!r}.", ", ".join(known), word, hint)
        if name in given:
            raise _bad(number, f"The operand {name!r} is given twice.", None, word)
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
            raise _bad(number, f"The operand {name!r} is no number.", "digits", word)
        given[name] = int(value)
    return given


def _bad(
    line: int, message: str, expected: str | None, found: str, hint: str | None = None
) -> instruction.BadInstruction:
    place = Place(line=line)
    return instruction.BadInstruction(
        Diagnostic("bad-instruction", message, place, expected, found, hint)
    )
