"""Issue features: estimates of the instructions a store executes, for the learned cost model.

Two groups of columns describe each store; both assume that its data is in cache. `issue_columns`
predicts the code after the LLVM emitter and LLVM itself have unrolled and vectorised:

    passes       1 if the kernel gets LLVM's full pass pipeline (see `runs_full_pipeline`)
    in-memory    1 if an accumulator is loaded and stored in each iteration, not kept in a register
    strips       1 if the vectorized loop is too long to be unrolled and stays a loop
    written-out  iterations that LLVM unrolls
    pieces       vectors that the lanes are split into
    lanes-idle   the fraction of lanes of these vectors that is unused
    left-…       extent of the innermost loop that remains, and whether it is a reduction
    issued-…     arithmetic, loads, stores and latency stalls over all iterations
    issued       cycles of all these, per core

`body_columns` takes the schedule literally. The body is the unrolled code inside the innermost
serial loop. Along the lanes, an access is a broadcast, a vector or a gather; one that is invariant
in the serial loop is in a register.

    counts       vector loads, broadcasts, gathers, stores, arithmetic, misaligned vectors
    runs         iterations of the body, entries of its loop, two extents, whether it reduces
    cycles       of one iteration, and of all
"""

from __future__ import annotations

from typing import Final

import numpy as np

from plica.core import Name
from plica.schedule.default.machine import LINE, PAGE
from plica.schedule.default.tile import reads_of
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

ISSUE_COLUMN_NAMES: Final = (
    "passes", "in-memory", "strips", "written-out", "pieces", "lanes-idle", "issued-arithmetic",
    "issued-reads", "issued-stores", "issued-waits", "left-extent", "left-reduces", "issued",
)  # fmt: skip
"""The names of `issue_columns`."""

MAX_UNROLLED_LANES: Final = 64  # a vectorized loop of more lanes is a loop of vectors
MAX_UNROLLED_REGISTERS: Final = 4  # so is one whose lanes fill more registers
FUNCTION_INSTRUCTIONS: Final = 16.0  # of a vector math function; scalar calls take as long
DIVIDE_CYCLES: Final = 5.0  # of a division, where a multiplication is 1
LOADS_PER_GATHERED_LANE: Final = 1.5
STORE_FORWARDING_CYCLES: Final = 6.0  # from a store until its value can be loaded
LOOP_STEP_CYCLES: Final = 1.0  # increment and compare, per iteration
MAX_FULL_UNROLL_INSTRUCTIONS: Final = 150.0  # of a loop that LLVM unrolls, afterwards
MAX_FULL_UNROLL_DEPTH: Final = 3  # nested loops that LLVM unrolls fully
LOOP_ENTRY_CYCLES: Final = 6.0  # addresses on entry, a mispredicted branch on exit

WEIGHTS: Final = np.array(
    [
        FUNCTION_INSTRUCTIONS if "function" in kind else DIVIDE_CYCLES if "divide" in kind else 1.0
        for kind in KINDS
    ]
)


