"""The checker: a proof that a stream is right for all timings, or two instructions that deny it.

The happens-before relation is static (`order`), so six properties are decided without running:

1. every pop has its push, and no token is left;
2. with queues of their depth, no circle of waiting: no deadlock;
3. of two conflicting instructions of different units the second comes after the first;
4. inside a sweep no element recurs before the pipeline has written it;
5. no element outside of its scope is touched, and none in memory behind the last tensor, where
   the stream has tensors;
6. which tokens are redundant (`redundant`), which is no fault.

>>> from plica.codegen.accel.instruction import Stream, instruction
>>> from plica.codegen.accel.vta import vta
>>> load = instruction(vta(), "load.inp", y_size=1, x_size=4)
>>> gemm = instruction(vta(), "gemm", uop_end=1, iter_out=1, iter_in=1)
>>> print(check(vta(), Stream((load, gemm)))[0].text)
RAW on inp: nothing makes the second wait for the first.
    0: load.inp y_size=1 x_size=4
    1: gemm uop_end=1 iter_out=1 iter_in=1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from attrs import frozen

from plica.codegen.accel.conflict import InstructionConflict, conflicts
from plica.codegen.accel.declaration import Accelerator, Sweep
from plica.codegen.accel.encode import show
from plica.codegen.accel.footprint import Array, Footprint, footprints
from plica.codegen.accel.instruction import MICRO, AccelInstruction, Stream
from plica.codegen.accel.order import BadStream, Token, matched, units_of
from plica.runtime.error import Diagnostic, Place

Kind: TypeAlias = Literal["token", "deadlock", "race", "recurrence", "changed", "outside"]
Clock: TypeAlias = tuple[int, ...]


@frozen
class Fault:
    """A fault, with the one or two instructions that show it."""

    kind: Kind
    instructions: tuple[int, ...]
    text: str


def verify(machine: Accelerator, stream: Stream) -> None:
    """Refuse a stream that can go wrong."""
    if faults := check(machine, stream):
        place = Place(node=machine.name)
        raise BadStream(*(Diagnostic("bad-stream", fault.text, place) for fault in faults[:8]))


def check(
    machine: Accelerator, stream: Stream, known: list[Footprint] | None = None
) -> list[Fault]:
    """Everything that is wrong; of races the first for each pair of instructions."""
    code = stream.code
    outside: dict[int, Diagnostic] = {}
    if known is None:
        known = footprints(machine, stream, outside)

    def fault(kind: Kind, message: str, *at: int) -> Fault:
        lines = [f"    {each}: {show(machine, code[each])}" for each in at]
        return Fault(kind, at, "\n".join([message, *lines]))

    tokens = matched(machine, code)
    faults: list[Fault] = []
    for token in tokens:
        queue = machine.queues[token.queue]
        ends = f"from {queue.source} to {queue.target}"
        if token.push is None and token.pop is not None:
            faults.append(fault("token", f"No instruction pushes this token {ends}.", token.pop))
        elif token.pop is None and token.push is not None:
            faults.append(fault("token", f"A token {ends} is never popped.", token.push))
    if sum(instruction.name == machine.finish for instruction in code[:-1]):
        at = next(at for at, instruction in enumerate(code) if instruction.name == machine.finish)
        faults.append(fault("token", "Instructions follow the last one.", at, at + 1))
    faults += [fault(*recurrence) for recurrence in _recurrences(machine, code, known)]
    faults += [fault(*each) for each in _changed(machine, stream, known)]
    faults += [
        fault("outside", f"{each.message} It is {each.found}, and not {each.expected}.", at)
        for at, each in outside.items()
    ]
    faults += [fault(*each) for each in _behind(machine, stream, known)]
    order = _topological(machine, code, tokens, bounded=True)
    if len(order) < len(code):
        done = set(order)
        stuck = [at for at in range(len(code)) if at not in done][:2]
        faults.append(fault("deadlock", "These wait for each other.", *stuck))
        order = _topological(machine, code, tokens, bounded=False)
        if len(order) < len(code):
            return faults
    clocks = _clocks(machine, code, tokens, order)
    units = units_of(machine, code)
    for conflict in conflicts(machine, stream, known):
        if clocks[conflict.second][units[conflict.first]] < conflict.first:
            faults.append(fault("race", _race(conflict), conflict.first, conflict.second))
    return faults


def redundant(machine: Accelerator, stream: Stream) -> list[Token]:
    """The tokens that can each be removed from a correct stream."""
    code = stream.code
    tokens = matched(machine, code)
    order = _topological(machine, code, tokens, bounded=False)
    graph = _Graph(machine, stream, tokens, order)
    return [token for token in tokens if not graph.needs(token)]


class _Graph:
    """What happens before what, made ready for asking what one token is good for."""

    def __init__(
        self, machine: Accelerator, stream: Stream, tokens: list[Token], order: list[int]
    ) -> None:
        self.order = order
        self.rank = {at: number for number, at in enumerate(order)}
        self.units = units_of(machine, stream.code)
        self.before = _before(self.units)
        self.clocks = _clocks(machine, stream.code, tokens, order)
        self.into: dict[int, list[Token]] = {}
        self.out: dict[int, list[Token]] = {}
        for token in tokens:
            if token.push is not None and token.pop is not None:
                self.into.setdefault(token.pop, []).append(token)
                self.out.setdefault(token.push, []).append(token)
        self.needed: dict[int, list[int]] = {}
        for conflict in conflicts(machine, stream):
            self.needed.setdefault(conflict.second, []).append(conflict.first)

    def needs(self, token: Token) -> bool:
        """Go on from the pop with the clocks there would be, until they are what they were."""
        if token.pop is None or token.push is None:
            return True
        changed: dict[int, Clock] = {}
        late: set[int] = set()  # units whose last instruction has another clock
        flying: set[Token] = set()  # tokens from instructions with another clock
        for at in self.order[self.rank[token.pop] :]:
            sources = [each.push for each in self.into.get(at, ()) if each is not token]
            clock = [-1] * len(self.clocks[at])
            for source in (self.before[at], *sources):
                if source is not None and source >= 0:
                    other = changed.get(source, self.clocks[source])
                    clock = [max(pair) for pair in zip(clock, other, strict=True)]
            clock[self.units[at]] = at
            flying.difference_update(self.into.get(at, ()))
            if tuple(clock) == self.clocks[at]:
                late.discard(self.units[at])
                if not late and not flying:
                    return False
                continue
            changed[at] = tuple(clock)
            late.add(self.units[at])
            flying.update(self.out.get(at, ()))
            if any(clock[self.units[first]] < first for first in self.needed.get(at, ())):
                return True
        return False


def _before(units: Sequence[int]) -> list[int]:
    """The instruction before each one in its unit, -1 for none."""
    last: dict[int, int] = {}
    found: list[int] = []
    for at, unit in enumerate(units):
        found.append(last.get(unit, -1))
        last[unit] = at
    return found


def _topological(
    machine: Accelerator, code: Sequence[AccelInstruction], tokens: list[Token], bounded: bool
) -> list[int]:
    """The instructions in an order that all edges allow; those on a circle, or after it, not."""
    after: list[list[int]] = [[] for _ in code]
    missing = [0] * len(code)
    for at, first in enumerate(_before(units_of(machine, code))):
        if first >= 0:
            after[first].append(at)
            missing[at] += 1
    of: dict[int, list[Token]] = {}
    for token in tokens:
        if token.push is None and token.pop is not None:
            missing[token.pop] += 1  # it waits for ever
        elif token.push is not None and token.pop is not None:
            after[token.push].append(token.pop)
            missing[token.pop] += 1
        of.setdefault(token.queue, []).append(token)
    if bounded:
        for queue, some in of.items():
            depth = machine.queues[queue].depth
            for held, freed in zip(some[depth:], some, strict=False):
                if held.push is not None and freed.pop is not None:
                    after[freed.pop].append(held.push)
                    missing[held.push] += 1
    ready = [at for at in range(len(code)) if not missing[at]]
    order: list[int] = []
    while ready:
        at = ready.pop()
        order.append(at)
        for following in after[at]:
            missing[following] -= 1
            if not missing[following]:
                ready.append(following)
    return order


def _clocks(
    machine: Accelerator, code: Sequence[AccelInstruction], tokens: list[Token], order: list[int]
) -> list[Clock]:
    """For each instruction the last one of every unit that has happened when it begins."""
    units = units_of(machine, code)
    before = _before(units)
    into: dict[int, list[int]] = {}
    for token in tokens:
        if token.push is not None and token.pop is not None:
            into.setdefault(token.pop, []).append(token.push)
    none = (-1,) * len(machine.units)
    clocks: list[Clock] = [none] * len(code)
    for at in order:
        clock = list(clocks[before[at]]) if before[at] >= 0 else list(none)
        for source in into.get(at, ()):
            for unit, value in enumerate(clocks[source]):
                clock[unit] = max(clock[unit], value)
        clock[units[at]] = at
        clocks[at] = tuple(clock)
    return clocks


def _race(each: InstructionConflict) -> str:
    if each.kind == "END":
        return "The stream may end before its work is done."
    return f"{each.kind} on {each.space}: nothing makes the second wait for the first."


def _recurrences(
    machine: Accelerator, code: Sequence[AccelInstruction], known: list[Footprint]
) -> list[tuple[Kind, str, int]]:
    found: list[tuple[Kind, str, int]] = []
    seen: dict[Footprint, bool] = {}
    for at, (instruction, touched) in enumerate(zip(code, known, strict=True)):
        does = machine.operation(instruction.name).does
        if isinstance(does, Sweep) and touched.turns is not None and does.latency > 1:
            if touched not in seen:
                seen[touched] = recurs(touched.turns.written, does.latency)
            if seen[touched]:
                message = f"An element recurs within {does.latency} turns."
                found.append(("recurrence", message, at))
    return found


def recurs(written: Array, latency: int) -> bool:
    """Whether an element is written twice within a given number of iterations."""
    return any(bool((written[apart:] == written[:-apart]).any()) for apart in range(1, latency))


def _changed(
    machine: Accelerator, stream: Stream, known: list[Footprint]
) -> list[tuple[Kind, str, int]]:
    """Stores into micro-operations, which would invalidate the static analysis."""
    held = next((tensor for tensor in stream.tensors if tensor.name == MICRO), None)
    if held is None or machine.micro is None:
        return []
    size = machine.scope(held.scope).bytes
    start, end = held.at * size, (held.at + held.elements) * size
    return [
        ("changed", "A store may change the micro-operations.", at)
        for at, footprint in enumerate(known)
        if footprint.memory is not None
        and footprint.memory.writes
        and footprint.memory.start < end
        and footprint.memory.end > start
    ]


def _behind(
    machine: Accelerator, stream: Stream, known: list[Footprint]
) -> list[tuple[Kind, str, int]]:
    """Accesses beyond the last tensor; unchecked if there are no tensors."""
    if not stream.tensors:
        return []
    ends = [(each.at + each.elements) * machine.scope(each.scope).bytes for each in stream.tensors]
    end = max(ends)
    return [
        ("outside", f"The tensors end at byte {end}, and this goes on to {each.memory.end}.", at)
        for at, each in enumerate(known)
        if each.memory is not None and each.memory.end > end
    ]
