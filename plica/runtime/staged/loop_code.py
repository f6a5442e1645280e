"""Loop code: the loop of a staged program as words that one native function goes through.

Where the sizes of what a loop carries stay as they are, its segments are called from native code,
turn by turn (`plica.codegen.llvm.repeat`); the host only makes the memory.

    Words ::= 1 function table count register…     fill a table with addresses, call the function
            | 2 a b 0                              exchange the memory of two registers
            | 3 bytes to from                      copy
            | 4 place 0 0                          go on at a place
            | 5 register place 0                   go on at a place unless a register holds true
            | 0                                    the end

Every register that is written has memory of its own.  What a turn made becomes what is carried by
an exchange; what was carried is written over in the next turn.

>>> writer = LoopWriter((), {0: (np.zeros(3, np.float32))}, {}, 1)
>>> writer.moves((0,), (0,), frozenset())
True
>>> writer.words
[]
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

import numpy as np

from plica.runtime.error import EvaluationError, InputError
from plica.runtime.executable import Executable
from plica.runtime.open_executable import OpenExecutable, Shapes, Sized
from plica.runtime.port import LINE, Array, Port
from plica.runtime.staged.program import (
    ChooseBlock,
    HostCall,
    MeasureDim,
    RepeatBlock,
    RunSegment,
    Step,
    StepBlock,
    TakePrefix,
)

REPEAT: Final = "plica_repeat"
"""The function that goes through the words."""

END, CALL, EXCHANGE, COPY, JUMP, UNLESS = range(6)

Sizes: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LoopCode:
    """A loop at some sizes: words, what tables hold at first, who has memory, who is called.

    What is `inner` lies in one memory of `size` bytes, each at its place; nobody sees it later.
    Behind it, from `workspace` on, is what segments need while they run: some words of the tables
    say where that is.
    """

    words: array[int]
    tables: array[int]
    registers: int
    memory: tuple[tuple[int, Port], ...]
    inner: tuple[tuple[int, int], ...]
    workspace: int
    size: int
    workspaces: tuple[int, ...]
    calls: Mapping[int, tuple[Executable, Sized | None]]


def loop_code(  # noqa: PLR0917  # what a loop finds
    step: RepeatBlock,
    segments: Sequence[Executable],
    given: Mapping[int, Array],
    sizes: Sizes,
    count: int,
    wanted: Sequence[int],
) -> LoopCode | None:
    """The words of a loop up to its end; None where the host has to look at a turn of it.

    `given` are the registers that it finds, `count` is how many there are in all, and `wanted` are
    those of what it carries that somebody reads when it has ended.
    """
    writer = LoopWriter(segments, given, sizes, count)
    try:
        done = writer.loop(step)
    except (InputError, EvaluationError):  # which the host raises if it comes there at all
        return None
    return writer.code(wanted) if done else None


class LoopWriter:
    """The words so far, and the memory that they are about."""

    def __init__(
        self,
        segments: Sequence[Executable],
        given: Mapping[int, Array],
        sizes: Sizes,
        count: int,
    ) -> None:
        self.segments, self.sizes, self.count = segments, sizes, count
        self.given = given
        self.own: dict[int, Port] = {}  # registers with memory of their own
        self.alias: dict[int, int] = {}  # results that were written over what is carried
        self.exchanged: list[tuple[int, int]] = []
        self.words: list[int] = []
        self.tables: list[int] = []
        self.workspaces: list[int] = []
        self.calls: dict[int, tuple[Executable, Sized | None]] = {}

    def code(self, wanted: Sequence[int]) -> LoopCode:
        """What was written; `wanted` registers, and what they exchange memory with, have their
        own."""
        words = array("Q", [*self.words, END, 0, 0, 0])
        shown, before = {*wanted}, -1
        while len(shown) != before:
            before = len(shown)
            shown |= {at for pair in self.exchanged if not shown.isdisjoint(pair) for at in pair}
        inner, end = [], 0
        for register, port in self.own.items():
            if register not in shown:
                inner.append((register, end))
                end += -(-port.nbytes // LINE) * LINE
        memory = tuple([(at, self.own[at]) for at in self.own if at in shown])
        most = max([_workspace(*each) for each in self.calls.values()], default=0)
        return LoopCode(
            words,
            array("Q", self.tables),
            self.count,
            memory,
            tuple(inner),
            end,
            end + most,
            tuple(self.workspaces),
            self.calls,
        )

    def loop(self, of: RepeatBlock) -> bool:
        """A loop until its test fails; false where it cannot be written."""
        if not self.moves(of.start, of.carried, frozenset()):
            return False
        top = len(self.words)
        if not self.block(of.test):
            return False
        leave = self.branch(of.test.results[0])
        before = {*self.own}
        if not self.block(of.body):
            return False
        if not self.moves(of.body.results, of.carried, frozenset(self.own.keys() - before)):
            return False
        self.words += [JUMP, top, 0, 0]
        self.words[leave] = len(self.words)
        return True

    def block(self, of: StepBlock) -> bool:
        """The steps of a block."""
        return all(self.step(each) for each in of.steps)

    def step(self, of: Step) -> bool:
        """One step; what measures a size, or is the host's own, cannot be written."""
        match of:
            case RunSegment():
                return self.call(of)
            case ChooseBlock():
                return self.choose(of)
            case RepeatBlock():
                done = self.loop(of) and self.block(of.end)
                return done and self.moves(of.end.results, of.outputs, frozenset())
            case MeasureDim() | HostCall() | TakePrefix():
                return False
            case _:
                assert_never(of)

    def choose(self, of: ChooseBlock) -> bool:
        """One of two blocks, whose results have the same sizes."""
        other = self.branch(of.condition)
        if not (self.block(of.then) and self.moves(of.then.results, of.outputs, frozenset())):
            return False
        leave = len(self.words) + 1
        self.words += [JUMP, 0, 0, 0]
        self.words[other] = len(self.words)
        if not (self.block(of.orelse) and self.moves(of.orelse.results, of.outputs, frozenset())):
            return False
        self.words[leave] = len(self.words)
        return True

    def branch(self, register: int) -> int:
        """A word that goes elsewhere unless a register holds; where it is said where."""
        self.words += [UNLESS, self.place(register), 0, 0]
        return len(self.words) - 2

    def place(self, register: int) -> int:
        """The register whose memory one has."""
        return self.alias.get(register, register)

    def form(self, register: int) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
        """The shape and the elements of what a register holds."""
        port = self.own.get(self.place(register))
        if port is not None:
            return port.shape, port.numpy
        held = self.given[register]
        return held.shape, held.dtype

    def makes(self, register: int, port: Port) -> bool:
        """Give a register memory; false where it has another kind of it already."""
        self.alias.pop(register, None)
        known = self.own.setdefault(register, port)
        return known.shape == port.shape and known.numpy == port.numpy

    def moves(self, sources: Sequence[int], targets: Sequence[int], fresh: frozenset[int]) -> bool:
        """Registers at once hold what others do; the memory of `fresh` ones may be taken."""
        pairs = [
            (self.place(source), target)
            for source, target in zip(sources, targets, strict=True)
            if self.place(source) != target
        ]
        for source, target in pairs:
            shape, dtype = self.form(source)
            if not self.makes(target, Port("", shape, str(dtype), dtype)):
                return False
        written, used = {target for _, target in pairs}, Counter(source for source, _ in pairs)
        first, then, exchanged, last = list[int](), list[int](), list[int](), list[int]()
        for source, target in pairs:
            size = self.own[target].nbytes
            if source in fresh and used[source] == 1:
                exchanged += [EXCHANGE, source, target, 0]
                self.exchanged.append((source, target))
            elif source in written:
                first += [COPY, size, self.count, source]
                last += [COPY, size, target, self.count]
                self.own[self.count] = self.own[target]
                self.count += 1
            else:
                then += [COPY, size, target, source]
        self.words += [*first, *then, *exchanged, *last]
        return True

    def call(self, of: RunSegment) -> bool:
        """A segment, where its code is a function of memory and nothing else."""
        segment = self.segments[of.segment]
        opened = type(segment) is OpenExecutable and not segment.specialises
        if not segment.native_entry or not (opened or type(segment) is Executable):
            return False
        shapes: list[tuple[int, ...]] = []
        for operand, port in zip(of.inputs, segment.inputs, strict=True):
            if isinstance(operand, str):
                shapes.append((self.sizes[operand], 0))
                continue
            shape, dtype = self.form(operand)
            if dtype != port.numpy or not (opened or shape == port.shape):
                return False
            shapes.append(shape)
        sized = _sized(segment, tuple(shapes))
        outputs = segment.outputs if sized is None else sized.outputs
        over = {new: of.inputs[old] for old, new in segment.donated}
        numbers = [
            self.nowhere() if isinstance(each, str) else self.place(each) for each in of.inputs
        ]
        for at, (register, port) in enumerate(zip(of.outputs, outputs, strict=True)):
            old = over.get(at)
            if old is None:
                if not self.makes(register, port):
                    return False
            elif isinstance(old, str) or self.place(old) not in self.own:
                return False
            else:
                self.alias[register] = self.place(old)
            numbers.append(self.place(register))
        self.calls[len(self.words)] = segment, sized
        self.words += [CALL, segment.native_entry, len(self.tables), len(numbers), *numbers]
        self.tables += [0] * len(numbers) + segment.constants
        self.workspaces.append(len(self.tables))
        self.tables += [0] if sized is None else [0, sized.dims.buffer_info()[0]]
        return True

    def nowhere(self) -> int:
        """A register for what has no elements."""
        self.own[self.count] = Port("", (), "bool", np.dtype(np.bool_))
        self.count += 1
        return self.count - 1


def _sized(segment: Executable, shapes: Shapes) -> Sized | None:
    return segment.sized(shapes) if isinstance(segment, OpenExecutable) else None


def _workspace(segment: Executable, sized: Sized | None) -> int:
    return segment.workspace if sized is None else sized.workspace
