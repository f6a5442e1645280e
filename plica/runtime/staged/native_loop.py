"""Native loops: the loops of a staged program, run by the driver where their sizes stay.

What the words of a loop are depends on the sizes of what it finds; they are kept for sizes that
come again.  A call makes memory for what the loop writes, and hands all of it to the driver.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from plica.runtime.artefact import aligned_array
from plica.runtime.error import EvaluationError, InputError
from plica.runtime.executable import Executable
from plica.runtime.port import Array, address_of
from plica.runtime.staged.loop_code import LoopCode, loop_code
from plica.runtime.staged.program import RepeatBlock, StepBlock, block_reads

if TYPE_CHECKING:
    from plica.runtime.staged.plan import PlanFrame

Driver: TypeAlias = Callable[[int], int]
"""Goes through the words of a loop; what a segment said that failed, or 0."""

Sizes: TypeAlias = dict[str, int]
Told: TypeAlias = "Callable[[InputError | EvaluationError, Sizes], InputError | EvaluationError]"

KEPT: Final = 64
"""For so many different sizes the words of a loop are kept."""


class NativeLoop:
    """The turns of one loop."""

    def __init__(  # noqa: PLR0917  # what a loop is made of
        self,
        step: RepeatBlock,
        segments: Sequence[Executable],
        count: int,
        driver: Driver,
        told: Told,
        wanted: Sequence[int],
    ) -> None:
        self._wanted = tuple(wanted)  # of what is carried: somebody reads it afterwards
        self._frames: list[LoopFrame] = []  # which no call is using
        self._step, self._segments, self._count = step, segments, count
        self._driver, self._told = driver, told
        self._registers, self._dims = block_reads(StepBlock((step,), ()))
        self._known: OrderedDict[Any, LoopCode | None] = OrderedDict()  # Any: shapes and sizes

    def over(self, host: Callable[[PlanFrame], None]) -> Callable[[PlanFrame], None]:
        """What runs the loop, and leaves it to the host where that has to look at its turns."""

        def run(frame: PlanFrame) -> None:
            code = self._code(frame)
            return host(frame) if code is None else self._run(code, frame)

        return run

    def _code(self, frame: PlanFrame) -> LoopCode | None:
        arrays, sizes = frame.arrays, frame.sizes
        shapes = tuple([arrays[at].shape for at in self._registers])
        key = (shapes, tuple([sizes.get(dim) for dim in self._dims]))
        if key in self._known:
            return self._known[key]
        given = {at: arrays[at] for at in self._registers}
        code = loop_code(self._step, self._segments, given, sizes, self._count, self._wanted)
        self._known[key] = code
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        return code

    def _run(self, code: LoopCode, frame: PlanFrame) -> None:
        try:
            held = self._frames.pop()
        except IndexError:
            held = LoopFrame(code)
        if held.code is not code:  # one for other sizes is not kept
            held = LoopFrame(code)
        registers, addresses = held.registers, frame.addresses
        for at in self._registers:
            registers[at] = addresses[at]
        own: dict[int, Array] = {}
        for register, port in code.memory:
            own[register], registers[register] = port.placed()
        places = {registers[register]: made for register, made in own.items()}
        failed = self._driver(held.address)
        said = held.words[3]
        if not failed:
            for register in self._wanted:
                made = own[register]
                if made.nbytes:  # what has no elements may lie where something else does
                    made = places[registers[register]]
                frame.put(register, made)
        self._frames.append(held)
        if failed:
            segment, _ = code.calls[said]
            raise self._told(segment.failure(failed), frame.sizes)

    @property
    def bytes(self) -> int:
        """What the loop holds while no call is using it."""
        return sum(each.inner.nbytes for each in tuple(self._frames))


class LoopFrame:
    """The memory of one run of a loop that nobody sees later, and all that says where it is."""

    __slots__ = ("address", "code", "inner", "registers", "tables", "words")

    def __init__(self, code: LoopCode) -> None:
        self.code, self.inner = code, aligned_array(code.size)
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
