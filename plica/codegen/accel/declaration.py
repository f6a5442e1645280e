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

Units stand in a row.  `pop_prev`, `pop_next`, `push_prev`, `push_next` are the flags with which an
instruction takes tokens from and gives tokens to the queues between neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

from attrs import frozen

from plica.core.diagnostic import did_you_mean
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.dtype import DType
from plica.ir.scalar import Buffer, index
from plica.ir.tensor import Compute
from plica.runtime.error import Diagnostic, Place, PlicaError

FLAGS: Final = ("pop_prev", "pop_next", "push_prev", "push_next")
POP_PREV, POP_NEXT, PUSH_PREV, PUSH_NEXT = 1, 2, 4, 8
"""The flags as bits of `Instruction.tokens`, in the order of `FLAGS`."""

WORD: Final = 64
"""No field crosses from one word of so many bits to the next."""

MOST_BITS: Final = 128

Way: TypeAlias = Literal["in", "out"]


class BadAccelerator(PlicaError):
    """The declaration of an accelerator contradicts itself."""


@frozen(eq=False)
class Scope(Term):
    """A memory of the accelerator: `depth` elements, each a little tensor of the shape."""

    name: str
    depth: int
    shape: tuple[int, ...]
    dtype: DType

    @property
    def bytes(self) -> int:
        """The bytes of one element."""
        return math.prod(self.shape) * self.dtype.numpy.itemsize


@frozen(eq=False)
class Field(Term):
    """Bits `at` to `at + bits - 1` of a word."""

    name: str
    at: int
    bits: int
    signed: bool = False

    @property
    def least(self) -> int:
        return -(1 << self.bits - 1) if self.signed else 0

    @property
    def most(self) -> int:
        return (1 << self.bits - self.signed) - 1


@frozen(eq=False)
class Queue(Term):
    """Tokens from one unit to its neighbour, at most `depth` at once."""

    source: str
    target: str
    depth: int = 8


@frozen(eq=False)
class Micro(Term):
    """Micro-operations: words in a scope that give a sweep its places."""

    scope: str
    fields: tuple[Field, ...]


@frozen(eq=False)
class Move(Term):
    """A copy of `rows` rows of `width` elements, `stride` apart in memory and dense in the scope.

    The words name fields.  `pads` are rows before and after, and columns before and after, that
    are filled with zeros on the way in.  A width of 0 does nothing.
    """

    scope: str
    way: Way
    sram: str
    dram: str
    width: str
    rows: str = ""
    stride: str = ""
    pads: tuple[str, ...] = ()


@frozen(eq=False)
class Reach(Term):
    """The element that a turn of a sweep touches: a base, and a stride for each loop.

    The base is a field of the micro-operation, or of the instruction where there are none.  What
    is written to the first scope goes, cut to its element type, to the others too.
    """

    scopes: tuple[str, ...]
    base: str
    strides: tuple[str, ...]


@frozen(eq=False)
class Sweep(Term):
    """For every turn of the loops, and for each micro-operation: `writes` becomes the meaning.

    The inputs of the meaning are the elements at `reads`; its free variables are fields.
    `latency` is the number of turns after which a written element may be touched again.
    """

    loops: tuple[str, ...]
    micro: tuple[str, ...]
    writes: Reach
    reads: tuple[Reach, ...]
    meaning: Compute
    latency: int = 1


@frozen(eq=False)
class Idle(Term):
    """Nothing but the tokens."""


Does: TypeAlias = Move | Sweep | Idle


@frozen(eq=False)
class Operation(Term):
    """One kind of instruction; `interval` is the cycles a turn of a sweep takes."""

    name: str
    unit: str
    fields: tuple[Field, ...]
    fixed: tuple[tuple[str, int], ...]
    does: Does
    interval: int = 1
    carries: bool = True

    @property
    def operands(self) -> tuple[Field, ...]:
        """The fields that are neither fixed nor flags."""
        return operands_of(self)


@frozen(eq=False)
class Timing(Term):
    """Cycles: of issuing, of filling a pipeline, to the first beat of memory, of each row."""

    megahertz: int = 100
    issue: int = 4
    fill: int = 8
    latency: int = 64
    bus: int = 8
    row: int = 8
    ports: int = 1


