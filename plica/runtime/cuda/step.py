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
from dataclasses import field
from math import prod
from typing import Any, Final, TypeAlias

from plica.runtime.cuda.tile import TileMap
from plica.runtime.error import damaged
from plica.runtime.typed_json import OPTIONAL, Annotated, ClassVar, dataclass, plain, read

ALIGNMENT: Final = 256  # the alignment of tensors in bytes: a multiple of the widest access
MAX_BYTES: Final = 1 << 48  # bytes no GPU has
MAX_GRID: Final = ((1 << 31) - 1, 65535, 65535)  # blocks of a launch along each axis, at most
MAX_THREADS: Final = 1024  # threads of a block, at most

Number: TypeAlias = Annotated[int, range(MAX_BYTES)]
Grid: TypeAlias = tuple[
    Annotated[int, range(1, 1 + MAX_GRID[0])],
    Annotated[int, range(1, 1 + MAX_GRID[1])],
    Annotated[int, range(1, 1 + MAX_GRID[2])],
]
Block: TypeAlias = tuple[
    Annotated[int, range(1, 1025)], Annotated[int, range(1, 1025)], Annotated[int, range(1, 65)]
]
"""Threads of a block along each axis."""

SharedBytes: TypeAlias = Annotated[int, range(1 << 20)]
DAMAGED_LAUNCH: Final = "A launch in the artefact is damaged."


@dataclass(frozen=True, slots=True)
class DeviceLaunch:
    """A function over the tensors of some slots, then a given number of scratch buffers, then maps
    of tensors whose tiles it fetches.

    Programs that are written down have no `numbers`: those of sizes that were open are made when
    they are called (`plica.runtime.cuda.open_step`).
    """

    DAMAGED: ClassVar = DAMAGED_LAUNCH

    function: str
    grid: Grid
    block: Block
    shared: SharedBytes
    slots: tuple[Number, ...]
    scratch: Number = 0
    maps: tuple[TileMap, ...] = ()
    numbers: tuple[int, ...] = field(default=(), metadata=OPTIONAL)
    """Further arguments before the tensor maps: sizes of the call."""

    @property
    def is_possible(self) -> bool:
        """Whether a block has no more threads than it can, and maps are of what is given."""
        return are_possible(self.block, self.maps, len(self.slots) + self.scratch)


@dataclass(frozen=True, slots=True)
class DeviceCopy:
    """The bytes of a slot to another."""

    source: Number
    target: Number
    size: Number

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots that it reads or writes."""
        return self.source, self.target


def are_possible(block: Block, maps: Sequence[TileMap], given: int) -> bool:
    """Whether a launch can have such a block, and such maps of the tensors that it is given."""
    return prod(block) <= MAX_THREADS and all(each.argument < given for each in maps)


DeviceStep: TypeAlias = DeviceLaunch | DeviceCopy


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """Where the slots are: each in the block of memory, or a constant by its number."""

    KEYED: ClassVar = True

    size: Annotated[int, range(1, MAX_BYTES)]
    places: tuple[Number, ...]
    constants: tuple[tuple[Number, Number], ...]  # pairs of a slot and the number of its constant
    inputs: tuple[Number, ...]
    outputs: tuple[Number, ...]
    scratch: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """All that a call does on a GPU."""

    KEYED: ClassVar = True
    DAMAGED: ClassVar = "The launches in the artefact are damaged."

    steps: tuple[DeviceStep, ...]
    layout: SlotLayout
    after: tuple[tuple[Number, ...], ...] = field(default=(), metadata=OPTIONAL)
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
    """The program as JSON data: the layout is part of it."""
    whole: dict[str, Any] = plain(of)
    layout: dict[str, Any] = whole.pop("layout")
    return layout | whole


def from_data(given: object) -> DeviceProgram:
    """The program that was written down; nothing in it is believed."""
    found = read(DeviceProgram, {**given, "layout": given} if isinstance(given, dict) else given)
    layout, steps = found.layout, found.steps
    held = [slot for pair in layout.constants for slot in pair]  # and as many constants, at most
    used = [slot for step in steps for slot in step.slots]
    scratch = [step.scratch for step in steps if isinstance(step, DeviceLaunch)]
    if (
        max((*used, *held, *layout.inputs, *layout.outputs), default=-1) >= len(layout.places)
        or max((*layout.places, *layout.scratch), default=0) > layout.size  # or what is empty
        or max(scratch, default=0) > len(layout.scratch)
        or len(found.after) not in (0, len(steps))
        or any(at >= number for number, before in enumerate(found.after) for at in before)
    ):
        raise damaged("A number in the artefact is out of its range.", repr(layout)[:200])
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
