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
>>> open_from_data(open_data(program)) == program
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from plica.runtime.cuda.step import (
    MAX_BYTES,
    MAX_GRID,
    DeviceCopy,
    DeviceLaunch,
    DeviceProgram,
    DeviceStep,
    Three,
    arranged,
    checked_block,
    checked_numbers,
    from_data,
    to_data,
)
from plica.runtime.cuda.tile import TileMap, tile_data, tile_from
from plica.runtime.error import damaged
from plica.runtime.size_text import NoSize, names_of, number_of

Sizes: TypeAlias = Mapping[str, int]

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

    space: str
    bytes: str
    room: int = 0


@dataclass(frozen=True, slots=True)
class OpenLaunch:
    """A function over the tensors of some slots, then sizes."""

    function: str
    grid: tuple[str, str, str]
    block: Three
    shared: int
    slots: tuple[int, ...]
    numbers: tuple[str, ...] = ()
    least: tuple[str, ...] = ()  # what must not be negative
    scratch: tuple[int, ...] = ()  # the bytes of further buffers, which stand after those of slots
    maps: tuple[TileMap, ...] = ()

    def at(self, sizes: Sizes) -> tuple[list[DeviceLaunch], list[int]]:
        """The launches, empty if there is no work, and the scratch sizes."""
        x, y, z = (number_of(each, sizes) for each in self.grid)
        if min(x, y, z) <= 0:
            return [], []
        numbers = tuple([number_of(number, sizes) for number in self.numbers])
        if x > MAX_BLOCKS or max(numbers, default=0) > MAX_INT32:
            raise TooLarge(self.function)
        return [
            DeviceLaunch(
                self.function, checked_grid((x, y, z)), self.block, self.shared, self.slots,
                len(self.scratch), self.maps, numbers,
            )
        ], list(self.scratch)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RowFunction:
    """A function that takes the number of rows and is launched once per part; `grid` is that of one
    part."""

    function: str
    grid: Three
    block: Three
    shared: int


