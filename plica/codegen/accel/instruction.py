"""Instructions and streams of an accelerator, as values.

    Instruction ::= Instruction(name, operands, tokens)     operands in the order of the declaration
    Stream      ::= Stream(code, micro, places)             micro-operations and tensors in memory

>>> from plica.codegen.accel.vta import vta
>>> first = instruction(vta(), "load.inp", x_size=4, y_size=1, tokens=("push_next",))
>>> operand(vta(), first, "x_size"), flags(first)
(4, ('push_next',))

The meaning of a stream is that of its program order. Units execute their own instructions in that
order; tokens synchronise them where they access common data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias

from attrs import frozen

from plica.codegen.accel import declaration
from plica.core import Term, did_you_mean
from plica.runtime.accel.functional import MICRO
from plica.runtime.error import Diagnostic, Place, PlicaError

__all__ = ["MICRO", "AccelInstruction", "BadInstruction", "Stream", "Tensor", "instruction"]

Values: TypeAlias = Mapping[str, int]


class BadInstruction(PlicaError):
    """A word, a text or a value is no instruction of the machine."""


@frozen(eq=False)
class AccelInstruction(Term):
    """One instruction; `tokens` are its flags as bits."""

    written = "codegen.accel.instruction.Instruction"

    name: str
    operands: tuple[int, ...]
    tokens: int = 0


@frozen(eq=False)
class Tensor(Term):
    """Elements of a scope's kind in memory, from the element `at` on."""

    name: str
    scope: str
    at: int
    elements: int


@frozen(eq=False)
class Stream(Term):
    """A program: its code, its micro-operations, and where everything is in memory."""

    code: tuple[AccelInstruction, ...]
    micro: tuple[int, ...] = ()
    tensors: tuple[Tensor, ...] = ()

    def tensor(self, name: str) -> Tensor:
        return next(each for each in self.tensors if each.name == name)


def instruction(
    machine: declaration.Accelerator, name: str, /, tokens: Iterable[str] = (), **operands: int
) -> AccelInstruction:
    """An instruction by the names of its operands; those not given are 0."""
    return made(machine, name, operands, tokens)


def made(
    machine: declaration.Accelerator, name: str, operands: Values, tokens: Iterable[str] = ()
) -> AccelInstruction:
    """The same, of operands in a mapping."""
    operation = find(machine, name)
    known = {field.name for field in operation.operands}
    for word in operands:
        if word not in known:
            raise _bad(
                name, f"{name} has no operand {word!r}.", None, word, did_you_mean(word, known)
            )
    values = tuple(operands.get(field.name, 0) for field in operation.operands)
    new = AccelInstruction(name, values, sum(1 << declaration.FLAGS.index(flag) for flag in tokens))
    check(machine, new)
    return new


def find(machine: declaration.Accelerator, name: str) -> declaration.Operation:
    """The operation of a name; a name it has not is an error."""
    if (operation := declaration.table(machine).get(name)) is None:
        hint = did_you_mean(name, declaration.table(machine))
        raise _bad(name, f"{machine.name} has no operation {name!r}.", None, name, hint)
    return operation


def check(machine: declaration.Accelerator, each: AccelInstruction) -> None:
    """Refuse an operand that its field cannot hold, and a flag of a queue that does not exist."""
    operation = find(machine, each.name)
    fields = operation.operands
    if len(each.operands) != len(fields):
        found = str(len(each.operands))
        raise _bad(each.name, f"{each.name} has other operands.", str(len(fields)), found)
    for field, value in zip(fields, each.operands, strict=True):
        if not field.least <= value <= field.most:
            room = f"{field.least} to {field.most}"
            hint = "Use smaller tiles." if value > field.most else None
            raise _bad(each.name, f"The operand {field.name} does not fit.", room, str(value), hint)
    if each.tokens & ~legal_tokens(machine, each.name):
        found = ", ".join(flags(each))
        raise _bad(each.name, "There is no such queue for this instruction.", None, found)


@lru_cache(maxsize=1024)
def legal_tokens(machine: declaration.Accelerator, name: str) -> int:
    """The flags that an instruction of the name may have, as bits."""
    operation = machine.operation(name)
    here = {field.name for field in operation.fields}
    return sum(
        1 << bit
        for bit, flag in enumerate(declaration.FLAGS)
        if operation.carries
        and flag in here
        and declaration.queue_of(machine, operation.unit, flag)
    )


def flags(each: AccelInstruction) -> tuple[str, ...]:
    """The names of the flags that are set."""
    return tuple(flag for bit, flag in enumerate(declaration.FLAGS) if each.tokens >> bit & 1)


@lru_cache(maxsize=1024)
def position(machine: declaration.Accelerator, name: str, word: str) -> int:
    """The position of an operand."""
    return [field.name for field in machine.operation(name).operands].index(word)


def operand(machine: declaration.Accelerator, each: AccelInstruction, word: str) -> int:
    """The value of an operand by its name."""
    return each.operands[position(machine, each.name, word)]


def values(machine: declaration.Accelerator, each: AccelInstruction) -> dict[str, int]:
    """All operands by name."""
    fields = machine.operation(each.name).operands
    return {field.name: value for field, value in zip(fields, each.operands, strict=True)}


@lru_cache(maxsize=64)
def nothing(machine: declaration.Accelerator, unit: str) -> str:
    """The operation of the unit that carries tokens and, with operands of 0, does nothing."""
    for wanted in (declaration.Idle, declaration.Move):
        for operation in machine.operations:
            if operation.unit == unit and operation.carries and isinstance(operation.does, wanted):
                return operation.name
    raise _bad(unit, f"No operation of the unit {unit} can carry tokens alone.", "a move", "none")


def idle(machine: declaration.Accelerator, unit: str, tokens: int) -> AccelInstruction:
    """An instruction of the unit that only carries tokens."""
    name = nothing(machine, unit)
    return AccelInstruction(name, (0,) * len(machine.operation(name).operands), tokens)


def _bad(
    name: str, message: str, expected: str | None, found: str | None, hint: str | None = None
) -> BadInstruction:
    place = Place(node=name)
    return BadInstruction(Diagnostic("bad-instruction", message, place, expected, found, hint))
