"""Roles of blocks: which stage of a kernel is the reduction, its epilogue, what makes its operands.

    pad[…]    = x[…] if inside else 0        what makes the data: a copy, a panel
    packed[…] = w[…]                         what makes the weight
    sum[…]    = sum of pad[…] * packed[…]    the reduction
    out[…]    = f(sum[…])                    the epilogue

Roles follow from dataflow, never from stage names, so templates serve stages of any form.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import kernel_of, stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import f32
>>> x, w = buffer("x", (4, 8), f32), buffer("w", (8, 6), f32)
>>> turned = stage("anything", (6, 8), lambda i, j: w[j, i])
>>> dots = stage("b", (4, 6), lambda i, j: reduce("sum", (8,), lambda k: x[i, k] * turned[j, k]))
>>> last = stage("c", (4, 6), lambda i, j: dots[i, j] + 1)
>>> found = contraction_blocks(kernel_of(stages((x, w), (turned, dots, last))))
>>> [str(each.label) for each in (found.weight, found.reduction, found.epilogue)], found.data
(['anything', 'b', 'c'], None)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import prod

from attrs import frozen

from plica.analysis.site import map_of
from plica.core import Name, Term, free_vars, post_order
from plica.ir.loop.scalar import (
    Add,
    Buffer,
    Cast,
    FloorMod,
    Lit,
    Load,
    Max,
    Min,
    Mul,
    Scalar,
    ScalarVar,
    Select,
    Sub,
)
from plica.ir.loop.statement import Block, Kernel, Store
from plica.ir.type import DType, known
from plica.schedule.default.contraction import stride
from plica.schedule.default.machine import MIN_LANES
from plica.schedule.default.tile import USUAL_OPEN_SIZE


@frozen(eq=False)
class BlockFlow:
    """The blocks of a kernel in order, which of them fills a buffer, and which read it."""

    blocks: Mapping[Name, Block]
    writer: Mapping[Buffer, Block]
    readers: Mapping[Buffer, tuple[Block, ...]]
    result: Block  # what fills the result of the kernel


@lru_cache(maxsize=256)
def block_flow(kernel: Kernel) -> BlockFlow | None:
    """The producers and consumers of each block; None if a block does anything but store an element
    of its own buffer."""
    blocks = map_of(kernel).blocks.nodes
    writer: dict[Buffer, Block] = {}
    readers: dict[Buffer, list[Block]] = {}
    for block in blocks.values():
        if not isinstance(block.body, Store) or block.body.buffer in writer:
            return None
        writer[block.body.buffer] = block
        for buffer in {load.buffer: None for load in reads(block)}:
            readers.setdefault(buffer, []).append(block)
    if (result := writer.get(kernel.params[-1])) is None:
        return None
    return BlockFlow(
        blocks, writer, {buffer: tuple(found) for buffer, found in readers.items()}, result
    )


def only_map(kernel: Kernel) -> Block | None:
    """The one block of a kernel that folds nothing and stores each element at its own place."""
    flow = block_flow(kernel)
    if flow is None or len(flow.blocks) != 1 or is_reduction(of := flow.result):
        return None
    return of if isinstance(of.body, Store) and of.body.indices == of.vars else None


def reads(of: Block) -> list[Load]:
    """The loads of a block, without its accumulator."""
    assert isinstance(of.body, Store)
    own = of.body.buffer
    loads = [node for node in post_order(of.body) if isinstance(node, Load)]
    return [load for load in loads if load.buffer is not own]


def made_by(of: Block) -> Buffer:
    """The buffer that a block fills."""
    assert isinstance(of.body, Store)
    return of.body.buffer


def is_reduction(of: Block) -> bool:
    """Whether a block combines several terms for each element."""
    return "reduce" in of.kinds


def sizes_of(of: Block) -> list[int]:
    """The extents of a block, 0 where one is open."""
    return [known(size) or 0 for size in of.extents]


def terms_of(of: Block | None) -> tuple[int, ...]:
    """The extents of a block's terms; empty without a block."""
    if of is None:
        return ()
    both = zip(of.kinds, of.extents, strict=True)
    return tuple([known(size) or 1 for kind, size in both if kind == "reduce"])


