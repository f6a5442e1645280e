"""Weights of few bits by dot products of bytes: data as whole numbers of three digits of 8 bits.

    out[m, n] = f(sum over g, h, p of x[m, g, h, p] * (number(w[n, g, h], p) - zero[n, g])
                                                    * scale[n, g])

Numbers of 2 and 4 bits become bytes by masking them out of their word, and an instruction adds four
byte products per lane, where floats would need a conversion per number. The other operand is split,
so that no f32 precision is lost:

    peak[m, g], unit[m, g] = the greatest |x| of the group, peak[m, g] / 2**22
    fixed[m, g, h, p] = round(x[m, g, h, p] / unit[m, g])
    digits[m, g, h, d, q, s] = the d-th of the bytes of fixed[m, g, h, p]
    sum[g, d, m, n]   = sum over h, q, s of digits[m, g, h, d, q, s] * number(packed[n, g, h], p)
    total[m, n]       = sum over g of scale[n, g] * (unit[m, g] * the three sums in their places
                                                     - zero[n, g] * beside[m, g])
    out[m, n]         = f(total[m, n])

A group is limited by 32-bit integer sums: longer ones go in several runs. The digit size depends on
the maximum of a group only, so that an outlier costs bits in its own group only. Non-finite data
gives a non-finite result.

The schedule:

    for blocks of lanes, tiles of steps:
        total[tile] = 0                                   registers
        for g:
            sum[digits, tile] = 0                         registers
            for words of a run: invoke the instruction for steps, vectors and digits
            total[tile] += factor * (unit * sum - point * beside)
        kept[tile] = total[tile]
    out[…] = f(kept[…])

>>> from plica.ir.loop.stages import stages_of
>>> from plica.ir.loop.tensor import buffer
>>> from plica.ir.op.bitserial import packed_dense
>>> from plica.ir.type.dtype import i8
>>> x, w = buffer("x", (2, 64), f32), buffer("w", (40, 8), i32)
>>> scale, zero = buffer("scale", (40, 2), f32), buffer("zero", (40, 2), f32)
>>> found = few_bits(stages_of(packed_dense.compute({"bits": 4}, x, w, scale, zero)))
>>> made = digit_form(found, stages_of(packed_dense.compute({"bits": 4}, x, w, scale, zero)),
...                   Machine(128, 32, dot=Dot("some.dot", 4, i8, words="some.words")))
>>> [str(each.out.name) for each in made.stages][:7]
['packed', 'factor', 'point', 'peak', 'unit', 'fixed', 'beside']
"""

from __future__ import annotations

from math import prod
from typing import Final

from plica.ir.loop import Block, Kernel, Stages, Store, scalar as sc
from plica.ir.op.record import as_dtype
from plica.ir.type import f32, i8, i32, known
from plica.schedule import primitive as st
from plica.schedule.default.few_bits import FewBits, FewBitsForm, few_bits, run_of
from plica.schedule.default.limb import digit_of, in_places, integers, summed
from plica.schedule.default.machine import BYTE, QUAD, Dot, Machine
from plica.schedule.default.nest import along_row, opened, vectors, vectors_inside
from plica.schedule.default.role import block_flow, made_by
from plica.schedule.default.share import pays, shared
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle

__all__ = ["DIGITS", "Dot", "digit_form", "digit_schedule", "digit_tile", "few_bits"]

DIGITS: Final = 3
"""Bytes of the integer that represents a float: none of its 24 bits is lost relative to the maximum
of a group of 32."""


GREATEST: Final = 8_355_000
"""What three digits that have signs can stand for, less what rounding may add."""

SUMMED: Final = 128  # numbers of a run, at most: the digits of more would have fewer bits
UNDER_WAY: Final = 8  # sums that keep the units for products busy
MAX_WRITTEN_OUT: Final = 96  # dot products in the text of the innermost loop, at most
MOST_VECTORS: Final = 4  # the maximum number of adjacent vectors: more share no further operands