@frozen(eq=False)
class Machine(Term):
    """An accelerator.  `finish` ends a stream, in a unit by which all work has been done."""

    name: str
    bits: int
    scopes: tuple[Scope, ...]
    units: tuple[str, ...]
    queues: tuple[Queue, ...]
    operations: tuple[Operation, ...]
    finish: str
    micro: Micro | None = None
    timing: Timing = Timing()  # a term, so it cannot change

    @staticmethod
    def normal(*parts: Any) -> tuple[Any, ...]:  # Any: the fields as they are declared above
        wrong = _faults(*parts)
        if wrong:
            raise BadAccelerator(*wrong)
        return parts

    def scope(self, name: str) -> Scope:
        return next(each for each in self.scopes if each.name == name)

    def operation(self, name: str) -> Operation:
        """The operation of a name; there must be one."""
        return table(self)[name]


def element(scope: Scope) -> Buffer:
    """An element of the scope, for the meaning of a sweep to speak of."""
    return Buffer(Name(scope.name), tuple(index(size) for size in scope.shape), scope.dtype)


def pack(start: int, /, **bits: int) -> tuple[Field, ...]:
    """Fields one after the other; a negative number of bits is that many, signed."""
    fields: list[Field] = []
    for name, wide in bits.items():
        fields.append(Field(name, start, abs(wide), wide < 0))
        start += abs(wide)
    return tuple(fields)


@lru_cache(maxsize=64)
def table(machine: Machine) -> dict[str, Operation]:
    """The operations by name."""
    return {each.name: each for each in machine.operations}


@lru_cache(maxsize=1024)
def operands_of(operation: Operation) -> tuple[Field, ...]:
    taken = {name for name, _ in operation.fixed} | set(FLAGS)
    return tuple(each for each in operation.fields if each.name not in taken)


def queue_of(machine: Machine, unit: str, flag: str) -> Queue | None:
    """The queue that a flag of an instruction in the unit speaks of, if there is one."""
    at = machine.units.index(unit) + (1 if flag.endswith("next") else -1)
    if not 0 <= at < len(machine.units):
        return None
    other = machine.units[at]
    ends = (other, unit) if flag.startswith("pop") else (unit, other)
    return next((each for each in machine.queues if (each.source, each.target) == ends), None)


def _faults(  # noqa: PLR0917  # a machine is these things
    name: str,
    bits: int,
    scopes: tuple[Scope, ...],
    units: tuple[str, ...],
    queues: tuple[Queue, ...],
    operations: tuple[Operation, ...],
    finish: str,
    micro: Micro | None,
    timing: Timing,
) -> list[Diagnostic]:
    """Everything that is wrong with a declaration."""
    wrong: list[Diagnostic] = []

    def refuse(
        where: str, message: str, expected: str, found: str, hint: str | None = None
    ) -> None:
        place = Place(node=f"{name}.{where}" if where else name)
        wrong.append(Diagnostic("bad-accelerator", message, place, expected, found, hint))

    def known(where: str, kind: str, word: str, words: Iterable[str]) -> bool:
        among = list(words)
        if word not in among:
            hint = did_you_mean(word, among)
            refuse(where, f"There is no {kind} {word!r}.", ", ".join(among) or "none", word, hint)
        return word in among

    if not 0 < bits <= MOST_BITS:
        refuse("", "An instruction has too many bits.", f"1 to {MOST_BITS}", str(bits))
    for kind, words in (
        ("scope", [each.name for each in scopes]),
        ("unit", list(units)),
        ("operation", [each.name for each in operations]),
    ):
        for word in sorted({each for each in words if words.count(each) > 1}):
            refuse(word, f"A {kind} is declared twice.", "once", f"{words.count(word)} times")
    for scope in scopes:
        if scope.depth < 1 or any(size < 1 for size in scope.shape):
            refuse(scope.name, "A scope holds nothing.", "sizes of at least 1", f"{scope.depth}")
    for queue in queues:
        ends = [units.index(each) for each in (queue.source, queue.target) if each in units]
        if len(ends) < 2 or abs(ends[0] - ends[1]) != 1:
            found = f"{queue.source} -> {queue.target}"
            refuse("", "A queue joins no neighbours.", " < ".join(units), found)
        if queue.depth < 1:
            refuse("", "A queue has no room.", "a depth of at least 1", str(queue.depth))
    if min(timing.megahertz, timing.bus, timing.ports) < 1:
        refuse("", "A clock, a bus or a number of ports is not positive.", "at least 1", "less")
    names = [each.name for each in scopes]
    if micro is not None and known("micro", "scope", micro.scope, names):
        wide = 8 * next(each for each in scopes if each.name == micro.scope).bytes
        _check_fields("micro", micro.fields, min(wide, WORD), refuse)
    for each in operations:
        at = each.name
        known(at, "unit", each.unit, units)
        _check_fields(at, each.fields, bits, refuse)
        fields = [field.name for field in each.fields]
        for word, value in each.fixed:
            if known(at, "field", word, fields):
                field = each.fields[fields.index(word)]
                if not field.least <= value <= field.most:
                    room = f"{field.least} to {field.most}"
                    refuse(at, f"The fixed value of {word!r} does not fit.", room, str(value))
        _check_does(each, scopes, micro, known, refuse)
    for first, one in enumerate(operations):
        for other in operations[first + 1 :]:
            if _alike(one, other):
                found = f"{one.name} and {other.name}"
                refuse("", "Two operations cannot be told apart.", "other fixed fields", found)
    if known("", "operation", finish, [each.name for each in operations]):
        last = next(each for each in operations if each.name == finish)
        if not isinstance(last.does, Idle):
            refuse(finish, "The last operation does something.", "Idle", type(last.does).__name__)
    return wrong


