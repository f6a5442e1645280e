"""The cycle simulator: when each instruction runs, and what it waits for.

>>> from plica.codegen.accel.instruction import Stream, instruction
>>> from plica.codegen.accel.vta import vta
>>> timed = simulate(vta(), Stream((instruction(vta(), "load.inp", y_size=2, x_size=4),)))
>>> timed.cycles, timed.busy["load"]  # 4 to issue, 64 to the first beat, two rows of 8 + 8
(100, 100)

The model is exact for what it models; it is not calibrated to any silicon.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush, heapreplace
from typing import Final, Literal, TypeAlias

from attrs import frozen

from plica.codegen.accel.declaration import Accelerator, Sweep
from plica.codegen.accel.footprint import Footprint, footprints
from plica.codegen.accel.instruction import Stream
from plica.codegen.accel.meaning import contraction
from plica.codegen.accel.order import BadStream, queues_at, units_of
from plica.runtime.error import Diagnostic, Place

Stall: TypeAlias = Literal["token", "queue-full", "port", "end"]
STALLS: Final[tuple[Stall, ...]] = ("token", "queue-full", "port", "end")


@frozen(eq=False)
class Timed:
    """A stream in time: the cycles at which each instruction starts and ends.

    `busy` and `stalled` are cycles by unit; `port` is the part of `busy` spent waiting for ports.
    `turns` are iterations of contractions, `operations` their arithmetic operations, `moved` bytes.
    """

    cycles: int
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    units: tuple[int, ...]
    busy: Mapping[str, int]
    stalled: Mapping[str, Mapping[Stall, int]]
    turns: int
    operations: int
    moved: int

    @property
    def utilisation(self) -> float:
        """The share of cycles in which a contraction iterates."""
        return self.turns / self.cycles if self.cycles else 0.0


def simulate(machine: Accelerator, stream: Stream, known: list[Footprint] | None = None) -> Timed:
    """The stream in time; one whose units wait for each other for ever is an error."""
    code = stream.code
    if known is None:
        known = footprints(machine, stream)
    units = units_of(machine, code)
    count = len(machine.units)
    timing = machine.timing
    issue, ports = timing.issue, [0] * timing.ports
    lines: list[list[int]] = [[] for _ in machine.units]
    for at, unit in enumerate(units):
        lines[unit].append(at)
    costs = [cost(machine, each.name, touched) for each, touched in zip(code, known, strict=True)]
    held, promised = [0] * len(machine.queues), [0] * len(machine.queues)
    depth = [each.depth for each in machine.queues]
    starts, ends = [0] * len(code), [0] * len(code)
    following = [0] * count
    free = [0] * count
    reason: list[Stall] = ["token"] * count
    stalled = [dict.fromkeys(STALLS, 0) for _ in machine.units]
    busy = [0] * count
    rows = [0] * count  # still to come of the move that a unit is at
    events: list[tuple[int, int, int]] = []  # time, unit, and 0 for a row or 1 for an end
    running = [False] * count

    def begin(unit: int, now: int) -> bool:
        if running[unit] or following[unit] == len(lines[unit]):
            return False
        at = lines[unit][following[unit]]
        taken, given = queues_at(machine, machine.units[unit], code[at].tokens)
        for queue in taken:
            if not held[queue]:
                reason[unit] = "token"
                return False
        for queue in given:
            if held[queue] + promised[queue] >= depth[queue]:
                reason[unit] = "queue-full"
                return False
        for queue in taken:
            held[queue] -= 1
        for queue in given:
            promised[queue] += 1
        following[unit] += 1
        running[unit] = True
        starts[at] = now
        stalled[unit][reason[unit]] += now - free[unit]
        plain, count_of_rows, _ = costs[at]
        rows[unit] = count_of_rows
        if count_of_rows:
            heappush(events, (now + issue + timing.latency, unit, 0))
        else:
            heappush(events, (now + issue + plain, unit, 1))
        return True

    def wake(now: int) -> None:
        moved = True
        while moved:
            moved = False
            for unit in range(count):
                moved |= begin(unit, now)

    wake(0)
    while events:
        now, unit, kind = heappop(events)
        at = lines[unit][following[unit] - 1]
        plain, _, each = costs[at]
        if kind == 0:
            port = ports[0]
            stalled[unit]["port"] += max(0, port - now)
            first = max(now, port)
            # Rows go on without asking until another event could have something to say.
            some = 1
            if len(ports) == 1:
                limit = events[0][0] if events else None
                free_rows = rows[unit] if limit is None else -((first - limit) // each)
                some = max(1, min(rows[unit], free_rows))
            end = first + some * each
            heapreplace(ports, end)
            rows[unit] -= some
            if rows[unit]:
                heappush(events, (end, unit, 0))
            else:
                heappush(events, (end + plain, unit, 1))
            continue
        ends[at] = now
        busy[unit] += now - starts[at]
        running[unit] = False
        free[unit] = now
        for queue in queues_at(machine, machine.units[unit], code[at].tokens)[1]:
            promised[queue] -= 1
            held[queue] += 1
        wake(now)
    total = max(ends, default=0)
    left = [
        lines[unit][following[unit]] for unit in range(count) if following[unit] < len(lines[unit])
    ]
    if left:
        message = "The units wait for each other for ever."
        found = ", ".join(code[at].name for at in left)
        raise BadStream(Diagnostic("bad-stream", message, Place(node=machine.name), None, found))
    for unit in range(count):
        stalled[unit]["end"] = total - free[unit]
    turns, operations, moved = _work(machine, stream, known)
    names = machine.units
    return Timed(
        total, tuple(starts), tuple(ends), tuple(units),
        dict(zip(names, busy, strict=True)), dict(zip(names, stalled, strict=True)),
        turns, operations, moved,
    )  # fmt: skip


def cost(machine: Accelerator, name: str, touched: Footprint) -> tuple[int, int, int]:
    """The cycles apart from memory, the rows, and the cycles of each row."""
    timing = machine.timing
    if touched.memory is not None:
        row = -(-touched.memory.size // timing.bus) + timing.row
        return touched.pads, touched.memory.rows, row
    if touched.turns is not None:
        interval = machine.operation(name).interval
        return len(touched.turns.written) * interval + timing.fill, 0, 0
    return 0, 0, 0


def _work(machine: Accelerator, stream: Stream, known: list[Footprint]) -> tuple[int, int, int]:
    turns = operations = moved = 0
    sizes: dict[str, int] = {}
    for each, touched in zip(stream.code, known, strict=True):
        if touched.memory is not None:
            moved += touched.memory.size * touched.memory.rows
        elif touched.turns is not None:
            if each.name not in sizes:
                sizes[each.name] = _operations(machine, each.name)
            if sizes[each.name]:
                turns += len(touched.turns.written)
                operations += len(touched.turns.written) * sizes[each.name]
    return turns, operations, moved


def _operations(machine: Accelerator, name: str) -> int:
    """Multiplications and additions of one turn of a contraction, 0 for anything else."""
    does = machine.operation(name).does
    assert isinstance(does, Sweep)
    if (product := contraction(does.meaning)) is None:
        return 0
    written = machine.scope(does.writes.scopes[0])
    total = 2 * product.inner
    for size in written.shape:
        total *= size
    return total