@frozen(eq=False)
class ContractionBlocks:
    """The blocks of a kernel with one contraction, by role."""

    reduction: Block
    epilogue: Block
    result: Block
    """The epilogue, or what reads that."""
    data: Block | None
    """The producer of the data, or None if it is an input."""
    weight: Block | None
    """The producer of the weight, or None if it is an input."""
    source: Block | None
    """What makes the data that `data` reads."""
    total: Block | None = None
    """The block that adds up runs, if there are runs."""
    tail: Block | None = None
    """The reduction of the last run, where that is shorter than others."""
    again: Block | None = None
    """The consumer of complete totals, if they are kept in memory between runs."""


def contraction_blocks(
    kernel: Kernel, wanted: Callable[[Block], bool] = is_reduction, *, runs: bool = False
) -> ContractionBlocks | None:
    """The roles of a kernel's blocks, or None unless exactly one is a suitable reduction with one
    consumer. With `runs`, it may go in runs."""
    flow = block_flow(kernel)
    blocks = [] if flow is None else [e for e in flow.blocks.values() if wanted(e)]
    apart = _in_runs(flow, blocks) if flow is not None and runs and len(blocks) > 1 else None
    if flow is None or (len(blocks) != 1 and apart is None):
        return None
    total, adds, tail = (blocks[0], None, None) if apart is None else apart
    after = flow.readers.get(made_by(adds or total), ())
    operands = sides(total)
    if operands is None or len(after) != 1:
        return None
    again = None
    if adds is not None and made_by(adds) in kernel.params:
        (again,) = after
        after = flow.readers.get(made_by(again), ())
        if len(after) != 1:
            return None
    left, right = operands
    data = flow.writer.get(left.buffer)
    weight = None if right is None else flow.writer.get(right.buffer)
    before = [] if data is None else [flow.writer.get(load.buffer) for load in reads(data)]
    source = next((block for block in before if block is not None), None)
    return ContractionBlocks(
        total, after[0], flow.result, data, weight, source, total=adds, tail=tail, again=again
    )


def _in_runs(flow: BlockFlow, found: list[Block]) -> tuple[Block, Block, Block | None] | None:
    """The reduction of each run, what adds these up, and that of the last run, if it is apart."""
    made = {made_by(block): block for block in found}
    adding = [block for block in found if all(load.buffer in made for load in reads(block))]
    if not adding:
        adding = [block for block in found if _scaled(block, made) is not None]
    if len(adding) != 1:
        return None
    (adds,) = adding
    runs = {made[load.buffer] for load in reads(adds) if load.buffer in made}
    rest = [block for block in found if block is not adds and block not in runs]
    if (scaled := _scaled(adds, made)) is not None:
        runs = {scaled}
    if len(runs) != 1 or len(rest) > 1:
        return None
    (run,) = runs
    after = flow.readers.get(made_by(adds), ())
    if flow.readers[made_by(run)] != (adds,):
        return None
    if rest and flow.readers.get(made_by(rest[0])) != after:
        return None
    return run, adds, rest[0] if rest else None


def _scaled(of: Block, made: Mapping[Buffer, Block]) -> Block | None:
    """The run that a block adds up, scaled and with common terms subtracted, or None."""
    body = (
        of.body.value.right
        if isinstance(of.body, Store) and isinstance(of.body.value, Add)
        else None
    )
    match body.value if isinstance(body, Cast) else body:
        case Mul(Load(), Sub(Load(run, (_, *places)), Mul(_, Load()))):
            pass
        case _:
            return None
    axes = [var for var, kind in zip(of.vars, of.kinds, strict=True) if kind == "spatial"]
    return made.get(run) if places == axes else None


