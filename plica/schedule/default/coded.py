"""Products by weights that are unpacked from bytes: lanes along the bytes, as they lie.

    out[m, n] = f(sum over k of x[m, k] * w(bytes[n, k // 32 * 18 + k % 16], k % 32 // 16))
      -->  part[m, n, v] = sum over b, h of x[m, 32 b + 16 h + v] * w(bytes[n, 18 b + v], h)
           few[m, n, u]  = sum over i of part[m, n, 4 i + u]
           out[m, n]     = f(sum over u of few[m, n, u])

Coded weights are stored in blocks: places and shifts are quotients and remainders of the term `k`.
Its digits `b`, `h` and `v` for the divisors that occur become axes, so that places are linear in
each; the lowest digit is along the lanes. Values shared by lanes, such as the scales of groups,
become stages with their own lanes. Bytes are read once, in the order in which they lie, and decoded
for a few rows of x at a time:

    for n0:                                          rows of the weight, a few at a time
        for m0:                                      rows of the data, likewise
            for b:                                   blocks of bytes
                for n: scale[n, g] = …               vectors over g
                for h, m, n: part[m, n, v] += …      written out, vectors over v
            for m, n: few[m, n, u] += …
            for m, n: total[m, n] += …
            for m, n: out[m, n] = …

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import u8
>>> x, w = buffer("x", (1, 64), f32), buffer("w", (8, 32), u8)
>>> product = stage("y", (1, 8), lambda m, n: reduce("sum", (64,), lambda k: x[m, k] * sc.Cast(
...     w[n, k // 32 * 16 + k % 16], f32)))
>>> made = coded_form(stages((x, w), (product,)), Machine(512, 32))
>>> [str(each.out.name) for each in made.stages], len(made.stages[0].value.axes)
(['part', 'few', 'total', 'y'], 2)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import dropwhile, pairwise
from math import gcd, prod
from typing import Final

from attrs import frozen

from plica.analysis.enclosing import simple
from plica.analysis.index import EMPTY, Context
from plica.core import Term, free_vars, map_bottom_up, map_top_down, post_order, substitute
from plica.ir.loop import Block, Each, Kernel, Names, Stages, loads, reductions, scalar as sc
from plica.ir.loop.stages import pairs, stages
from plica.ir.type import bf16, f16, f32, i8, i64, known, u8
from plica.schedule import primitive as st
from plica.schedule.default.lane import is_row
from plica.schedule.default.limb import Axes, StageList, summed
from plica.schedule.default.machine import FEW_LANES, Machine
from plica.schedule.default.nest import in_registers, opened, vectors_inside
from plica.schedule.default.role import block_flow, is_reduction, made_by
from plica.schedule.default.share import pays
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle

CODES: Final = (i8, u8, f16, bf16)  # storage types that are decoded to floats on reading
MAX_TERMS: Final = 4096  # terms that a lane adds one by one, at most: more would lose bits

MAX_COLUMNS: Final = 4  # rows of the weight that are read at once
MAX_ROWS: Final = 8  # rows of the data that weights are unpacked for at once
MAX_WRITTEN_OUT: Final = 64  # vectors that are written out: parts of a block for a few rows of both


@frozen(eq=False)
class CodedProduct:
    """Sums over one term of decoded values, and their epilogue."""

    fold: Each
    epilogue: Each | None
    body: sc.Scalar
    term: sc.ScalarVar
    count: int


def coded_product(of: Stages) -> CodedProduct | None:
    """The coded product of some stages, or None."""
    if not all(isinstance(stage, Each) for stage in of.stages) or len(every := pairs(of)) != 1:
        return None
    ((fold, epilogue),) = every
    body = fold.value
    if not isinstance(body, sc.Reduce) or len(body.axes) != 1 or reductions(body.body):
        return None
    count = known(body.extents[0])
    if body.combiner != "sum" or sc.dtype_of(body) is not f32 or not count:
        return None
    (term,) = body.axes
    read = [load for load in loads(body.body) if term in free_vars(load)]
    if not any(load.buffer.dtype in CODES and load.buffer in of.inputs for load in read):
        return None
    return CodedProduct(fold, epilogue, body.body, term, count)


def has_codes(of: sc.Scalar) -> bool:
    """Whether a value is decoded from storage."""
    return any(load.buffer.dtype in CODES for load in loads(of))


def sides_of(of: CodedProduct) -> tuple[sc.Scalar, sc.Scalar] | None:
    """The side of a product that is no code, and the other one."""
    if not isinstance(of.body, sc.Mul):
        return None
    data, weight = sorted((of.body.left, of.body.right), key=has_codes)
    return None if has_codes(data) else (data, weight)


def coded_form(of: Stages, machine: Machine) -> Stages | None:
    """The stages, or None if they are no such product."""
    if (product := coded_product(of)) is None:
        return None
    cuts = digit_cuts(product.body, product.term, product.count, machine.lanes(f32))
    if cuts is None or product.count > MAX_TERMS * cuts[1]:
        return None
    return _formed(of, product, cuts)


def digit_cuts(value: sc.Scalar, term: sc.ScalarVar, count: int, lanes: int) -> list[int] | None:
    """The weights of a term's digits, lowest first; None if they are not digits of one number, or
    fill no vector."""
    found = {unit for node in post_order(value) if (unit := _unit(node, term))}
    found.add(gcd(min(found, default=count), lanes))
    cuts = [1, *sorted(found - {1, count}), count]
    if len(cuts) < 3 or any(high % low for low, high in pairwise(cuts)):
        return None
    return cuts if cuts[1] % FEW_LANES == 0 else None


def _unit(node: Term, term: sc.ScalarVar) -> int:
    """The weight of the digit above a quotient or remainder, or 0 if it is not of a term."""
    if not isinstance(node, sc.FloorDiv | sc.FloorMod) or not (worth := known(node.right)):
        return 0
    inside: Term = node.left
    while isinstance(inside, sc.FloorDiv | sc.FloorMod):
        worth *= (known(inside.right) or 0) if isinstance(inside, sc.FloorDiv) else 1
        inside = inside.left
    return worth if inside is term else 0


@frozen(eq=False)
class TermDigits:
    """The digits of a term as axes, the highest first, with their units and sizes."""

    axes: tuple[sc.ScalarVar, ...]
    units: tuple[int, ...]
    sizes: tuple[int, ...]

    def of_term(self, value: sc.Scalar, product: CodedProduct) -> sc.Scalar:
        """A value at a term, at its digits: places are in their simplest form."""
        context = EMPTY
        for axis, length in zip(product.fold.axes, product.fold.out.shape, strict=True):
            context = context.loop(axis, length)
        whole = sc.index(0)
        for axis, unit, size in zip(self.axes, self.units, self.sizes, strict=True):
            context, whole = context.loop(axis, size), whole + axis * unit
        scalar = map_bottom_up(tidied(context), substitute(value, {product.term: whole}))
        assert isinstance(scalar, sc.Scalar)
        return scalar


def term_digits(cuts: Sequence[int], names: Names) -> TermDigits:
    """The digits between such cuts; the lowest is called `v`."""
    units = tuple(cuts[-2::-1])
    axes = tuple([names.var("v" if unit == 1 else "b") for unit in units])
    return TermDigits(axes, units, tuple([high // low for low, high in pairwise(cuts)][::-1]))


def _formed(of: Stages, product: CodedProduct, cuts: Sequence[int]) -> Stages | None:
    """The stages for digits between such cuts."""
    names, fold = Names(of, anew=of.made), product.fold
    digits = term_digits(cuts, names)
    value = digits.of_term(product.body, product)
    (*terms, lane), (*counts, width) = digits.axes, digits.sizes
    if not is_row(value, lane):
        return None
    scales, value = hoisted(value, fold, dict(zip(terms, counts, strict=True)), lane, names)
    sums = sc.Reduce("sum", tuple(terms), tuple(map(sc.index, counts)), value)
    return joined(of, product, scales, [CodedSum(sums, lane, width)], names)


@frozen(eq=False)
class CodedSum:
    """A sum of a product in lanes; `width` 0 means no lanes."""

    value: sc.Scalar
    lane: sc.ScalarVar | None = None
    width: int = 0


def joined(
    of: Stages, product: CodedProduct, before: Sequence[Each], parts: Sequence[CodedSum],
    names: Names,
) -> Stages:  # fmt: skip
    """The stages from those `before` on: sums in lanes, which are added, and the result."""
    fold, epilogue, made, totals = product.fold, product.epilogue, StageList(names), list[sc.Load]()
    made.stages += before
    rows: Axes = tuple(zip(fold.axes, fold.out.shape, strict=True))
    for part in parts:
        value, width = part.value, part.width
        if part.lane is not None:
            lanes = made.made("part", (*rows, (part.lane, width)), value)
            if width > FEW_LANES:
                u, i = names.var("u"), names.var("i")
                several = sc.Load(lanes.buffer, (*fold.axes, i * FEW_LANES + u))
                few = summed([(i, width // FEW_LANES)], several)
                lanes = made.made("few", (*rows, (u, FEW_LANES)), few)
            u = names.var("u")
            value = summed([(u, FEW_LANES)], sc.Load(lanes.buffer, (*fold.axes, u)))
        totals.append(made.made("total", rows, value))

    def result(node: Term) -> Term:
        if not isinstance(node, sc.Load) or node.buffer is not fold.out:
            return node
        first, *others = [sc.Load(total.buffer, node.indices) for total in totals]
        return sum(others, start=first)

    last_of = fold if epilogue is None else epilogue
    whole = sc.Load(fold.out, fold.axes) if epilogue is None else epilogue.value
    scalar = map_bottom_up(result, whole)
    assert isinstance(scalar, sc.Scalar)
    return stages(of.inputs, (*made.stages, Each(last_of.out, last_of.axes, scalar)))


def hoisted(  # noqa: PLR0917  # a term, and where it is evaluated
    value: sc.Scalar, fold: Each, sizes: Mapping[sc.ScalarVar, int], lane: Term, names: Names,
    also: Sequence[sc.Buffer] = (),
) -> tuple[list[Each], sc.Scalar]:  # fmt: skip
    """The uniform decoded parts of a term as stages (with given buffers), and the term that reads
    these."""
    made: list[Each] = []
    first, *inner = sizes

    def hoisted(node: Term) -> Term:
        if not isinstance(node, sc.Mul | sc.Sub | sc.Add) or sc.dtype_of(node) is not f32:
            return node
        used = free_vars(node)
        own = {var: sizes[var] for var in inner if var in used}
        read = {load.buffer for load in loads(node)} - {*also}
        if lane in used or not own or not {buffer.dtype for buffer in read} <= {*CODES}:
            return node
        around = {a: n for a, n in (*zip(fold.axes, fold.out.shape, strict=True),
                                    (first, sc.index(sizes[first]))) if a in used}  # fmt: skip
        found = _along(node, around, own, names)
        made.extend([] if found is None else [found[0]])
        return node if found is None else found[1]

    changed = map_top_down(hoisted, value)
    assert isinstance(changed, sc.Scalar)
    return made, changed


def _along(
    value: sc.Scalar,
    around: Mapping[sc.ScalarVar, sc.Scalar],
    digits: Mapping[sc.ScalarVar, int],
    names: Names,
) -> tuple[Each, sc.Load] | None:
    """A stage whose last digits form one axis of contiguous elements, and its element; None if that
    fills no vector."""
    own = [*digits]
    for cut in range(len(own)):
        rest, run = own[:cut], own[cut:]
        long = left = prod([digits[var] for var in run])
        if long < FEW_LANES:
            return None
        lane, at = names.var("g"), sc.index(0)
        context, places = EMPTY.loop(lane, long), dict[Term, Term]()
        for var in run:
            left //= digits[var]
            places[var] = simple(lane // left % digits[var], context)
            at = at + var * left
        scalar = map_bottom_up(tidied(context), substitute(value, places))
        assert isinstance(scalar, sc.Scalar)
        if is_row(scalar, lane):
            axes = (*around, *rest)
            shape = (*around.values(), *[sc.index(digits[var]) for var in rest], sc.index(long))
            out = sc.Buffer(names.name("scale"), shape, f32)
            return Each(out, (*axes, lane), scalar), sc.Load(out, (*axes, simple(at)))
    return None


def tidied(context: Context) -> Callable[[Term], Term]:
    """Places in their simplest form."""

    def tidied(node: Term) -> Term:
        if isinstance(node, sc.Load):
            return sc.Load(node.buffer, tuple([simple(index, context) for index in node.indices]))
        if isinstance(node, sc.Cast) and sc.dtype_of(node.value) is i64:
            return sc.Cast(simple(node.value, context), node.dtype)
        return node

    return tidied


# --- the schedule ---------------------------------------------------------------------------------


def coded_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of such a product, None for other kernels."""
    flow = block_flow(kernel)
    if flow is None:
        return None
    *before, out = flow.blocks.values()
    folds = [*dropwhile(lambda each: not is_reduction(each), before)]
    if is_reduction(out) or len(folds) not in (2, 3) or not all(map(is_reduction, folds)):
        return None
    if not all(_is_coded(block, kernel) for block in (*before[: -len(folds)], folds[0])):
        return None
    if len({load.buffer for load in loads(folds[0].body)} - {made_by(folds[0])}) < 2:
        return None  # a sum of codes alone
    *parts, rank = [len(made_by(fold).shape) for fold in folds]
    if not rank or {*parts} != {rank + 1} or known(made_by(folds[-2]).shape[-1]) != FEW_LANES:
        return None
    total = made_by(folds[-1])
    if any(load.buffer is total and load.indices != out.vars for load in loads(out.body)):
        return None  # the result has other axes than the sums
    return _schedule(before[: -len(folds)], folds, out, rank, machine, kernel)