def digit_tile(vectors: int, steps: int, registers: int) -> tuple[int, int]:
    """The vectors and steps of a tile: three digit sums and a total for each, a vector of words and
    one of unpacked numbers.

    >>> digit_tile(1000, 1, 32), digit_tile(1000, 4, 32), digit_tile(1000, 8, 32)
    ((4, 1), (3, 2), (3, 2))
    """
    found, least = (1, 1), float("inf")
    for m in range(1, min(MOST_VECTORS, vectors) + 1):
        for r in range(1, steps + 1):
            if (DIGITS + 1) * m * r + m + DIGITS + 2 > registers:
                break
            busy = max(DIGITS * m * r, UNDER_WAY) + 2 * m + r
            cost = -(-vectors // m) * -(-steps // r) * busy
            if cost < least:
                found, least = (m, r), cost
    return found


def digit_form(of: FewBits, source: Stages, machine: Machine) -> Stages | None:
    """The stages, or None if the machine has no dot product for such numbers."""
    dot = machine.dot
    if dot is None or not dot.words or of.bits not in (2, 4) or of.dtype is not f32:
        return None
    (rows, _, _, several), m = of.sizes, of.whole.m
    run, lanes, parts = run_of(of, SUMMED), dot.lanes, BYTE // of.bits
    steps = of.whole.sizes[m[-1]] if m else 1
    vectors_, high = digit_tile(-(-rows // lanes), steps, machine.registers)
    form = FewBitsForm(of, source, run, (vectors_, lanes), steps=high)
    d, q, s = (form.names.var(each) for each in "dqs")

    # The data stages: integers for each run, and their bytes.
    at_run = (*form.above, (form.g, form.runs))
    mask = 2**of.bits - 1
    most = min(GREATEST, (2**31 - 1) // (mask * run * several) - 1)
    unit, fixed = integers(form, form.data, most, at_run, form.of_run)
    beside = form.made("beside", at_run, summed(form.of_run, form.data))
    number = sc.Load(fixed.buffer, (*fixed.indices[:-1], s * parts + q))
    terms = ((form.h, run), (q, parts), (s, QUAD))
    own = (*at_run, terms[0], (d, DIGITS), *terms[1:])
    digits = form.made("digits", own, digit_of(number, d, DIGITS))

    # Sums of digits times numbers, and the scaled results.
    shifts = sc.Cast(s, i32) * sc.Lit(BYTE, i32) + sc.Cast(q, i32) * sc.Lit(of.bits, i32)
    taken = sc.BitAnd(sc.ShiftRight(form.packed, shifts), sc.Lit(mask, i32))
    every = ((form.g, form.runs), (d, DIGITS), *form.above, *form.block)
    product = summed(terms, sc.Mul(sc.Cast(digits, i32), taken))
    one = form.made("sum", every, product, near=True)
    g, _, *at = one.indices
    placed = in_places([sc.Load(one.buffer, (g, sc.index(n), *at)) for n in range(DIGITS)])
    whole = sc.Mul(unit, sc.Cast(placed, f32))
    total = form.total(form.block, at[-3:], whole, beside)
    kept = form.made("kept", (*form.above, *form.block), as_dtype(total, f32))
    lane = of.whole.n[0]
    places = (lane // form.wide, lane // lanes % vectors_, lane % lanes)
    return form.formed(sc.Load(kept.buffer, (*at[:-3], *places)))


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
    bits, shares = BYTE // parts, pays(machine, prod(sizes), kernel.params)
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
        few = max(
            [n for n in range(1, run + 1) if run % n == 0 and n * count <= MAX_WRITTEN_OUT] or [1]
        )
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
        case sc.Add(
            sc.Load(),
            sc.Mul(
                sc.Cast(sc.Load() as left, _), sc.BitAnd(sc.ShiftRight(sc.Load() as right, _), _)
            ),
        ):
            return left.buffer.dtype is i8 and right.buffer.dtype is i32
        case _:
            return False
