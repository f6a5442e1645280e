"""Tokens: inserts the minimum that synchronises the units into a stream without any.

>>> from plica.codegen.accel.encode import show
>>> from plica.codegen.accel.instruction import Stream, instruction
>>> from plica.codegen.accel.vta import vta
>>> load = instruction(vta(), "load.inp", y_size=1, x_size=4)
>>> gemm = instruction(vta(), "gemm", uop_end=1, iter_out=1, iter_in=1)
>>> stream = insert(vta(), Stream((load, gemm, load)))
>>> for each in stream.code:
...     print(show(vta(), each))
load.inp y_size=1 x_size=4 !push_next
gemm uop_end=1 iter_out=1 iter_in=1 !pop_prev !push_prev
load.inp y_size=1 x_size=4 !pop_next
"""

from __future__ import annotations

from bisect import bisect_left

from attrs import evolve

from plica.codegen.accel import declaration
from plica.codegen.accel.conflict import conflicts
from plica.codegen.accel.footprint import Footprint
from plica.codegen.accel.instruction import AccelInstruction, Stream, idle
from plica.codegen.accel.order import BadStream, units_of
from plica.runtime.error import Diagnostic, Place


def insert(
    machine: declaration.Accelerator, stream: Stream, known: list[Footprint] | None = None
) -> Stream:
    """The stream with tokens; those it had are replaced."""
    bare = evolve(stream, code=tuple(_bare(instruction) for instruction in stream.code))
    units = units_of(machine, bare.code)
    count = len(machine.units)
    needed: list[list[int]] = [[] for _ in bare.code]
    for conflict in conflicts(machine, bare, known):
        needed[conflict.second].append(conflict.first)

    code: list[AccelInstruction] = []
    tokens: list[int] = []
    where: list[int] = []  # an instruction's place in the new code
    clocks: list[list[int]] = []  # the last of each unit that happened before, in the new code
    now = [[-1] * count for _ in machine.units]
    lines: list[list[int]] = [[] for _ in machine.units]
    owner: list[int] = []

    def append(each: AccelInstruction, unit: int) -> int:
        at = len(code)
        code.append(each)
        tokens.append(0)
        lines[unit].append(at)
        owner.append(unit)
        now[unit][unit] = at
        clocks.append(now[unit])
        now[unit] = list(now[unit])
        return at

    def wait(unit: int, first: int, source: int) -> None:
        """Makes the next instruction of the unit wait for `first`, along a path of neighbours."""
        step = 1 if unit > source else -1
        wanted = first
        for between in range(source + step, unit, step):
            if now[between][source] >= wanted:  # one that waited for it already passes it on
                line = lines[between]
                first = line[bisect_left(line, wanted, key=lambda at: clocks[at][source])]
                continue
            _join(now[between], clocks[first])
            nop = append(idle(machine, machine.units[between], 0), between)
            tokens[first] |= _push(machine, between - step, between)
            tokens[nop] |= _pop(between - step, between)
            first = nop
        _join(now[unit], clocks[first])
        tokens[first] |= _push(machine, unit - step, unit)

    for at, instruction in enumerate(bare.code):
        unit = units[at]
        sources = sorted((where[first] for first in needed[at]), reverse=True)
        near = [first for first in sources if abs(owner[first] - unit) == 1]
        carries = machine.operation(instruction.name).carries
        pops = 0
        for far in (True, False):
            for first in sources:
                source = owner[first]
                if (abs(source - unit) > 1) != far or now[unit][source] >= first:
                    continue
                if far and any(clocks[other][source] >= first for other in near):
                    continue  # a neighbour that will be waited for has itself waited for it
                wait(unit, first, source)
                pops |= _pop(unit - 1 if unit > source else unit + 1, unit)
        if pops and not carries:
            tokens[append(idle(machine, machine.units[unit], 0), unit)] = pops
            pops = 0
        where.append(append(instruction, unit))
        tokens[-1] |= pops
    instructions = tuple(
        each if not flags else AccelInstruction(each.name, each.operands, flags)
        for each, flags in zip(code, tokens, strict=True)
    )
    return evolve(stream, code=instructions)


def _join(clock: list[int], other: list[int]) -> None:
    for unit, at in enumerate(other):
        clock[unit] = max(clock[unit], at)


def _push(machine: declaration.Accelerator, source: int, target: int) -> int:
    flag = "push_next" if target > source else "push_prev"
    if declaration.queue_of(machine, machine.units[source], flag) is None:
        ends = f"{machine.units[source]} -> {machine.units[target]}"
        message = "Two units depend on each other and no queue joins them."
        place = Place(node=machine.name)
        raise BadStream(Diagnostic("bad-stream", message, place, "a queue", ends))
    return declaration.PUSH_NEXT if target > source else declaration.PUSH_PREV


def _pop(source: int, target: int) -> int:
    return declaration.POP_PREV if source < target else declaration.POP_NEXT


def _bare(each: AccelInstruction) -> AccelInstruction:
    return AccelInstruction(each.name, each.operands) if each.tokens else each