def sides(of: Block) -> tuple[Load, Load | None] | None:
    """The factors of a reduction: the data, and the weight."""
    body = of.body
    if not isinstance(body, Store) or not isinstance(body.value, Add | Max | Min):
        return None
    match body.value.right:
        case Mul(left, right):
            data, weight = only_load(left), only_load(right)
            return None if data is None or weight is None else (data, weight)
        case Scalar() as term:
            data = only_load(term)
            return None if data is None else (data, None)


def only_load(of: Term) -> Load | None:
    """The only load of a term, besides values shared by all elements, or None."""
    loads = [node for node in post_order(of) if isinstance(node, Load) and node.indices]
    return loads[0] if len(loads) == 1 else None


def reads_rows(of: Block) -> bool:
    """Whether a copy reads along the rows of its source."""
    loads = [node for node in post_order(of.body) if isinstance(node, Load)]
    return all(of.vars[-1] in free_vars(load.indices[-1]) for load in loads)


def turns_rows(of: Block) -> bool:
    """Whether a copy reads along its second-last loop what it writes along the last: registers
    transpose squares of it, if there are enough neighbours."""
    loads = [node for node in post_order(of.body) if isinstance(node, Load)]
    if len(of.vars) < 2 or len(loads) != 1 or loads[0].indices[-1] is not of.vars[-2]:
        return False
    length, lanes = (known(size) or 0 for size in of.extents[-2:])
    apart = [index for index in loads[0].indices[:-1] if of.vars[-1] in free_vars(index)]
    return len(apart) == 1 and MIN_LANES <= lanes <= length and not lanes & (lanes - 1)


def is_guarded(of: Block) -> bool:
    """Whether a copy puts something else where a condition does not hold."""
    return isinstance(of.body, Store) and isinstance(of.body.value, Select)


# --- loops ----------------------------------------------------------------------------------------

MOST_SLIDING = 72
"""Multiply-adds in the text of the innermost loop of a window that slides, at most."""


@frozen
class Roles:
    """The roles of a sum's loops, by position: outer loops, steps, lanes, terms."""

    batch: tuple[int, ...]
    around: tuple[int, ...]
    steps: int | None
    lane: int
    terms: tuple[int, ...]
    extents: tuple[int, ...]
    blocked: bool
    """Whether lanes are over outputs: vectors are of the weight."""
    dtype: DType
    result: tuple[int, ...]
    """Which loops of the sum those of the result are, in its order."""
    sliding: bool
    """Whether nothing but data is reused: steps are neighbours that read the same data."""
    apart: int = 0
    """The distance in bytes of steps in the operand read by elements."""
    depth: int = 0
    """The total number of terms."""
    runs: int = 0
    """The number of axes over the runs of a sum, if there is a `total`."""
    tail: tuple[int, ...] = ()
    """The terms of the last run, where that is shorter."""
    widened: int = 0
    """Where weights are of few bits, how many outputs lie side by side in them."""
    near: int = 0
    """The distance in bytes of terms in the operand read by elements."""
    opened: bool = False
    """Whether loops besides lanes and terms are open, whose extents are usual ones."""
    open_steps: Scalar | None = None
    """The extent of steps, if it is open."""
    wide: int = 0
    """How many outputs of a packed weight lie side by side, before those of the next term."""

    @property
    def products(self) -> int:
        """How many products are summed in all."""
        return prod(self.extents[: len(self.extents) - len(self.terms)]) * self.depth

    def held(self, lanes: int) -> int | None:
        """The number of vectors of a tile if the packed weight fixes it, else None."""
        return self.wide // lanes if self.wide > lanes else None


