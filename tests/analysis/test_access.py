"""Accesses of statements are those of their parts."""

from __future__ import annotations

import pytest

from plica.analysis import access
from plica.analysis.access import NOWHERE, Access, accesses
from plica.ir.loop.scalar import Le, Lit, Lt, Max, Scalar, Select, index
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import kernel_of, stages
from plica.ir.loop.statement import Kernel, statements
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type import f32
from plica.schedule.default import Machine
from plica.schedule.default.choose import fallback_schedule

MACHINE = Machine(512, 32, (48 << 10, 2 << 20))


def product(rows: int, columns: int) -> Kernel:
    """A product of shifted rows, and what is done with its elements."""
    x, w, b = (
        buffer("x", (rows, 32), f32),
        buffer("w", (32, columns), f32),
        buffer("b", (columns,), f32),
    )
    total = stage(
        "total", (rows, columns), lambda i, j: reduce("sum", (32,), lambda k: x[i, k] * w[k, j])
    )

    def value(i: Scalar, j: Scalar) -> Scalar:
        inside = Lt(index(0), i)
        above = total[Max(i - 1, index(0)), j]
        return Select(inside, above, Lit(0.0, f32)) + b[j]

    out = stage("out", (rows, columns), value)
    return kernel_of(stages((x, w, b), (total, out)))


def rows(of: int, columns: int) -> Kernel:
    """Sums of rows, less than which elements are left out."""
    x = buffer("x", (of, columns), f32)
    total = stage("total", (of,), lambda i: reduce("sum", (columns,), lambda k: x[i, k]))
    out = stage(
        "out", (of, columns), lambda i, j: Select(Le(total[i], x[i, j]), x[i, j], Lit(0.0, f32))
    )
    return kernel_of(stages((x,), (total, out)))


def said(of: Access) -> tuple[object, ...]:
    return of.buffer, of.starts, of.extents, of.inner, of.written, of.facts, of.certain


@pytest.mark.parametrize("kernel", [product(13, 40), product(64, 64), rows(7, 50)])
def test_parts_say_what_a_walk_finds(kernel: Kernel) -> None:
    for each in (kernel, fallback_schedule(kernel, MACHINE)[1]):
        for stmt in statements(each.body):
            walked = access._walked((stmt,), NOWHERE)
            assert list(map(said, accesses(stmt))) == list(map(said, walked))
