"""Products of many rows by unpacked weights: a panel of the weight is unpacked once for all rows.

    out[m, n] = f(sum over k of x[m, k] * w(bytes[n, k // 32 * 18 + k % 16], k % 32 // 16))
      -->  floats[n, k]       = w(bytes[n, k // 32 * 18 + k % 16], k % 32 // 16)
           packed[r, b, k, v] = x[16 * b + v, 256 * r + k]
           sum[r, n, m]       = sum over k of floats[n, 256 * r + k] * packed[r, m // 16, k, m % 16]
           total[n, m]        = sum over r of sum[r, n, m]
           out[m, n]          = f(total[n, m])

It is the contraction with lanes along the rows of the data; floats of the weight are single
elements, in the order in which blocks hold them. The template
(`plica.schedule.default.register_tile_schedule`) unpacks the terms of a run for a group of columns:
this panel stays in a near cache while all rows read it.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import u8
>>> x, w = buffer("x", (32, 1024), f32), buffer("w", (8, 512), u8)
>>> product = stage("y", (32, 8), lambda m, n: reduce("sum", (1024,), lambda k: x[m, k] * sc.Cast(
...     w[n, k // 32 * 16 + k % 16], f32)))
>>> made = coded_panel_form(stages((x, w), (product,)), Machine(512, 32))
>>> [str(each.out.name) for each in made.stages]
['floats', 'packed', 'sum', 'total', 'whole', 'out']
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from attrs import evolve

from plica.core import Name, free_vars
from plica.ir.loop import Each, Names, Stages, loads, scalar as sc
from plica.ir.loop.stages import stages
from plica.ir.type import f32
from plica.schedule.default.coded import (
    CodedProduct,
    coded_product,
    digit_cuts,
    sides_of,
    term_digits,
)
from plica.schedule.default.contraction import contraction
from plica.schedule.default.estimate import fewest_lanes
from plica.schedule.default.form import register_tile
from plica.schedule.default.machine import FEW_LANES, Machine
from plica.schedule.default.summed import FEW

MIN_ROWS: Final = 16  # fewer rows share the unpacking in registers (`plica.schedule.default.coded`)
RUN: Final = 256
"""The approximate number of terms of a run; a panel of that many is unpacked at once."""


def coded_panel_form(of: Stages, machine: Machine) -> Stages | None:
    """The stages, or None if they are no such product or have few rows."""
    if (product := coded_product(of)) is None or (sides := sides_of(product)) is None:
        return None
    data, weight = sides
    if not isinstance(data, sc.Load):
        return None
    cuts = digit_cuts(weight, product.term, product.count, machine.lanes(f32))
    sizes = dict(zip(product.fold.axes, product.fold.out.shape, strict=True))
    own = [axis for axis in sizes if axis in free_vars(weight)]
    if cuts is None or len(own) != 1 or own[0] in free_vars(data):
        return None
    if data.indices[-1] is not product.term or data.buffer in _read_after(product):
        return None
    # Both sides in the digits of the term: the data by a view.
    digits = term_digits(cuts, Names(of, anew=of.made))
    unpacked = digits.of_term(weight, product)
    counts = tuple(map(sc.index, digits.sizes))
    floats = sc.Buffer(Name("floats"), (sizes[own[0]], *counts), f32)
    view = sc.Buffer(data.buffer.name, (*data.buffer.shape[:-1], *counts), data.buffer.dtype)
    rows = sc.Load(view, (*data.indices[:-1], *digits.axes))
    there = sc.Load(floats, (own[0], *digits.axes))
    total = sc.Reduce("sum", digits.axes, counts, sc.Mul(there, rows))
    inputs = tuple([view if buffer is data.buffer else buffer for buffer in of.inputs])
    after = [] if product.epilogue is None else [product.epilogue]
    found = contraction(stages((*inputs, floats), (evolve(product.fold, value=total), *after)))
    if found is None or found.batch or len(found.n) != 1 or len(found.m) != 1:
        return None
    lane = found.n[0]
    lanes = fewest_lanes(found.sizes[lane], machine.lanes(f32))
    if found.sizes[lane] < MIN_ROWS or lanes < FEW_LANES:
        return None
    stage = Each(floats, (own[0], *digits.axes), unpacked)
    found = evolve(found, inputs=inputs, run=run_of(digits.sizes), free=True)
    return register_tile(found, lane, lanes, machine, kept=True, before=(stage,), anew=True)


def _read_after(of: CodedProduct) -> set[sc.Buffer]:
    """What the epilogue reads besides the sum."""
    return set() if of.epilogue is None else {load.buffer for load in loads(of.epilogue)}


def run_of(sizes: Sequence[int]) -> tuple[int, ...]:
    """Terms of a run along each digit: some of the highest, and all of the others."""
    first, *rest = sizes
    near = max(RUN // prod(rest), -(-first // FEW), 1)
    parts = [n for n in range(1, 2 * near + 1) if first % n == 0]
    return min(parts, key=lambda n: abs(n - near)), *rest
