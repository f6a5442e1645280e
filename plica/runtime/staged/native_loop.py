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
from plica.runtime.open_executable import OpenExecutable
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
        self._rooms: list[Array] = []  # memory that no call is using
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
        registers = array("Q", frame.addresses)
        registers.frombytes(bytes(8 * (code.registers - self._count)))
        own: dict[int, Array] = {}
        for register, port in code.memory:
            own[register], registers[register] = port.placed()
        places = {registers[register]: made for register, made in own.items()}
        inner = self._room(code.size)
        begin = address_of(inner)
        for register, offset in code.inner:
            registers[register] = begin + offset
        tables = array("Q", code.tables)
        rooms = []
        try:
            for at, segment, sized in code.workspaces:
                if isinstance(segment, OpenExecutable) and sized is not None:
                    room = segment.borrow_for(sized)
                else:
                    room = segment.borrow()
                rooms.append((segment, room))
                tables[at] = room[0]
            parts = [each.buffer_info()[0] for each in (code.words, registers, tables)]
            words = array("Q", [*parts, 0])
            failed = self._driver(words.buffer_info()[0])
        finally:
            for segment, room in rooms:
                segment.give_back(room)
            self._rooms.append(inner)
        if failed:
            raise self._told(code.calls[words[3]].failure(failed), frame.sizes)
        for register in self._wanted:
            made = own[register]
            if made.nbytes:  # what has no elements may lie where something else does
                made = places[registers[register]]
            frame.put(register, made)

    def _room(self, size: int) -> Array:
        """Memory of this call's own; one that is too small is not kept."""
        try:
            found = self._rooms.pop()
        except IndexError:
            pass
        else:
            if found.nbytes >= size:
                return found
        return aligned_array(size)

    @property
    def bytes(self) -> int:
        """What the loop holds while no call is using it."""
        return sum(each.nbytes for each in tuple(self._rooms))
