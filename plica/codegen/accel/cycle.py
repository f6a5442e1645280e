"""The cycle simulator: when each instruction runs, and what it waits for.

>>> from plica.codegen.accel.instruction import Stream, instruction
>>> from plica.codegen.accel.vta import vta
>>> timed = simulate(vta(), Stream((instruction(vta(), "load.inp", y_size=2, x_size=4),)))
>>> timed.cycles, timed.busy["load"]  # 4 to issue, 64 to the first beat, two rows of 8 + 8
(100, 100)

The model is exact for what it models; it is not calibrated to any silicon.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush, heapreplace
from html import escape
from math import ceil, floor, log10, prod
from typing import Any, Final, Literal, TypeAlias

from attrs import frozen

from plica.codegen.accel.declaration import Accelerator, Sweep
from plica.codegen.accel.encode import show
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
    for instruction, touched in zip(stream.code, known, strict=True):
        if touched.memory is not None:
            moved += touched.memory.size * touched.memory.rows
        elif touched.turns is not None:
            if instruction.name not in sizes:
                sizes[instruction.name] = _operations(machine, instruction.name)
            if sizes[instruction.name]:
                turns += len(touched.turns.written)
                operations += len(touched.turns.written) * sizes[instruction.name]
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


# --- looking at time ---------------------------------------------------------------------------


WIDTH: Final = 720
HEIGHT: Final = 420
MARGIN: Final = 56


def chrome_trace(machine: Accelerator, stream: Stream, timed: Timed) -> str:
    """One line for each unit; a cycle is shown as a microsecond."""
    events: list[dict[str, Any]] = [  # Any: what JSON holds
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": at, "args": {"name": unit}}
        for at, unit in enumerate(machine.units)
    ]
    for each, unit, start, end in zip(
        stream.code, timed.units, timed.starts, timed.ends, strict=True
    ):
        shown = {"text": show(machine, each)}
        span = {"ts": start, "dur": end - start}
        events.append({"name": each.name, "ph": "X", "pid": 0, "tid": unit, **span, "args": shown})
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, separators=(",", ":"))


def peak(machine: Accelerator) -> int:
    """Operations in a cycle, of the best contraction."""
    best = 0
    for operation in machine.operations:
        if isinstance(operation.does, Sweep):
            product = contraction(operation.does.meaning)
            if product is not None:
                shape = machine.scope(operation.does.writes.scopes[0]).shape
                best = max(best, 2 * product.inner * prod(shape) // operation.interval)
    return best


def roofline(machine: Accelerator, timed: Sequence[tuple[str, Timed]]) -> str:
    """A page with operations per second over operations per byte, and a table of stall reasons."""
    giga = machine.timing.megahertz / 1e3
    top, slope = peak(machine) * giga, machine.timing.bus * machine.timing.ports * giga
    dots = [
        (name, each.operations / max(1, each.moved), each.operations / max(1, each.cycles) * giga)
        for name, each in timed
    ]
    left = min([top / slope / 4, *(x / 1.5 for _, x, _ in dots if x > 0)])
    right = max([top / slope * 8, *(x * 1.5 for _, x, _ in dots)])
    low = min([top / 4, *(y / 1.3 for _, _, y in dots if y > 0)])
    high = 1.3 * top

    def at(x: float, y: float) -> tuple[float, float]:
        across = (log10(x) - log10(left)) / (log10(right) - log10(left))
        up = (log10(y) - log10(low)) / (log10(high) - log10(low))
        return MARGIN + across * (WIDTH - 2 * MARGIN), HEIGHT - MARGIN - up * (HEIGHT - 2 * MARGIN)

    parts: list[str] = []
    for tick in _ticks(left, right):
        x, _ = at(tick, low)
        parts.append(f'<path d="M{x:.1f} {MARGIN}V{HEIGHT - MARGIN}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - MARGIN + 16}" text-anchor="middle">{tick:g}</text>'
        )
    for tick in _ticks(low, high):
        _, y = at(left, tick)
        parts.append(f'<path d="M{MARGIN} {y:.1f}H{WIDTH - MARGIN}" stroke="#ddd"/>')
        parts.append(f'<text x="{MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    corners = [
        at(max(left, low / slope), max(low, slope * left)),
        at(top / slope, top),
        at(right, top),
    ]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    parts.append(f'<polyline points="{points}" fill="none" stroke="#444" stroke-width="2"/>')
    below = 0.0
    for name, x, y in sorted(dots, key=lambda dot: dot[1]):
        if x <= 0 or y <= 0:
            continue
        a, b = at(x, y)
        title = escape(f"{name}: {y:.1f} GOP/s of {min(top, slope * x):.1f}, {x:.1f} op/byte")
        parts.append(
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="5" fill="#2563eb">'
            f"<title>{title}</title></circle>"
        )
        below = 0.0 if below else 30.0  # neighbours have their names above and below
        parts.append(
            f'<text x="{a:.1f}" y="{b - 10 + below:.1f}" text-anchor="middle">{escape(name)}</text>'
        )
    x, y = at(right, top)
    roof = f"{top:.1f} GOP/s, {slope:.2f} GB/s"
    parts.append(f'<text x="{x:.1f}" y="{y - 20:.1f}" text-anchor="end">{roof}</text>')
    parts.append(
        f'<text x="{WIDTH // 2}" y="{HEIGHT - 12}" text-anchor="middle">operations / byte</text>'
    )
    parts.append(f'<text x="8" y="{MARGIN - 16}">GOP/s</text>')
    rows = "".join(_row(machine, name, each) for name, each in timed)
    heads = ["stream", "cycles", "utilisation"]
    heads += [f"{unit}: {word}" for unit in machine.units for word in ("busy", *STALLS)]
    head = "".join(f"<th>{escape(word)}</th>" for word in heads)
    title = escape(f"{machine.name} at {machine.timing.megahertz} MHz")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{title}</title><style>body{{font:14px sans-serif;margin:2em}}"
        "svg text{font-size:12px}"
        "td,th{padding:2px 8px;text-align:right;border-bottom:1px solid #ddd}</style></head><body>"
        f'<h1>{title}</h1><svg width="{WIDTH}" height="{HEIGHT}" role="img">{"".join(parts)}</svg>'
        f"<table><tr>{head}</tr>{rows}</table></body></html>\n"
    )


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between two others, for an axis of logarithms."""
    first, last = floor(log10(low)), ceil(log10(high))
    found = [digit * 10.0**power for power in range(first, last + 1) for digit in (1, 2, 5)]
    return [each for each in found if low <= each <= high]


def _row(machine: Accelerator, name: str, timed: Timed) -> str:
    cells = [name, str(timed.cycles), f"{timed.utilisation:.1%}"]
    for unit in machine.units:
        cells.append(str(timed.busy[unit]))
        cells += [str(timed.stalled[unit][word]) for word in STALLS]
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
