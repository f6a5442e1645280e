"""Open scatters: terms that name their place, of sizes that are open.

    for all places, in strips:  y[p] = x[p]
    for k in range(n):          y[i[k]] = u[k]      where i[k] is a place

What is done is said by `plica.schedule.default.scattered`; here are the loops of open sizes.
"""

from __future__ import annotations

from plica.codegen.lower.nest import elements, open_sizes
from plica.ir.loop import Kernel, Seq, Stages, Stmt
from plica.schedule.default.machine import Machine
from plica.schedule.default.scattered import scatter_steps


def open_scatter(of: Stages, machine: Machine, *, free: bool = False) -> Kernel | None:
    """The loops of scattered terms, None where stages are others."""
    if (found := scatter_steps(of, machine, free=free)) is None:
        return None
    steps: list[Stmt] = [elements(found.begin, found.begin.out, None, machine=machine), found.terms]
    params = (*of.inputs, of.result)
    if found.after is not None:
        steps.append(elements(found.after, of.result, None, machine=machine))
        params = (*of.inputs, found.begin.out, of.result)
    body = Seq(tuple(steps))
    return Kernel(open_sizes(params, body), params, len(of.inputs), body)
