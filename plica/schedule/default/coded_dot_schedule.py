"""The template of dot products of bytes by digits of the data (`plica.schedule.default.coded_dot`).

peak, unit, fixed, digits, quads, below          one after another, vectors along a block
for n0:                                          rows of the weight, a few at a time
    for b:                                       blocks of bytes
        for n: scale[n, g] = …                   vectors over g
        for g, n:                                written out
            codes[j] = …                         a run of bytes
            for d: invoke the instruction        sum[d, l] += digits[b, d, …] * codes[…]
            part[n, l] += …                      vectors over l
    for n: few[n, u] += …; total[n] += …; out[n] = …
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from plica.core import post_order
from plica.ir.loop import Block, Kernel, Store, scalar as sc
from plica.ir.type import known
from plica.schedule import primitive as st
from plica.schedule.default.coded import CODES, digit_cuts
from plica.schedule.default.lane import is_row
from plica.schedule.default.machine import BYTE, DIGITS, Machine
from plica.schedule.default.nest import in_registers, opened, vectors_inside
from plica.schedule.default.role import (
    BlockFlow,
    block_flow,
    is_reduction,
    made_by,
    reads,
    terms_of,
)
from plica.schedule.default.share import pays
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle

FETCHED: Final = 3072
"""The prefetch distance in bytes of a row: memory latency is hidden by multiplying as many."""
MAX_WRITTEN_OUT: Final = 32  # terms that are written out


def coded_dot_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of such a product, None for other kernels."""
    dot, flow = machine.dot, block_flow(kernel)
    if dot is None or not dot.pairs or flow is None:
        return None
    blocks = [block for block in flow.blocks.values() if _multiplies_digits(block, kernel)]
    return _schedule(flow, blocks[0], machine, kernel) if len(blocks) == 1 else None


def _multiplies_digits(of: Block, kernel: Kernel) -> bool:
    """Whether a block adds products of bytes that are both made in the kernel, and lie alike."""
    if not isinstance(of.body, Store):
        return False
    match of.body.value:
        case sc.Add(
            sc.Load(), sc.ShiftLeft(sc.Mul(sc.Cast(left, _), sc.Cast(right, _)), _)
        ) | sc.Add(sc.Load(), sc.Mul(sc.Cast(left, _), sc.Cast(right, _))):
            sides = [each for each in (left, right) if isinstance(each, sc.Load)]
            places = {side.indices[-1] for side in sides}
            return (
                len(sides) == 2
                and len(places) == 1
                and all(
                    side.buffer not in kernel.params and side.buffer.dtype.bytes == 1
                    for side in sides
                )
            )
        case _:
            return False


def _schedule(flow: BlockFlow, dots: Block, machine: Machine, kernel: Kernel) -> Do:
    dot, out = machine.dot, flow.result
    assert dot is not None
    coded, data, scales = list[Block](), list[Block](), list[Block]()
    for block in flow.blocks.values():
        writers = [flow.writer[load.buffer] for load in reads(block) if load.buffer in flow.writer]
        unpacks = any(load.buffer.dtype in CODES and load.buffer in kernel.params
                      for load in reads(block))  # fmt: skip
        if unpacks or any(writer in (*coded, *scales) for writer in writers):
            (scales if unpacks and not is_reduction(block) else coded).append(block)
        else:
            data.append(block)
    (codes,) = [block for block in scales if made_by(block).dtype.is_integer]
    folds = [block for block in coded if block not in (dots, out)]
    rank = len(made_by(folds[-1]).shape)

    @do
    def schedule() -> Body:
        _, every = yield from opened(out)
        weight = every[min(rank, len(every)) - 1]  # the result may lack the axis of one row
        for fold in folds[::-1]:
            yield from in_registers(fold, weight)
        for fold in folds:
            read = {load.buffer for load in reads(fold)}
            own = [scale for scale in scales if made_by(scale) in read]
            pair = (codes, dots) if made_by(dots) in read else ()
            yield from _summed(fold, rank, own, pair, machine)
        for each in data:
            yield from _of_data(each, machine)
        if pays(machine, prod([known(n) or 1 for n in dots.extents]), kernel.params):
            yield st.parallel(weight)

    return schedule()


def _summed(
    of: Block, rank: int, scales: Sequence[Block], pair: Sequence[Block], machine: Machine
) -> Body:
    """Term loops around the lanes, with the stages computed for each; the last terms are
    unrolled."""
    one, every = yield from opened(of)
    terms = terms_of(of)
    lanes = len(made_by(of).shape) - rank
    outside = len(every) - len(terms) - lanes
    lane, folded = every[outside : outside + lanes], every[outside + lanes :]
    cut, count = len(terms), 1
    while cut > bool(scales or pair) and count * terms[cut - 1] <= MAX_WRITTEN_OUT:
        cut -= 1
        count *= terms[cut]
    yield st.reorder(*folded, *lane)
    for loop in lane:
        yield st.vectorize(loop)
    yield st.decompose_reduction(one, folded[0])
    for scale in scales:
        handle = yield from in_registers(scale, folded[0])
        assert isinstance(scale.body, Store)
        if is_row(scale.body.value, scale.vars[-1]):
            yield from vectors_inside(handle, outside + 1)
        else:
            every = yield st.loops(handle)
            for loop in every[outside + 1 :]:
                yield st.unroll(loop)
    if pair:
        codes, dots = pair
        for block in (dots, codes):
            handle = yield from in_registers(block, folded[-1])
        yield from _multiplied(dots, machine)
        yield from _unpacked(codes, machine)
    for loop in folded[cut:]:
        yield st.unroll(loop)


def _multiplied(of: Block, machine: Machine) -> Body:
    """Digits by bytes, in one instruction for all digits."""
    assert machine.dot is not None
    one, every = yield from opened(of)
    terms = of.kinds.count("reduce")
    assert isinstance(of.body, Store)
    several = any(isinstance(node, sc.ShiftLeft) for node in post_order(of.body.value))
    inside = every[len(every) - terms :]
    cut = len(inside) - 1 - several  # several digits, and the terms of a lane
    lane, steps = every[len(every) - terms - 1], inside[:cut]
    yield st.reorder(*steps, lane, *inside[cut:])
    begun = yield st.decompose_reduction(one, [*steps, lane][0])
    yield from vectors_inside(begun, len(every) - terms - 1)
    width, digits = known(made_by(of).shape[-1]), DIGITS if several else 1
    yield st.tensorize(lane, f"{machine.dot.pairs}{width}.{digits}")
    for step in steps:
        yield st.unroll(step)


def _unpacked(of: Block, machine: Machine) -> Body:
    """A run of bytes, in vectors of those that are unpacked alike."""
    _, every = yield from opened(of)
    parts, lane = yield from _alike(of, every[-1], machine)
    yield st.unroll(parts)
    yield st.annotate(lane, "fetch", FETCHED)
    yield st.vectorize(lane)


def _alike(of: Block, last: Handle, machine: Machine) -> Body:
    """The last loop, cut where its places are quotients and remainders of others."""
    assert isinstance(of.body, Store)
    count = known(of.extents[-1]) or 1
    cuts = digit_cuts(of.body.value, of.vars[-1], count, machine.vector // BYTE)
    parts, lane = yield st.split(last, (None, cuts[1] if cuts else count))
    return parts, lane


def _of_data(of: Block, machine: Machine) -> Body:
    """The data stages go along their last axis, unless that is summed."""
    if "reduce" in of.kinds:
        return
    _, every = yield from opened(of)
    _, lane = yield from _alike(of, every[-1], machine)
    yield st.vectorize(lane)
