"""Overlaps: tensors of a program on a GPU that are in one place at one time.

>>> layout = SlotLayout(1024, (0, 256, 512), (), (0,), (1,), ())
>>> step = DeviceLaunch("k", (1, 1, 1), (32, 1, 1), 0, (0, 2, 1))
>>> list(overlaps(DeviceProgram((step,), layout), [[4], [4]], [(0, 4)], 256))
[]
>>> list(overlaps(DeviceProgram((step,), layout), [[4], [512]], [(0, 4)], 256))
['The temporary in slot 2 lies where inputs and outputs are.']
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from plica.runtime.cuda.step import DeviceCopy, DeviceLaunch, DeviceProgram, DeviceStep, SlotLayout

__all__ = ["DeviceLaunch", "SlotLayout", "overlaps"]


def overlaps(
    of: DeviceProgram,
    sizes: Sequence[Sequence[int]],
    plan: Sequence[tuple[int, int]],
    workspace: int,
) -> Iterator[str]:
    """Overlaps between allocations.

    `sizes` are the bytes of inputs and of outputs, `plan` the places and bytes of temporaries in a
    workspace of some bytes.
    """
    layout = of.layout
    given = (*layout.inputs, *layout.outputs)
    spans = sorted(
        (layout.places[slot], layout.places[slot] + size, slot)
        for slot, size in zip(given, [size for each in sizes for size in each], strict=False)
        if size
    )
    for (_, end, one), (start, _, two) in pairwise(spans):
        if start < end and one != two:
            yield f"The slots {one} and {two} of inputs and outputs overlap."
    held = {slot for slot, _ in layout.constants}
    used = dict.fromkeys(slot for step in of.steps for slot in _slots(step))
    mine = [slot for slot in used if slot not in held and slot not in given]
    begin = min([layout.places[slot] for slot in mine], default=0)
    if spans and mine and begin < spans[-1][1]:
        wrong = next(slot for slot in mine if layout.places[slot] == begin)
        yield f"The temporary in slot {wrong} lies where inputs and outputs are."
        return
    least: dict[int, int] = {}
    for offset, size in plan:
        least[offset] = min(size, least.get(offset, size))
    first = min(least, default=0)
    places = {slot: layout.places[slot] - begin + first for slot in mine}
    for slot, place in places.items():
        if place not in least:
            yield f"The temporary in slot {slot} does not lie where the memory plan has one."
            return
    for at in layout.scratch:
        if mine and at < begin - first + workspace and at != layout.size:
            yield "Scratch memory lies where temporaries are."
    yield from _together(of.steps, {slot: (at, at + least[at]) for slot, at in places.items()})


def _together(steps: Sequence[DeviceStep], spans: dict[int, tuple[int, int]]) -> Iterator[str]:
    """Temporaries that are needed together and overlap, swept along time."""
    lives: dict[int, tuple[int, int]] = {}
    for number, step in enumerate(steps):
        for slot in _slots(step):
            if slot in spans:
                lives[slot] = lives.get(slot, (number, number))[0], number
    there: list[int] = []
    for slot in sorted(lives, key=lambda each: (lives[each], each)):
        born, last = lives[slot]
        there = [other for other in there if lives[other][1] >= born]
        start, end = spans[slot]
        for other in there:
            begin, stop = spans[other]
            if max(start, begin) >= min(end, stop):
                continue
            until = min(last, lives[other][1])
            if len({_slots(steps[each]) for each in range(born, until + 1)}) > 1:
                yield f"The slots {other} and {slot} are needed together, and overlap."
        there.append(slot)


def _slots(of: DeviceStep) -> tuple[int, ...]:
    return (of.source, of.target) if isinstance(of, DeviceCopy) else of.slots
