"""The default schedule on a GPU: form rules, then a trace whose decisions are analytical.

`GPU_FORMS` lists which stages to start from, `TEMPLATES` how to schedule the result of each form;
both are tables. `candidates` enumerates all alternatives, best first and plainest last, so that the
first that can be lowered is taken.

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

from attrs import frozen

from plica.ir.contract import exact, reassociates
from plica.ir.loop.stages import Stages, has_scan, kernel_of, reductions
from plica.ir.loop.statement import Kernel
from plica.schedule.default.gpu.attention_form import (
    PARTS_CONTRACT,
    in_key_parts,
    online,
    online_in_parts,
    online_together,
)
from plica.schedule.default.gpu.choice import with_halves
from plica.schedule.default.gpu.cost import element_cost
from plica.schedule.default.gpu.elementwise import flat_elements
from plica.schedule.default.gpu.few_bit_product import (
    FEW_BIT_WARPS,
    FewBitTile,
    few_bit_cost,
    few_bit_warps,
    few_bits_of,
)
from plica.schedule.default.gpu.fold import fold_schedule, staged_schedule
from plica.schedule.default.gpu.fold_form import column_folds, row_folds, staged_folds
from plica.schedule.default.gpu.gate import gate_cost, gate_folds, gates_of
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.merged_tile import merged_tiles
from plica.schedule.default.gpu.octet import as_they_lie
from plica.schedule.default.gpu.product_form import (
    BYTE_GROUPS,
    BYTE_WARPS,
    FEW_COLUMNS,
    GROUPS,
    HIGH,
    NARROW_WARPS,
    PART_WARPS,
    PARTS,
    TILES,
    WARPS,
    box_tiles,
    part_tiles,
    thread_tiles,
    warp_tiles,
)
from plica.schedule.default.gpu.row_arithmetic import in_fewer_instructions
from plica.schedule.default.gpu.row_block import kept_rows, staged_rows
from plica.schedule.default.gpu.running_block import running_blocks
from plica.schedule.default.gpu.scan import scan_threads
from plica.schedule.default.gpu.sorted_row import sorted_rows
from plica.schedule.default.gpu.split_column import split_columns
from plica.schedule.default.gpu.split_reduction import split_reductions
from plica.schedule.default.gpu.template import product_schedule, tensor_core_schedule
from plica.schedule.default.gpu.thread import (
    elementwise_schedule,
    flat_schedule,
    launch_by_launch,
    plain_threads,
    row_schedule,
    shared_sums,
)
from plica.schedule.default.summed import in_free_order
from plica.schedule.form import (
    AS_WRITTEN,
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

# --- forms ----------------------------------------------------------------------------------------


def _gated(of: Stages, gpu: Gpu) -> Iterator[Made]:
    if (gates := gates_of(of)) is not None:
        yield gate_cost(gates, gpu), partial(gate_folds, gates)


def _few_bits(of: Stages, gpu: Gpu) -> Iterator[Made]:
    if (few_bits := few_bits_of(of)) is not None:
        for tile in map(FewBitTile, FEW_BIT_WARPS):
            yield few_bit_cost(few_bits, tile, gpu), partial(few_bit_warps, few_bits, of, tile)


def _some(found: Stages | None) -> Iterator[Made]:
    if found is not None:
        yield found


def _fewer(of: Stages, facts: Facts) -> Stages:
    """Rows in fewer instructions, as far as they may be."""
    return in_fewer_instructions(of, facts.contract)


def _as_they_are(of: Stages, *, sums: bool | None) -> Iterator[Made]:
    """The stages themselves: with sums, without any, or whatever they are."""
    has_sums = any(reductions(stage) for stage in of.stages)
    if sums is None or has_sums == sums:
        yield of


# fmt: off
GPU_FORMS: Final[tuple[Form, ...]] = (
    Form("online-softmax", "Softmax is folded with the product after it: no score is kept.",
         reassociates, lambda of, _, gpu: online(of, gpu), BY_COST),
    Form("online-softmax-parts", "The same for f32 by 3xTF32: three products of heads and tails.",
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
         reassociates, partial(warp_tiles, together=True), BY_COST),
    Form("wgmma-boxes", "The same of windows: tiles are boxes of pixels, whose border is zeros.",
         reassociates, box_tiles, BY_COST),
    Form("tensor-core-tiles", "Warps multiply tiles of f16, bf16 or bytes, padded with zeros.",
         reassociates, partial(warp_tiles, together=False), BY_COST),
    Form("tensor-core-parts", "Warps multiply tiles of f32, each product of which is three.",
         PARTS_CONTRACT, part_tiles, BY_COST),
    Form("product-tiles", "Threads multiply tiles of f32, padded with zeros.", exact,
         partial(thread_tiles, parts=PARTS[:1]), BY_COST),
    Form("split-sums", "Tiles of f32, each of a part of the terms.", reassociates,
         partial(thread_tiles, parts=PARTS[1:]), BY_COST),
    Form("running-blocks", "Totals of all places before: threads join what those before them hold.",
         reassociates, lambda of, _, gpu: _some(running_blocks(of, gpu)), BY_COST),
    Form("sorted-rows", "Rows in order: threads of a block sort some neighbours each, and merge.",
         exact, lambda of, _, gpu: _some(sorted_rows(of, gpu)), BY_COST),
    Form("merged-tiles", "Sorted runs are merged in tiles, which threads of a block share.",
         exact, lambda of, _, gpu: _some(merged_tiles(of, gpu)), BY_COST),
    Form("flat-elements", "Elements whose rows fill no vectors, as one row of vectors and a rest.",
         exact, lambda of, _, gpu: _some(flat_elements(of, gpu)), 8),
    Form("transpose-tiles", "Squares are transposed in shared memory; else vectors of neighbours.",
         exact, lambda of, _, gpu: _as_they_are(of, sums=False), 9),
    Form("split-columns", "Columns that fill a processor are folded in parts, and read again.",
         reassociates, lambda of, facts, gpu: _some(split_columns(_fewer(of, facts), gpu)), 9),
    Form("kept-columns", "Rows along other axes than the last, which a block keeps.", reassociates,
         lambda of, facts, gpu: _some(kept_rows(_fewer(of, facts), gpu, columns=True)), 10),
    Form("column-sums", "Reductions over other axes than the last, in vectors of columns.",
         reassociates, lambda of, _, gpu: _some(column_folds(of)), 10),
    Form("split-reductions", "Few results of many terms are made in parts, then joined.",
         reassociates, lambda of, _, gpu: _some(split_reductions(of, gpu)), 11),
    Form("staged-rows", "Rows that fill no vectors, as vectors of all rows of a block.",
         reassociates, lambda of, facts, gpu: _some(staged_rows(_fewer(of, facts), gpu)), 12),
    Form("staged-sums", "Reductions of such rows.",
         reassociates, lambda of, _, gpu: _some(staged_folds(of, gpu)), 12),
    Form("block-rows", "Each row by whole warps of a block.", reassociates,
         lambda of, facts, gpu: _as_they_are(_fewer(of, facts), sums=True), 12),
    Form("kept-rows", "Rows of any length, of which a block keeps what it can.", reassociates,
         lambda of, facts, gpu: _some(kept_rows(_fewer(of, facts), gpu, columns=False)), 13),
    Form("row-sums", "Reductions of rows of any length, in vectors, joined by shuffles.",
         reassociates, lambda of, _, gpu: _some(row_folds(of, gpu)), 13),
    Form("uneven-rows", "Each row by threads of a block that are no whole warps.", reassociates,
         lambda of, facts, gpu: _as_they_are(_fewer(of, facts), sums=True), 14),
    Form("shared-sums", "Long sums by the threads of a warp or a block.", reassociates,
         lambda of, _, gpu: _as_they_are(of, sums=True), 15),
    Form("scan-rows", "Rows that are scanned, each by a thread.", exact,
         lambda of, _, gpu: [of] if has_scan(of) else [], 16),
    Form("thread-elements", "Each element by a thread.", exact,
         lambda of, _, gpu: _as_they_are(of, sums=None), 16),
)
# fmt: on
"""What stages may be made into, those of the lowest rank first."""

Template: TypeAlias = Callable[[Stages, Gpu], "tuple[Trace, Kernel] | None"]


def _as_written(of: Stages, gpu: Gpu) -> tuple[Trace, Kernel]:
    """Stages whose form has the loops and threads that it should have."""
    return Trace(()), kernel_of(of)


def _of_kernel(template: Callable[[Kernel, Gpu], tuple[Trace, Kernel] | None]) -> Template:
    return lambda of, gpu: template(kernel_of(of), gpu)


WRITTEN: Final = (
    "online-softmax", "online-softmax-parts", "online-softmax-wgmma", "split-online-softmax",
    "few-bit-warps", "running-blocks", "sorted-rows", "merged-tiles", "split-columns",
    "kept-columns", "kept-rows", "staged-rows",
)  # fmt: skip
"""Forms that write the loops and threads of their kernels."""

# fmt: off
TEMPLATES: Final[dict[str, Template]] = {
    **dict.fromkeys(WRITTEN, _as_written),
    **dict.fromkeys(("warp-gates", "column-sums", "row-sums"), fold_schedule),
    "scan-rows": _of_kernel(scan_threads),
    "staged-sums": staged_schedule,
    "flat-elements": _of_kernel(flat_schedule),
    "wgmma-tiles": lambda of, gpu: tensor_core_schedule(of, gpu, (*GROUPS, *BYTE_GROUPS)),
    "wgmma-boxes": lambda of, gpu: tensor_core_schedule(of, gpu, GROUPS),
    "tensor-core-tiles": lambda of, gpu: tensor_core_schedule(
        of, gpu, (*WARPS, *NARROW_WARPS, *BYTE_WARPS)
    ),
    "tensor-core-parts": lambda of, gpu: tensor_core_schedule(of, gpu, PART_WARPS),
    **dict.fromkeys(
        ("product-tiles", "split-sums"),
        lambda of, gpu: product_schedule(of, gpu, (*TILES, FEW_COLUMNS, HIGH)),
    ),
    "transpose-tiles": _of_kernel(elementwise_schedule),
    "split-reductions": _of_kernel(launch_by_launch),
    "block-rows": _of_kernel(partial(row_schedule, uneven=False)),
    "uneven-rows": _of_kernel(row_schedule),
    "shared-sums": _of_kernel(shared_sums),
    "thread-elements": _of_kernel(plain_threads),
}
# fmt: on
"""The template of each form's result."""


