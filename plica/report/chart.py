"""Charts: the roofline of the kernels, and the memory plan over time.

>>> from plica.analysis.memory import pack_arena
>>> from plica.analysis.memory import Allocation
>>> memory(pack_arena([Allocation(64, 0, 1), Allocation(64, 1, 2)]), ["a",
...     "b"]).count('class="tenant"')
2
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10, sqrt
from typing import Final

from plica.analysis.memory import MemoryPlan
from plica.bench.roof import Roof
from plica.report.study import LaunchRow
from plica.report.svg import element, raw

WIDE: Final = 860
HIGH: Final = 380
LEFT: Final = 62
BOTTOM: Final = 40


def roofline(rows: Sequence[LaunchRow], roof: Roof) -> raw:
    """Operations a second over operations a byte, both by powers of ten; a circle is a kernel."""
    drawn = [row for row in rows if row.operations and row.seconds and row.bytes]
    ridges = [roof.gflops / speed for _, speed in roof.levels]
    xs = [row.intensity for row in drawn] + [min(ridges) / 4, max(ridges) * 4]
    ys = [row.gflops for row in drawn] + [roof.gflops]
    x0, x1 = floor(log10(min(xs))), ceil(log10(max(xs)))
    y0, y1 = min(floor(log10(min(ys))), ceil(log10(max(ys))) - 1), ceil(log10(max(ys)))

    def at(x: float, y: float) -> tuple[float, float]:
        right = LEFT + (log10(x) - x0) / (x1 - x0) * (WIDE - LEFT - 10)
        up = 10 + (y1 - log10(y)) / (y1 - y0) * (HIGH - BOTTOM - 10)
        return right, min(up, float(HIGH - BOTTOM))

    parts: list[raw] = []
    for power in range(x0, x1 + 1):
        x, _ = at(10.0**power, roof.gflops)
        parts.append(element("line", x1=x, y1=10, x2=x, y2=HIGH - BOTTOM, class_="grid"))
        parts.append(element("text", _power(power), x=x, y=HIGH - BOTTOM + 16, class_="tick"))
    for power in range(y0, y1 + 1):
        _, y = at(10.0**x0, 10.0**power)
        parts.append(element("line", x1=LEFT, y1=y, x2=WIDE - 10, y2=y, class_="grid"))
        parts.append(element("text", _power(power), x=LEFT - 22, y=y + 4, class_="tick"))
    for ridge, (holds, speed) in zip(ridges, roof.levels, strict=True):
        ways = [at(10.0**x0, speed * 10.0**x0), at(ridge, roof.gflops), at(10.0**x1, roof.gflops)]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in ways)
        where = "memory" if holds is None else f"a cache of {_bytes(holds)}"
        title = element("title", f"{speed:.1f} GB/s from {where}")
        parts.append(element("polyline", title, points=points, class_="roof"))
    most = max([row.seconds for row in drawn], default=1.0)
    for row in sorted(drawn, key=lambda row: -row.seconds):
        x, y = at(row.intensity, row.gflops)
        words = f"{row.kernel}\n{row.gflops:.2f} GFLOP/s, {row.intensity:.2f} FLOP/byte"
        parts.append(
            element(
                "circle",
                element("title", f"{words}\n{row.roof:.0%} of the roof"),
                cx=x,
                cy=y,
                r=3 + 13 * sqrt(row.seconds / most),
                class_="kernel",
                data_kernel=row.number,
            )
        )
    parts.append(element("text", "operations a byte", x=WIDE / 2, y=HIGH - 6, class_="axis"))
    parts.append(element("text", "GFLOP/s", x=6, y=20, class_="axis left"))
    return element(
        "svg", *parts, viewBox=f"0 0 {WIDE} {HIGH}", width=WIDE, height=HIGH, class_="chart"
    )


def memory(plan: MemoryPlan, steps: Sequence[str]) -> raw:
    """Which bytes of the workspace each value has, from the step that makes it to its last use."""
    last = max([tenant.last for tenant in plan.tenants], default=0) + 1
    size = max(plan.size, 1)
    wide, high = (WIDE - LEFT - 10) / last, (HIGH - BOTTOM - 10) / size
    parts: list[raw] = []
    for part in range(5):
        y = 10 + (HIGH - BOTTOM - 10) * part / 4
        label = _bytes(size * (4 - part) / 4)
        parts.append(element("line", x1=LEFT, y1=y, x2=WIDE - 10, y2=y, class_="grid"))
        parts.append(element("text", label, x=LEFT - 26, y=y + 4, class_="tick"))
    for number, (tenant, offset) in enumerate(zip(plan.tenants, plan.offsets, strict=True)):
        made = steps[tenant.born] if tenant.born < len(steps) else ""
        words = f"{tenant.size:,} bytes at {offset:,}, steps {tenant.born} to {tenant.last}"
        parts.append(
            element(
                "rect",
                element("title", f"{words}\n{made}".strip()),
                x=LEFT + tenant.born * wide,
                y=HIGH - BOTTOM - (offset + tenant.size) * high,
                width=max((tenant.last - tenant.born + 1) * wide - 0.5, 0.8),
                height=max(tenant.size * high, 0.8),
                class_="tenant",
                style=f"fill:hsl({number * 47 % 360} 55% 60%)",
            )
        )
    parts.append(element("text", "step", x=WIDE / 2, y=HIGH - 6, class_="axis"))
    return element(
        "svg", *parts, viewBox=f"0 0 {WIDE} {HIGH}", width=WIDE, height=HIGH, class_="chart"
    )


def _power(power: int) -> str:
    return f"{10.0**power:g}"


def _bytes(size: float) -> str:
    for unit, name in ((1 << 20, "MB"), (1 << 10, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size:.0f} B"