@dataclass(frozen=True, slots=True)
class RowPiece:
    """Functions for a given number of rows, on the tensors of some slots, and the scratch memory of
    one part of the rows."""

    size: int
    functions: tuple[RowFunction, ...]
    slots: tuple[int, ...]
    scratch: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RowLaunch:
    """The rows of tensors, each like another; the last piece is of one row."""

    rows: str
    pieces: tuple[RowPiece, ...]
    least: tuple[str, ...] = ()

    def at(self, sizes: Sizes) -> tuple[list[DeviceLaunch], list[int]]:
        """The launches for a given number of rows, and their scratch memory."""
        rows = number_of(self.rows, sizes)
        if rows <= 0:
            return [], []
        piece = next(row_piece for row_piece in self.pieces if row_piece.size <= rows)
        parts = -(-rows // piece.size)
        launches = [
            DeviceLaunch(
                each.function, checked_grid((each.grid[0] * parts, *each.grid[1:])), each.block,
                each.shared, piece.slots, len(piece.scratch), numbers=(rows,),
            )
            for each in piece.functions
        ]  # fmt: skip
        return launches, [size * parts for size in piece.scratch]


@dataclass(frozen=True, slots=True)
class OpenCopy:
    """All of a slot to another."""

    source: int
    target: int


OpenStep: TypeAlias = OpenLaunch | RowLaunch | OpenCopy


@dataclass(frozen=True, slots=True)
class OpenProgram:
    """All that a call does on a GPU, for any sizes."""

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

    def at(self, sizes: Sizes) -> DeviceProgram:
        """The program for some sizes.

        Raises `TooLarge` where memory or blocks do not suffice, `NoValue` where a step has none.
        """
        steps: list[DeviceStep] = []
        scratch: list[int] = []
        bytes_ = [_bytes(slot.bytes, sizes) for slot in self.slots]
        for number, step in enumerate(self.steps):
            if isinstance(step, OpenCopy):
                steps.append(DeviceCopy(step.source, step.target, bytes_[step.source]))
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
        layout = arranged(bytes_, [slot.space for slot in self.slots], offsets, end, scratch)
        if layout.size >= MAX_BYTES:
            raise TooLarge(str(layout.size))
        return DeviceProgram(tuple(steps), layout)

    def numbers(self, sizes: Sizes) -> bool:
        """Whether no size is negative that must not be."""
        return all(number_of(need, sizes) >= 0 for need in self.needs)


TEMP: Final = "temporary"
ROOM: Final = 256  # rooms begin at multiples of this


def _bytes(text: str, sizes: Sizes) -> int:
    found = number_of(text, sizes)
    if found >= MAX_BYTES:
        raise TooLarge(text)
    return max(found, 0)


def checked_grid(of: Three) -> Three:
    """Blocks of a launch, which must not be more than there can be."""
    if any(each > most for each, most in zip(of, MAX_GRID, strict=True)):
        raise TooLarge(str(of))
    return of


# --- as data --------------------------------------------------------------------------------------


def device_data(of: DeviceProgram | OpenProgram) -> dict[str, Any]:
    """A program with static or open sizes as JSON data."""
    return open_data(of) if isinstance(of, OpenProgram) else to_data(of)


def device_from_data(given: object) -> DeviceProgram | OpenProgram:
    """The program of either kind that was written down."""
    opened = isinstance(given, dict) and "dims" in given
    return open_from_data(given) if opened else from_data(given)


def open_data(of: OpenProgram) -> dict[str, Any]:
    """The program as JSON data."""
    return {
        "dims": list(of.dims),
        "slots": [[slot.space, slot.bytes, slot.room] for slot in of.slots],
        "rooms": list(of.rooms),
        "steps": [_step_data(step) for step in of.steps],
        "needs": list(of.needs),
    }


def _step_data(of: OpenStep) -> list[Any]:
    match of:
        case OpenCopy(source, target):
            return [source, target]
        case OpenLaunch():
            return [of.function, list(of.grid), list(of.block), of.shared, list(of.slots),
                    list(of.numbers), list(of.least), list(of.scratch),
                    [tile_data(tile_map) for tile_map in of.maps]]  # fmt: skip
        case RowLaunch():
            pieces = [
                [piece.size, list(piece.slots), list(piece.scratch),
                 [[f.function, list(f.grid), list(f.block), f.shared] for f in piece.functions]]
                for piece in of.pieces
            ]  # fmt: skip
            return [of.rows, pieces, list(of.least)]


def open_from_data(given: object) -> OpenProgram:
    """The program that was written down; nothing in it is believed."""
    match given:
        case {
            "dims": [*dims],
            "slots": [*slots],
            "rooms": [*rooms],
            "steps": [*steps],
            "needs": [*needs],
        }:
            pass
        case _:
            raise damaged("The launches in the artefact are damaged.")
    names = tuple([dim for dim in dims if isinstance(dim, str) and dim.isidentifier()])
    if len(names) != len(dims):
        raise damaged("A dim of the launches in the artefact has no name.", repr(dims)[:200])
    known = frozenset(names)
    held = _texts(rooms, known)
    open_slots = tuple([_slot(slot, known, len(held)) for slot in slots])
    every = tuple([_step(step, known, len(open_slots)) for step in steps])
    return OpenProgram(names, open_slots, held, every, _texts(needs, known))


def _slot(given: object, names: frozenset[str], rooms: int) -> OpenSlot:
    match given:
        case ["input" | "output" | "constant" | "temporary" as space, str(size), int(room)] if (
            space != TEMP or 0 <= room < rooms
        ):
            (text,) = _texts([size], names)
            return OpenSlot(space, text, room)
        case _:
            raise damaged("A tensor of the launches in the artefact is damaged.", repr(given)[:200])


def _step(given: object, names: frozenset[str], slots: int) -> OpenStep:
    match given:
        case [int(source), int(target)]:
            return OpenCopy(*checked_numbers([source, target], slots))
        case [
            str(name), [_, _, _] as grid, [*block], int(shared),
            [*args], [*more], [*least], [*scratch], [*maps],
        ] if 0 <= shared < 1 << 20:  # fmt: skip
            x, y, z = _texts(grid, names)
            tiles = tuple([tile_from(each, len(args) + len(scratch)) for each in maps])
            return OpenLaunch(
                name, (x, y, z), checked_block(block), shared, checked_numbers(args, slots),
                _texts(more, names), _texts(least, names), checked_numbers(scratch, MAX_BYTES),
                tiles,
            )  # fmt: skip
        case [str(rows), [*pieces], [*least]] if pieces:
            every = tuple([_piece(piece, slots) for piece in pieces])
            sizes = [row_piece.size for row_piece in every]
            if sizes[-1] == 1 and sizes == sorted(set(sizes), reverse=True):
                (count,) = _texts([rows], names)
                return RowLaunch(count, every, _texts(least, names))
    raise damaged("A launch in the artefact is damaged.", repr(given)[:200])


def _piece(given: object, slots: int) -> RowPiece:
    match given:
        case [int(size), [*args], [*scratch], [*functions]] if 0 < size < MAX_BYTES:
            return RowPiece(
                size, tuple([_function(function) for function in functions]),
                checked_numbers(args, slots), checked_numbers(scratch, MAX_BYTES),
            )  # fmt: skip
        case _:
            raise damaged("A launch in the artefact is damaged.", repr(given)[:200])


def _function(given: object) -> RowFunction:
    match given:
        case [str(name), [int(x), int(y), int(z)], [*block], int(shared)] if (
            min(x, y, z) > 0 and 0 <= shared < 1 << 20
        ):
            return RowFunction(name, (x, y, z), checked_block(block), shared)
        case _:
            raise damaged("A launch in the artefact is damaged.", repr(given)[:200])


def _texts(given: Sequence[object], names: frozenset[str]) -> tuple[str, ...]:
    found: list[str] = []
    for each in given:
        try:
            wrong = not isinstance(each, str) or not names_of(each) <= names
        except NoSize:
            wrong = True
        if wrong:
            raise damaged("A size in the artefact is damaged.", repr(each)[:200])
        found.append(str(each))
    return tuple(found)