def _is_coded(part: Block, kernel: Kernel) -> bool:
    """Whether codes are read along the lanes."""
    lane = part.vars[part.kinds.count("spatial") - 1]
    return any(
        load.buffer.dtype in CODES and load.buffer in kernel.params and lane in free_vars(load)
        for load in loads(part.body)
    )


def _schedule(  # noqa: PLR0917  # the blocks, and where they are
    scales: Sequence[Block], folds: Sequence[Block], out: Block, rank: int, machine: Machine,
    kernel: Kernel,
) -> Do:  # fmt: skip
    part = folds[0]
    sizes = [known(size) or 0 for size in part.extents]
    terms = prod([known(size) or 0 for size in part.extents[rank:]])
    column = rank - 1
    row = max([at for at in range(column) if sizes[at] != 1], default=None)
    rows = 1 if row is None else divisor(sizes[row], MAX_ROWS)
    columns = divisor(sizes[column], min(MAX_COLUMNS, machine.registers // 2 // rows))
    # The tiles of the data that fit in a near cache are processed together per weight.
    near = max(machine.cache(2) // 2 // (rows * terms * f32.bytes), 1)
    tiles = 1 if row is None else divisor(sizes[row] // rows, near)

    @do
    def schedule() -> Body:
        _, every = yield from opened(out)
        weight, beside = yield st.split(every[column], (None, columns))
        outer, inner = [*every[:column], weight], [beside]
        if row is not None:
            panel, tile, below = yield st.split(every[row], (None, tiles, rows))
            outer[row] = panel
            outer.append(tile)
            inner.insert(0, below)
        yield st.reorder(*outer, *inner)
        for fold in folds[::-1]:
            one = yield from in_registers(fold, outer[-1])
            around = yield from _written_out(one, fold, rank, (rows, columns))
        for scale in scales:
            one = yield from in_registers(scale, around[-1])
            yield from vectors_inside(one, len(around))
        for each in inner:
            yield st.unroll(each)
        if pays(machine, terms * prod(sizes[:rank]), kernel.params):
            yield st.parallel(weight)

    return schedule()


def divisor(size: int, most: int) -> int:
    """The greatest part of a size that is at most so long."""
    return next(n for n in range(max(min(most, size), 1), 0, -1) if size % n == 0)


def _written_out(one: Handle, of: Block, rank: int, tile: tuple[int, int]) -> Body:
    """The loops of a fold: blocks, then unrolled loops, then lanes. Returns the outer ones, down to
    blocks."""
    together = sum(size > 1 for size in tile)
    every: tuple[Handle, ...] = yield st.loops(one)
    terms, lanes = of.kinds.count("reduce"), int(len(made_by(of).shape) > rank)
    own = every[len(every) - terms - lanes - together :]
    inner, lane, folded = own[:together], own[together : together + lanes], own[together + lanes :]
    sizes = [known(size) or 0 for size in of.extents[-terms:]]
    cut, count = terms, prod(tile)
    while cut and count * sizes[cut - 1] <= MAX_WRITTEN_OUT:
        cut -= 1
        count *= sizes[cut]
    yield st.reorder(*folded, *inner, *lane)
    for handle in (*folded[cut:], *inner):
        yield st.unroll(handle)
    for handle in lane:
        yield st.vectorize(handle)
    yield st.decompose_reduction(one, folded[0])
    return (*every[: len(every) - len(own)], folded[0])