THREADS: Final = ScheduleTables(GPU_FORMS, TEMPLATES)  # what default schedules of GPUs are made of


def template_of(form: str, templates: Mapping[str, Template] = TEMPLATES) -> Template:
    """The template of a form's result; for a library's form, elements are distributed over
    threads."""
    return templates.get(form, templates[SPREAD])


SPREAD: Final = "thread-elements"  # the fallback template: one element per thread


@frozen(eq=False)
class GpuCandidate:
    """A form, its stages after hoisting constants, and its schedule.

    Without a schedule, the form is the result.
    """

    form: Formed
    hoisted: Hoisted
    trace: Trace
    kernel: Kernel
    template: str


def laid_out(of: Stages, facts: Facts) -> Stages:
    """Stages as passed to all forms: sums in free order if allowed, axes in memory order, selects
    balanced."""
    return with_halves(as_they_lie(in_free_order(of)) if facts.reassociates else of)


TRIES: Final = 3  # the number of attempts per form, cheapest result first


def candidates(
    of: Stages, facts: Facts, gpu: Gpu, tables: ScheduleTables | None = None
) -> Iterator[GpuCandidate]:
    """Everything that could be done, the best first; the last is one thread for each element."""
    own = THREADS if tables is None else tables
    for formed in forms_of(laid_out(of, facts), facts, gpu, own):
        if (candidate := traced(formed, facts, gpu, own)) is not None:
            yield candidate


def forms_of(
    of: Stages, facts: Facts, gpu: Gpu, tables: ScheduleTables = THREADS
) -> Iterator[Formed]:
    """The forms of the prepared stages, best first."""
    forms = (*tables.forms, *[priced(form, element_cost) for form in installed()])
    for rank in sorted({form.rank for form in forms}):
        mine = [form for form in forms if form.rank == rank]
        tried: Counter[str] = Counter()
        for formed in reach(mine, of, facts, gpu):
            tried[formed.form] += 1
            if tried[formed.form] <= TRIES:
                yield formed


def traced(
    form: Formed, facts: Facts, gpu: Gpu, tables: ScheduleTables = THREADS
) -> GpuCandidate | None:
    """A form with the trace of its template, or None if the template does not accept it."""
    apart = hoist(form.stages, facts.constant)
    if (made := template_of(form.form, tables.templates)(apart.rest, gpu)) is None:
        return None
    return GpuCandidate(form, apart, *made, _name_of(form.form, tables.templates))


def _name_of(form: str, templates: Mapping[str, Template]) -> str:
    """The name of the template of a form."""
    found = templates.get(form)
    if found is _as_written:
        return AS_WRITTEN
    return SPREAD if found is None else form
