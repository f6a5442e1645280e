"""Steps with open sizes: one GPU code, with launches that depend on dims.

    OpenProgram ::= OpenProgram(dims, slots, rooms, steps)
    OpenStep    ::= OpenLaunch(function, grid, block, shared, slots, numbers, least, scratch, maps)
                  | RowLaunch(rows, pieces) | OpenCopy(source, target)

A `RowLaunch` chooses among functions compiled for a given number of rows: the largest that fits, as
often as needed. The last rows overlap with earlier ones, which are computed again with the same
result.

>>> slots = (OpenSlot("input", "4 * n"), OpenSlot("output", "4 * n"))
>>> step = OpenLaunch("k", ("(n + 31) // 32", "1", "1"), (32, 1, 1), 0, (0, 1), ("n",))
>>> program = OpenProgram(("n",), slots, (), (step,))
>>> program.at({"n": 40}).steps[0].grid, program.at({"n": 40}).steps[0].numbers
((2, 1, 1), (40,))
>>> open_from_data(plain(program)) == program
True
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from plica.runtime.cuda import step as fixed
from plica.runtime.cuda.tile import TileMap
from plica.runtime.error import damaged
from plica.runtime.size_text import NoSize, names_of, number_of
from plica.runtime.typed_json import Annotated, ClassVar, dataclass, plain, read

Sizes: TypeAlias = Mapping[str, int]
Blocks: TypeAlias = Annotated[int, range(1, fixed.MAX_BYTES)]

MAX_BLOCKS: Final = 1 << 23
MAX_INT32: Final = (1 << 31) - 1
"""The maximum grid size and size argument of such a launch: its code uses 32-bit indices."""


class TooLarge(ValueError):
    """Sizes for which a launch has more blocks, or a tensor more bytes, than there can be."""


class NoValue(ValueError):
    """Sizes at which a step has no value; its number is said."""


@dataclass(frozen=True, slots=True)
class OpenSlot:
    """A tensor: where it lives, its bytes, and of a temporary the room."""

    DAMAGED: ClassVar = "A tensor of the launches in the artefact is damaged."

    space: Literal["input", "output", "constant", "temporary"]
    bytes: str
    room: fixed.Number = 0


@dataclass(frozen=True, slots=True)
class OpenLaunch:
    """A function over the tensors of some slots, then sizes."""

    DAMAGED: ClassVar = fixed.DAMAGED_LAUNCH

    function: str
    grid: tuple[str, str, str]
    block: fixed.Block
    shared: fixed.SharedBytes
    slots: tuple[fixed.Number, ...]
    numbers: tuple[str, ...] = ()
    least: tuple[str, ...] = ()  # what must not be negative
    scratch: tuple[
        fixed.Number, ...
    ] = ()  # the bytes of further buffers, which stand behind those of slots
    maps: tuple[TileMap, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The sizes that it is made of."""
        return (*self.grid, *self.numbers, *self.least)

    @property
    def is_possible(self) -> bool:
        """Whether a block has no more threads than it can, and maps are of what is given."""
        return fixed.are_possible(self.block, self.maps, len(self.slots) + len(self.scratch))

    def at(self, sizes: Sizes) -> tuple[list[fixed.DeviceLaunch], list[int]]:
        """The launches, empty if there is no work, and the scratch sizes."""
        x, y, z = (number_of(each, sizes) for each in self.grid)
        if min(x, y, z) <= 0:
            return [], []
        numbers = tuple([number_of(number, sizes) for number in self.numbers])
        if x > MAX_BLOCKS or max(numbers, default=0) > MAX_INT32:
            raise TooLarge(self.function)
        return [
            fixed.DeviceLaunch(
                self.function, checked_grid((x, y, z)), self.block, self.shared, self.slots,
                len(self.scratch), self.maps, numbers,
            )
        ], list(self.scratch)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RowFunction:
    """A function that takes the number of rows and is launched once per part; `grid` is that of one
    part."""

    function: str
    grid: tuple[Blocks, Blocks, Blocks]
    block: fixed.Block
    shared: fixed.SharedBytes

    @property
    def is_possible(self) -> bool:
        """Whether a block has no more threads than it can."""
        return fixed.are_possible(self.block, (), 0)


@dataclass(frozen=True, slots=True)
class RowPiece:
    """Functions for a given number of rows, on the tensors of some slots, and the scratch memory of
    one part of the rows."""

    size: Blocks
    slots: tuple[fixed.Number, ...]
    scratch: tuple[fixed.Number, ...]
    functions: tuple[RowFunction, ...]


@dataclass(frozen=True, slots=True)
class RowLaunch:
    """The rows of tensors, each like another; the last piece is of one row."""

    DAMAGED: ClassVar = fixed.DAMAGED_LAUNCH

    rows: str
    pieces: tuple[RowPiece, ...]
    least: tuple[str, ...] = ()

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots that it reads or writes."""
        return tuple([slot for piece in self.pieces for slot in piece.slots])

    @property
    def texts(self) -> tuple[str, ...]:
        """The sizes that it is made of."""
        return (self.rows, *self.least)

    @property
    def is_possible(self) -> bool:
        """Whether pieces are of ever fewer rows, the last of one."""
        sizes = [piece.size for piece in self.pieces]
        return sizes[-1:] == [1] and sizes == sorted(set(sizes), reverse=True)

    def at(self, sizes: Sizes) -> tuple[list[fixed.DeviceLaunch], list[int]]:
        """The launches for a given number of rows, and their scratch memory."""
        rows = number_of(self.rows, sizes)
        if rows <= 0:
            return [], []
        piece = next(row_piece for row_piece in self.pieces if row_piece.size <= rows)
        parts = -(-rows // piece.size)
        launches = [
            fixed.DeviceLaunch(
                each.function, checked_grid((each.grid[0] * parts, *each.grid[1:])), each.block,
                each.shared, piece.slots, len(piece.scratch), numbers=(rows,),
            )
            for each in piece.functions
        ]  # fmt: skip
        return launches, [size * parts for size in piece.scratch]


@dataclass(frozen=True, slots=True)
class OpenCopy:
    """All of a slot to another."""

    source: fixed.Number
    target: fixed.Number

    texts: ClassVar[tuple[str, ...]] = ()

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots that it reads or writes."""
        return self.source, self.target


