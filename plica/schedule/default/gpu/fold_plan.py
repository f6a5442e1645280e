"""Plans of folds on a GPU: how rows, columns and terms are cut among the levels of the machine.

    vector (16 bytes)  <  thread (registers)  <  block (shuffles, shared memory)  <  grid (a launch)

A plan is a tuple of digits (axis, level, count).  Each level says how partial folds meet there:
those of a vector and a thread one after another, those of a block by shuffles where neighbouring
threads have neighbouring terms, else in shared memory, those of the grid in a second launch.

A sum along rows of 1024 elements of f32, and one down columns:

>>> print(shown(row_plan(8192, 1024, 4, 4, Gpu())))
row/block 8, term/block 32, term/thread 4, term/vector 4
>>> print(shown(column_plan(ColumnFold(1, 256, 8192, 256, (4,)), Gpu())))
column/block 32, column/vector 4, term/grid 256, term/block 8, term/thread 4
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from attrs import frozen

from plica.schedule.default.gpu.cost import BYTES, LATENCY, LAUNCH
from plica.schedule.default.gpu.machine import (
    BLOCKS_A_PROCESSOR,
    LINE_BYTES,
    SECTOR_BYTES,
    VECTOR_BYTES,
    Gpu,
    power_of_two,
    vector_lanes,
)
from plica.schedule.default.gpu.split_reduction import even_cut

Axis: TypeAlias = Literal["row", "column", "term"]
Level: TypeAlias = Literal["vector", "thread", "block", "grid"]

VECTORS_IN_FLIGHT: Final = 4  # vectors that a thread of a row has under way at once, at least
WARPS_OF_SUMS: Final = 4  # warps of a block whose rows feed several sums
SECTOR_SHARE: Final = {32: 0.6, 64: 0.8}
"""The share of its bandwidth at which memory gives so few neighbouring bytes."""

COLUMN_BYTES_IN_FLIGHT: Final = 64
"""Bytes that a thread of columns has under way at once, in several rows."""

MAX_ROWS_IN_FLIGHT: Final = 16  # rows that a thread of columns has under way, at most
ELEMENTS_IN_FLIGHT: Final = 16  # elements of four bytes that a thread has under way at once
STAGED_ELEMENTS: Final = (4, 20)  # the minimum and maximum elements of a staged row per thread
BYTES_A_CYCLE: Final = 20  # bytes that a processor reads in a cycle where all do


@frozen
class PlannedDigit:
    """A digit of an axis: its extent, and the machine level that iterates over it."""

    axis: Axis
    level: Level
    count: int


Plan: TypeAlias = tuple[PlannedDigit, ...]
"""The digits of all axes; the rest of rows and columns is for the grid, that of terms for a
loop."""


def plan(**counts: int) -> Plan:
    """A plan by words such as `term_block=32`; digits of one value are left out."""
    digits = [(word.split("_"), count) for word, count in counts.items() if count > 1]
    return tuple([PlannedDigit(axis, level, count) for (axis, level), count in digits])  # type: ignore[arg-type]  # by the words of both


def count_of(of: Plan, axis: Axis, level: Level) -> int:
    """How many values a digit has; 1 where the plan has no such digit."""
    return next((d.count for d in of if (d.axis, d.level) == (axis, level)), 1)


def shown(of: Plan) -> str:
    """A plan in one line."""
    return ", ".join(f"{digit.axis}/{digit.level} {digit.count}" for digit in of)


def row_plan(rows: int, length: int, lanes: int, size: int, gpu: Gpu) -> Plan:
    """How rows are cut that are read once: as many threads of each as fill the machine, and as read
    whole lines."""
    units = -(-length // lanes)
    filling = power_of_two(-(-2 * gpu.most // rows))
    line = LINE_BYTES // (lanes * size)
    along = max(filling, line, power_of_two(-(-units // (2 * VECTORS_IN_FLIGHT))))
    along = min(along, gpu.threads, power_of_two(units))
    high = max(1, min(gpu.threads // along, rows // gpu.processors))
    group = in_flight(-(-units // along), VECTORS_IN_FLIGHT)
    return plan(row_block=high, term_block=along, term_thread=group, term_vector=lanes)


def lane_plan(length: int, lanes: int, gpu: Gpu) -> Plan:
    """Splits rows that feed several sums: one warp or less per row, with up to four vectors of each
    operand in flight.

    >>> print(shown(lane_plan(1024, 4, Gpu())))
    row/block 4, term/block 32, term/thread 4, term/vector 4
    """
    lanes = min(lanes, max(1, length // 2))  # two threads at least
    units = length // lanes
    along = min(gpu.warp, max(2, power_of_two(units)))
    group = min(VECTORS_IN_FLIGHT, -(-units // along))
    high = WARPS_OF_SUMS * gpu.warp // along
    return plan(row_block=high, term_block=along, term_thread=group, term_vector=lanes)


def pays_staged(width: int, own: float, elements: int, gpu: Gpu) -> bool:
    """Whether rows that fill no vectors load faster through shared memory than directly, with `own`
    bytes per thread and access.

    If threads have few elements each, latency dominates, and shared memory adds a round trip. With
    many, direct loads are less than whole lines if a row has few threads, or threads have less than
    a vector each; else single elements keep up.

    >>> [pays_staged(4 * 2, 73 * 2 / 4, rows * 73, Gpu()) for rows in (2185, 21853)]
    [False, True]
    >>> [pays_staged(32 * 4, length / 8, 60000 * length, Gpu()) for length in (33, 1097)]
    [True, False]
    """
    if elements < ELEMENTS_IN_FLIGHT * gpu.most:
        return False
    return width < LINE_BYTES // 2 or own < VECTOR_BYTES


def staged_plan(
    rows: int, length: int, size: int, gpu: Gpu, vector_rows: int = VECTOR_BYTES // 2
) -> Plan | None:
    """The split of rows staged in shared memory, with a block's rows a multiple of a vector's
    alignment; None if they do not fit there.

    >>> print(shown(staged_plan(21853, 73, 2, Gpu())))
    row/block 16, term/block 4, term/thread 19
    """
    least, most = STAGED_ELEMENTS
    most = max(2 * least, min(most, -(-rows * length // gpu.most)))
    own = {1 << n: -(-length // (1 << n)) for n in range(gpu.block.bit_length())}
    few = [along for along, count in own.items() if count <= most]
    fit = [along for along in few if own[along] >= least] or few[:1]
    if not fit:
        return None
    along = min(fit, key=lambda each: (each * own[each], each))
    step = max(vector_rows, gpu.warp // along)
    high = min(gpu.threads // along, rows // (BLOCKS_A_PROCESSOR * gpu.processors)) // step * step
    high = min(max(high, step), gpu.block // along)
    if 4 * high * length * size > gpu.shared:
        return None  # several blocks of a processor: one reads while another computes
    return plan(row_block=high, term_block=along, term_thread=own[along])


def in_flight(count: int, least: int) -> int:
    """How many of a given number of reads of a thread are under way at once: all, if they are up to
    a quarter more than the least; else as many as leave the fewest over in the last turn.

    >>> in_flight(5, 4), in_flight(8, 4), in_flight(13, 4)
    (5, 4, 5)
    """
    most = least * 5 // 4
    return count if count <= most else min(range(least, most + 1), key=lambda n: -count % n)


@frozen
class ColumnFold:
    """The number of rows, their columns, terms, innermost columns, and the bytes of operands per
    term."""

    outer: int
    columns: int
    terms: int
    inner: int
    sizes: tuple[int, ...]


def column_plan(of: ColumnFold, gpu: Gpu, *, alone: bool = False) -> Plan:
    """The plan with the fewest estimated cycles: more threads per block, or parts joined by another
    launch; without parts if one launch is `alone`."""
    widest, size = max(of.sizes), sum(of.sizes)
    wide = vector_lanes(of.inner, widest)
    group = min(MAX_ROWS_IN_FLIGHT, COLUMN_BYTES_IN_FLIGHT // (wide * widest))
    vectors = -(-of.columns // wide)
    whole = of.outer * of.columns * of.terms * size
    found: list[tuple[float, Plan]] = []

    def consider(across: int, along: int, parts: int, length: int) -> None:
        blocks = of.outer * -(-vectors // across) * parts
        rate = min(BYTES, across * along * group * wide * size / (2 * LATENCY))
        share = SECTOR_SHARE.get(across * wide * widest, 1.0)
        cycles = whole / (share * min(blocks * rate, gpu.processors * BYTES_A_CYCLE))
        cycles += 2 * (LAUNCH + LATENCY) if parts > 1 else 0
        digits = plan(
            column_block=across, column_vector=wide, term_grid=parts, term_block=along,
            term_thread=in_flight(-(-length // along), group),
        )  # fmt: skip
        found.append((cycles, digits))

    threads = gpu.threads
    while threads <= gpu.block:
        across = min(gpu.warp, power_of_two(vectors))
        while True:
            along = min(threads // across, power_of_two(-(-of.terms // group)))
            high = min(threads // along, vectors)
            high = high if high == vectors else 1 << high.bit_length() - 1
            blocks = of.outer * -(-vectors // high)
            most = -(-gpu.processors * BLOCKS_A_PROCESSOR // blocks)
            many = min(most, of.terms // (along * group))
            for parts in (1,) if alone or many < 2 else (1, many):
                consider(high, along, *even_cut(of.terms, parts))
            across //= 2
            if not across or across * wide * widest < SECTOR_BYTES:
                break
        threads *= 2
    return min(found, key=lambda each: each[0])[1]


def joining_groups(along: int, wide: int) -> int:
    """The number of groups in which column threads join their totals: first within a group, then
    between groups; if a thread has several columns, different threads join each, if there are
    enough."""
    groups = 1 << ((along // wide).bit_length() // 2)
    spread = 1 < wide <= along // groups
    return groups if spread else 1 << (along.bit_length() // 2)
