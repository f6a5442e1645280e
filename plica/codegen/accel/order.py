"""Orders: which instructions may precede which, given units and tokens.

>>> from plica.codegen.accel.instruction import Stream, instruction
>>> from plica.codegen.accel.vta import vta
>>> make = lambda name, *flags: instruction(vta(), name, tokens=flags)
>>> code = (make("load.inp", "push_next"), make("load.inp"), make("load.uop", "pop_prev"))
>>> legal_order(vta(), code, late=1)
[0, 2, 1]
>>> [(each.push, each.pop) for each in matched(vta(), code)]
[(0, 2)]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from random import Random

from attrs import frozen

from plica.codegen.accel.declaration import FLAGS, Accelerator, queue_of
from plica.codegen.accel.instruction import AccelInstruction
from plica.runtime.error import Diagnostic, Place, PlicaError


class BadStream(PlicaError):
    """A stream can go wrong."""


@frozen
class Token:
    """A token: the queue, and the instructions that push and pop it (None: no instruction)."""

    queue: int
    push: int | None
    pop: int | None


@lru_cache(maxsize=4096)
def queues_at(
    machine: Accelerator, unit: str, tokens: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The queues that flags pop from, and those that they push to, by number."""
    pops: list[int] = []
    pushes: list[int] = []
    for bit, flag in enumerate(FLAGS):
        if tokens >> bit & 1:
            queue = queue_of(machine, unit, flag)
            assert queue is not None  # `instruction.check` refuses the others
            at = machine.queues.index(queue)
            (pops if flag.startswith("pop") else pushes).append(at)
    return tuple(pops), tuple(pushes)


def units_of(machine: Accelerator, code: Sequence[AccelInstruction]) -> list[int]:
    """The unit of each instruction, by number."""
    number = {each.name: machine.units.index(each.unit) for each in machine.operations}
    return [number[instruction.name] for instruction in code]


def matched(machine: Accelerator, code: Sequence[AccelInstruction]) -> list[Token]:
    """Every token: the k-th push of a queue with its k-th pop, in the order of the queues."""
    pushes: list[list[int]] = [[] for _ in machine.queues]
    pops: list[list[int]] = [[] for _ in machine.queues]
    units = units_of(machine, code)
    for at, instruction in enumerate(code):
        if instruction.tokens:
            taken, given = queues_at(machine, machine.units[units[at]], instruction.tokens)
            for queue in taken:
                pops[queue].append(at)
            for queue in given:
                pushes[queue].append(at)
    tokens: list[Token] = []
    for queue, (ins, outs) in enumerate(zip(pushes, pops, strict=True)):
        both = min(len(ins), len(outs))
        tokens += [Token(queue, a, b) for a, b in zip(ins[:both], outs[:both], strict=True)]
        tokens += [Token(queue, a, None) for a in ins[both:]]
        tokens += [Token(queue, None, b) for b in outs[both:]]
    return tokens


def legal_order(
    machine: Accelerator,
    code: Sequence[AccelInstruction],
    seed: int | None = None,
    late: int | None = None,
    bounded: bool = True,
) -> list[int]:
    """An order in which the units could finish the instructions.

    A seed chooses among the units at random; `late` is delayed as long as others can proceed.
    Unless `bounded`, queues have unlimited capacity. A deadlock is an error.
    """
    units = units_of(machine, code)
    waiting: list[deque[int]] = [deque() for _ in machine.units]
    for at, unit in enumerate(units):
        waiting[unit].append(at)
    room = [each.depth if bounded else len(code) for each in machine.queues]
    held = [0] * len(machine.queues)
    random = Random(seed)
    order: list[int] = []

    def ready(at: int) -> bool:
        taken, given = queues_at(machine, machine.units[units[at]], code[at].tokens)
        return all(held[q] > 0 for q in taken) and all(held[q] < room[q] for q in given)

    while len(order) < len(code):
        if not (able := [line[0] for line in waiting if line and ready(line[0])]):
            stuck = [code[line[0]].name for line in waiting if line]
            message = "No unit can go on."
            place = Place(node=machine.name)
            found = f"waiting for tokens or room: {', '.join(stuck)}"
            raise BadStream(Diagnostic("bad-stream", message, place, "a token", found))
        if late is not None and len(able) > 1 and late in able:
            able.remove(late)
        at = min(able) if seed is None else random.choice(able)
        taken, given = queues_at(machine, machine.units[units[at]], code[at].tokens)
        for queue in taken:
            held[queue] -= 1
        for queue in given:
            held[queue] += 1
        waiting[units[at]].popleft()
        order.append(at)
    return order
