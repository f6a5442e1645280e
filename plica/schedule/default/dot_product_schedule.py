"""The schedule of dot products: tiles of sums in registers, and an instruction for each vector.

for tiles of lanes, tiles of the other axis:
    sum[tile] = 0                                  registers
    for terms:
        for vectors of the tile: invoke the instruction
    out[tile] = f(sum[tile])
"""

from __future__ import annotations

from math import prod

from plica.core import free_vars, post_order
from plica.ir.loop import Block, Kernel, Load, Stages
from plica.ir.type import i8, i16, known, u8
from plica.runtime.late import lazy_imports
from plica.schedule import primitive as st
from plica.schedule.default.machine import (
    GIVEN_ROWS,
    MAX_COPIED_COLUMNS,
    MIN_PRODUCTS,
    QUADS_NEAR,
    Dot,
    Machine,
)
from plica.schedule.default.nest import vectors, vectors_inside
from plica.schedule.default.operand_copy import in_parts, in_vectors, widened_sides
from plica.schedule.default.role import (
    ContractionBlocks,
    block_flow,
    contraction_blocks,
    is_reduction,
    made_by,
    reads,
)
from plica.schedule.default.share import pays, shared
from plica.schedule.default.tile import (
    USUAL_OPEN_SIZE,
    RegisterTile,
    best_open_tile,
    best_tile,
    cost,
    fits,
)
from plica.schedule.default.written_terms import written_out
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.form import Facts
from plica.schedule.handle import Handle

with lazy_imports(__name__):
    from plica.schedule.default.digit_product import digit_schedule
    from plica.schedule.default.dot_product import dotted
    from plica.schedule.default.dot_window import dot_window_schedule, window_form
    from plica.schedule.default.quantised import quantised


EACH = 2  # copies for each core, at least
TURNED = 16  # steps that fill a vector of the result
WORSE = 1.15  # the maximum cost ratio for a tile whose steps divide the axis, relative to the best


