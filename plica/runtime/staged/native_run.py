"""Native runs: steps of a staged program that the driver interprets while sizes are invariant."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias, assert_never

from plica.runtime.artefact import aligned_array
from plica.runtime.error import EvaluationError, InputError
from plica.runtime.executable import Executable
from plica.runtime.port import Array, address_of
from plica.runtime.staged.loop_code import LoopCode, loop_code
from plica.runtime.staged.plan_frame import PlanFrame, Sizes
from plica.runtime.staged.program import (
    ChooseBlock,
    HostCall,
    MeasureDim,
    RepeatBlock,
    RunSegment,
    Step,
    StepBlock,
    TakePrefix,
    all_steps,
    block_reads,
)

Driver: TypeAlias = Callable[[int], int]
"""Interprets the words of a run; returns the status of a failing segment, or 0."""

Told: TypeAlias = "Callable[[InputError | EvaluationError, Sizes], InputError | EvaluationError]"

MAX_KEPT_RUNS: Final = 64  # the number of sizes for which a run's words are cached


class NativeRun:
    """Some steps; `wanted` are the registers read afterwards."""

    def __init__(  # noqa: PLR0917  # what a run is made of
        self,
        steps: Sequence[Step],
        segments: Sequence[Executable],
        count: int,
        driver: Driver,
        told: Told,
        wanted: Sequence[int],
    ) -> None:
        self._wanted = tuple(wanted)
        self._frames: list[RunFrame] = []  # which no call is using
        self._block, self._segments, self._count = StepBlock(tuple(steps), ()), segments, count
        self._driver, self._told = driver, told
        self._registers, self._dims = block_reads(self._block)
        self._known: OrderedDict[Any, LoopCode | None] = OrderedDict()  # Any: shapes and sizes

    def over(self, host: Callable[[PlanFrame], None]) -> Callable[[PlanFrame], None]:
        """What runs the steps, and leaves them to the host where that has to look at one."""

        def run(frame: PlanFrame) -> None:
            code = self._code(frame)
            return host(frame) if code is None else self._run(code, frame)

        return run

    def _code(self, frame: PlanFrame) -> LoopCode | None:
        arrays, sizes = frame.arrays, frame.sizes
        shapes = tuple([arrays[at].shape for at in self._registers])
        key = (shapes, tuple([sizes.get(dim) for dim in self._dims])) if self._dims else shapes
        if key in self._known:
            return self._known[key]
        given = {at: arrays[at] for at in self._registers}
        code = loop_code(self._block, self._segments, given, sizes, self._count, self._wanted)
        self._known[key] = code
        while len(self._known) > MAX_KEPT_RUNS:
            self._known.popitem(last=False)
        return code

    def _run(self, code: LoopCode, frame: PlanFrame) -> None:
        try:
            held = self._frames.pop()
        except IndexError:
            held = RunFrame(code)
        if held.code is not code:
            held = RunFrame(code, held.inner)
        registers, addresses = held.registers, frame.addresses
        for at in self._registers:
            registers[at] = addresses[at]
        arrays = frame.arrays
        own: dict[int, Array] = {}
        places: dict[int, Array] = {}
        for register, placing in code.memory:
            own[register], registers[register] = placing()
            places[registers[register]] = own[register]
        failed = self._driver(held.address)
        said = held.words[3]
        if not failed:
            for register, place in code.results:
                if place not in own:  # what was given is handed on
                    arrays[register], addresses[register] = arrays[place], addresses[place]
                elif own[place].nbytes:
                    addresses[register] = registers[place]
                    arrays[register] = places[registers[place]]
                else:  # what has no elements may lie where something else does
                    frame.put(register, own[place])
        self._frames.append(held)
        if failed:
            segment, _ = code.calls[said]
            raise self._told(segment.failure(failed), frame.sizes)

    @property
    def bytes(self) -> int:
        """The bytes held while no call is active."""
        return sum(frame.inner.nbytes for frame in tuple(self._frames))


class RunFrame:
    """The private memory of one run and its address table; reuses another's memory if it is large
    enough."""

    __slots__ = ("address", "code", "inner", "registers", "tables", "words")

    def __init__(self, code: LoopCode, memory: Array | None = None) -> None:
        if memory is None or memory.size < code.size:
            memory = aligned_array(code.size)
        self.code, self.inner = code, memory
        begin = address_of(self.inner)
        self.registers = array("Q", bytes(8 * code.registers))
        for register, offset in code.inner:
            self.registers[register] = begin + offset
        self.tables = array("Q", code.tables)
        for at in code.workspaces:
            self.tables[at] = begin + code.workspace
        parts = [each.buffer_info()[0] for each in (code.words, self.registers, self.tables)]
        self.words = array("Q", [*parts, 0])
        self.address = self.words.buffer_info()[0]


def native_runs(program: StepBlock) -> list[tuple[Step, ...]]:
    """The longest rows of steps that native code can be given at once, with a loop in each.

    Inside a host loop, where sizes may change per iteration and words would be regenerated each
    time, at most an inner loop becomes a run.
    """
    found: list[tuple[Step, ...]] = []
    stack = [(program, False)]
    while stack:
        block, turns = stack.pop()
        for native, row in groupby(block.steps, lambda step: not _needs_host(step)):
            steps = tuple(row)
            if native:
                rows = [(each,) for each in steps] if turns else [steps]
                found += [each for each in rows if any(map(has_loop, each))]
                continue
            for step in steps:
                match step:
                    case ChooseBlock(_, then, orelse, _):
                        stack += [(then, turns), (orelse, turns)]
                    case RepeatBlock(_, _, (test, body, end), _):
                        stack += [(test, True), (body, True), (end, turns)]
                    case RunSegment() | MeasureDim() | HostCall() | TakePrefix():
                        pass
                    case _:
                        assert_never(step)
    return found


def has_loop(step: Step) -> bool:
    """Whether a step contains a loop."""
    return any(isinstance(all_step, RepeatBlock) for all_step in all_steps(StepBlock((step,), ())))


def _needs_host(step: Step) -> bool:
    """Whether the host has to look at something in a step."""
    return any(map(is_by_host, all_steps(StepBlock((step,), ()))))


def is_by_host(step: Step) -> bool:
    """Whether a step reads arrays and needs not know where they lie."""
    return isinstance(step, MeasureDim | HostCall | TakePrefix)