def issue_columns(of: StoreNumbers, passes: Array) -> list[Array]:
    """The features of one store, in the order of `ISSUE_COLUMN_NAMES`.

    `passes` says which schedules get LLVM's full pass pipeline.
    """
    machine, count, rates = of.machine, of.count, of.machine.rates
    widest = max([4.0 if size == 2 else size for size in of.bytes], default=4.0)
    lanes = max(1.0, machine.vector / 8 / widest)
    lane = innermost(of_kind(of, ("vectorized",)))
    vector = product_of(of, ("vectorized",))
    is_scalar = lane < 0
    left = vector % lanes
    tail = (left > 0).astype(float) if machine.masks else _bits_set(left)
    pieces = np.where(is_scalar, 1.0, np.floor(vector / lanes) + tail)
    strips = vector > min(float(MAX_UNROLLED_LANES), MAX_UNROLLED_REGISTERS * lanes)
    serial, unrolled = _innermost_left(of, passes & ~strips, pieces / vector)
    body = serial + 1
    inner, length = at_loop(of.steps, body, 1.0), at_loop(of.extents, serial, 1.0)
    copies = inner / vector
    reduces = at_loop(of.reduces, serial, 0.0) > 0
    updates = _is_update(of.place)
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
        accesses = np.where(is_vector, unique / vector * pieces, unique)
        accesses = np.where(gathered, LOADS_PER_GATHERED_LANE * accesses, accesses)
        stays = (serial >= 0) & ~(at_loop(of.moves[number], serial, 0.0) > 0)
        # A strip is the innermost loop: what moves along it is in no register before the next.
        in_register = np.where(strips, still, stays)
        if updates and touch.buffer == of.place.touches[0].buffer:
            in_register = in_register & (passes | of.place.local)
            in_memory = in_memory | ~in_register
        accesses = accesses / np.where(in_register, np.where(strips, pieces / 2, length), 1.0)
        if touch.written:
            stores = stores + accesses
        else:
            reads = reads + accesses
    work = float(WEIGHTS @ np.array(of.place.operations))
    arithmetic = max(work, 0.5) * copies * pieces
    # Operations that LLVM vectorises itself; functions stay calls.
    calls = sum([n for n, word in zip(of.place.operations, KINDS, strict=True) if "func" in word])
    alone = is_scalar & passes & (length >= lanes) & ~reduces & ~apart & (calls == 0)
    arithmetic, reads, stores = (
        np.where(alone, issued / lanes, issued) for issued in (arithmetic, reads, stores)
    )
    sums = np.where(of.reduces, of.extents, 1.0)
    chain = at_loop(inward(sums, np.cumprod, 1.0), body, 1.0)
    later = rates.latency + np.where(in_memory, STORE_FORWARDING_CYCLES, 0.0)
    waits = np.where(reduces, later * chain, 0.0) if updates else np.zeros(count)
    busy = _cycles(arithmetic, reads, stores, of)
    runs = of.steps[0] / inner
    entries = runs / length + np.where(strips, runs, 0.0)
    total = runs * (np.maximum(busy, waits) + LOOP_STEP_CYCLES) + entries * LOOP_ENTRY_CYCLES
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
    """The innermost loop after LLVM has unrolled short ones, and the iterations unrolled."""
    operations = 2 * len(of.place.touches) + 2 + sum(of.place.operations)
    left = of.many & ~of_kind(of, ("unrolled", "vectorized"))
    serial = innermost(left)
    first = at_loop(of.steps, serial + 1, 1.0)
    for _ in range(MAX_FULL_UNROLL_DEPTH):
        size = operations * part * at_loop(of.steps, serial, np.inf)
        short = passes & (serial >= 0) & (size <= MAX_FULL_UNROLL_INSTRUCTIONS)
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
    cycles: Array = np.maximum(busy, stores / rates.stores)
    return cycles


def _bits_set(of: Array) -> Array:
    """The population count of each number: the vectors of 2^n lanes that cover that many lanes."""
    left, count = of.astype(np.int64), np.zeros(len(of))
    while left.any():
        count += left & 1
        left >>= 1
    return count


def _is_update(place: StorePlace) -> bool:
    """Whether a store also reads the buffer it writes to (`x[i] += …`)."""
    target, *others = place.touches
    return any(not touch.written and touch.buffer == target.buffer for touch in others)


def runs_full_pipeline(layout: StoreLayout, numbers: Floats) -> Array:
    """Whether LLVM's full pass pipeline runs, for each schedule: (schedules, numbers) to bools.

    The LLVM backend runs it only on kernels that have a plain innermost loop, one that the schedule
    neither vectorizes nor unrolls, or that accumulate in memory; all others get a few cheap passes.
    This approximates that decision of `StatementEmitter` from the features alone.
    """
    full = np.zeros(len(numbers), bool)
    many = [_extents(place, numbers) > 1 for place in layout.places]
    last = [innermost(runs) for runs in many]
    # A loop that contains another store's loops is not innermost, whichever store is considered.
    outer: dict[Name, Array] = {}
    for place, mine in zip(layout.places, last, strict=True):
        for at, key in enumerate(place.loops[: int(mine.max(initial=0))]):
            outer[key] = outer.get(key, False) | (mine > at)
    for place, mine, runs in zip(layout.places, last, many, strict=True):
        written = np.array([kind in ("vectorized", "unrolled") for kind in place.kinds], bool)
        for at in {*mine.tolist()} - {-1}:
            if not written[at]:
                plain = mine == at
                full |= plain & ~outer[key] if (key := place.loops[at]) in outer else plain
        if _is_update(place) and not place.local:
            serial = innermost(runs & ~written[:, None])
            full |= (serial >= 0) & ~(at_loop(_address_varies(place, numbers), serial, 0.0) > 0)
    return full


