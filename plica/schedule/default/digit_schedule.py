"""The schedule of weights of few bits by dot products (`plica.schedule.default.digit_product`).

for blocks of lanes, tiles of steps:
    total[tile] = 0                                   registers
    for g:
        sum[digits, tile] = 0                         registers
        for words of a run: invoke the instruction for steps, vectors and digits
        total[tile] += factor * (unit * sum - point * beside)
    kept[tile] = total[tile]
out[…] = f(kept[…])
"""

from __future__ import annotations

from math import prod

from plica.ir.loop.scalar import Add, BitAnd, Cast, Load, Mul, ShiftRight
from plica.ir.loop.statement import Block, Kernel, Store
from plica.ir.type import i8, i32, known
from plica.schedule import primitive as st
from plica.schedule.default.digit_product import DIGITS, digit_tile
from plica.schedule.default.machine import Machine
from plica.schedule.default.nest import along_row, opened, vectors, vectors_inside
from plica.schedule.default.role import block_flow, made_by
from plica.schedule.default.share import pays, shared
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle

LONGEST = 96  # dot products in the text of the innermost loop, at most


def digit_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of a kernel that sums digits times low-bit numbers, or None."""
    dot, flow = machine.dot, block_flow(kernel)
    found = [] if flow is None else [e for e in flow.blocks.values() if _takes_numbers(e)]
    if dot is None or not dot.words or flow is None or len(found) != 1:
        return None
    (of,) = found
    (total,) = flow.readers[made_by(of)]
    (kept,) = flow.readers[made_by(total)]
    sizes = [known(extent) or 1 for extent in of.extents]
    spatial = of.kinds.count("spatial")
    above, (blocks, vectors_across, lanes) = sizes[2 : spatial - 3], sizes[spatial - 3 : spatial]
    run, parts = sizes[spatial], sizes[spatial + 1]
    steps = above[-1] if above else 1
    _, high = digit_tile(blocks * vectors_across, steps, machine.registers)
    high = max(each for each in range(1, high + 1) if steps % each == 0)
    bits, shares = 8 // parts, pays(machine, prod(sizes), kernel.params)
    before = [e for e in flow.blocks.values() if e not in (of, total, kept, flow.result)]

    def schedule() -> Body:
        adds = yield st.block(str(total.label))
        last = yield st.block(str(kept.label))
        sums = yield st.block(str(of.label))
        every: tuple[Handle, ...] = yield st.loops(adds)
        *around, outer, beside, lane, groups = every
        inner: list[Handle] = []
        if around:
            tiles, step = yield st.split(around.pop(), (None, high))
            around.append(tiles)
            inner.append(step)
        order = [outer, *around]
        yield st.reorder(*order, groups, *inner, beside, lane)
        yield st.set_scope(adds, 0, "local")
        yield st.reverse_compute_at(last, order[-1])
        yield st.compute_at(sums, groups)
        yield st.set_scope(sums, 0, "local")
        yield from vectors((*inner, beside, lane))
        yield st.decompose_reduction(adds, groups)
        yield from vectors_inside(last, len(order))
        # The sums of a run, without unit loops.
        mine: tuple[Handle, ...] = yield st.loops(sums)
        inside = list(mine[len(order) + 1 :])
        *many, part, byte = inside
        words = [many.pop()] if run > 1 else []
        digits, *rest, own = many
        yield st.reorder(*words, *rest, digits, own, part, byte)
        begun = yield st.decompose_reduction(sums, [*words, *rest, digits][0])
        yield from vectors_inside(begun, len(order) + 1)
        yield st.tensorize(own, f"{dot.words}{bits}")
        for handle in (*rest, digits):
            yield st.unroll(handle)
        count = DIGITS * vectors_across * high * parts
        few = max([n for n in range(1, run + 1) if run % n == 0 and n * count <= LONGEST] or [1])
        if few > 1:
            _, near = yield st.split(words[0], (None, few))
            yield st.unroll(near)
        for other in before:
            yield from along_row(other)
        _, (*_, row) = yield from opened(flow.result)
        _, own_lanes = yield st.split(row, (None, lanes))
        yield st.vectorize(own_lanes)
        if shares:
            yield from shared(order[:1])

    return do(schedule)()


def _takes_numbers(of: Block) -> bool:
    """Whether a block adds products of bytes by numbers of few bits that are in words."""
    if not isinstance(of.body, Store):
        return False
    match of.body.value:
        case Add(Load(), Mul(Cast(Load() as left, _), BitAnd(ShiftRight(Load() as right, _), _))):
            return left.buffer.dtype is i8 and right.buffer.dtype is i32
        case _:
            return False