def roles(kernel: Kernel) -> Roles | None:
    """The loop roles of a kernel's reduction, or None if it is no sum of products."""
    blocks = contraction_blocks(kernel, runs=True)
    if blocks is None or blocks.epilogue is not blocks.result:
        return None
    of = blocks.reduction
    body = of.body
    runs = len(terms_of(blocks.total))
    if not isinstance(body, Store) or not isinstance(body.value, Add | Max | Min):
        return None
    sizes = [known(extent) for extent in of.extents]
    extents = tuple([USUAL_OPEN_SIZE if size is None else size for size in sizes[runs:]])
    widened = 0
    match body.value.right:
        case Mul(Load() as left, Load() as right) | Mul(
            Select(_, Load() as left, _), Load() as right
        ):
            data, weight = free_vars(left), free_vars(right)
        case Mul(Load() as left, Cast() as wide) if (right_ := only_load(wide)) is not None:
            right, data, weight = right_, free_vars(left), free_vars(right_)
            widened = known(right.buffer.shape[-1]) or 0
        case Load() as left:
            right, data, weight = left, free_vars(left), frozenset()
        case _:
            return None
    kinds, vars_ = of.kinds[runs:], of.vars[runs:]
    spatial = [at for at, kind in enumerate(kinds) if kind == "spatial"]
    terms = tuple([at for at, kind in enumerate(kinds) if kind == "reduce"])
    lane = spatial[-1]
    if None in [*sizes[:runs], *[sizes[runs + at] for at in (lane, *terms)]]:
        return None
    blocked = vars_[lane] in weight

    def only(at: int, one: object, other: object) -> bool:
        assert isinstance(one, frozenset)
        assert isinstance(other, frozenset)
        var: ScalarVar = vars_[at]
        return var in one and var not in other

    mine, theirs = (weight, data) if blocked else (data, weight)
    rest = spatial[:-1]
    steps = next((at for at in reversed(rest) if only(at, theirs, mine)), None)
    few = prod([extents[at] for at in terms]) <= MOST_SLIDING
    sliding = not blocked and steps is None and few  # many terms are no window, but a long sum
    if sliding:
        steps = next((at for at in reversed(rest) if only(at, data, weight)), None)
    others = [at for at in rest if at != steps]
    batch = tuple([at for at in others if vars_[at] in weight or not weight])
    around = tuple([at for at in others if at not in batch])
    last = blocks.again or blocks.total
    whole = body.buffer if last is None else made_by(last)
    if (result := _result(blocks.epilogue, whole, spatial)) is None:
        return None
    dtype = body.buffer.dtype
    single = left if blocked else right
    apart = 0 if steps is None else stride(single, vars_[steps])
    long = [at for at in terms if extents[at] > 1 and weight]
    near = stride(single, vars_[long[-1]]) if long else 0
    tail = terms_of(blocks.tail)
    depth = prod([*terms_of(of), *terms_of(blocks.total)]) + (prod(tail) if tail else 0)
    return Roles(
        batch, around, steps, lane, terms, extents, blocked, dtype, result, sliding, apart,
        depth, runs, tail, widened, near, None in sizes,
        None if steps is None or sizes[runs + steps] is not None else of.extents[runs + steps],
        _packed_wide(right, vars_[lane]) if blocked else 0,
    )  # fmt: skip


def _packed_wide(weight: Load, lane: ScalarVar) -> int:
    """How many outputs lie side by side in a weight that is packed in blocks, 0 in any other."""
    match weight.indices[-1]:
        case FloorMod(var, Lit(number)) if var is lane:
            return int(number)
        case _:
            return 0


def _result(epilogue: Block, total: Buffer, spatial: list[int]) -> tuple[int, ...] | None:
    """Which loops of the sum the variables of the epilogue are."""
    reads = [n for n in post_order(epilogue.body) if isinstance(n, Load) and n.buffer is total]
    if len(reads) != 1 or not set(epilogue.vars) <= set(reads[0].indices):
        return None
    places = reads[0].indices
    return tuple([spatial[places.index(var)] for var in epilogue.vars])
