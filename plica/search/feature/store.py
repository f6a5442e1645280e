"""Features of a store, for many schedules at once.

    57   sixteen counts of operations; of vectorised, unrolled and parallel loops each how many,
         the product, the innermost, and its position; eight for threads
    90   five buffers, the most touched first: kind of access, bytes, unique bytes, lines, unique
         lines, kind of reuse, its distance in steps and bytes, its count, four quotients, stride
    10   the curve of arithmetic intensity, from the innermost loop outward
     4   what is allocated for the result
     3   all steps, loops, copies of the code
    16   what depends on the machine: lanes that are used, registers, how near the data is

Counts are log2(1 + x).  A loop of one step changes nothing.

>>> from plica.ir.text.script import from_text
>>> from plica.schedule.default.machine import Machine
>>> from plica.search.feature.layout import aligned
>>> from plica.search.feature.nest import nests_of
>>> from plica.search.space import DOUBLED
>>> nests = nests_of(from_text(DOUBLED).values[0])
>>> layout = aligned([nests])
>>> rows(layout, layout.numbers(nests)[None], Machine(512, 32)).shape == (1, 1, WIDTH)
True
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from attrs import frozen

from plica.ir.loop.statement import THREADS
from plica.schedule.default.machine import Machine
from plica.schedule.default.tile import reads_of
from plica.search.feature.layout import Floats, StoreLayout, StorePlace
from plica.search.feature.operation import KINDS

Array: TypeAlias = np.ndarray[Any, Any]
"""Numbers, truth values or places, for all schedules."""

BUFFERS: Final = 5
SAMPLES: Final = 10
LINE: Final = 64.0
"""Bytes of a cache line."""

_POSITIONS: Final = tuple(
    f"{where}-{what}" for what in ("spatial", "reduce") for where in ("inner", "middle", "outer")
)
_MARKED: Final = ("vectorized", "unrolled", "parallel")
_OF_BUFFER: Final = (
    "read", "write", "update", "bytes", "unique-bytes", "lines", "unique-lines",
    "reuse-in-loop", "reuse-elsewhere", "reuse-none", "reuse-steps", "reuse-bytes", "reuse-count",
    "bytes-per-reuse", "unique-bytes-per-reuse", "lines-per-reuse", "unique-lines-per-reuse",
    "stride",
)  # fmt: skip
_OF_MACHINE: Final = (
    "lanes-used", "whole-vectors", "accumulators", "accumulators-per-register", "spilled",
    "reads-per-step", "near-1", "near-2", "near-3", "far-1", "far-2", "far-3",
    "shares-per-core", "cores-idle", "cycles", "memory-cycles",
)  # fmt: skip
NAMES: Final = (
    *KINDS,
    *[
        f"{kind}-{what}"
        for kind in _MARKED
        for what in ("number", "product", "length", "none", *_POSITIONS, "mixed")
    ],
    "threads", *[f"extent-{each}" for each in THREADS], "virtual-threads",
    *[f"buffer-{number}-{what}" for number in range(BUFFERS) for what in _OF_BUFFER],
    *[f"intensity-{number}" for number in range(SAMPLES)],
    "room-bytes", "room-steps-outside", "room-steps-inside", "room-bytes-in-all",
    "steps", "loops", "copies",
    *_OF_MACHINE,
)  # fmt: skip
"""What each column is."""
WIDTH: Final = len(NAMES)


def rows(layout: StoreLayout, numbers: Floats, machine: Machine) -> Floats:
    """The features of all stores: (schedules, stores, WIDTH)."""
    if not layout.places:
        return np.zeros((len(numbers), 0, WIDTH))
    made = [_row(_Store(place, numbers, machine)) for place in layout.places]
    return np.stack(made, axis=1)


class _Store:
    """The numbers of one store as arrays whose last axis is that of the schedules."""

    def __init__(self, place: StorePlace, numbers: Array, machine: Machine) -> None:
        self.place, self.machine = place, machine
        count, loops, touches = len(numbers), len(place.loops), len(place.touches)
        rank = max([each.rank for each in place.touches], default=0)
        columns = numbers[:, place.first : place.first + place.size].T
        self.count = count
        self.extents = columns[:loops]
        outside = np.nan_to_num(columns[loops : 2 * loops]) > 0
        self.many = self.extents > 1
        at = 2 * loops
        coefficients = np.zeros((touches, rank, loops, count))
        ranges = np.ones((touches, rank, loops, count))
        shape = np.ones((touches, rank, count))
        strides = np.zeros((touches, rank, count))
        for number, touch in enumerate(place.touches):
            shape[number, : touch.rank] = columns[at : at + touch.rank]
            strides[number, : touch.rank] = columns[at + touch.rank : at + 2 * touch.rank]
            at += 2 * touch.rank
            for loop, dimension in touch.pairs:
                coefficients[number, dimension, loop] = columns[at]
                ranges[number, dimension, loop] = columns[at + 1]
                at += 2
        coefficients = np.where(ranges > 1, coefficients, 0.0)
        self.room_bytes, self.room_times = columns[at], columns[at + 1]
        # Distances in elements between one step of a loop and the next, and places along it.
        self.distances = np.einsum("adln,adn->aln", coefficients, strides)
        self.ranges = np.minimum(ranges.prod(axis=1), self.extents)
        self.moves = self.ranges > 1
        written = self.moves[0] if touches else np.zeros((loops, count), bool)
        self.reduces = self.many & ~written & ~outside
        self.spatial = self.many & ~self.reduces
        # Everything below is from a loop inward: row l is of the loops l and inside it.
        self.steps = _inward(self.extents, np.cumprod, 1.0)
        spans = _inward(coefficients * (ranges - 1), np.cumsum, 0.0, axis=2)
        box = np.minimum(1 + spans, shape[:, :, None]).prod(axis=1)
        self.unique = np.minimum(_inward(self.ranges, np.cumprod, 1.0, axis=1), box)
        self.bytes = np.array([float(each.bytes) for each in place.touches])
        near = self.moves & (self.distances * self.bytes[:, None, None] < LINE)
        run = _inward(np.where(near, self.ranges, 1.0), np.cumprod, 1.0, axis=1)
        self.lines = self.unique / np.minimum(run, (LINE / self.bytes)[:, None, None])


def _inward(of: Array, total: np.ufunc | object, start: float, axis: int = 0) -> Array:
    """Totals from the end of an axis, and what nothing gives at the end."""
    flipped = np.flip(of, axis)
    summed = np.flip(total(flipped, axis=axis), axis)  # type: ignore[operator]  # a numpy function
    shape = list(of.shape)
    shape[axis] = 1
    return np.concatenate([summed, np.full(shape, start)], axis=axis)


@frozen(eq=False)
class _Buffer:
    """What a store does with one buffer; arrays over schedules."""

    touches: tuple[int, ...]
    unique: Array
    """Bytes, from each loop inward."""
    lines: Array


def _row(of: _Store) -> Array:
    buffers = _buffers(of)
    touched = sum([each.unique for each in buffers], np.zeros((len(of.extents) + 1, of.count)))
    described = [_buffer(of, each, touched) for each in buffers]
    columns = [*_counts(of)]
    for kind in _MARKED:
        columns += _marked(of, kind)
    columns += _threads(of)
    columns += _largest(described, of.count)
    columns += _curve(of, touched)
    columns += _rooms(of)
    copied = _product(of, ("unrolled", "vectorized"))
    columns += [_log(of.steps[0]), _log(of.many.sum(axis=0)), _log(copied)]
    columns += _machine(of, buffers, touched)
    return np.stack(columns, axis=-1)


def _log(of: Array | float) -> Array:
    return np.log2(1.0 + np.asarray(of, dtype=np.float64))


def _counts(of: _Store) -> list[Array]:
    return [_log(each * of.steps[0]) for each in of.place.operations]


def _of_kind(of: _Store, kinds: tuple[str, ...]) -> Array:
    marked = np.array([kind in kinds for kind in of.place.kinds], bool)
    found: Array = of.many & marked[:, None]
    return found


def _product(of: _Store, kinds: tuple[str, ...]) -> Array:
    found: Array = np.where(_of_kind(of, kinds), of.extents, 1.0).prod(axis=0)
    return found


def _innermost(mask: Array) -> Array:
    """The number of the innermost loop of which something holds, -1 if there is none."""
    found = np.full(mask.shape[1], -1)
    for at, each in enumerate(mask):
        found = np.where(each, at, found)
    return found


def _at(of: Array, loop: Array, default: float) -> Array:
    """Of each schedule the value at its loop, and the default where that is -1."""
    if not len(of):
        return np.full(of.shape[-1], default)
    picked = np.take_along_axis(of, np.maximum(loop, 0)[None].astype(np.int64), axis=0)[0]
    return np.where(loop >= 0, picked, default)


def _marked(of: _Store, kind: str) -> list[Array]:
    mask = _of_kind(of, (kind,))
    loop = _innermost(mask)
    found = [
        _log(mask.sum(axis=0)),
        _log(np.where(mask.any(axis=0), _product(of, (kind,)), 0.0)),
        _log(_at(of.extents, loop, 0.0)),
        (loop < 0).astype(float),
    ]
    for family in (of.spatial, of.reduces):
        mine = _at(family, loop, 0.0) > 0
        inside = _at(_inward(family.astype(float), np.cumsum, 0.0), loop, 0.0) == 1
        before = _at(np.cumsum(family, axis=0), loop, 0.0) == 1
        inner, outer = mine & inside, mine & before & ~inside
        found += [inner.astype(float), (mine & ~inner & ~outer).astype(float), outer.astype(float)]
    return [*found, (mask.sum(axis=0) > 1).astype(float)]


def _threads(of: _Store) -> list[Array]:
    extents = [_product(of, (each,)) for each in THREADS]
    found = [np.where(_of_kind(of, THREADS).any(axis=0), 1.0, 0.0)]
    return [*found, *[_log(each - 1) for each in extents], _log(_product(of, ("virtual",)) - 1)]


def _buffers(of: _Store) -> list[_Buffer]:
    groups: dict[int, list[int]] = {}
    for number, touch in enumerate(of.place.touches):
        groups.setdefault(touch.buffer, []).append(number)
    return [
        _Buffer(
            tuple(each), of.unique[each].max(axis=0) * of.bytes[each[0]], of.lines[each].max(axis=0)
        )
        for each in groups.values()
    ]


def _buffer(of: _Store, buffer: _Buffer, touched: Array) -> tuple[Array, list[Array]]:
    """What buffers are sorted by, and the features."""
    touches = [of.place.touches[each] for each in buffer.touches]
    reads, writes = (any(each.written is way for each in touches) for way in (False, True))
    none, every = np.zeros(of.count), np.ones(of.count)
    moves = of.moves[list(buffer.touches)].any(axis=0)
    loop = _innermost(of.many & ~moves)
    again = loop >= 0
    elsewhere = ~again & of.place.shared[buffer.touches[0]]
    within = np.where(again, loop + 1, 0)
    steps = _at(of.steps, within, 1.0)
    count = _at(of.extents, loop, 1.0)
    unique, lines = buffer.unique[0], buffer.lines[0]
    total = of.steps[0] * of.bytes[buffer.touches[0]] * len(touches)
    fetched = of.steps[0] / steps * _at(buffer.lines, within, 1.0)
    nearest = _innermost(moves)
    stride = _at(of.distances[list(buffer.touches)].max(axis=0), nearest, 0.0)
    found = [
        every if reads and not writes else none,
        every if writes and not reads else none,
        every if reads and writes else none,
        _log(total),
        _log(unique),
        _log(fetched),
        _log(lines),
        again.astype(float),
        elsewhere.astype(float),
        (~again & ~elsewhere).astype(float),
        _log(np.where(again, steps, 0.0)),
        _log(np.where(again, _at(touched, within, 0.0), 0.0)),
        _log(np.where(again, count, 0.0)),
        *[_log(each / count) for each in (total, unique, fetched, lines)],
        _log(stride),
    ]
    return unique, found


def _largest(described: list[tuple[Array, list[Array]]], count: int) -> list[Array]:
    """The buffers of which most is touched, zeros where there are fewer."""
    width = len(_OF_BUFFER)
    if not described:
        return [np.zeros(count)] * (BUFFERS * width)
    sizes = np.stack([each for each, _ in described])
    table = np.stack([np.stack(each) for _, each in described])
    order = np.argsort(-sizes, axis=0, kind="stable")[:BUFFERS]
    chosen = np.take_along_axis(table, order[:, None], axis=0)
    found = list(chosen.reshape(-1, count))
    return found + [np.zeros(count)] * (BUFFERS * width - len(found))


def _curve(of: _Store, touched: Array) -> list[Array]:
    """Operations for each byte touched, where a part of all operations (log) is inside."""
    work = max(1.0, sum(of.place.operations))
    inside = np.flip(_log(work * of.steps), 0)
    height = np.flip(_log(work * of.steps / np.maximum(touched, 1.0)), 0)
    low, high = inside[0], inside[-1]
    found = []
    for number in range(SAMPLES):
        at = low + (high - low) * ((number + 1) / SAMPLES)
        value = height[-1]
        for left in range(len(inside) - 2, -1, -1):
            wide = inside[left + 1] - inside[left]
            part = np.clip((at - inside[left]) / np.where(wide > 0, wide, 1.0), 0.0, 1.0)
            within = (wide > 0) & (at <= inside[left + 1])
            value = np.where(within, height[left] + part * (height[left + 1] - height[left]), value)
        found.append(value)
    return found


def _rooms(of: _Store) -> list[Array]:
    is_here = of.room_bytes > 0
    outside = np.where(is_here, of.room_times, 0.0)
    inside = np.where(is_here, of.steps[0] / of.room_times, 0.0)
    return [_log(of.room_bytes), _log(outside), _log(inside), _log(outside * of.room_bytes)]


LINE_CYCLES: Final = (4.0, 10.0, 30.0)
"""Cycles for a line that is in the second cache, the third, and in none."""


def _machine(of: _Store, buffers: list[_Buffer], touched: Array) -> list[Array]:
    machine, count = of.machine, of.count
    size = of.bytes[0] if len(of.bytes) else 4.0
    lanes = max(1.0, machine.vector / 8 / size)
    vector = _product(of, ("vectorized",))
    whole = np.ceil(vector / lanes)
    used = vector / (whole * lanes)
    # Loops written out inside the innermost serial one: its sums are kept in registers.
    serial = _innermost(of.many & ~_of_kind(of, ("unrolled", "vectorized")))
    body = serial + 1
    sums = (_at(of.unique[0], body, 1.0) if len(of.bytes) else np.ones(count)) / lanes
    registers = np.maximum(sums / used, 1.0) / machine.registers
    reads = np.zeros(count)
    for each in buffers[1:]:
        per = np.where(_at(_stride_one(of, each), _innermost(of.many), 0.0) > 0, lanes, 1.0)
        reads = reads + _at(each.unique, body, 1.0) / of.bytes[each.touches[0]] / per
    caches = (*machine.caches[:2], 8 * machine.cache(2))
    near, far, memory = [], [], np.zeros(count)
    for number, cache in enumerate(caches):
        fits = touched <= cache
        # The outermost loop whose data stays in this cache: what is inside is fetched once.
        level = np.argmax(fits, axis=0)
        level = np.where(fits.any(axis=0), level, len(touched) - 1)
        times = of.steps[0] / _at(of.steps, level, 1.0)
        lines = times * sum([_at(each.lines, level, 1.0) for each in buffers], np.zeros(count))
        near.append(_log(_at(of.steps, level, 1.0)))
        far.append(_log(lines))
        memory = memory + lines * LINE_CYCLES[number]
    shares = _product(of, ("parallel",))
    turns = np.ceil(shares / machine.cores) * machine.cores
    inner = _at(of.steps, body, 1.0)
    total = _cycles(of, sums, reads, inner, body) * of.steps[0] / inner
    active = np.minimum(shares, machine.cores) * (shares / turns) ** (shares > 1)
    return [
        used,
        (used == 1.0).astype(float),
        _log(sums),
        registers,
        (registers > 1.0).astype(float),
        _log(reads),
        *near,
        *far,
        _log(shares / machine.cores),
        1.0 - shares / turns,
        np.log2(total / np.maximum(active, 1.0) + 1.0),
        np.log2(memory / np.maximum(active, 1.0) + 1.0),
    ]


def _cycles(of: _Store, sums: Array, reads: Array, inner: Array, body: Array) -> Array:
    """What one run of the body costs, by the rules by which register tiles are chosen."""
    lanes = max(1.0, of.machine.vector / 8 / (of.bytes[0] if len(of.bytes) else 4.0))
    vector = _product(of, ("vectorized",))
    work = max(1.0, sum(of.place.operations[:14]))
    done = work * inner / vector * np.ceil(vector / lanes)
    chain = _at(_inward(np.where(of.reduces, of.extents, 1.0), np.cumprod, 1.0), body, 1.0)
    updates = any(
        not each.written and each.buffer == of.place.touches[0].buffer for each in of.place.touches
    )
    rates = of.machine.rates
    waits = rates.latency * chain if updates else 0.0 * chain
    # Sums that are in no register are read and written again for each term.
    spilled = np.maximum(sums + 2 - of.machine.registers, 0.0) * chain * 2 / reads_of(rates)
    busy = np.maximum(done / rates.fma, reads / reads_of(rates))
    found: Array = np.maximum(busy, waits) + spilled
    return found


def _stride_one(of: _Store, buffer: _Buffer) -> Array:
    distances: Array = of.distances[list(buffer.touches)].max(axis=0)
    return np.where(distances == 1.0, 1.0, 0.0)
