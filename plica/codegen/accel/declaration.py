"""Accelerators as data: scopes, units, token queues and instructions with their meaning.

    Machine   ::= Machine(name, bits, scopes, units, queues, micro, operations, timing, finish)
    Operation ::= Operation(name, unit, fields, fixed, does, interval, carries)
    does      ::= Move(scope, way, …) | Sweep(loops, micro, writes, reads, meaning) | Idle

An operation is one kind of instruction: where its fields lie in the word, which of them are fixed
(that is how it is recognised), the unit that executes it, and what it does.  A `Move` copies rows
between memory and a scope.  A `Sweep` is a loop nest over elements of scopes; what it does with
them is a tensor expression.  Everything else, from the encoder to the simulators, follows.

>>> pack(7, memory=3, sram=16)
(Field('memory', 7, 3, False), Field('sram', 10, 16, False))

Units form a row. `pop_prev`, `pop_next`, `push_prev`, `push_next` are the flags with which an
instruction takes tokens from and adds tokens to the queues between neighbours.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar

from attrs import frozen

from plica.codegen.accel.consistency import faults
from plica.codegen.accel.part import (
    DEFAULT_TIMING,
    FLAGS,
    MAX_BITS,
    POP_NEXT,
    POP_PREV,
    PUSH_NEXT,
    PUSH_PREV,
    WORD,
    Does,
    Field,
    Idle,
    Micro,
    Move,
    Operation,
    Queue,
    Reach,
    Scope,
    Sweep,
    Timing,
    Way,
    element,
    operands_of,
)
from plica.core import Term
from plica.runtime.error import PlicaError

__all__ = [
    "FLAGS", "MAX_BITS", "POP_NEXT", "POP_PREV", "PUSH_NEXT", "PUSH_PREV", "WORD", "Accelerator",
    "BadAccelerator", "Does", "Field", "Idle", "Micro", "Move", "Operation", "Queue", "Reach",
    "Scope", "Sweep", "Timing", "Way", "element", "operands_of", "pack", "queue_of", "table",
]  # fmt: skip


class BadAccelerator(PlicaError):
    """The declaration of an accelerator contradicts itself."""


@frozen(eq=False)
class Accelerator(Term):
    """An accelerator.  `finish` ends a stream, in a unit by which all work has been done."""

    written = "codegen.accel.declaration.Machine"
    backend: ClassVar[str] = "accel"
    """It can be used directly as a target of models (`plica.codegen.accel.target.settled`)."""

    name: str
    bits: int
    scopes: tuple[Scope, ...]
    units: tuple[str, ...]
    queues: tuple[Queue, ...]
    operations: tuple[Operation, ...]
    finish: str
    micro: Micro | None = None
    timing: Timing = DEFAULT_TIMING

    @staticmethod
    def normal(*parts: Any) -> tuple[Any, ...]:  # Any: the fields as they are declared above
        if wrong := faults(*parts):
            raise BadAccelerator(*wrong)
        return parts

    def describe(self) -> str:
        """How it is called among targets, once an entry point names it."""
        return f"accel:{self.name}"

    def scope(self, name: str) -> Scope:
        return next(each for each in self.scopes if each.name == name)

    def operation(self, name: str) -> Operation:
        """The operation of a name; there must be one."""
        return table(self)[name]


def pack(start: int, /, **bits: int) -> tuple[Field, ...]:
    """Fields one after the other; a negative number of bits is that many, signed."""
    fields: list[Field] = []
    for name, wide in bits.items():
        fields.append(Field(name, start, abs(wide), wide < 0))
        start += abs(wide)
    return tuple(fields)


@lru_cache(maxsize=64)
def table(machine: Accelerator) -> dict[str, Operation]:
    """The operations by name."""
    return {operation.name: operation for operation in machine.operations}


def queue_of(machine: Accelerator, unit: str, flag: str) -> Queue | None:
    """The queue that a flag of an instruction in the unit refers to, or None."""
    at = machine.units.index(unit) + (1 if flag.endswith("next") else -1)
    if not 0 <= at < len(machine.units):
        return None
    other = machine.units[at]
    ends = (other, unit) if flag.startswith("pop") else (unit, other)
    return next((queue for queue in machine.queues if (queue.source, queue.target) == ends), None)