OpenStep: TypeAlias = OpenLaunch | RowLaunch | OpenCopy


@dataclass(frozen=True, slots=True)
class OpenProgram:
    """All that a call does on a GPU, for any sizes."""

    KEYED: ClassVar = True
    DAMAGED: ClassVar = "The launches in the artefact are damaged."

    dims: tuple[str, ...]
    slots: tuple[OpenSlot, ...]
    rooms: tuple[str, ...]  # the bytes of memory that temporaries share
    steps: tuple[OpenStep, ...]
    needs: tuple[str, ...] = ()  # sizes that must not be negative

    @property
    def functions(self) -> dict[str, int]:
        """The functions that are launched, and the memory that a block of each shares."""
        found: dict[str, int] = {}
        for step in self.steps:
            if isinstance(step, OpenLaunch):
                found[step.function] = step.shared
            elif isinstance(step, RowLaunch):
                found |= {f.function: f.shared for piece in step.pieces for f in piece.functions}
        return found

    def at(self, sizes: Sizes) -> fixed.DeviceProgram:
        """The program for some sizes.

        Raises `TooLarge` where memory or blocks do not suffice, `NoValue` where a step has none.
        """
        steps: list[fixed.DeviceStep] = []
        scratch: list[int] = []
        bytes_ = [_bytes(slot.bytes, sizes) for slot in self.slots]
        for number, step in enumerate(self.steps):
            if isinstance(step, OpenCopy):
                steps.append(fixed.DeviceCopy(step.source, step.target, bytes_[step.source]))
                continue
            if any(number_of(each, sizes) < 0 for each in step.least):
                raise NoValue(str(number))
            launches, asked = step.at(sizes)
            steps += launches
            for at, size in enumerate(asked):  # launches follow one another: they share it
                scratch[at : at + 1] = [max(size, *scratch[at : at + 1], 0)]
        starts, end = [], 0
        for room in self.rooms:
            starts.append(end)
            end += -(-_bytes(room, sizes) // ROOM) * ROOM
        offsets = {n: starts[slot.room] for n, slot in enumerate(self.slots) if slot.space == TEMP}
        layout = fixed.arranged(bytes_, [slot.space for slot in self.slots], offsets, end, scratch)
        if layout.size >= fixed.MAX_BYTES:
            raise TooLarge(str(layout.size))
        return fixed.DeviceProgram(tuple(steps), layout)

    def numbers(self, sizes: Sizes) -> bool:
        """Whether no size is negative that must not be."""
        return all(number_of(need, sizes) >= 0 for need in self.needs)


TEMP: Final = "temporary"
ROOM: Final = 256  # rooms begin at multiples of this


def _bytes(text: str, sizes: Sizes) -> int:
    found = number_of(text, sizes)
    if found >= fixed.MAX_BYTES:
        raise TooLarge(text)
    return max(found, 0)


def checked_grid(of: tuple[int, int, int]) -> tuple[int, int, int]:
    """Blocks of a launch, which must not be more than there can be."""
    if any(each > most for each, most in zip(of, fixed.MAX_GRID, strict=True)):
        raise TooLarge(str(of))
    return of


# --- as data --------------------------------------------------------------------------------------


def device_data(of: fixed.DeviceProgram | OpenProgram) -> dict[str, Any]:
    """A program with static or open sizes as JSON data."""
    data: dict[str, Any] = plain(of) if isinstance(of, OpenProgram) else fixed.to_data(of)
    return data


def device_from_data(given: object) -> fixed.DeviceProgram | OpenProgram:
    """The program of either kind that was written down."""
    opened = isinstance(given, dict) and "dims" in given
    return open_from_data(given) if opened else fixed.from_data(given)


def open_from_data(given: object) -> OpenProgram:
    """The program that was written down; nothing in it is believed."""
    found = read(OpenProgram, given)
    names = frozenset(found.dims)
    if not all(map(str.isidentifier, names)):
        raise damaged("A dim of the launches in the artefact has no name.", repr(found.dims)[:200])
    used = [slot for step in found.steps for slot in step.slots]
    rooms = [slot.room for slot in found.slots if slot.space == TEMP]
    if max(used, default=-1) >= len(found.slots) or max(rooms, default=-1) >= len(found.rooms):
        raise damaged("A tensor of the launches in the artefact is damaged.", repr(given)[:200])
    texts = (*found.rooms, *found.needs, *[slot.bytes for slot in found.slots])
    for text in (*texts, *[text for step in found.steps for text in step.texts]):
        _check_size(text, names)
    return found


def _check_size(text: str, names: frozenset[str]) -> None:
    try:
        wrong = not names_of(text) <= names
    except NoSize:
        wrong = True
    if wrong:
        raise damaged("A size in the artefact is damaged.", repr(text)[:200])
