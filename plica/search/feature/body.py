"""Features of the innermost body of a store: its instructions by kind, and how often it runs.

The body is the unrolled code inside the innermost serial loop. Along the lanes, an access reads one
element for all, a vector, or gathers; one that is invariant in the serial loop is in a register.

    counts       vectors read, broadcasts, gathers, stores, arithmetic, misaligned vectors
    runs         runs of the body, entries of its loop, two extents, whether sums go along it
    cycles       of one run, and of all, if nothing waits for memory
"""

from __future__ import annotations

from typing import Final

import numpy as np

from plica.schedule.default.machine import LINE, PAGE
from plica.schedule.default.tile import reads_of
from plica.search.feature import numbers

OF_BODY: Final = (
    "body-vectors", "body-broadcasts", "body-gathers", "body-stores", "body-arithmetic",
    "body-misaligned", "body-instructions", "reads-per-operation", "registers-needed",
    "body-runs", "loop-entries", "inner-extent", "outer-extent", "inner-reduces", "waits",
    "set-conflicts", "body-cycles", "run-cycles",
)  # fmt: skip
"""What each column is."""

STEP: Final = 1.0  # cycles of counting and comparing, for each run of a body
ENTRY: Final = 6.0  # cycles of entering and leaving a loop: addresses, a mispredicted branch
GATHERED: Final = 1.5  # reads that each lane costs which is gathered


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
