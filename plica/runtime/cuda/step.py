"""Steps on a GPU: the launches of a compiled model and their memory, as data.

    Step   ::= DeviceLaunch(function, grid, block, shared, slots, scratch, maps, numbers)
             | DeviceCopy(source, target, size)
    Layout ::= Layout(size, places, constants, inputs, outputs, scratch)

A slot is a tensor: at an offset in one block of memory, or a constant by number.

>>> layout = arranged([4, 4], ["input", "output"], {}, 0, [])
>>> program = DeviceProgram((DeviceCopy(0, 1, 4),), layout)
>>> from_data(to_data(program)) == program
True
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, TypeAlias

from plica.runtime.cuda.tile import TileMap, tile_data, tile_from
from plica.runtime.error import damaged

ALIGNMENT: Final = 256  # the alignment of tensors in bytes: a multiple of the widest access
MAX_BYTES: Final = 1 << 48  # bytes no GPU has
MAX_GRID: Final = ((1 << 31) - 1, 65535, 65535)  # blocks of a launch along each axis, at most
MAX_BLOCK: Final = (1024, 1024, 64)  # threads of a block along each axis, at most
MAX_THREADS: Final = 1024  # threads of a block, at most

Three: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class DeviceLaunch:
    """A function over the tensors of some slots, then a given number of scratch buffers, then maps
    of tensors whose tiles it fetches.

    Programs that are written down have no `numbers`: those of sizes that were open are made when
    they are called (`plica.runtime.cuda.open_step`).
    """

    function: str
    grid: Three
    block: Three
    shared: int
    slots: tuple[int, ...]
    scratch: int = 0
    maps: tuple[TileMap, ...] = ()
    numbers: tuple[int, ...] = ()  # further arguments before the tensor maps: sizes of the call


@dataclass(frozen=True, slots=True)
class DeviceCopy:
    """The bytes of a slot to another."""

    source: int
    target: int
    size: int


DeviceStep: TypeAlias = DeviceLaunch | DeviceCopy


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """Where the slots are: each in the block of memory, or a constant by its number."""

    size: int
    places: tuple[int, ...]
    constants: tuple[tuple[int, int], ...]  # pairs of a slot and the number of its constant
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    scratch: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """All that a call does on a GPU."""

    steps: tuple[DeviceStep, ...]
    layout: SlotLayout
    after: tuple[tuple[int, ...], ...] = ()
    """The earlier steps that each step depends on; if empty, steps run in order."""

    @property
    def functions(self) -> dict[str, int]:
        """The functions that are launched, and the most memory that a block of each shares."""
        found: dict[str, int] = {}
        for step in self.steps:
            if isinstance(step, DeviceLaunch):
                found[step.function] = max(step.shared, found.get(step.function, 0))
        return found


def arranged(
    sizes: Sequence[int],
    spaces: Sequence[str],
    offsets: Mapping[int, int],
    arena: int,
    scratch: Sequence[int],
) -> SlotLayout:
    """The offsets of slots: inputs and outputs, then planned temporaries, then scratch."""
    at = 0
    places = [0] * len(sizes)
    for slot, (size, space) in enumerate(zip(sizes, spaces, strict=True)):
        if space in ("input", "output"):
            places[slot] = at
            at += _padded(size)
    begin = at
    for slot, offset in offsets.items():
        places[slot] = begin + offset
    at += _padded(arena)
    extra = []
    for size in scratch:
        extra.append(at)
        at += _padded(size)
    held = [slot for slot, space in enumerate(spaces) if space == "constant"]
    return SlotLayout(
        max(at, 1),
        tuple(places),
        tuple([(slot, number) for number, slot in enumerate(held)]),
        tuple([slot for slot, space in enumerate(spaces) if space == "input"]),
        tuple([slot for slot, space in enumerate(spaces) if space == "output"]),
        tuple(extra),
    )


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


# --- as data --------------------------------------------------------------------------------------


def to_data(of: DeviceProgram) -> dict[str, Any]:
    """The program as JSON data."""
    layout = of.layout
    return {
        "steps": [_step_data(step) for step in of.steps],
        "size": layout.size,
        "places": list(layout.places),
        "constants": [list(constant) for constant in layout.constants],
        "inputs": list(layout.inputs),
        "outputs": list(layout.outputs),
        "scratch": list(layout.scratch),
        **({"after": [list(each) for each in of.after]} if of.after else {}),
    }


def from_data(given: object) -> DeviceProgram:
    """The program that was written down; nothing in it is believed."""
    match given:
        case {
            "steps": [*steps],
            "size": int(size),
            "places": [*places],
            "constants": [*constants],
            "inputs": [*inputs],
            "outputs": [*outputs],
            "scratch": [*scratch],
            **more,
        } if 0 < size < MAX_BYTES:
            pass
        case _:
            raise damaged("The launches in the artefact are damaged.")
    count = len(places)
    layout = SlotLayout(
        size,
        checked_numbers(places, size + 1),  # what is empty may lie at the end
        tuple([_pair(constant, count) for constant in constants]),
        checked_numbers(inputs, count),
        checked_numbers(outputs, count),
        checked_numbers(scratch, size + 1),
    )
    made = tuple([_step(step, count, len(scratch)) for step in steps])
    return DeviceProgram(made, layout, _after(more.get("after", []), len(made)))


def _after(given: object, steps: int) -> tuple[tuple[int, ...], ...]:
    match given:
        case []:
            return ()
        case [*every] if len(every) == steps:
            found = [checked_numbers(each if isinstance(each, list) else [each], number)
                     for number, each in enumerate(every)]  # fmt: skip
            return tuple(found)
        case _:
            raise damaged("The order of the launches in the artefact is damaged.")


def _step_data(of: DeviceStep) -> list[Any]:
    if isinstance(of, DeviceCopy):
        return [of.source, of.target, of.size]
    extents = [list(of.grid), list(of.block)]
    maps = [tile_data(tile_map) for tile_map in of.maps]
    return [of.function, *extents, of.shared, list(of.slots), of.scratch, maps]


def _step(given: object, slots: int, scratch: int) -> DeviceStep:
    match given:
        case [int(source), int(target), int(size)] if 0 <= size < MAX_BYTES:
            one, two = checked_numbers([source, target], slots)
            return DeviceCopy(one, two, size)
        case [str(name), [*grid], [*block], int(shared), [*args], int(count), [*maps]] if (
            0 <= count <= scratch and 0 <= shared < 1 << 20
        ):
            given_maps = tuple([tile_from(each, len(args) + count) for each in maps])
            return DeviceLaunch(
                name, _extents(grid, MAX_GRID), checked_block(block), shared,
                checked_numbers(args, slots), count, given_maps,
            )  # fmt: skip
        case _:
            raise damaged("A launch in the artefact is damaged.", repr(given)[:200])


def _extents(given: list[object], most: Three) -> Three:
    match given:
        case [int(x), int(y), int(z)] if min(x, y, z) > 0 and all(
            each <= limit for each, limit in zip((x, y, z), most, strict=True)
        ):
            return x, y, z
        case _:
            raise damaged("A launch in the artefact has impossible sizes.", repr(given)[:200])


def checked_block(given: list[object]) -> Three:
    found = _extents(given, MAX_BLOCK)
    if prod(found) > MAX_THREADS:
        raise damaged("A block of a launch in the artefact has too many threads.", repr(given))
    return found


def _pair(given: object, slots: int) -> tuple[int, int]:
    match given:
        case [int(slot), int(number)] if 0 <= slot < slots and 0 <= number < slots:
            return slot, number
        case _:
            raise damaged("A constant in the artefact has no place.", repr(given)[:200])


def checked_numbers(given: Sequence[object], below: int) -> tuple[int, ...]:
    found = tuple([each for each in given if type(each) is int and 0 <= each < below])
    if len(found) != len(given):
        raise damaged("A number in the artefact is out of its range.", repr(given)[:200])
    return found


def problems(of: DeviceProgram, sizes: Sequence[Sequence[int]], constants: int) -> Iterator[str]:
    """The defects of a program whose inputs and outputs have these sizes in bytes."""
    layout = of.layout
    for what, slots, bytes_ in zip(
        ("input", "output"), (layout.inputs, layout.outputs), sizes, strict=True
    ):
        if len(slots) != len(bytes_):
            yield f"The launches know {len(slots)} of {len(bytes_)} {what}s."
        for slot, size in zip(slots, bytes_, strict=False):
            if layout.places[slot] + size > layout.size or layout.places[slot] % ALIGNMENT:
                yield f"The {what} in slot {slot} lies outside of its memory."
    if sorted(number for _, number in layout.constants) != list(range(constants)):
        yield "The constants of the launches are not those of the artefact."
    held = {slot for slot, _ in layout.constants}
    for step in of.steps:
        if isinstance(step, DeviceCopy):
            for slot in (step.source, step.target):
                if slot not in held and layout.places[slot] + step.size > layout.size:
                    yield f"A copy leaves the memory of slot {slot}."
            if step.target in held:
                yield f"A copy writes over the constant in slot {step.target}."
