"""Scheduled for threads: the kernel of a primitive function on a GPU.

    Function --to_stages--> Stages --forms--> Stages --hoist--> Stages --trace--> Kernel --> lowered

Of what could be done the first that can be lowered is taken, and why others were passed over is
kept.  What nothing fits is done by one thread, as a processor would.

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

from collections.abc import Mapping
from functools import lru_cache

from attrs import evolve

from plica.analysis.statement import LoweringRefused
from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.limit import check
from plica.codegen.lower.passes import LOWERING, lowered
from plica.codegen.lower.scheduled import (
    NOTHING,
    ChosenSchedule,
    Scheduled,
    Scheduler,
    from_form,
    plain,
)
from plica.ir.graph.expression import Function
from plica.ir.loop.statement import Kernel
from plica.rewrite.contract import Contract, reassociates
from plica.rewrite.fuse.to_stages import to_stages
from plica.schedule.collapse import collapsed
from plica.schedule.default.gpu import Gpu, candidates
from plica.schedule.default.gpu.thread import (
    elementwise_schedule,
    plain_threads,
    row_schedule,
    shared_sums,
)
from plica.schedule.form import Facts, ScheduleTables
from plica.schedule.trace import Trace

__all__ = ["Facts", "for_threads", "reassociates", "refused", "threaded", "threads"]


def threads(
    gpu: Gpu,
    contract: Contract,
    tuned: Mapping[str, ChosenSchedule] = NOTHING,
    tables: ScheduleTables | None = None,
) -> Scheduler:
    """Kernels for a GPU, by the forms and templates of its target."""

    def schedule(function: Function, facts: Facts, chosen: ChosenSchedule | None) -> Scheduled:
        return for_threads(function, facts, gpu, chosen, tables)

    return Scheduler(schedule, contract, tuned, looks_at_bytes=True)


@lru_cache(maxsize=1024)
def for_threads(
    function: Function,
    facts: Facts,
    gpu: Gpu,
    chosen: ChosenSchedule | None = None,
    tables: ScheduleTables | None = None,
) -> Scheduled:
    """The kernel of a function; what was `chosen` takes the place of what the default would be."""
    if chosen is not None:
        return from_form(function, facts, chosen.form, chosen.trace, chosen.kernel)
    passed: list[str] = []
    whole = collapsed(to_stages(function).stages, facts.reassociates)
    for each in candidates(whole, facts, gpu, tables):
        if not (why_not := refused(each.kernel, gpu)):
            made = from_form(function, facts, each.form.stages, each.trace, each.kernel)
            return evolve(made, passed_over=tuple(passed))
        passed.append(f"{each.form.form}: {why_not}")
    # Sizes are open, or there is nothing to spread over threads.
    return evolve(plain(function), passed_over=tuple(passed))


def refused(kernel: Kernel, gpu: Gpu) -> str:
    """Why a scheduled kernel cannot be emitted for a GPU; nothing where it can be."""
    try:
        made = lowered(kernel, passes=LOWERING["gpu"].passes)
        check(fold(made, "kernel").launches, gpu, "kernel")
    except LoweringRefused as refusal:
        return refusal.reason
    return ""


def threaded(kernel: Kernel, gpu: Gpu) -> tuple[Trace, Kernel] | None:
    """The default schedule of a kernel that somebody wrote, and the kernel it makes."""
    for template in (elementwise_schedule, row_schedule, shared_sums, plain_threads):
        found = template(kernel, gpu)
        if found is not None and not refused(found[1], gpu):
            return found
    return None
