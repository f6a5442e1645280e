"""Issue features: the instructions that the emitter and LLVM generate for a store.

passes       whether all passes run over the kernel
in-memory    whether sums are read and written in each run of the body
strips       whether the vectorized loop is a loop in the code
written-out  steps that LLVM unrolls; the extent of the innermost loop left, and its reduction
pieces       vectors that lanes are cut into, and the part of their lanes that idles
issued       arithmetic, reads, stores and waits of all runs, and their cycles if data is near

Features of the innermost body of a store: its instructions by kind, and how often it runs.

The body is the unrolled code inside the innermost serial loop. Along the lanes, an access reads one
element for all, a vector, or gathers; one that is invariant in the serial loop is in a register.

    counts       vectors read, broadcasts, gathers, stores, arithmetic, misaligned vectors
    runs         runs of the body, entries of its loop, two extents, whether sums go along it
    cycles       of one run, and of all, if nothing waits for memory
"""

from __future__ import annotations

from typing import Final

import numpy as np

from plica.core import Name
from plica.schedule.default.machine import LINE, PAGE
from plica.schedule.default.tile import reads_of
from plica.search.feature import numbers
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

OF_ISSUE: Final = (
    "passes", "in-memory", "strips", "written-out", "pieces", "lanes-idle", "issued-arithmetic",
    "issued-reads", "issued-stores", "issued-waits", "left-extent", "left-reduces", "issued",
)  # fmt: skip
"""What each column is."""

MAX_UNROLLED_LANES: Final = 64  # lanes of a vectorized loop that are unrolled, at most
MAX_UNROLLED_REGISTERS: Final = 4  # registers that hold them, at most
FUNCTION: Final = 16.0  # instructions of a vector function; scalar calls take as long
DIVIDE: Final = 5.0  # cycles of a quotient, beside one for a product
GATHERED: Final = 1.5  # reads that each lane costs which is gathered
FORWARDED: Final = 6.0  # cycles until what was written can be read again
STEP: Final = 1.0  # cycles of counting and comparing, for each run of a body
LLVM_SIZE: Final = 150.0  # instructions of a loop that LLVM unrolls fully, at most
DEEPEST: Final = 3  # how many loops in each other are written out so, at most
ENTRY: Final = 6.0  # cycles of entering and leaving a loop: addresses, a mispredicted branch

WEIGHTS: Final = np.array(
    [FUNCTION if "function" in e else DIVIDE if "divide" in e else 1.0 for e in KINDS]
)


def issue_columns(of: StoreNumbers, passes: Array) -> list[Array]:
    """The features of one store, in the order of `OF_ISSUE`, where all passes run over some."""
    machine, count, rates = of.machine, of.count, of.machine.rates
    widest = max([4.0 if byte == 2 else byte for byte in of.bytes], default=4.0)
    lanes = max(1.0, machine.vector / 8 / widest)
    lane = innermost(of_kind(of, ("vectorized",)))
    vector = product_of(of, ("vectorized",))
    is_scalar = lane < 0
    left = vector % lanes
    tail = (left > 0).astype(float) if machine.masks else _powers(left)
    pieces = np.where(is_scalar, 1.0, np.floor(vector / lanes) + tail)
    strips = vector > min(float(MAX_UNROLLED_LANES), MAX_UNROLLED_REGISTERS * lanes)
    serial, unrolled = _innermost_left(of, passes & ~strips, pieces / vector)
    body = serial + 1
    inner, length = at_loop(of.steps, body, 1.0), at_loop(of.extents, serial, 1.0)
    copies = inner / vector
    reduces = at_loop(of.reduces, serial, 0.0) > 0
    updates = _updates(of.place)
    in_memory = np.zeros(count, bool)
    apart = np.zeros(count, bool)
    reads, stores = np.zeros(count), np.zeros(count)
    for number, touch in enumerate(of.place.touches):
        along = np.abs(at_loop(of.distances[number], lane, 0.0))
        still = ~is_scalar & ~(at_loop(of.moves[number], lane, 0.0) > 0)
        is_vector = (along == 1) & ~is_scalar
        gathered = ~is_vector & ~is_scalar & ~still
        apart = apart | (np.abs(at_loop(of.distances[number], serial, 0.0)) > 1)
        unique = at_loop(of.unique[number], body, 1.0)
        each = np.where(is_vector, unique / vector * pieces, unique)
        each = np.where(gathered, GATHERED * each, each)
        stays = (serial >= 0) & ~(at_loop(of.moves[number], serial, 0.0) > 0)
        # A strip is the innermost loop: what moves along it is in no register before the next.
        kept = np.where(strips, still, stays)
        if updates and touch.buffer == of.place.touches[0].buffer:
            kept = kept & (passes | of.place.local)
            in_memory = in_memory | ~kept
        each = each / np.where(kept, np.where(strips, pieces / 2, length), 1.0)
        if touch.written:
            stores = stores + each
        else:
            reads = reads + each
    work = float(WEIGHTS @ np.array(of.place.operations))
    arithmetic = max(work, 0.5) * copies * pieces
    # Operations that LLVM vectorises itself; functions stay calls.
    calls = sum([n for n, word in zip(of.place.operations, KINDS, strict=True) if "func" in word])
    alone = is_scalar & passes & (length >= lanes) & ~reduces & ~apart & (calls == 0)
    arithmetic, reads, stores = (
        np.where(alone, array / lanes, array) for array in (arithmetic, reads, stores)
    )
    sums = np.where(of.reduces, of.extents, 1.0)
    chain = at_loop(inward(sums, np.cumprod, 1.0), body, 1.0)
    later = rates.latency + np.where(in_memory, FORWARDED, 0.0)
    waits = np.where(reduces, later * chain, 0.0) if updates else np.zeros(count)
    busy = _cycles(arithmetic, reads, stores, of)
    runs = of.steps[0] / inner
    entries = runs / length + np.where(strips, runs, 0.0)
    total = runs * (np.maximum(busy, waits) + STEP) + entries * ENTRY
    shares = np.minimum(product_of(of, ("parallel",)), machine.cores)
    return [
        passes.astype(float),
        in_memory.astype(float),
        strips.astype(float),
        log_of(unrolled),
        log_of(pieces),
        np.where(is_scalar, 0.0, 1.0 - vector / (np.ceil(vector / lanes) * lanes)),
        log_of(arithmetic * runs),
        log_of(reads * runs),
        log_of(stores * runs),
        log_of(waits * runs),
        log_of(length),
        reduces.astype(float),
        log_of(total / shares),
    ]


