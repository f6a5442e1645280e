"""Witnesses: an execution order allowed by the tokens that gives a wrong result, for a stream the
checker refuses.

>>> from plica.codegen.accel.instruction import Stream, instruction
>>> from plica.codegen.accel.vta import vta
>>> stream = Stream((instruction(vta(), "load.uop", tokens=("pop_prev",)),))
>>> witness(vta(), stream, {}).why
'deadlock'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from attrs import evolve, frozen

from plica.codegen.accel.check import Fault, check
from plica.codegen.accel.declaration import FLAGS, Accelerator, queue_of
from plica.codegen.accel.device import Array, run
from plica.codegen.accel.instruction import AccelInstruction, Stream
from plica.codegen.accel.order import BadStream, Token, legal_order, units_of

SEEDS, RACES, BEFORE = 8, 4, 32


@frozen
class Witness:
    """An order that ends in something else than the stream means, or in no end at all."""

    why: Literal["deadlock", "result"]
    order: tuple[int, ...]


def witness(
    machine: Accelerator,
    stream: Stream,
    tensors: Mapping[str, Array],
    faults: Sequence[Fault] | None = None,
) -> Witness | None:
    """An order that shows the fault of a stream, or None if none was found.

    The first instruction of each race is delayed as long as possible, then those before it in its
    unit, since its data may already be there; finally random orders are tried. Queues have
    unlimited capacity: what is shown is a fault of the tokens.
    """
    faults = check(machine, stream) if faults is None else faults
    units = units_of(machine, stream.code)
    late: dict[int, None] = {}
    for fault in [each for each in faults if each.kind == "race"][:RACES]:
        first = fault.instructions[0]
        line = [at for at in range(first, -1, -1) if units[at] == units[first]]
        late.update(dict.fromkeys(line[:BEFORE]))
    expected = run(machine, stream, tensors)
    ways: list[tuple[int | None, int | None]] = [(None, each) for each in late]
    for seed, delayed in [*ways, *((seed, None) for seed in range(SEEDS))]:
        try:
            order = legal_order(machine, stream.code, seed, delayed, bounded=False)
        except BadStream:
            return Witness("deadlock", ())
        found = run(machine, stream, tensors, order)
        if any(not np.array_equal(found[name], expected[name]) for name in expected):
            return Witness("result", tuple(order))
    return None


def without(machine: Accelerator, stream: Stream, token: Token) -> Stream:
    """The stream with one token neither pushed nor popped."""
    code = list(stream.code)
    queue = machine.queues[token.queue]
    for at, unit, word in ((token.push, queue.source, "push"), (token.pop, queue.target, "pop")):
        if at is not None:
            flag = next(
                bit
                for bit, name in enumerate(FLAGS)
                if name.startswith(word) and queue_of(machine, unit, name) is queue
            )
            each = code[at]
            code[at] = AccelInstruction(each.name, each.operands, each.tokens & ~(1 << flag))
    return evolve(stream, code=tuple(code))
