"""Scheduled for threads: the kernel of a primitive function on a GPU.

    Function --to_stages--> Stages --forms--> Stages --hoist--> Stages --trace--> Kernel --> lowered

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Apply, Var
>>> from plica.ir.type.term import tensor
>>> x, w = Var(Name("x"), tensor((70, 32), "f16")), Var(Name("w"), tensor((32, 90), "f16"))
>>> function = Function((), (), (x, w), tensor((70, 90), "f16"), Apply("matmul", (x, w)))
>>> made = for_threads(function, Facts((False, True), (), reassociates), Gpu())
>>> [str(each.name) for each in made.kernel.params], made.reads[0], made.passed_over
(['x', 'right', 'out'], 0, ())
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from attrs import evolve

from plica.analysis.statement import LoweringRefused
from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.limit import check
from plica.codegen.cuda.open_kernel import open_kernel
from plica.codegen.lower.candidate import Candidate, PassedOver, ScheduleSteps, StagedGroup
from plica.codegen.lower.chunk import ChunkRows, chunk, elements_of, row_bytes
from plica.codegen.lower.passes import LOWERING, LoweredKernel, digest_of, lowered
from plica.codegen.lower.scheduled import (
    ChosenSchedule,
    Scheduled,
    Scheduler,
    TunedBy,
    from_form,
    plain,
    untuned,
)
from plica.codegen.lower.size_abstraction import abstracted
from plica.codegen.operation_count import operations
from plica.ir.contract import Contract, reassociates
from plica.ir.graph.expression import Function
from plica.ir.loop import Each, Kernel
from plica.ir.loop.stages import as_elements
from plica.ir.loop.tensor import as_reductions
from plica.rewrite.fuse.to_stages import to_stages
from plica.runtime.error import Diagnostic, Place, UnsupportedError
from plica.schedule.collapse import collapsed
from plica.schedule.default.gpu import Gpu
from plica.schedule.default.gpu.choose import THREADS, forms_of, laid_out, traced
from plica.schedule.default.gpu.thread import (
    elementwise_schedule,
    plain_threads,
    row_schedule,
    shared_sums,
)
from plica.schedule.form import Facts, Formed, ScheduleTables
from plica.schedule.trace import Trace

MANY_PARTS: Final = 32  # the minimum number of chunks of the largest row count handled together
PARTS: Final = 8  # the number of chunks of a smaller row count handled together
LONE_PARTS: Final = 2
"""This many of single rows, which are large: an image is work for half of a machine."""

TOGETHER: Final = 128  # rows of a tile of products, at most
BESIDE: Final = 4096  # elements that some blocks of threads make at once
FEWER: Final = 8  # how many times fewer rows the next code is for
ALIGNED: Final = 16  # bytes of the widest access: rows begin at multiples of them

__all__ = ["Facts", "for_threads", "reassociates", "refused", "threaded", "threads"]


def threads(
    gpu: Gpu, contract: Contract, tuned: TunedBy = untuned, tables: ScheduleTables | None = None
) -> Scheduler:
    """Kernels for a GPU, by the forms and templates of its target."""

    def schedule(function: Function, facts: Facts, chosen: ChosenSchedule | None) -> Scheduled:
        return for_threads(function, facts, gpu, chosen, tables)

    return Scheduler(
        schedule,
        contract,
        tuned,
        looks_at_bytes=True,
        chunks=row_counts,
        parts=at_once,
        steps=gpu_steps(gpu, tables),
    )


@lru_cache(maxsize=1024)
def for_threads(
    function: Function,
    facts: Facts,
    gpu: Gpu,
    chosen: ChosenSchedule | None = None,
    tables: ScheduleTables | None = None,
) -> Scheduled:
    """The kernel of a function; a `chosen` schedule replaces the default."""
    return gpu_steps(gpu, tables).schedule(function, facts, chosen)


def gpu_steps(gpu: Gpu, tables: ScheduleTables | None = None) -> ScheduleSteps:
    """The steps of a GPU from groups to kernels."""
    own = THREADS if tables is None else tables
    return ScheduleSteps(
        stages=_staged,
        forms=lambda of: forms_of(of.stages, of.facts, _part(gpu, of.facts), own),
        candidates=lambda of, forms: _in_turn(of, forms, _part(gpu, of.facts), own),
        lower=lambda of, kernel: lowered_for_gpu(kernel, _part(gpu, of.facts)),
        plain=lambda of: plain(of.function),  # there is nothing to spread over threads
    )


def _staged(
    steps: ScheduleSteps, function: Function, facts: Facts, chosen: ChosenSchedule | None
) -> StagedGroup:
    """The stages for forms; or a kernel, tuned or for any size."""
    if chosen is not None:
        tuned = from_form(function, facts, chosen.form, chosen.trace, chosen.kernel)
        return StagedGroup(steps, function, facts, chosen.form, done=tuned)
    whole = to_stages(function).stages
    if whole.dims:
        return StagedGroup(steps, function, facts, whole, done=for_any_size(function, facts))
    whole = laid_out(collapsed(whole, facts.reassociates), facts)
    return StagedGroup(steps, function, facts, whole)


def _part(gpu: Gpu, facts: Facts) -> Gpu:
    """What one of several parts that are done at once has of a GPU."""
    if facts.parts == 1:
        return gpu
    return evolve(gpu, processors=-(-gpu.processors // facts.parts), groups=False)


def _in_turn(
    of: StagedGroup, forms: Iterator[Formed], gpu: Gpu, tables: ScheduleTables
) -> Iterator[Candidate | PassedOver]:
    """Forms with their traces, without those that no template knows."""
    for form in forms:
        if (candidate := traced(form, of.facts, gpu, tables)) is None:
            continue
        if of.facts.parts > 1 and len(candidate.kernel.params) > candidate.kernel.inputs + 1:
            yield PassedOver(form, "it has memory that all parts of the rows would share")
        else:
            yield Candidate(form, candidate.template, candidate.trace, candidate.kernel)


def for_any_size(function: Function, facts: Facts) -> Scheduled:
    """The kernel of a function with open sizes."""
    told = abstracted(to_stages(function).stages)
    whole = collapsed(told.stages, facts.reassociates, opened=True)
    whole = as_elements(whole, as_reductions)
    source = to_stages(function).source
    if not all(isinstance(stage, Each) for stage in whole.stages):
        message = f"{source} is made element after element: on a GPU that is done for known sizes."
        raise UnsupportedError(Diagnostic("unsupported", message, Place(node=source)))
    kernel = open_kernel(whole, facts.reassociates)
    reads = to_stages(function).reads
    return Scheduled(kernel, digest_of(kernel), reads, source, given=told.given)


def row_counts(rows: ChunkRows) -> tuple[int, ...]:
    """The row counts with specialised code for an open number of rows, largest first, ending with
    one; empty if rows are not aligned to vectors.

    Rows that share what they read go together, until that is read for `TOGETHER` rows of results;
    others until they are a few blocks of threads.
    """
    if any(
        rowed and row_bytes(buffer, rows) % ALIGNED
        for buffer, rowed in zip(rows.buffers, rows.rowed, strict=True)
    ):
        return ()
    result, own, shared = elements_of(rows)
    most = BESIDE // max(1, result)
    if shared > own:
        done = operations(plain(chunk(rows, 1)).kernel)
        most = TOGETHER // max(1, done // (2 * shared))
    most = 1 << max(0, most.bit_length() - 1)
    return tuple(dict.fromkeys([most, max(1, most // FEWER), 1]))


def at_once(sizes: Sequence[int], size: int) -> int:
    """The number of chunks handled together for a row count."""
    if len(sizes) == 1:
        return LONE_PARTS
    return MANY_PARTS if size == sizes[0] else PARTS


def refused(kernel: Kernel, gpu: Gpu) -> str:
    """Why a scheduled kernel cannot be emitted for a GPU; nothing where it can be."""
    made = lowered_for_gpu(kernel, gpu)
    return made if isinstance(made, str) else ""


def lowered_for_gpu(kernel: Kernel, gpu: Gpu) -> LoweredKernel | str:
    """A scheduled kernel lowered for a GPU, or why it cannot be emitted for it."""
    passes = LOWERING["gpu"].passes
    try:
        made = lowered(kernel, passes)
        check(fold(made, "kernel").launches, gpu, "kernel")
    except LoweringRefused as refusal:
        return refusal.reason
    return LoweredKernel(made, passes)


def threaded(kernel: Kernel, gpu: Gpu) -> tuple[Trace, Kernel] | None:
    """The default schedule of a user's kernel, and the scheduled kernel."""
    for template in (elementwise_schedule, row_schedule, shared_sums, plain_threads):
        found = template(kernel, gpu)
        if found is not None and not refused(found[1], gpu):
            return found
    return None
