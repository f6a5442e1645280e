"""The default schedule on a processor: form rules, then a trace whose decisions are analytical.

`FORMS` lists which stages to start from (`plica.schedule.default.processor_form`), `TEMPLATES` how
to schedule them; both are tables. Decisions follow from the machine description.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import f32
>>> from plica.schedule.form import Facts
>>> x, w = buffer("x", (56, 8), f32), buffer("w", (8, 64), f32)
>>> dense = stage("y", (56, 64), lambda m, n: reduce("sum", (8,), lambda k: x[m, k] * w[k, n]))
>>> machine = Machine(vector=512, registers=32)
>>> made = formed(stages((x, w), (dense,)), Facts((False, True)), machine)
>>> made.form
'lanes-over-n'
>>> kernel = kernel_of(hoist(made.stages, (False, True)).rest)
>>> "reverse_compute_at" in default_trace(kernel, machine).to_python()
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from attrs import frozen

from plica.analysis.site import map_of
from plica.core.collector import paused
from plica.ir.loop.stages import kernel_of
from plica.ir.loop.statement import Kernel
from plica.runtime.late import late, lazy_imports
from plica.schedule.default.machine import Machine
from plica.schedule.default.processor_form import FORMS, candidates, formed
from plica.schedule.do import DoBlock as Do, run
from plica.schedule.form import AS_WRITTEN, ScheduleTables
from plica.schedule.hoist import hoist
from plica.schedule.problem import ScheduleRefused
from plica.schedule.trace import Trace

with lazy_imports(__name__):
    from plica.schedule.default.coded import coded_schedule
    from plica.schedule.default.coded_dot_schedule import coded_dot_schedule
    from plica.schedule.default.epilogue import with_epilogue, without_epilogue
    from plica.schedule.default.general_schedule import general_schedule

__all__ = [
    "FORMS", "PROCESSOR", "RefusedTemplate", "candidates", "default_schedule", "default_trace",
    "fallback_schedule", "formed", "hoist", "kernel_of",
]  # fmt: skip


@frozen
class RefusedTemplate:
    """A template that knew a kernel and took a step that is not shown to be legal there."""

    template: str
    reason: str

    def __str__(self) -> str:
        return f"the template {self.template} is refused: {self.reason}"


@lru_cache(maxsize=1024)
def default_trace(kernel: Kernel, machine: Machine, names: tuple[str, ...] = ()) -> Trace | None:
    """The heuristic schedule of a kernel, or None."""
    found = default_schedule(kernel, machine, None, names)  # as builds ask: both are one entry
    return None if found is None or isinstance(found, RefusedTemplate) else found[0]


def default_schedule(
    kernel: Kernel,
    machine: Machine,
    tables: ScheduleTables | None = None,
    names: tuple[str, ...] = (),
) -> tuple[Trace, Kernel] | RefusedTemplate | None:
    """The trace and the scheduled kernel, or None if no template accepts the kernel."""
    found = template_schedule(kernel, machine, tables, names)
    return found[1:] if isinstance(found, tuple) else found


@lru_cache(maxsize=1024)
def template_schedule(
    kernel: Kernel,
    machine: Machine,
    tables: ScheduleTables | None = None,
    names: tuple[str, ...] = (),
) -> tuple[str, Trace, Kernel] | RefusedTemplate | None:
    """The name of the template that knows a kernel, of those that its form names, its trace, and
    the kernel it makes."""
    if not map_of(kernel).blocks:
        return AS_WRITTEN, Trace(()), kernel  # its form has the loops it should have
    found = by_template(kernel, machine, None if tables is None else tables.templates, names)
    if found is None:
        return None
    name, schedule = found
    if name in SAME_FOR_EPILOGUES and (apart := without_epilogue(kernel)) is not None:
        bare, epilogue = apart
        alike = template_schedule(bare, machine, tables, names)
        if isinstance(alike, tuple) and alike[0] == name:
            made = with_epilogue(alike[2], epilogue)
            if made is not None:
                return name, alike[1], made
    try:
        return name, *recorded(schedule, kernel)
    except ScheduleRefused as refused:
        problem = refused.problem
        told = f"{refused.kind} asks for {problem.precondition} at {problem.where}"
        return RefusedTemplate(
            name, f"{told}. expected: {problem.expected}; found: {problem.found}"
        )


@lru_cache(maxsize=1024)
def fallback_schedule(kernel: Kernel, machine: Machine) -> tuple[Trace, Kernel]:
    """The trace of the general template, which fits every kernel, and the kernel it makes."""
    return recorded(general_schedule(kernel, machine), kernel)


Template: TypeAlias = Callable[[Kernel, Machine], "Do | None"]
"""The schedule of kernels that some forms make, None for others."""


def by_template(
    kernel: Kernel,
    machine: Machine,
    templates: Mapping[str, Template] | None = None,
    names: tuple[str, ...] = (),
) -> tuple[str, Do] | None:
    """The first template that knows a kernel, by its name, and the schedule; of all where no
    `names` are given."""
    table = TEMPLATES if templates is None else templates
    for name in names or table:
        if name in table and (schedule := table[name](kernel, machine)) is not None:
            return name, schedule
    return None


SAME_FOR_EPILOGUES: Final = frozenset({"bilinear"})
"""Templates whose schedules do not depend on the elementwise epilogue."""


def recorded(schedule: Do, kernel: Kernel) -> tuple[Trace, Kernel]:
    """The trace of a schedule and what it makes; raises `ScheduleRefused` where it is illegal."""
    with paused():
        steps, state, _ = run(schedule, kernel, 0, {})
    return Trace(steps), state.kernel


def in_codes(kernel: Kernel, machine: Machine) -> Do | None:
    return coded_dot_schedule(kernel, machine) or coded_schedule(kernel, machine)


_PLACES: Final = {
    "scan": "scan:scan_schedule", "scatter": "scattered:scatter_schedule",
    "coded-digits": "coded_digit_schedule:coded_digit_schedule", "coded-rows": "choose:in_codes",
    "transpose-tiles": "transpose:transpose_schedule",
    "bilinear": "bilinear_schedule:bilinear_schedule",
    "column-chain": "fold_schedule:chain_schedule",
    "short-rows": "short_row:short_row_schedule",
    "dot-tiles": "dot_tile:dot_tile_schedule", "rows": "reduction_schedule:row_schedule",
    "pieces": "piecewise:piecewise_schedule",
    "elementwise": "elementwise:elementwise_schedule",
    "window": "depthwise_schedule:window_schedule", "folds": "fold_schedule:fold_schedule",
    "byte-tiles": "tile_product:tile_schedule", "dot-by-four": "dot_product_schedule:dot_schedule",
    "column-panels": "register_tile_schedule:in_panels",
    "register-tile": "register_tile_schedule:in_tiles",
}  # fmt: skip

TEMPLATES: Final[dict[str, Template]] = {
    name: late(f"plica.schedule.default.{place}") for name, place in _PLACES.items()
}
"""How kernels are scheduled: a form names those for what it makes, the first that knows it does."""

PROCESSOR: Final = ScheduleTables(FORMS, TEMPLATES)
"""What default schedules of processors are made of."""
