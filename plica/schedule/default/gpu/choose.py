"""The default schedule on a GPU: form rules, then a trace whose decisions are analytical.

`GPU_FORMS` says which stages to begin with, `TEMPLATES` how to schedule what each form makes; both
are tables.  `candidates` goes through everything that could be done, the best first and the
plainest last, so that whoever lowers takes the first that can be lowered.

>>> from plica.ir.type.dtype import f16, f32
>>> from plica.ir.loop.scalar import Cast
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x, w = buffer("x", (100, 64), f16), buffer("w", (64, 90), f16)
>>> dense = stage("y", (100, 90), lambda m, n: reduce(
...     "sum", (64,), lambda k: Cast(x[m, k], f32) * Cast(w[k, n], f32)))
>>> facts = Facts((False, True), (), reassociates)
>>> found = next(candidates(stages((x, w), (dense,)), facts, Gpu()))
>>> found.form.form, "cuda.mma_f16_1x2" in found.trace.to_python()
('tensor-core-tiles', True)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, TypeAlias

from attrs import evolve, frozen

from plica.ir.loop.stages import Stages, kernel_of, reductions
from plica.ir.loop.statement import Kernel
from plica.ir.type.dtype import f32
from plica.rewrite.contract import exact, reassociates
from plica.schedule.default.gpu.attention_form import (
    ATTENTION_INTRINSICS,
    PARTS_CONTRACT,
    online,
    online_in_parts,
    online_together,
)
from plica.schedule.default.gpu.choice import with_halves
from plica.schedule.default.gpu.cost import (
    element_cost,
    is_enough,
    is_window,
    pad_cost,
    product_part_cost,
    tile_cost,
    turn_ways,
    warps_cost,
)
from plica.schedule.default.gpu.few_bit_product import (
    FEW_BIT_WARPS,
    FewBitTile,
    few_bit_cost,
    few_bit_intrinsics,
    few_bit_warps,
    few_bits_of,
)
from plica.schedule.default.gpu.form import NEITHER, Sides, tiled
from plica.schedule.default.gpu.gate import gate_cost, gate_intrinsics, gate_warps, gates_of
from plica.schedule.default.gpu.key_parts import PART_INTRINSICS, in_key_parts
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.octet import as_they_lie, in_octets, is_plain
from plica.schedule.default.gpu.operand import BYTES, NARROW, Operands, operands
from plica.schedule.default.gpu.product import ProductTile
from plica.schedule.default.gpu.row_arithmetic import in_fewer_instructions
from plica.schedule.default.gpu.row_block import kept_rows
from plica.schedule.default.gpu.running_block import running_blocks
from plica.schedule.default.gpu.sorted_row import sorted_rows
from plica.schedule.default.gpu.split_reduction import split_reductions
from plica.schedule.default.gpu.template import product_schedule, tensor_core_schedule
from plica.schedule.default.gpu.tensor_core import Warps
from plica.schedule.default.gpu.tensor_core_meaning import Along
from plica.schedule.default.gpu.thread import (
    elementwise_schedule,
    launch_by_launch,
    plain_threads,
    row_schedule,
    shared_sums,
)
from plica.schedule.default.summed import in_free_order
from plica.schedule.form import (
    BY_COST,
    Facts,
    Form,
    Formed,
    Made,
    ScheduleTables,
    installed,
    priced,
    reach,
)
from plica.schedule.hoist import Hoisted, hoist
from plica.schedule.trace import Trace

FEWEST: Final = 1 << 16
"""Fewer products than that are spread over threads, one sum each."""

LEAST: Final = 8
"""Rows and columns of matrices that are worth tiles, at least."""

PANEL: Final = 64
"""Rows or columns that the copy engine fetches side by side."""

PARTS: Final = (1, 2, 4, 8, 16, 32)
"""In how many parts the terms of a sum go."""

TILES: Final = (
    ProductTile(128, 128, 16, 8, 16, ahead=1),
    ProductTile(64, 128, 16, 8, 16, ahead=1),
    ProductTile(64, 64, 16, 8, 16, ahead=1),
    ProductTile(32, 64, 16, 8, 16, ahead=1),
)

FEW_COLUMNS: Final = ProductTile(128, 32, 8, 8, 8, ahead=1)
"""For windows that few channels are made of."""

HIGH: Final = ProductTile(256, 128, 16, 16, 16, ahead=2, kept=True)
"""For products of matrices of which there are not many tiles."""

GROUPS: Final = (
    Warps(2, 1, 1, 32, 4, ahead=2, together=True, near=8),
    Warps(2, 1, 1, 16, 4, ahead=3, together=True, near=8),
    Warps(1, 1, 1, 16, 4, ahead=4, together=True, near=8),
    Warps(2, 1, 1, 8, 4, ahead=4, together=True, near=8),
)
"""Tiles of warps that multiply together."""

WARPS: Final = (
    Warps(2, 4, 4, 8, 2, ahead=3),
    Warps(2, 2, 4, 8, 2, ahead=3),
    Warps(2, 2, 4, 4, 2, ahead=3),
    Warps(2, 2, 2, 4, 2, ahead=3),
    Warps(2, 2, 1, 4, 4, ahead=3),
    Warps(2, 2, 1, 2, 4, ahead=3),
)
"""Tiles from large to small."""

NARROW_WARPS: Final = (
    Warps(4, 1, 2, 2, 4, ahead=3),
    Warps(4, 1, 2, 4, 2, ahead=3),
    Warps(1, 4, 1, 4, 4, ahead=3),
    Warps(1, 4, 2, 4, 2, ahead=3),
)
"""Tiles of few columns, or of few rows."""

BYTE_WARPS: Final = tuple([evolve(each, octet=16) for each in WARPS])
"""The same of bytes: an instruction has twice as many terms."""

PART_WARPS: Final = (
    Warps(2, 4, 4, 4, 4, ahead=2, octet=4),
    Warps(2, 2, 4, 4, 4, ahead=2, octet=4),
    Warps(2, 2, 2, 4, 4, ahead=2, octet=4),
    Warps(2, 2, 1, 4, 4, ahead=2, octet=4),
    Warps(2, 2, 1, 2, 8, ahead=2, octet=4),
    *[evolve(each, steps=4, ahead=2, octet=4) for each in NARROW_WARPS],
)
"""The same of f32, whose numbers are two in registers: an instruction has half as many terms."""

BYTE_GROUPS: Final = tuple([evolve(each, octet=16) for each in GROUPS])
"""The same of bytes by warps that multiply together."""

DECLARED: Final = (
    tuple(
        [
            warps.multiplies((left, right), dtype).name
            for warps in (*GROUPS, *WARPS, *NARROW_WARPS)
            for left in (True, False)
            for right in (True, False)
            for dtype in NARROW
        ]
        + [
            warps.multiplies((True, True), left, right).name
            for warps in (*BYTE_GROUPS, *BYTE_WARPS)
            for left in BYTES
            for right in BYTES
        ]
        + [warps.multiplies((True, True), f32).name for warps in PART_WARPS]
        + [each.name for across in (1, 2, 4, 8, 16, 32) for each in gate_intrinsics(across)]
        + [each.name for each in few_bit_intrinsics()]
    )
    + ATTENTION_INTRINSICS
    + PART_INTRINSICS
)
"""What traces of theirs name, which so can be read back in a process that has made none."""


EXACT: Final = Facts(())
"""Nothing is known."""

# --- forms ----------------------------------------------------------------------------------------


def product_of(of: Stages, facts: Facts = EXACT, few: int = LEAST) -> Operands | None:
    """The product some stages are, if it is worth tiles; of f32 that has not too `few` rows."""
    found = operands(of, facts.fits_i8)
    if found is None:
        return None
    sizes = [found.size(each) for each in ("rows", "columns", "terms", "batch")]
    many = sizes[0] * sizes[1] * sizes[2] * sizes[3]
    least = few if found.dtype is f32 else LEAST // 2  # tensor cores wait for memory anyhow
    return None if min(sizes[:2]) < least or many < FEWEST else found


def _constant(of: Stages, found: Operands, facts: Facts) -> tuple[bool, bool]:
    """Which sides are known before the program runs."""
    known_ = {each.name for each, told in zip(of.inputs, facts.constant, strict=True) if told}
    return found.left.buffer.name in known_, found.right.buffer.name in known_


def along_of(of: Stages, found: Operands, facts: Facts) -> Along:
    """On which sides slices are fetched along the terms; what was gathered before lies so.

    So do bytes, as tensor cores read them in no other order.
    """
    if found.dtype in BYTES:
        return True, True
    left, right = _constant(of, found, facts)
    return left or found.along(found.left), right or found.along(found.right)


def in_warps(  # noqa: PLR0917  # what a form is made of
    of: Stages,
    facts: Facts,
    found: Operands,
    warps: Warps,
    parts: int = 1,
    pads: tuple[bool, bool] = (False, False),
) -> Stages:
    """A product in tiles of some warps."""
    return tiled(found, warps.layout(along_of(of, found, facts)), parts, pads)


def held_sides(of: Stages, facts: Facts, found: Operands) -> Sides:
    """Sides that threads hold on the way to shared memory: their terms are neighbours."""
    left, right = _constant(of, found, facts)
    return not left and found.along(found.left), not right and found.along(found.right)


def in_tiles(  # noqa: PLR0917  # what a form is made of
    of: Stages, facts: Facts, found: Operands, tile: ProductTile, parts: int = 1,
    turns: Sides = NEITHER,
) -> Stages:  # fmt: skip
    """A product in tiles of threads, after `turns` of some sides."""
    left, right = held_sides(of, facts, found)
    along = (left and not turns[0], right and not turns[1])
    return tiled(found, tile.layout(along), parts, turns=turns)


def _warps(of: Stages, facts: Facts, gpu: Gpu, together: bool) -> Iterator[Made]:
    found = product_of(of, facts)
    if found is None or found.dtype not in (*NARROW, *BYTES) or (together and not gpu.groups):
        return
    known_: tuple[Warps, ...] = GROUPS if together else (*WARPS, *NARROW_WARPS)
    if found.dtype in BYTES:
        known_ = BYTE_GROUPS if together else BYTE_WARPS
    constant = _constant(of, found, facts)
    along = along_of(of, found, facts)
    sides = [*zip((found.left, found.right), constant, along, strict=True)]
    whole = [told or in_octets(found, side, near) for side, told, near in sides]
    can_pad = [is_plain(found, side, near) for side, _, near in sides]
    every = [(not whole[0], not whole[1])] if all(
        one or pad for one, pad in zip(whole, can_pad, strict=True)
    ) else []  # fmt: skip
    if not together and (False, False) not in every:  # elements may come one by one
        every.append((False, False))
    for pads in every:
        gathers = (not whole[0] and not pads[0], not whole[1] and not pads[1])
        copies = sum(pad_cost(found, side, gpu) for (side, _, _), pad in
                     zip(sides, pads, strict=True) if pad)  # fmt: skip
        for warps in known_:
            if together and not _in_panels(found, warps, along, constant):
                continue
            for parts in PARTS:
                if parts > 1 and -(-found.depth // parts) < 4 * warps.tile[2]:
                    break
                cycles = warps_cost(found, warps, parts, gathers, gpu) + copies
                yield cycles, partial(in_warps, of, facts, found, warps, parts, pads)


def _in_parts(of: Stages, facts: Facts, gpu: Gpu) -> Iterator[Made]:
    """Products of f32 in tiles whose terms are neighbours: where they are none in memory, elements
    come one by one."""
    found = product_of(of, facts, LEAST // 2)
    if found is None or {found.kind(each) for each in (found.left, found.right)} != {f32}:
        return
    constant = _constant(of, found, facts)
    sides = [*zip((found.left, found.right), constant, strict=True)]
    gathers = [not told and not (found.along(side) and in_octets(found, side, True))
               for side, told in sides]  # fmt: skip
    if any(gathers) and is_window(found) and product_of(of, facts) is not None:
        return  # where each element of a window is takes longer than threads multiply
    for warps in PART_WARPS:
        for parts in PARTS:
            if parts > 1 and -(-found.depth // parts) < 4 * warps.tile[2]:
                break
            products = product_part_cost(found, warps, parts, (gathers[0], gathers[1]), gpu)
            yield products, partial(part_tiled, found, warps, parts)


def part_tiled(found: Operands, warps: Warps, parts: int) -> Stages:
    """A product of f32 in tiles of some warps."""
    return tiled(found, warps.layout((True, True)), parts)


def _in_panels(of: Operands, warps: Warps, along: Along, constant: tuple[bool, bool]) -> bool:
    """Whether the copy engine can fetch tiles that are several panels of 64 rows or columns."""
    rows, columns, _ = warps.tile
    sides = ((rows, "rows"), (columns, "columns"))
    return all(
        near or told or count <= PANEL or of.size(group) % PANEL == 0  # type: ignore[arg-type]  # a group's name
        for (count, group), near, told in zip(sides, along, constant, strict=True)
    )


def _tiles(of: Stages, facts: Facts, gpu: Gpu, parts: tuple[int, ...]) -> Iterator[Made]:
    found = product_of(of, facts)
    if found is None or found.dtype is not f32:
        return
    if not facts.reassociates and any(each.runs for each in reductions(of)):
        return  # totals of runs are kept apart
    plain = not is_window(found) and found.size("batch") == 1
    held = held_sides(of, facts, found)
    for turns, copying in turn_ways(found, held, gpu):
        copied = not is_window(found) and turns == held
        for tile in _tiles_for(found, plain=plain and not any(turns)):
            for count in parts:
                if count > 1 and is_enough(found, tile, count, gpu):
                    break
                cycles = tile_cost(found, tile, count, gpu, copied=copied) + copying
                yield cycles, partial(in_tiles, of, facts, found, tile, count, turns)


def _tiles_for(of: Operands, *, plain: bool) -> tuple[ProductTile, ...]:
    """Tiles that may suit a product; a `plain` one has two matrices, as they lie."""
    if plain:
        return (*TILES, HIGH)
    return (*TILES, FEW_COLUMNS) if is_window(of) else TILES


def _gated(of: Stages, gpu: Gpu) -> Iterator[Made]:
    if (found := gates_of(of)) is not None:
        yield gate_cost(found, gpu), partial(gate_warps, found)


def _few_bits(of: Stages, gpu: Gpu) -> Iterator[Made]:
    if (found := few_bits_of(of)) is not None:
        for tile in map(FewBitTile, FEW_BIT_WARPS):
            yield few_bit_cost(found, tile, gpu), partial(few_bit_warps, found, of, tile)


def _some(found: Stages | None) -> Iterator[Made]:
    if found is not None:
        yield found


def _fewer(of: Stages, facts: Facts) -> Stages:
    """Rows in fewer instructions, as far as they may be."""
    return in_fewer_instructions(of, facts.contract)


def _as_they_are(of: Stages, *, sums: bool | None) -> Iterator[Made]:
    """The stages themselves: with sums, without any, or whatever they are."""
    has_sums = any(reductions(each) for each in of.stages)
    if sums is None or has_sums == sums:
        yield of


# fmt: off
GPU_FORMS: Final[tuple[Form, ...]] = (
    Form("online-softmax", "Softmax is folded with the product after it: no score is kept.",
         reassociates, lambda of, _, gpu: online(of, gpu), BY_COST),
    Form("online-softmax-parts", "The same of f32: a product is three of the first bits and rests.",
         PARTS_CONTRACT, lambda of, _, gpu: online_in_parts(of, gpu), BY_COST),
    Form("online-softmax-wgmma", "The same by four warps together, from tiles of the copy engine.",
         reassociates, lambda of, _, gpu: online_together(of, gpu), BY_COST),
    Form("split-online-softmax", "Few rows: keys are read once, in parts that are joined.",
         reassociates, lambda of, _, gpu: in_key_parts(of, gpu), BY_COST),
    Form("warp-gates", "An element and all sums that it needs by the threads of a warp.",
         reassociates, lambda of, _, gpu: _gated(of, gpu), BY_COST),
    Form("few-bit-warps", "Weights of few bits are restored in registers, for tensor cores.",
         reassociates, lambda of, _, gpu: _few_bits(of, gpu), BY_COST),
    Form("wgmma-tiles", "Four warps multiply tiles that the copy engine fetches.",
         reassociates, partial(_warps, together=True), BY_COST),
    Form("tensor-core-tiles", "Warps multiply tiles of f16, bf16 or bytes, padded with zeros.",
         reassociates, partial(_warps, together=False), BY_COST),
    Form("tensor-core-parts", "Warps multiply tiles of f32, each product of which is three.",
         PARTS_CONTRACT, _in_parts, BY_COST),
    Form("product-tiles", "Threads multiply tiles of f32, padded with zeros.", exact,
         partial(_tiles, parts=PARTS[:1]), BY_COST),
    Form("split-sums", "Tiles of f32, each of a part of the terms.", reassociates,
         partial(_tiles, parts=PARTS[1:]), BY_COST),
    Form("running-blocks", "Totals of all places before: threads join what those before them hold.",
         reassociates, lambda of, _, gpu: _some(running_blocks(of, gpu)), BY_COST),
    Form("sorted-rows", "Rows in order: threads of a block sort some neighbours each, and merge.",
         exact, lambda of, _, gpu: _some(sorted_rows(of, gpu)), BY_COST),
    Form("transpose-tiles", "Squares are transposed in shared memory; else vectors of neighbours.",
         exact, lambda of, _, gpu: _as_they_are(of, sums=False), 9),
    Form("kept-columns", "Rows along other axes than the last, which a block keeps.", reassociates,
         lambda of, facts, gpu: _some(kept_rows(_fewer(of, facts), gpu, columns=True)), 10),
    Form("split-reductions", "Few results of many terms are made in parts, then joined.",
         reassociates, lambda of, _, gpu: _some(split_reductions(of, gpu)), 11),
    Form("block-rows", "Each row by whole warps of a block.", reassociates,
         lambda of, facts, gpu: _as_they_are(_fewer(of, facts), sums=True), 12),
    Form("kept-rows", "Rows of any length, of which a block keeps what it can.", reassociates,
         lambda of, facts, gpu: _some(kept_rows(_fewer(of, facts), gpu, columns=False)), 13),
    Form("uneven-rows", "Each row by threads of a block that are no whole warps.", reassociates,
         lambda of, facts, gpu: _as_they_are(_fewer(of, facts), sums=True), 14),
    Form("shared-sums", "Long sums by the threads of a warp or a block.", reassociates,
         lambda of, _, gpu: _as_they_are(of, sums=True), 15),
    Form("thread-elements", "Each element by a thread.", exact,
         lambda of, _, gpu: _as_they_are(of, sums=None), 16),
)
# fmt: on
"""What stages may be made into, those of the lowest rank first."""

Template: TypeAlias = Callable[[Stages, Gpu], "tuple[Trace, Kernel] | None"]


def _of_kernel(template: Callable[[Kernel, Gpu], tuple[Trace, Kernel] | None]) -> Template:
    return lambda of, gpu: template(kernel_of(of), gpu)


# fmt: off
TEMPLATES: Final[dict[str, Template]] = {
    "online-softmax": lambda of, gpu: (Trace(()), kernel_of(of)),
    "online-softmax-parts": lambda of, gpu: (Trace(()), kernel_of(of)),
    "online-softmax-wgmma": lambda of, gpu: (Trace(()), kernel_of(of)),
    "split-online-softmax": lambda of, gpu: (Trace(()), kernel_of(of)),
    "warp-gates": lambda of, gpu: (Trace(()), kernel_of(of)),
    "few-bit-warps": lambda of, gpu: (Trace(()), kernel_of(of)),
    "running-blocks": lambda of, gpu: (Trace(()), kernel_of(of)),
    "sorted-rows": lambda of, gpu: (Trace(()), kernel_of(of)),
    "kept-columns": lambda of, gpu: (Trace(()), kernel_of(of)),
    "kept-rows": lambda of, gpu: (Trace(()), kernel_of(of)),
    "wgmma-tiles": lambda of, gpu: tensor_core_schedule(of, gpu, (*GROUPS, *BYTE_GROUPS)),
    "tensor-core-tiles": lambda of, gpu: tensor_core_schedule(
        of, gpu, (*WARPS, *NARROW_WARPS, *BYTE_WARPS)
    ),
    "tensor-core-parts": lambda of, gpu: tensor_core_schedule(of, gpu, PART_WARPS),
    "product-tiles": lambda of, gpu: product_schedule(of, gpu, (*TILES, FEW_COLUMNS, HIGH)),
    "split-sums": lambda of, gpu: product_schedule(of, gpu, (*TILES, FEW_COLUMNS, HIGH)),
    "transpose-tiles": _of_kernel(elementwise_schedule),
    "split-reductions": _of_kernel(launch_by_launch),
    "block-rows": _of_kernel(partial(row_schedule, uneven=False)),
    "uneven-rows": _of_kernel(row_schedule),
    "shared-sums": _of_kernel(shared_sums),
    "thread-elements": _of_kernel(plain_threads),
}
# fmt: on
"""How what a form makes is scheduled."""


THREADS: Final = ScheduleTables(GPU_FORMS, TEMPLATES)
"""What default schedules of GPUs are made of."""


def template_of(form: str, templates: Mapping[str, Template] = TEMPLATES) -> Template:
    """How what a form makes is scheduled; that of a library is spread over threads."""
    return templates.get(form, templates["thread-elements"])


@frozen(eq=False)
class GpuCandidate:
    """A form, what is left of it once constants are hoisted, and its schedule.

    Where there is no schedule, the form is all there is to say.
    """

    form: Formed
    hoisted: Hoisted
    trace: Trace
    kernel: Kernel


def laid_out(of: Stages, facts: Facts) -> Stages:
    """Stages as all forms are asked about them: sums in free order where they may be, axes as they
    lie in memory, choices in halves."""
    return with_halves(as_they_lie(in_free_order(of)) if facts.reassociates else of)


TRIES: Final = 3
"""How often a form is tried, the cheapest of what it makes first."""


def candidates(
    of: Stages, facts: Facts, gpu: Gpu, tables: ScheduleTables | None = None
) -> Iterator[GpuCandidate]:
    """Everything that could be done, the best first; the last is one thread for each element."""
    own = THREADS if tables is None else tables
    forms = (*own.forms, *[priced(each, element_cost) for each in installed()])
    of = laid_out(of, facts)
    for rank in sorted({each.rank for each in forms}):
        mine = [each for each in forms if each.rank == rank]
        tried: Counter[str] = Counter()
        for formed in reach(mine, of, facts, gpu):
            tried[formed.form] += 1
            if tried[formed.form] > TRIES:
                continue
            apart = hoist(formed.stages, facts.constant)
            made = template_of(formed.form, own.templates)(apart.rest, gpu)
            if made is not None:
                yield GpuCandidate(formed, apart, *made)