def _check_fields(where: str, fields: tuple[Field, ...], bits: int, refuse: Any) -> None:
    # Any: a closure over the list of faults
    end, before = 0, ""
    for field in sorted(fields, key=lambda each: each.at):
        last = field.at + field.bits - 1
        shown = f"{field.name} at {field.at} to {last}"
        if field.bits < 1:
            refuse(where, "A field has no bits.", "at least 1", shown)
        if field.at < end:
            refuse(where, f"The fields {before!r} and {field.name!r} overlap.", f">= {end}", shown)
        if last >= bits:
            refuse(where, f"The field {field.name!r} ends beyond the word.", f"< {bits}", shown)
        if field.at // WORD != last // WORD:
            refuse(where, f"The field {field.name!r} crosses a word.", f"{WORD} bits", shown)
        end, before = max(end, last + 1), field.name
    words = [each.name for each in fields]
    if len(set(words)) < len(words):
        refuse(where, "Two fields have one name.", "other names", ", ".join(words))


def _check_does(
    each: Operation, scopes: tuple[Scope, ...], micro: Micro | None, known: Any, refuse: Any
) -> None:
    # Any: closures over the list of faults
    names, fields = [scope.name for scope in scopes], [field.name for field in each.fields]
    does, at = each.does, each.name
    if isinstance(does, Move):
        known(at, "scope", does.scope, names)
        for word in (does.sram, does.dram, does.width, does.rows, does.stride, *does.pads):
            if word:
                known(at, "field", word, fields)
        if len(does.pads) not in (0, 4) or bool(does.rows) != bool(does.stride):
            refuse(at, "A move has four pads or none, rows and a stride or neither.", "", "")
    elif isinstance(does, Sweep):
        if len(does.micro) not in (0, 2) or (does.micro and micro is None):
            refuse(at, "A sweep over micro-operations names its first and last.", "", "")
            return
        bases = fields if micro is None or not does.micro else [f.name for f in micro.fields]
        for word in (*does.loops, *does.micro):
            known(at, "field", word, fields)
        for reach in (does.writes, *does.reads):
            known(at, "field", reach.base, bases)
            for word in reach.strides:
                known(at, "field", word, fields)
            for word in reach.scopes:
                known(at, "scope", word, names)
            if len(reach.strides) != len(does.loops):
                refuse(at, "A sweep has a stride for each loop.", str(does.loops), str(reach))
        if not all(word in names for reach in does.reads for word in reach.scopes):
            return
        for reach, given in zip(does.reads, does.meaning.inputs, strict=False):
            scope = next(scope for scope in scopes if scope.name == reach.scopes[0])
            wanted = element(scope)
            if (given.shape, given.dtype) != (wanted.shape, wanted.dtype):
                refuse(at, f"The meaning reads {given.name} as another element.", "", str(scope))
        if len(does.reads) != len(does.meaning.inputs):
            refuse(at, "The meaning reads another number of elements.", "", "")


def _alike(one: Operation, other: Operation) -> bool:
    """Whether some word could be an instruction of both."""
    theirs = {field.name: field for field in other.fields}
    ours = {field.name: field for field in one.fields}
    fixed = dict(other.fixed)
    for word, value in one.fixed:
        if word in fixed and ours.get(word) is theirs.get(word) and fixed[word] != value:
            return False
    return True
