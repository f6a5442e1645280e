"""Looking at time: a stream as a Chrome trace, and streams under the roofline of their machine.

>>> from plica.codegen.accel.cycle import simulate
>>> from plica.codegen.accel.instruction import Stream, instruction
>>> from plica.codegen.accel.vta import vta
>>> stream = Stream((instruction(vta(), "load.inp", y_size=2, x_size=4),))
>>> json.loads(chrome_trace(vta(), stream, simulate(vta(), stream)))["traceEvents"][-1]["name"]
'load.inp'
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10, prod
from typing import Any, Final

from plica.codegen.accel.assembly import show
from plica.codegen.accel.cycle import STALLS, Timed
from plica.codegen.accel.declaration import Accelerator, Sweep
from plica.codegen.accel.instruction import Stream
from plica.codegen.accel.meaning import contraction

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
    for each in machine.operations:
        if isinstance(each.does, Sweep):
            product = contraction(each.does.meaning)
            if product is not None:
                shape = machine.scope(each.does.writes.scopes[0]).shape
                best = max(best, 2 * product.inner * prod(shape) // each.interval)
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