def _innermost_left(of: StoreNumbers, passes: Array, part: Array) -> tuple[Array, Array]:
    """The innermost loop after unrolling short ones, and the steps of those."""
    operations = 2 * len(of.place.touches) + 2 + sum(of.place.operations)
    left = of.many & ~of_kind(of, ("unrolled", "vectorized"))
    serial = innermost(left)
    first = at_loop(of.steps, serial + 1, 1.0)
    for _ in range(DEEPEST):
        size = operations * part * at_loop(of.steps, serial, np.inf)
        short = passes & (serial >= 0) & (size <= LLVM_SIZE)
        if not short.any():
            break
        left = left & ~(short & (np.arange(len(left))[:, None] == serial))
        serial = innermost(left)
    return serial, at_loop(of.steps, serial + 1, 1.0) / first


def _cycles(arithmetic: Array, reads: Array, stores: Array, of: StoreNumbers) -> Array:
    """The cycles of one run of the body without stalls."""
    rates = of.machine.rates
    busy = np.maximum(arithmetic / rates.fma, reads / reads_of(rates))
    busy = np.maximum(busy, (arithmetic + reads + stores) / rates.issue)
    array: Array = np.maximum(busy, stores / rates.stores)
    return array


def _powers(of: Array) -> Array:
    """How many powers of two a number is the sum of."""
    left, array = of.astype(np.int64), np.zeros(len(of))
    while left.any():
        array += left & 1
        left >>= 1
    return array


def _updates(place: StorePlace) -> bool:
    """Whether a store updates an element."""
    first, *others = place.touches
    return any(not touch.written and touch.buffer == first.buffer for touch in others)


def all_passes(layout: StoreLayout, numbers: Floats) -> Array:
    """Whether all of LLVM's passes run, for each schedule: (schedules, numbers)."""
    array = np.zeros(len(numbers), bool)
    many = [_extents(place, numbers) > 1 for place in layout.places]
    last = [innermost(each) for each in many]
    # A loop that contains another store's loops is not innermost, whichever store is considered.
    parted: dict[Name, Array] = {}
    for place, mine in zip(layout.places, last, strict=True):
        for at, key in enumerate(place.loops[: int(mine.max(initial=0))]):
            parted[key] = parted.get(key, False) | (mine > at)
    for place, mine, turns in zip(layout.places, last, many, strict=True):
        written = np.array([kind in ("vectorized", "unrolled") for kind in place.kinds], bool)
        for at in {*mine.tolist()} - {-1}:
            if not written[at]:
                plain = mine == at
                array |= plain & ~parted[key] if (key := place.loops[at]) in parted else plain
        if _updates(place) and not place.local:
            serial = innermost(turns & ~written[:, None])
            array |= (serial >= 0) & ~(at_loop(_moving(place, numbers), serial, 0.0) > 0)
    return array


def _extents(place: StorePlace, numbers: Floats) -> Floats:
    return numbers[:, place.first : place.first + len(place.loops)].T


def _moving(place: StorePlace, numbers: Floats) -> Array:
    """Whether the stored address varies with each loop."""
    array = np.zeros((len(place.loops), len(numbers)), bool)
    first = place.touches[0]
    at = place.first + 2 * len(place.loops) + 2 * first.rank
    for pair, (loop, _) in enumerate(first.pairs):
        array[loop] |= numbers[:, at + 2 * pair + 1] > 1
    return array


