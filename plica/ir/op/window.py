"""Windows: what convolutions and pools share, places of a window that slides over padded axes.

>>> from plica.ir.type.dim import dim_var
>>> n = dim_var("n")
>>> Window(stride=2, dilation=1, before=1, after=1).count("nn.conv", n, index(3)) is not None
True
"""

from __future__ import annotations

from typing import Any

import attrs

from plica.ir.graph.operator import Values
from plica.ir.loop.scalar import Le, Lt, Min, Scalar, index
from plica.ir.op.attribute import attribute, padding, per_axis as per_axis_reader, positive
from plica.ir.op.record import plus, times
from plica.ir.op.relation import need, per_axis, refuse, shown
from plica.ir.type import known, normal_dim

STRIDES = attribute("strides", per_axis_reader(positive), 1)
PADDING = attribute("padding", padding, 0)
DILATION = attribute("dilation", per_axis_reader(positive), 1)


@attrs.frozen
class Window:
    """How a window slides along one axis."""

    stride: int
    dilation: int
    before: int
    after: int

    def reach(self, kernel: Scalar) -> Scalar:
        """From the first to the last place of a window, both included."""
        return plus(times(plus(kernel, -1), self.dilation), 1)

    def count(self, name: str, size: Scalar, kernel: Scalar, ceil: bool = False) -> Scalar:
        """How many windows fit; with `ceil` the last may hang over, but not begin, outside."""
        hangs = self.stride - 1 if ceil else 0
        padded = plus(size, self.before + self.after)
        room = normal_dim(plus(padded, hangs) - self.reach(kernel))
        if (known(room) or 0) < 0 or known(kernel) == 0:
            message = f"{name}: the window does not fit into the padded axis."
            refuse("shape-conflict", message, shown((padded,)), shown((self.reach(kernel),)))
        need(room)
        windows = plus(normal_dim(room // self.stride), 1)
        if not ceil:
            return normal_dim(windows)
        begin_inside = plus(normal_dim(plus(size, self.before - 1) // self.stride), 1)
        return normal_dim(Min(windows, begin_inside))

    def place(self, at: Scalar, inner: Scalar) -> Scalar:
        """Where in the axis the window `at` has its place `inner`."""
        return plus(plus(times(at, self.stride), times(inner, self.dilation)), -self.before)

    def inside(self, place: Scalar, size: Scalar, hangs: bool = False) -> list[Scalar]:
        """The conditions under which a place is no padding, where it might be."""
        conditions: list[Scalar] = []
        if self.before:
            conditions.append(Le(index(0), place))
        if self.after or hangs:
            conditions.append(Lt(place, size))
        return conditions


def windows(name: str, attrs: Values, rank: int) -> tuple[Window, ...]:
    """The windows of each axis that the attributes describe."""
    strides = per_axis(name, "stride", attrs["strides"], rank)
    dilation = per_axis(name, "dilation", attrs.get("dilation", 1), rank)
    pads = sides(name, attrs["padding"], rank)
    return tuple(
        Window(s, d, before, after)
        for s, d, (before, after) in zip(strides, dilation, pads, strict=True)
    )


def sides(name: str, given: Any, rank: int) -> tuple[tuple[int, int], ...]:
    """Pairs (before, after) from a padding as it was given."""
    each = per_axis(name, "padding", given, rank)
    return tuple(side if isinstance(side, tuple) else (side, side) for side in each)