def _extents(place: StorePlace, numbers: Floats) -> Floats:
    return numbers[:, place.first : place.first + len(place.loops)].T


def _address_varies(place: StorePlace, numbers: Floats) -> Array:
    """Whether the stored address varies with each loop: (loops, schedules)."""
    varies = np.zeros((len(place.loops), len(numbers)), bool)
    first = place.touches[0]
    at = place.first + 2 * len(place.loops) + 2 * first.rank
    for pair, (loop, _) in enumerate(first.pairs):
        varies[loop] |= numbers[:, at + 2 * pair + 1] > 1
    return varies


# --- features of the innermost body of a store -------------------------------------------------


BODY_COLUMN_NAMES: Final = (
    "body-vectors", "body-broadcasts", "body-gathers", "body-stores", "body-arithmetic",
    "body-misaligned", "body-instructions", "reads-per-operation", "registers-needed",
    "body-runs", "loop-entries", "inner-extent", "outer-extent", "inner-reduces", "waits",
    "set-conflicts", "body-cycles", "run-cycles",
)  # fmt: skip
"""The names of `body_columns`."""


def body_columns(of: StoreNumbers) -> list[Array]:
    """The features of the body of one store, in the order of `BODY_COLUMN_NAMES`."""
    machine, count = of.machine, of.count
    size = of.bytes[0] if len(of.bytes) else 4.0
    lanes = max(1.0, machine.vector / 8 / size)
    marked = of_kind(of, ("unrolled", "vectorized"))
    serial = innermost(of.many & ~marked)
    body = serial + 1
    lane = innermost(of_kind(of, ("vectorized",)))
    vector = product_of(of, ("vectorized",))
    whole = np.ceil(vector / lanes)
    inner = at_loop(of.steps, body, 1.0)
    length = at_loop(of.extents, serial, 1.0)
    outer = innermost((of.many & ~marked) & (np.arange(len(of.extents))[:, None] < serial))
    kinds = {kind: np.zeros(count) for kind in ("vectors", "broadcasts", "gathers", "stores")}
    misaligned, conflicts = np.zeros(count), np.zeros(count)
    for number, touch in enumerate(of.place.touches):
        unique = at_loop(of.unique[number], body, 1.0)
        along = np.abs(at_loop(of.distances[number], lane, 0.0))
        # What does not move with the innermost serial loop is read before it, or written after.
        once = np.where((serial >= 0) & (at_loop(of.moves[number], serial, 0.0) == 0), length, 1.0)
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
    reads = kinds["vectors"] + kinds["broadcasts"] + LOADS_PER_GATHERED_LANE * kinds["gathers"]
    reads = reads + misaligned
    instructions = arithmetic + reads + kinds["stores"]
    reduces = at_loop(of.reduces, serial, 0.0)
    sums = (at_loop(of.unique[0], body, 1.0) if len(of.bytes) else np.ones(count)) / lanes
    needed = sums / np.minimum(vector / lanes, 1.0) + kinds["vectors"]
    rates = machine.rates
    waits = np.where(reduces > 0, rates.latency * arithmetic / np.maximum(sums, 1.0), 0.0)
    busy = np.maximum(arithmetic / rates.fma, reads / reads_of(rates))
    cycles = np.maximum(busy, np.minimum(waits, rates.latency * arithmetic)) + kinds["stores"]
    runs = of.steps[0] / inner
    entries = runs / length
    total = runs * (cycles + LOOP_STEP_CYCLES) + entries * LOOP_ENTRY_CYCLES
    shares = np.minimum(product_of(of, ("parallel",)), machine.cores)
    return [
        *[log_of(kinds[kind]) for kind in ("vectors", "broadcasts", "gathers", "stores")],
        log_of(arithmetic),
        log_of(misaligned),
        log_of(instructions),
        np.log2((reads + 0.01) / arithmetic),
        needed / machine.registers,
        log_of(runs),
        log_of(entries),
        log_of(length),
        log_of(at_loop(of.extents, outer, 1.0)),
        (reduces > 0).astype(float),
        np.log2((waits + 0.01) / (busy + 0.01)),
        conflicts.astype(float),
        log_of(cycles),
        log_of(total / shares),
    ]