def dot_form(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
    """The stages of a quantised contraction, or None for other stages or machines without dot
    products."""
    dot = machine.dot
    if dot is None or not any(buffer.dtype in (i8, u8) for buffer in of.inputs):
        return None
    found = quantised(of, facts, dot.dtype, opened=True)
    if found is None and dot.windows:
        return window_form(of, facts, machine)
    if found is None or prod(found.whole.sizes.values()) < MIN_PRODUCTS:
        return None
    m, opened = found.whole.m, found.whole.open
    known_now = facts.constant[of.inputs.index(found.weight)]
    few = not opened and prod([found.whole.sizes[var] for var in m]) < GIVEN_ROWS
    if few and not known_now:
        return None
    if m and m[-1] in opened:
        if found.whole.axes[-1] is not found.lane:
            return None
        return dotted(found, dot, RegisterTile(1, 1))  # no rows are added to those that there are
    steps = found.whole.sizes[m[-1]] if m else 1
    vectors, left = divmod(found.whole.sizes[found.lane], dot.lanes)
    vectors, turned = vectors + bool(left), bool(m) and found.whole.axes[-1] is m[-1] and not left
    return dotted(found, dot, tile_of(vectors, steps, machine, turned=turned))


def tile_of(vectors: int, steps: int, machine: Machine, *, turned: bool = False) -> RegisterTile:
    """The tile for a given number of vectors and steps: it divides the steps where that is nearly
    as good.

    If steps are contiguous in the result they fill a vector of it: it is `turned`.
    """
    rates = machine.rates
    if turned and -(-steps // TURNED) * TURNED <= WORSE * steps:
        lanes = TURNED if machine.dot is None else machine.dot.lanes
        tall = [
            RegisterTile(each, high)
            for high in range(lanes, TURNED + 1, lanes)
            for each in range(-(-TURNED // high), vectors + 1)
        ]
        fitting = [tile for tile in tall if fits(tile, machine.registers)]
        even = [tile for tile in fitting if not (steps % tile.steps or vectors % tile.vectors)]
        if fitting:
            return min(even or fitting, key=lambda each: cost(each, vectors, steps, rates=rates))
    best = best_tile(vectors, steps, machine.registers, rates, exact=False)
    whole = best_tile(vectors, steps, machine.registers, rates, exact=True)
    least = cost(best, vectors, steps, rates=rates)
    return whole if cost(whole, vectors, steps, rates=rates) <= WORSE * least else best


def dot_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of a kernel that sums dot products, or None."""
    dot = machine.dot
    if dot is None or not any(param.dtype in (i8, u8, i16) for param in kernel.params):
        return None
    blocks = contraction_blocks(kernel, lambda each: is_dot(each, dot))
    if blocks is None and (digits := digit_schedule(kernel, machine)) is not None:
        return digits
    if blocks is None or _has_own_data(blocks.reduction):
        return dot_window_schedule(kernel, machine) if dot.windows else None
    of, quads = blocks.reduction, blocks.data
    sizes = [known(extent) or USUAL_OPEN_SIZE for extent in of.extents]
    spatial = [at for at, kind in enumerate(of.kinds) if kind == "spatial"]
    terms = [at for at, kind in enumerate(of.kinds) if kind == "reduce"]
    vector, step = _roles(of, spatial)
    around = [at for at in spatial[:-1] if at not in (vector, step)]
    count = 1 if step is None else sizes[step]
    if step is not None and known(of.extents[step]) is None:
        rates = machine.rates
        tile = best_open_tile(sizes[vector], of.extents[step], machine.registers, rates)
    else:
        turns = _step_major(blocks)
        tiles = [tile_of(sizes[vector], count, machine, turned=each) for each in turns]
        even = [each for each in tiles if count % each.steps == 0]
        if not even:
            return None
        tile = even[0]
    shares = pays(machine, prod(sizes), kernel.params)
    # A copy that is no parameter is made for each tile of steps, just before these.
    near = quads is not None and made_by(quads) not in kernel.params
    depth = prod([sizes[at] for at in terms])
    together = 1
    if near:
        together = _together(count // tile.steps, tile.steps, depth, machine)

    def schedule() -> Body:
        total = yield st.block(str(of.label))
        last = yield st.block(str(blocks.epilogue.label))
        every: tuple[Handle, ...] = yield st.loops(total)
        vectors, many = yield st.split(every[vector], (None, tile.vectors))
        order: list[Handle] = [vectors, *[every[at] for at in around]]
        tiled = [many]
        place = 0  # of the loop that the copy is made in
        if step is not None:
            outer, group, inner = yield st.split(every[step], (None, together, tile.steps))
            order = [*order[1:], outer, vectors, group] if near else [*order, outer, group]
            place = len(order) - 3
            tiled = [inner, many]
        lane, part = every[spatial[-1]], every[terms[-1]]
        inside = [every[at] for at in terms[:-1]]
        yield st.reorder(*order, *inside, *tiled, lane, part)
        yield st.set_scope(total, 0, "local")
        yield st.reverse_compute_at(last, order[-1])
        if near and quads is not None:
            copy = yield st.block(str(quads.label))
            yield st.compute_at(copy, order[place])
        start = yield st.decompose_reduction(total, inside[0])
        yield from vectors_inside(start, len(order))
        yield st.tensorize(lane, dot.intrinsic)
        for each in tiled:
            yield st.unroll(each)
        yield from written_out([sizes[at] for at in terms[:-1]], tile, inside)
        turned = _step_major(blocks)[0] and tile.steps % dot.lanes == 0
        yield from _finished(last, len(order), dot.lanes if turned else tile.steps, tile.steps)
        kept = blocks.epilogue is not blocks.result  # sums are kept as a whole
        if blocks.weight is not None:
            yield from in_vectors(blocks.weight)
            yield from summed_by_ones(kernel, blocks.weight, dot)
        if kept:
            yield from in_vectors(blocks.result, dot.lanes if lies(blocks) else None)
        if quads is not None:
            yield from in_parts(quads, shares=shares and not near)
        if shares:
            yield from shared(order[: place + 1] if near else order[:-1] or order)

    return do(schedule)()


def summed_by_ones(kernel: Kernel, packed: Block, dot: Dot) -> Body:
    """Sums of a weight that is given are made as products are: in registers, by an instruction."""
    flow = block_flow(kernel)
    assert flow is not None
    for block in flow.readers[made_by(packed)]:
        if not _is_of_ones(block, dot):
            continue
        (after,) = flow.readers[made_by(block)]
        total = yield st.block(str(block.label))
        last = yield st.block(str(after.label))
        every: tuple[Handle, ...] = yield st.loops(total)
        spatial = block.kinds.count("spatial")
        lane, *terms, part = every[spatial - 1 :]
        yield st.reorder(*every[: spatial - 1], *terms, lane, part)
        yield st.set_scope(total, 0, "local")
        yield st.reverse_compute_at(last, every[spatial - 2])
        start = yield st.decompose_reduction(total, terms[0])
        for one in (start, last):
            *_, own = yield st.loops(one)
            yield st.vectorize(own)
        yield st.tensorize(lane, dot.intrinsic)


def _is_of_ones(of: Block, dot: Dot) -> bool:
    """Whether a block adds products of a packed weight by what all of them share."""
    data = reads(of)[0]
    whole = is_reduction(of) and data.indices == of.vars[-1:]
    return whole and data.buffer.dtype is dot.dtype


def lies(blocks: ContractionBlocks) -> bool:
    """Whether a row of the result is contiguous in the kept sums."""
    kept, row = made_by(blocks.epilogue), blocks.result.vars[-1]
    reads = [n for n in post_order(blocks.result.body) if isinstance(n, Load) and n.buffer is kept]
    return all(row in free_vars(read.indices[-1]) for read in reads)


def _step_major(blocks: ContractionBlocks) -> tuple[bool, bool]:
    """The choices of a result with steps innermost, the likelier first."""
    last, sums = blocks.epilogue, made_by(blocks.reduction)
    reads = [n for n in post_order(last.body) if isinstance(n, Load) and n.buffer is sums]
    lanes = bool(reads) and reads[0].indices[-1] is last.vars[-1]
    return not lanes, lanes


def _together(tiles: int, steps: int, depth: int, machine: Machine) -> int:
    """How many step tiles are copied at once: long rows are read faster, and copies should stay in
    cache."""
    near = min(QUADS_NEAR, 2 * machine.cache(1))
    most = max(1, min(near // depth, MAX_COPIED_COLUMNS) // steps)
    if machine.cores > 1:
        most = max(1, min(most, tiles // (EACH * machine.cores)))
    return max(each for each in range(1, most + 1) if tiles % each == 0)


def is_dot(of: Block, dot: Dot) -> bool:
    """Whether a block adds byte products over a few terms, in as many lanes as the instruction."""
    if (sides := widened_sides(of)) is None:
        return False
    left, right = sides
    shape = [known(size) for size in right.buffer.shape[-2:]]
    own = left.indices != of.vars[-1:]  # sums of the weight itself have ones
    return own and left.buffer.dtype is dot.dtype and shape == [dot.lanes, dot.terms]


def _has_own_data(of: Block) -> bool:
    """Whether lanes have separate data."""
    data = reads(of)[0]
    return of.vars[of.kinds.count("spatial") - 1] in free_vars(data.indices[-1])


def _roles(of: Block, spatial: list[int]) -> tuple[int, int | None]:
    """The loop of vectors, and the last other loop over the data, if any."""
    sides = widened_sides(of)
    assert sides is not None
    data, weight = map(free_vars, sides)
    vector = next(at for at in spatial if of.vars[at] in weight and of.vars[at] not in data)
    behind = [at for at in spatial[:-1] if at > vector]
    return vector, behind[-1] if behind else None


def _finished(last: Handle, outside: int, lanes: int, steps: int) -> Body:
    """The result of a tile, vectorized along steps if it is contiguous there."""
    every: tuple[Handle, ...] = yield st.loops(last)
    inside = every[outside:]
    if inside and lanes < steps:
        inside = (*inside[:-1], *(yield st.split(inside[-1], (None, lanes))))
    if inside:
        yield from vectors(inside)
