"""Loop code: steps of a staged program, encoded as words that one native function interprets.

    Words ::= 1 function table count register…     fill a table with addresses, call the function
            | 2 a b 0                              exchange the memory of two registers
            | 3 bytes to from                      copy
            | 4 place 0 0                          go on at a place
            | 5 register place 0                   go on at a place unless a register holds true
            | 0                                    the end

>>> writer = LoopWriter((), {0: (np.zeros(3, np.float32))}, {}, 1)
>>> writer.moves((0,), (0,), frozenset())
True
>>> writer.words
[]
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

import numpy as np

from plica.runtime.error import EvaluationError, InputError
from plica.runtime.executable import Executable
from plica.runtime.open_executable import OpenExecutable, Shapes, Sized
from plica.runtime.port import LINE, Array, Port
from plica.runtime.staged import program

REPEAT: Final = "plica_repeat"  # the function that interprets the words

END, CALL, EXCHANGE, COPY, JUMP, UNLESS = range(6)

Sizes: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LoopCode:
    """Steps at some sizes: words, what tables hold at first, who has memory, who is called.

    `inner` registers lie in one private memory of `size` bytes, each at its offset. Behind it, from
    `workspace` on, is the workspace of segments: some table words point there. `results` are the
    registers read afterwards, and those whose memory they end up in.
    """

    words: array[int]
    tables: array[int]
    registers: int
    memory: tuple[tuple[int, Callable[[], tuple[Array, int]]], ...]
    results: tuple[tuple[int, int], ...]
    inner: tuple[tuple[int, int], ...]
    workspace: int
    size: int
    workspaces: tuple[int, ...]
    calls: Mapping[int, tuple[Executable, Sized | None]]


def loop_code(  # noqa: PLR0917  # what steps find
    block: program.StepBlock,
    segments: Sequence[Executable],
    given: Mapping[int, Array],
    sizes: Sizes,
    count: int,
    wanted: Sequence[int],
) -> LoopCode | None:
    """The words of a step sequence, or None if the host has to inspect a value.

    `given` are the registers defined before, `count` is the total number, and `wanted` are those
    read afterwards.
    """
    writer = LoopWriter(segments, given, sizes, count)
    loops = [step for step in program.all_steps(block) if isinstance(step, program.RepeatBlock)]
    often = Counter(at for loop in loops for at in loop.carried)
    writer.again = {at for at, times in often.items() if times > 1}
    try:
        for step in block.steps:
            if not writer.step(step):
                return None
            writer.now += 1
    except (InputError, EvaluationError):  # which the host raises if it comes there at all
        return None
    return writer.code(wanted)


class LoopWriter:
    """The words so far, and the memory that they are about."""

    def __init__(
        self, segments: Sequence[Executable], given: Mapping[int, Array], sizes: Sizes, count: int
    ) -> None:
        self.segments, self.sizes, self.count = segments, sizes, count
        self.given = given
        self.own: dict[int, Port] = {}  # registers with memory of their own
        self.alias: dict[int, int] = {}  # what lies in the memory of another
        self.again: set[int] = set()  # what several loops carry, which are calls of one function
        self.now = 0  # the step of the outermost block
        self.used: dict[int, tuple[int, int]] = {}  # the first and the last step with a register
        self.exchanged: list[tuple[int, int]] = []
        self.words: list[int] = []
        self.tables: list[int] = []
        self.workspaces: list[int] = []
        self.calls: dict[int, tuple[Executable, Sized | None]] = {}

    def code(self, wanted: Sequence[int]) -> LoopCode:
        """The generated code; `wanted` registers, and those they exchange memory with, are not
        shared."""
        words = array("Q", [*self.words, END, 0, 0, 0])
        results = tuple([(at, self.place(at)) for at in wanted])
        groups = self.groups()
        shown = {at for _, place in results for at in groups.get(place, (place,))}
        inner, end = _packed(
            {at: port.nbytes for at, port in self.own.items() if at not in shown},
            {at: self.while_used(groups.get(at, (at,))) for at in self.own},
        )
        memory = tuple([(at, self.own[at].placing()) for at in self.own if at in shown])
        most = max([_workspace(*call) for call in self.calls.values()], default=0)
        return LoopCode(
            words,
            array("Q", self.tables),
            self.count,
            memory,
            results,
            inner,
            end,
            end + most,
            tuple(self.workspaces),
            self.calls,
        )

    def groups(self) -> dict[int, frozenset[int]]:
        """Registers that exchange their memory, each with all that it may then have that of."""
        found: dict[int, frozenset[int]] = {}
        for a, b in self.exchanged:
            whole = found.get(a, frozenset((a,))) | found.get(b, frozenset((b,)))
            found |= dict.fromkeys(whole, whole)
        return found

    def while_used(self, group: Iterable[int]) -> tuple[int, int]:
        """The first and the last step of the outermost block with one of some registers."""
        first, last = zip(*[self.used[at] for at in group if at in self.used], strict=True)
        return min(first), max(last)

    def loop(self, of: program.RepeatBlock) -> bool:
        """A loop until its test fails; false where it cannot be written."""
        if not self.moves(of.start, of.carried, frozenset()):
            return False
        test, body, _ = of.blocks
        top = len(self.words)
        if not self.block(test):
            return False
        leave = self.branch(test.results[0])
        before = {*self.own}
        if not self.block(body):
            return False
        if not self.moves(body.results, of.carried, frozenset(self.own.keys() - before)):
            return False
        self.words += [JUMP, top, 0, 0]
        self.words[leave] = len(self.words)
        return True

    def ends(self, of: program.RepeatBlock) -> bool:
        """Assigns a loop's results to the memory of its carried values, unless another call of it
        writes there."""
        results = of.blocks[2].results
        if not self.again.isdisjoint(of.carried):
            return self.moves(results, of.outputs, frozenset())
        self.alias |= zip(of.outputs, map(self.place, results), strict=True)
        return True

    def block(self, of: program.StepBlock) -> bool:
        """The steps of a block."""
        return all(self.step(step) for step in of.steps)

    def step(self, of: program.Step) -> bool:
        """One step; what measures a size, or is the host's own, cannot be written."""
        match of:
            case program.RunSegment():
                return self.call(of)
            case program.ChooseBlock():
                return self.choose(of)
            case program.RepeatBlock():
                return self.loop(of) and self.block(of.blocks[2]) and self.ends(of)
            case program.MeasureDim() | program.HostCall() | program.TakePrefix():
                return False
            case _:
                assert_never(of)

    def choose(self, of: program.ChooseBlock) -> bool:
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
        """Emits a conditional jump on a register; returns the word to patch with the target."""
        self.words += [UNLESS, self.place(register), 0, 0]
        return len(self.words) - 2

    def place(self, register: int) -> int:
        """The register whose memory one has, which is used now."""
        place = self.alias.get(register, register)
        self.used[place] = self.used.get(place, (self.now, 0))[0], self.now
        return place

    def form(self, register: int) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
        """The shape and element type of a register."""
        port = self.own.get(self.place(register))
        if port is not None:
            return port.shape, port.numpy
        held = self.given[self.place(register)]
        return held.shape, held.dtype

    def makes(self, register: int, port: Port) -> bool:
        """Give a register memory; false where it has another kind of it already."""
        self.alias.pop(register, None)
        known = self.own.setdefault(self.place(register), port)
        return known.shape == port.shape and known.numpy == port.numpy

    def moves(self, sources: Sequence[int], targets: Sequence[int], fresh: frozenset[int]) -> bool:
        """A parallel move between registers; the memory of `fresh` ones may be exchanged."""
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
                aside = self.another(self.own[target])
                first += [COPY, size, aside, source]
                last += [COPY, size, target, aside]
            else:
                then += [COPY, size, target, source]
        self.words += [*first, *then, *exchanged, *last]
        return True

    def call(self, of: program.RunSegment) -> bool:
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
        nothing = Port("", (), "bool", np.dtype(np.bool_))
        numbers = [
            self.another(nothing) if isinstance(each, str) else self.place(each)
            for each in of.inputs
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

    def another(self, port: Port) -> int:
        """A register of the writer's own."""
        self.count += 1
        self.own[self.place(self.count - 1)] = port
        return self.count - 1


def _packed(
    sizes: Mapping[int, int], used: Mapping[int, tuple[int, int]]
) -> tuple[tuple[tuple[int, int], ...], int]:
    """Where registers lie in one memory, and its end: one that is first used when another is no
    more used may lie where that was, the smallest such place that is large enough.

    >>> _packed({0: 64, 1: 64, 2: 8}, {0: (0, 1), 1: (1, 2), 2: (2, 2)})
    (((0, 0), (1, 64), (2, 0)), 128)
    """
    found: list[tuple[int, int]] = []
    free: list[tuple[int, int]] = []  # bytes, where
    held: list[tuple[int, int, int]] = []  # the last step, bytes, where
    end = 0
    for register in sorted(sizes, key=lambda at: used[at][0]):
        first, last = used[register]
        free += [(size, at) for until, size, at in held if until < first]
        held = [each for each in held if each[0] >= first]
        size = -(-sizes[register] // LINE) * LINE
        fitting = min([each for each in free if each[0] >= size], default=None)
        if fitting is None:
            fitting, end = (size, end), end + size
        else:
            free.remove(fitting)
        found.append((register, fitting[1]))
        held.append((last, *fitting))
    return tuple(found), end


def _sized(segment: Executable, shapes: Shapes) -> Sized | None:
    return segment.sized(shapes) if isinstance(segment, OpenExecutable) else None


def _workspace(segment: Executable, sized: Sized | None) -> int:
    return segment.workspace if sized is None else sized.workspace