# --- features of the innermost body of a store -------------------------------------------------


OF_BODY: Final = (
    "body-vectors", "body-broadcasts", "body-gathers", "body-stores", "body-arithmetic",
    "body-misaligned", "body-instructions", "reads-per-operation", "registers-needed",
    "body-runs", "loop-entries", "inner-extent", "outer-extent", "inner-reduces", "waits",
    "set-conflicts", "body-cycles", "run-cycles",
)  # fmt: skip
"""What each column is."""


def body_columns(of: numbers.StoreNumbers) -> list[numbers.Array]:
    """The features of the body, in the order of `OF_BODY`."""
    machine, count = of.machine, of.count
    size = of.bytes[0] if len(of.bytes) else 4.0
    lanes = max(1.0, machine.vector / 8 / size)
    marked = numbers.of_kind(of, ("unrolled", "vectorized"))
    serial = numbers.innermost(of.many & ~marked)
    body = serial + 1
    lane = numbers.innermost(numbers.of_kind(of, ("vectorized",)))
    vector = numbers.product_of(of, ("vectorized",))
    whole = np.ceil(vector / lanes)
    inner = numbers.at_loop(of.steps, body, 1.0)
    length = numbers.at_loop(of.extents, serial, 1.0)
    outer = numbers.innermost((of.many & ~marked) & (np.arange(len(of.extents))[:, None] < serial))
    kinds = {each: np.zeros(count) for each in ("vectors", "broadcasts", "gathers", "stores")}
    misaligned, conflicts = np.zeros(count), np.zeros(count)
    for number, touch in enumerate(of.place.touches):
        unique = numbers.at_loop(of.unique[number], body, 1.0)
        along = np.abs(numbers.at_loop(of.distances[number], lane, 0.0))
        # What does not move with the innermost serial loop is read before it, or written after.
        once = np.where(
            (serial >= 0) & (numbers.at_loop(of.moves[number], serial, 0.0) == 0), length, 1.0
        )
        vectors = unique / np.minimum(vector, lanes) / once
        by_line = of.distances[number] * touch.bytes % LINE
        off = (of.moves[number] & (by_line != 0) & (of.distances[number] != 1)).any(axis=0)
        far = of.distances[number] * touch.bytes % PAGE == 0
        conflicts = conflicts + (of.moves[number] & far & (of.ranges[number] >= 8)).any(axis=0)
        is_vector = (along == 1) & (lane >= 0)
        if touch.written:
            kinds["stores"] = kinds["stores"] + np.where(is_vector, vectors, unique / once)
        else:
            kinds["vectors"] = kinds["vectors"] + np.where(is_vector, vectors, 0.0)
            alone = ~is_vector & ((along == 0) | (lane < 0))
            kinds["broadcasts"] = kinds["broadcasts"] + np.where(alone, unique / once, 0.0)
            gathered = ~is_vector & ~alone
            kinds["gathers"] = kinds["gathers"] + np.where(gathered, unique / once, 0.0)
        misaligned = misaligned + np.where(is_vector & off, vectors, 0.0)
    work = max(1.0, sum(of.place.operations[:14]))
    arithmetic = work * inner / vector * whole
    reads = kinds["vectors"] + kinds["broadcasts"] + GATHERED * kinds["gathers"] + misaligned
    instructions = arithmetic + reads + kinds["stores"]
    reduces = numbers.at_loop(of.reduces, serial, 0.0)
    sums = (numbers.at_loop(of.unique[0], body, 1.0) if len(of.bytes) else np.ones(count)) / lanes
    needed = sums / np.minimum(vector / lanes, 1.0) + kinds["vectors"]
    rates = machine.rates
    waits = np.where(reduces > 0, rates.latency * arithmetic / np.maximum(sums, 1.0), 0.0)
    busy = np.maximum(arithmetic / rates.fma, reads / reads_of(rates))
    cycles = np.maximum(busy, np.minimum(waits, rates.latency * arithmetic)) + kinds["stores"]
    runs = of.steps[0] / inner
    entries = runs / length
    total = runs * (cycles + STEP) + entries * ENTRY
    shares = np.minimum(numbers.product_of(of, ("parallel",)), machine.cores)
    return [
        *[numbers.log_of(kinds[each]) for each in ("vectors", "broadcasts", "gathers", "stores")],
        numbers.log_of(arithmetic),
        numbers.log_of(misaligned),
        numbers.log_of(instructions),
        np.log2((reads + 0.01) / arithmetic),
        needed / machine.registers,
        numbers.log_of(runs),
        numbers.log_of(entries),
        numbers.log_of(length),
        numbers.log_of(numbers.at_loop(of.extents, outer, 1.0)),
        (reduces > 0).astype(float),
        np.log2((waits + 0.01) / (busy + 0.01)),
        conflicts.astype(float),
        numbers.log_of(cycles),
        numbers.log_of(total / shares),
    ]
