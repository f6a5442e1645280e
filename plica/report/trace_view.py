"""Trace views: a kernel under one or two schedules, as JSON data.

trace_view(name, kernel, {"old": a, "new": b}, machine)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plica.ir.graph.module import Module
from plica.ir.loop.statement import Kernel
from plica.report import nest_film
from plica.report.kernel_view import clock
from plica.report.line_table import LineTable
from plica.schedule.default import Machine
from plica.schedule.diff import Change, Keep, MovedStep, diff, effects
from plica.schedule.problem import Problem
from plica.schedule.replay import begin, kernel_of, taken
from plica.schedule.trace import Step, Trace, handles, renumbered


def trace_view(  # noqa: PLR0917  # a view is of these things
    name: str,
    kernel: Kernel,
    traces: Mapping[str, Trace],
    machine: Machine,
    roof: Mapping[str, Any] | None = None,
    timed: bool = False,
    fused: bool = True,
) -> dict[str, Any]:
    """A kernel under its schedules."""
    table = LineTable()
    films = [
        {"name": title, "trace": trace.to_python(kernel),
         "film": nest_film.to_data(frames_of(trace, kernel, machine, timed, fused), table)}
        for title, trace in traces.items()
    ]  # fmt: skip
    work = nest_film.work_of(kernel)
    view: dict[str, Any] = {
        "kind": "trace",
        "name": name,
        "facts": [["schedules", str(len(films))], ["operations", f"{work[0]:,}"],
                  ["bytes in and out", f"{work[1]:,}"],
                  *[[title, f"{len(trace)} steps"] for title, trace in traces.items()]],
        "kernels": films,
        "work": list(work),
        "roof": roof,
    }  # fmt: skip
    every = list(traces.values())
    pairs: dict[str, Any] = {}
    hunks: dict[str, Any] = {}
    for one, a in enumerate(every):
        for other, b in enumerate(every):
            if one != other:
                key = f"{one},{other}"
                hunks[key], pairs[key] = compared(a, b, kernel, machine)
    view |= {"hunks": hunks, "pairs": pairs} if hunks else {}
    view["lines"] = table.lines
    return view


def frames_of(
    trace: Trace, kernel: Kernel, machine: Machine, timed: bool, fused: bool
) -> list[nest_film.NestFrame]:
    """The film of a kernel under a trace, to the last lowering pass."""
    frames = list(nest_film.of_trace(trace, kernel))
    last = frames[-1].kernel
    assert last is not None
    nest_frames = nest_film.with_costs([*frames, *nest_film.of_lowering(last)], machine)
    return nest_film.with_times(nest_frames, clock, fused) if timed else nest_frames


def compared(
    a: Trace, b: Trace, kernel: Kernel, machine: Machine
) -> tuple[list[dict[str, Any]], list[list[int]]]:
    """The hunks between two traces with their effects, and which steps are in both."""

    def cost(module: Module) -> float:
        return nest_film.cycles_of(kernel_of(module)[2], machine)

    difference = diff(a, b)
    pairs = [
        [edit.old, edit.new]
        for edit in difference.edits
        if isinstance(edit, Keep | Change | MovedStep)
    ]
    found = effects(difference, a, kernel, cost=cost)
    hunks = [
        {"edits": [str(edit) for edit in hunk], "effect": effect.text.splitlines(),
         "before": effect.before, "after": effect.after}
        for hunk, effect in zip(difference.hunks, found, strict=True)
    ]  # fmt: skip
    return hunks, sorted(pairs)


def without_step(trace: Trace, kernel: Kernel, number: int) -> tuple[Trace, tuple[str, ...]]:
    """The trace without a step and without what needs it, and why other steps fell.

    >>> from plica.ir.loop.tensor import buffer, compute
    >>> from plica.ir.loop.stages import kernel_of, stages_of
    >>> from plica.ir.type.dtype import f32
    >>> from plica.schedule import block, do, loops, parallel, split, trace_of, vectorize
    >>> x = buffer("x", (8,), f32)
    >>> double = kernel_of(stages_of(compute((x,), (8,), lambda i: x[i] * 2.0)))
    >>> @do
    ... def halves():
    ...     i, = yield loops((yield block(0)))
    ...     a, b = yield split(i, (None, 4))
    ...     yield vectorize(b)
    >>> left, fell = without_step(trace_of(halves, double), double, 2)
    >>> len(left), fell
    (2, ('step 3 (vectorize) needs a step that is gone',))
    """
    state = begin(kernel)
    place: dict[int, int] = {}
    kept: list[Step] = []
    fell: list[str] = []
    for old, step in enumerate(trace.steps):
        if old == number:
            continue
        kind = step.instruction.kind
        if any(handle.step not in place for handle in handles(step.instruction)):
            fell.append(f"step {old} ({kind}) needs a step that is gone")
            continue
        moved = renumbered(step, place)
        if isinstance(after := taken(state, moved), Problem):
            fell.append(f"step {old} ({kind}): {after.precondition} does not hold, {after.found}")
            continue
        state, place[old] = after, len(kept)
        kept.append(moved)
    return Trace(tuple(kept)), tuple(fell)
