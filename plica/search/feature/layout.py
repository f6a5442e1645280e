"""Layouts: the common structure of the nests of several schedules, and the numbers that vary.

>>> from plica.ir.text.script import from_text
>>> from plica.search.feature.nest import nests_of
>>> from plica.search.space import DOUBLED
>>> nests = nests_of(from_text(DOUBLED).values[0])
>>> layout = aligned([nests])
>>> layout.size, layout.numbers(nests).tolist()
(12, [64.0, nan, 64.0, 1.0, 1.0, 64.0, 64.0, 1.0, 1.0, 64.0, 0.0, 1.0])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from attrs import frozen

from plica.core import Name
from plica.search.feature.nest import AccessFeature, NestFeature, Stride
from plica.search.feature.operation import Operations

Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Nests: TypeAlias = tuple[NestFeature, ...]


@frozen
class LayoutTouch:
    """An access of a layout: its buffer as a number, the (loop, dimension) pairs it moves by."""

    buffer: int
    written: bool
    bytes: int
    rank: int
    pairs: tuple[tuple[int, int], ...]


@frozen
class StorePlace:
    """A store of a layout, and where its numbers begin."""

    loops: tuple[Name, ...]
    kinds: tuple[str, ...]
    touches: tuple[LayoutTouch, ...]
    operations: Operations
    shared: tuple[bool, ...]  # for each touch, whether another store touches the buffer, too
    first: int
    local: bool = False  # whether what it writes is to be in registers

    @property
    def size(self) -> int:
        """The number of varying numbers."""
        of_touches = sum(2 * each.rank + 2 * len(each.pairs) for each in self.touches)
        return 2 * len(self.loops) + of_touches + 2


@frozen
class StoreLayout:
    """The stores of a layout."""

    places: tuple[StorePlace, ...]

    @property
    def size(self) -> int:
        return sum(place.size for place in self.places)

    def numbers(self, nests: Nests) -> Floats:
        """Nests as numbers; they must fit the layout."""
        found: list[float] = []
        for place, nest in zip(self.places, nests, strict=True):
            found += _numbers(place, nest)
        return np.array(found, dtype=np.float64)

    def fits(self, nests: Nests) -> bool:
        """Whether some nests are of this layout."""
        return len(self.places) == len(nests) and all(
            _fits(*each) for each in zip(self.places, nests, strict=True)
        )


ONE = Stride(1.0, 1.0)


def _numbers(place: StorePlace, nest: NestFeature) -> Iterator[float]:
    extents = {loop_feature.key: loop_feature.extent for loop_feature in nest.loops}
    for key in place.loops:
        yield extents.get(key, 1.0)
    for key in place.loops:
        inside = nest.room.bytes == 0 or key not in extents
        yield np.nan if inside else float(key in nest.room.outside)
    for touch, access in zip(place.touches, nest.accesses, strict=True):
        yield from access.shape
        yield from access.strides
        for loop, dimension in touch.pairs:
            reach = access.reaches.get((place.loops[loop], dimension), ONE)
            yield reach.coefficient if reach.range > 1 else np.nan
            yield reach.range
    yield nest.room.bytes
    yield nest.room.times


def aligned(samples: Sequence[Nests]) -> StoreLayout | None:
    """The common layout of several schedules, or None if they differ in structure."""
    first = samples[0]
    if any(_outline(sample) != _outline(first) for sample in samples[1:]):
        return None
    buffers: dict[Name, int] = {}
    touching: dict[Name, set[int]] = {}
    for number, nest in enumerate(first):
        for access in nest.accesses:
            buffers.setdefault(access.buffer, len(buffers))
            touching.setdefault(access.buffer, set()).add(number)
    places: list[StorePlace] = []
    at = 0
    for number, nest in enumerate(first):
        alike = [sample[number] for sample in samples]
        kinds: dict[Name, str] = {}
        for nest_feature in alike:
            for loop in nest_feature.loops:
                if kinds.setdefault(loop.key, loop.kind) != loop.kind:
                    return None
        if (loops := _merged([[loop.key for loop in feature.loops] for feature in alike])) is None:
            return None
        touches = [
            _touch([nest_feature.accesses[n] for nest_feature in alike], loops, buffers)
            for n in range(len(nest.accesses))
        ]
        shared = tuple([len(touching[feature.buffer]) > 1 for feature in nest.accesses])
        kept = tuple([kinds[key] for key in loops])
        place = StorePlace(
            tuple(loops), kept, tuple(touches), nest.operations, shared, at, nest.local
        )
        places.append(place)
        at += place.size
    return StoreLayout(tuple(places))


def _outline(nests: Nests) -> tuple[object, ...]:
    """What schedules of one layout have in common, numbers apart."""
    return tuple(
        [
            (
                nest.operations,
                *[(e.buffer, e.written, e.bytes, len(e.shape)) for e in nest.accesses],
            )
            for nest in nests
        ]
    )


def _touch(
    alike: Sequence[AccessFeature], loops: Sequence[Name], buffers: dict[Name, int]
) -> LayoutTouch:
    one = alike[0]
    seen = {pair for feature in alike for pair in feature.reaches}
    rank = len(one.shape)
    pairs = [(at, d) for at, key in enumerate(loops) for d in range(rank) if (key, d) in seen]
    return LayoutTouch(buffers[one.buffer], one.written, one.bytes, rank, tuple(pairs))


def _fits(place: StorePlace, nest: NestFeature) -> bool:
    kinds = dict(zip(place.loops, place.kinds, strict=True))
    order = [loop.key for loop in nest.loops]
    pairs = [(t, (place.loops[at], d)) for t in place.touches for at, d in t.pairs]
    known = {touch: {pair for each, pair in pairs if each == touch} for touch in place.touches}
    return (
        place.operations == nest.operations
        and [key for key in place.loops if key in set(order)] == order
        and all(kinds[loop.key] == loop.kind for loop in nest.loops)
        and len(place.touches) == len(nest.accesses)
        and all(
            (t.written, t.bytes, t.rank) == (a.written, a.bytes, len(a.shape))
            and known[t].issuperset(a.reaches)
            for t, a in zip(place.touches, nest.accesses, strict=True)
        )
    )


def _merged(orders: Iterable[Sequence[Name]]) -> list[Name] | None:
    """A merged order consistent with all, or None if two contradict each other."""
    after: dict[Name, dict[Name, None]] = {}
    for order in orders:
        for key in order:
            after.setdefault(key, {})
        for one, two in pairwise(order):
            after[one][two] = None
    waiting = dict.fromkeys(after, 0)
    for later in after.values():
        for key in later:
            waiting[key] += 1
    found: list[Name] = []
    ready = [key for key, count in waiting.items() if not count]
    while ready:
        key = ready.pop(0)
        found.append(key)
        for later_key in after[key]:
            waiting[later_key] -= 1
            if not waiting[later_key]:
                ready.append(later_key)
    return found if len(found) == len(after) else None
