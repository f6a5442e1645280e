"""Open scatters: terms that name their place, of sizes that are open, by the trace of the template.

for all places:     y[p] = x[p]
for k in range(n):  y[i[k]] = u[k]      where i[k] is a place
"""

from __future__ import annotations

from plica.codegen.lower.passes import lower
from plica.ir.loop import Kernel, Stages
from plica.ir.loop.stages import kernel_of
from plica.schedule.default.choose import recorded
from plica.schedule.default.machine import Machine
from plica.schedule.default.scattered import scatter_schedule, scattered_form


def open_scatter(of: Stages, machine: Machine, *, free: bool = False) -> Kernel | None:
    """The loops of scattered terms, None where stages are others."""
    if (found := scattered_form(of, free=free)) is None:
        return None
    kernel = kernel_of(found)
    schedule = scatter_schedule(kernel, machine)
    return None if schedule is None else lower(recorded(schedule, kernel)[1])
