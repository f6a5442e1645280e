"""Features of a store, for many schedules at once.

    57   sixteen counts of operations; of vectorised, unrolled and parallel loops each how many,
         the product, the innermost, and its position; eight for threads
    90   five buffers, the most touched first: kind of access, bytes, unique bytes, lines, unique
         lines, kind of reuse, its distance in steps and bytes, its count, four quotients, stride
    10   the curve of arithmetic intensity, from the innermost loop outward
     4   what is allocated for the result
     3   all steps, loops, copies of the code
    16   what depends on the machine: lanes that are used, registers, how near the data is
    18   instructions of the innermost body, by kind, and how often it is run (`issue.py`)
    11   conditions, and loops that the compiler may make vectors of (`code.py`)
    13   instructions as they are issued, and what passes run over the kernel (`issue.py`)
     5   the machine: bits of a vector, registers, caches, instructions that begin in a cycle

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

from collections.abc import Sequence
from typing import Final

import numpy as np
from attrs import evolve, frozen

from plica.ir.loop.statement import THREADS
from plica.schedule.default.machine import Machine
from plica.schedule.default.tile import reads_of
from plica.search.feature.code import NO_CONDITIONS, OF_CODE, code_columns
from plica.search.feature.issue import (
    BODY_COLUMN_NAMES,
    ISSUE_COLUMN_NAMES,
    body_columns,
    issue_columns,
    runs_full_pipeline,
)
from plica.search.feature.layout import Floats, StoreLayout, StorePlace
from plica.search.feature.numbers import (
    Array,
    StoreNumbers,
    at_loop,
    innermost,
    inward,
    log_of,
    of_kind,
    product_of,
)
from plica.search.feature.operation import KINDS

BUFFERS: Final = 5
SAMPLES: Final = 10
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
_OF_PROCESSOR: Final = (
    "machine-vector", "machine-registers", "machine-cache-1", "machine-cache-2", "machine-issue",
)  # fmt: skip
NAMES: Final = (
    *KINDS,
    *[
        f"{kind}-{what}"
        for kind in _MARKED
        for what in ("number", "product", "length", "none", *_POSITIONS, "mixed")
    ],
    "threads", *[f"extent-{thread}" for thread in THREADS], "virtual-threads",
    *[f"buffer-{number}-{what}" for number in range(BUFFERS) for what in _OF_BUFFER],
    *[f"intensity-{number}" for number in range(SAMPLES)],
    "room-bytes", "room-steps-outside", "room-steps-inside", "room-bytes-in-all",
    "steps", "loops", "copies",
    *_OF_MACHINE,
    *BODY_COLUMN_NAMES,
    *OF_CODE,
    *ISSUE_COLUMN_NAMES,
    *_OF_PROCESSOR,
)  # fmt: skip
"""What each column is."""
WIDTH: Final = len(NAMES)


def rows(
    layout: StoreLayout,
    numbers: Floats,
    machine: Machine,
    conditions: Sequence[float] = NO_CONDITIONS,
) -> Floats:
    """The features of all stores: (schedules, stores, WIDTH)."""
    if not layout.places:
        return np.zeros((len(numbers), 0, WIDTH))
    passes = runs_full_pipeline(layout, numbers)
    every = [StoreNumbers(place, numbers, machine) for place in layout.places]
    return np.stack([_row(each, conditions, passes) for each in every], axis=1)


def rows_of_each(
    schedules: Sequence[tuple[StoreLayout, Floats, Sequence[float]]],
    machine: Machine,
    known: dict[object, Array],
) -> list[Floats]:
    """The features of schedules of different layouts, (stores, WIDTH) of each; a store that several
    have is computed once and `known` from then on."""
    found: list[list[object]] = []
    missing: dict[object, dict[object, tuple[StorePlace, Floats, bool, Sequence[float]]]] = {}
    for layout, numbers, conditions in schedules:
        passes = bool(runs_full_pipeline(layout, numbers[None])[0])
        found.append([])
        for place in layout.places:
            alike = (place.kinds, place.touches, place.operations, place.shared, place.local)
            mine = numbers[place.first : place.first + place.size]
            key = (alike, mine.tobytes(), passes, tuple(conditions))
            found[-1].append(key)
            if key not in known:
                missing.setdefault(alike, {})[key] = (place, mine, passes, conditions)
    for those in missing.values():
        places, numbers_of, passes_of, conditions_of = zip(*those.values(), strict=True)
        together = StoreNumbers(evolve(places[0], first=0), np.stack(numbers_of), machine)
        array = _row(together, np.array(conditions_of).T, np.array(passes_of))
        known.update(zip(those, array, strict=True))
    return [np.array([known[key] for key in keys]).reshape(-1, WIDTH) for keys in found]


@frozen(eq=False)
class _Buffer:
    """The accesses of a store to one buffer, as arrays over schedules."""

    touches: tuple[int, ...]
    unique: Array  # bytes, from each loop inward
    lines: Array


def _row(of: StoreNumbers, conditions: Sequence[float] | Array, passes: Array) -> Array:
    buffers = _buffers(of)
    touched = sum([buffer.unique for buffer in buffers], np.zeros((len(of.extents) + 1, of.count)))
    described = [_buffer(of, buffer, touched) for buffer in buffers]
    columns = [*_counts(of)]
    families = _families(of)
    for kind in _MARKED:
        columns += _marked(of, kind, families)
    columns += _threads(of)
    columns += _largest(described, of.count)
    columns += _curve(of, touched)
    columns += _rooms(of)
    copied = product_of(of, ("unrolled", "vectorized"))
    columns += [log_of(of.steps[0]), log_of(of.many.sum(axis=0)), log_of(copied)]
    columns += _machine(of, buffers, touched)
    columns += body_columns(of)
    columns += code_columns(of, conditions)
    columns += issue_columns(of, passes)
    columns += _processor(of)
    return np.stack(columns, axis=-1)


def _counts(of: StoreNumbers) -> list[Array]:
    return [log_of(operation * of.steps[0]) for operation in of.place.operations]


def _families(of: StoreNumbers) -> list[tuple[Array, Array, Array]]:
    """The spatial and the reduction loops, with cumulative extents inward and outward."""
    return [
        (each, inward(each.astype(float), np.cumsum, 0.0), np.cumsum(each, axis=0))
        for each in (of.spatial, of.reduces)
    ]


def _marked(of: StoreNumbers, kind: str, families: list[tuple[Array, Array, Array]]) -> list[Array]:
    mask = of_kind(of, (kind,))
    loop = innermost(mask)
    arrays = [
        log_of(mask.sum(axis=0)),
        log_of(np.where(mask.any(axis=0), product_of(of, (kind,)), 0.0)),
        log_of(at_loop(of.extents, loop, 0.0)),
        (loop < 0).astype(float),
    ]
    for family, inside_them, before_them in families:
        mine = at_loop(family, loop, 0.0) > 0
        inside = at_loop(inside_them, loop, 0.0) == 1
        before = at_loop(before_them, loop, 0.0) == 1
        inner, outer = mine & inside, mine & before & ~inside
        arrays += [inner.astype(float), (mine & ~inner & ~outer).astype(float), outer.astype(float)]
    return [*arrays, (mask.sum(axis=0) > 1).astype(float)]


def _threads(of: StoreNumbers) -> list[Array]:
    extents = [product_of(of, (thread,)) for thread in THREADS]
    arrays = [np.where(of_kind(of, THREADS).any(axis=0), 1.0, 0.0)]
    return [
        *arrays,
        *[log_of(extent - 1) for extent in extents],
        log_of(product_of(of, ("virtual",)) - 1),
    ]


def _buffers(of: StoreNumbers) -> list[_Buffer]:
    groups: dict[int, list[int]] = {}
    for number, touch in enumerate(of.place.touches):
        groups.setdefault(touch.buffer, []).append(number)
    return [
        _Buffer(
            tuple(each), of.unique[each].max(axis=0) * of.bytes[each[0]], of.lines[each].max(axis=0)
        )
        for each in groups.values()
    ]


def _buffer(of: StoreNumbers, buffer: _Buffer, touched: Array) -> tuple[Array, list[Array]]:
    """The sort key of a buffer, and its features."""
    touches = [of.place.touches[each] for each in buffer.touches]
    reads, writes = (any(touch.written is way for touch in touches) for way in (False, True))
    none, every = np.zeros(of.count), np.ones(of.count)
    moves = of.moves[list(buffer.touches)].any(axis=0)
    loop = innermost(of.many & ~moves)
    again = loop >= 0
    elsewhere = ~again & of.place.shared[buffer.touches[0]]
    within = np.where(again, loop + 1, 0)
    steps = at_loop(of.steps, within, 1.0)
    count = at_loop(of.extents, loop, 1.0)
    unique, lines = buffer.unique[0], buffer.lines[0]
    total = of.steps[0] * of.bytes[buffer.touches[0]] * len(touches)
    fetched = of.steps[0] / steps * at_loop(buffer.lines, within, 1.0)
    nearest = innermost(moves)
    stride = at_loop(of.distances[list(buffer.touches)].max(axis=0), nearest, 0.0)
    arrays = [
        every if reads and not writes else none,
        every if writes and not reads else none,
        every if reads and writes else none,
        log_of(total),
        log_of(unique),
        log_of(fetched),
        log_of(lines),
        again.astype(float),
        elsewhere.astype(float),
        (~again & ~elsewhere).astype(float),
        log_of(np.where(again, steps, 0.0)),
        log_of(np.where(again, at_loop(touched, within, 0.0), 0.0)),
        log_of(np.where(again, count, 0.0)),
        *[log_of(each / count) for each in (total, unique, fetched, lines)],
        log_of(stride),
    ]
    return unique, arrays


def _largest(described: list[tuple[Array, list[Array]]], count: int) -> list[Array]:
    """The buffers with the largest footprints, padded with zeros."""
    width = len(_OF_BUFFER)
    if not described:
        return [np.zeros(count)] * (BUFFERS * width)
    sizes = np.stack([array for array, _ in described])
    table = np.stack([np.stack(each) for _, each in described])
    order = np.argsort(-sizes, axis=0, kind="stable")[:BUFFERS]
    chosen = np.take_along_axis(table, order[:, None], axis=0)
    arrays = list(chosen.reshape(-1, count))
    return arrays + [np.zeros(count)] * (BUFFERS * width - len(arrays))


def _curve(of: StoreNumbers, touched: Array) -> list[Array]:
    """Operations for each byte touched, where a part of all operations (log) is inside."""
    work = max(1.0, sum(of.place.operations))
    inside = np.flip(log_of(work * of.steps), 0)
    height = np.flip(log_of(work * of.steps / np.maximum(touched, 1.0)), 0)
    low, high = inside[0], inside[-1]
    at = low + (high - low) * ((np.arange(SAMPLES)[:, None] + 1) / SAMPLES)
    array = np.broadcast_to(height[-1], at.shape)
    for left in range(len(inside) - 2, -1, -1):
        wide = inside[left + 1] - inside[left]
        part = np.clip((at - inside[left]) / np.where(wide > 0, wide, 1.0), 0.0, 1.0)
        within = (wide > 0) & (at <= inside[left + 1])
        array = np.where(within, height[left] + part * (height[left + 1] - height[left]), array)
    return list(array)


def _rooms(of: StoreNumbers) -> list[Array]:
    is_here = of.room_bytes > 0
    outside = np.where(is_here, of.room_times, 0.0)
    inside = np.where(is_here, of.steps[0] / of.room_times, 0.0)
    return [log_of(of.room_bytes), log_of(outside), log_of(inside), log_of(outside * of.room_bytes)]


LINE_CYCLES: Final = (4.0, 10.0, 30.0)  # of a line in L2, in L3 and in memory


def _machine(of: StoreNumbers, buffers: list[_Buffer], touched: Array) -> list[Array]:
    machine, count = of.machine, of.count
    size = of.bytes[0] if len(of.bytes) else 4.0
    lanes = max(1.0, machine.vector / 8 / size)
    vector = product_of(of, ("vectorized",))
    whole = np.ceil(vector / lanes)
    used = vector / (whole * lanes)
    # Loops unrolled inside the innermost serial one: their sums are kept in registers.
    serial = innermost(of.many & ~of_kind(of, ("unrolled", "vectorized")))
    body = serial + 1
    sums = (at_loop(of.unique[0], body, 1.0) if len(of.bytes) else np.ones(count)) / lanes
    registers = np.maximum(sums / used, 1.0) / machine.registers
    reads = np.zeros(count)
    for buffer in buffers[1:]:
        per = np.where(at_loop(_stride_one(of, buffer), innermost(of.many), 0.0) > 0, lanes, 1.0)
        reads = reads + at_loop(buffer.unique, body, 1.0) / of.bytes[buffer.touches[0]] / per
    caches = (*machine.caches[:2], 8 * machine.cache(2))
    near, far, memory = [], [], np.zeros(count)
    for number, cache in enumerate(caches):
        fits = touched <= cache
        # The outermost loop whose data fits this cache: everything inside is fetched once.
        level = np.argmax(fits, axis=0)
        level = np.where(fits.any(axis=0), level, len(touched) - 1)
        times = of.steps[0] / at_loop(of.steps, level, 1.0)
        lines = times * sum([at_loop(each.lines, level, 1.0) for each in buffers], np.zeros(count))
        near.append(log_of(at_loop(of.steps, level, 1.0)))
        far.append(log_of(lines))
        memory = memory + lines * LINE_CYCLES[number]
    shares = product_of(of, ("parallel",))
    turns = np.ceil(shares / machine.cores) * machine.cores
    inner = at_loop(of.steps, body, 1.0)
    total = _cycles(of, sums, reads, inner, body) * of.steps[0] / inner
    active = np.minimum(shares, machine.cores) * (shares / turns) ** (shares > 1)
    return [
        used,
        (used == 1.0).astype(float),
        log_of(sums),
        registers,
        (registers > 1.0).astype(float),
        log_of(reads),
        *near,
        *far,
        log_of(shares / machine.cores),
        1.0 - shares / turns,
        np.log2(total / np.maximum(active, 1.0) + 1.0),
        np.log2(memory / np.maximum(active, 1.0) + 1.0),
    ]


def _processor(of: StoreNumbers) -> list[Array]:
    """Machine features, equal for all schedules of one machine, so that one model can serve
    several."""
    machine = of.machine
    sizes = [machine.vector, machine.cache(1), machine.cache(2)]
    vector, near, far = [float(np.log2(size)) for size in sizes]
    facts = (vector, float(machine.registers), near, far, machine.rates.issue)
    return [np.full(of.count, fact) for fact in facts]


def _cycles(of: StoreNumbers, sums: Array, reads: Array, inner: Array, body: Array) -> Array:
    """What one run of the body costs, by the rules by which register tiles are chosen."""
    lanes = max(1.0, of.machine.vector / 8 / (of.bytes[0] if len(of.bytes) else 4.0))
    vector = product_of(of, ("vectorized",))
    work = max(1.0, sum(of.place.operations[:14]))
    done = work * inner / vector * np.ceil(vector / lanes)
    chain = at_loop(inward(np.where(of.reduces, of.extents, 1.0), np.cumprod, 1.0), body, 1.0)
    updates = any(
        not each.written and each.buffer == of.place.touches[0].buffer for each in of.place.touches
    )
    rates = of.machine.rates
    waits = rates.latency * chain if updates else 0.0 * chain
    # Sums that are in no register are read and written again for each term.
    spilled = np.maximum(sums + 2 - of.machine.registers, 0.0) * chain * 2 / reads_of(rates)
    busy = np.maximum(done / rates.fma, reads / reads_of(rates))
    array: Array = np.maximum(busy, waits) + spilled
    return array


def _stride_one(of: StoreNumbers, buffer: _Buffer) -> Array:
    distances: Array = of.distances[list(buffer.touches)].max(axis=0)
    return np.where(distances == 1.0, 1.0, 0.0)
