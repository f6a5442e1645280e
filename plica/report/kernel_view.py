"""Kernel views: every kernel of a compiled model with the film of its loops, and its assembly."""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from time import perf_counter
from typing import Any, Final

from attrs import evolve

from plica.codegen.backend import backend_of
from plica.codegen.program import Launch, kernel_name, launches
from plica.ir.graph.expression import Call, Function
from plica.ir.loop import Kernel, kernel_of
from plica.ir.text.show.kernel import show_kernel
from plica.ir.text.show.stages import shown_stages
from plica.pipeline import Lowered, job_for, pipeline_of
from plica.report.line_table import LineTable
from plica.report.nest_film import (
    NAME,
    NestFrame,
    of_lowering,
    of_trace,
    to_data,
    with_costs,
    with_times,
)
from plica.report.study import StudiedModel, Study
from plica.rewrite.fuse import is_primitive
from plica.rewrite.fuse.to_stages import to_stages
from plica.schedule.collapse import collapsed
from plica.schedule.default import Machine, candidates
from plica.schedule.hoist import hoist

LABEL: Final = re.compile(r"^(\w+_[0-9a-f]{8})([\w.$]*):", re.MULTILINE)
END: Final = re.compile(r"^\.Lfunc_end\d+:", re.MULTILINE)
RUNS: Final = 5  # how often a kernel is timed at a step; the least counts
ENDS: Final = "This page has the steps of the kernels that take longest; plica explore has all."


def kernels(
    of: Study, table: LineTable, timed: int = 0, costs: bool = True, films: int | None = None
) -> list[dict[str, Any]]:
    """Every kernel, with its film; those that take longest are timed at every step.

    With `costs` every step has its estimated cycles. With a limited number of `films`, those of the
    slowest kernels are complete, and others show only the final state.
    """
    program = of.model.lowered.program
    first: dict[int, Launch] = {}
    for launch in launches(program):
        first.setdefault(launch.kernel, launch)
    order = by_time(of)
    longest, shown = set(order[:timed]), set(order[:films])
    found: list[dict[str, Any]] = []
    for number, origin in enumerate(program.origins):
        if number in shown:
            frames = frames_of(of.model, number, first.get(number), costs)
        else:
            kernel = program.kernels[number]
            frames = [NestFrame("lower", "lowered", show_kernel(kernel, NAME), kernel, ENDS)]
        if number in longest:
            frames = with_times(frames, clock, of.model.lowered.fused)
        trace = None if origin is None else origin.trace.to_python(origin.kernel)
        name = kernel_name(number, program)
        found.append({"name": name, "film": to_data(frames, table), "trace": trace})
    return found


def by_time(of: Study) -> list[int]:
    """The numbers of the kernels, those that take longest first."""
    whole: dict[int, float] = {}
    for row, launch in zip(of.rows, launches(of.model.lowered.program), strict=True):
        whole[launch.kernel] = whole.get(launch.kernel, 0.0) + row.seconds
    return sorted(whole, key=lambda number: -whole[number])


def clock(call: Callable[[], object]) -> float:
    """The least seconds of a few calls, after one that warms the caches."""
    call()
    best = float("inf")
    for _ in range(RUNS):
        start = perf_counter()
        call()
        best = min(best, perf_counter() - start)
    return best


def frames_of(
    of: StudiedModel, number: int, launch: Launch | None, costs: bool = True
) -> list[NestFrame]:
    """The film of a kernel: its stages, its form, its schedule, its lowering."""
    origin = of.lowered.program.origins[number]
    backend = backend_of(of.target)
    seen = backend.with_threads(of.target, of.threads)
    machine = backend.machine(seen)
    frames: list[NestFrame] = []
    term = None if launch is None else launch.term
    call = term if isinstance(term, Call) and is_primitive(term.callee) else None
    if call is not None:
        assert isinstance(call.callee, Function)
        why = "What the fused operators compute, tensor by tensor."
        text = shown_stages(to_stages(call.callee).stages.stages)
        frames.append(NestFrame("stages", "stages", text, None, why))
    if origin is None:
        kernel = of.lowered.program.kernels[number]
        why = "No form and no schedule pays here."
        frames.append(NestFrame("form", "plain loops", show_kernel(kernel, NAME), kernel, why))
        return frames
    if call is not None and isinstance(machine, Machine):
        frames += _form(of, call, origin.kernel, machine)
    scheduled = list(of_trace(origin.trace, origin.kernel))
    last = scheduled[-1].kernel
    assert last is not None
    frames += scheduled
    frames += of_lowering(last, pipeline_of(seen).of("lower"))
    return with_costs(frames, machine) if costs and isinstance(machine, Machine) else frames


def _form(of: StudiedModel, call: Call, begun: Kernel, machine: Machine) -> list[NestFrame]:
    """The form whose stages a schedule begins with, where it is one of the default's."""
    assert isinstance(call.callee, Function)
    seen = backend_of(of.target).with_threads(of.target, of.threads)
    facts = job_for(seen, of.contract).scheduler.facts(call.callee, call.args)
    whole = collapsed(to_stages(call.callee).stages, facts.reassociates)
    for candidate in candidates(whole, facts, machine):
        if kernel_of(hoist(candidate.stages, facts.constant).rest) is begun:
            text = shown_stages(candidate.stages.stages)
            why = "The form with the fewest cycles of those that apply."
            return [NestFrame("form", candidate.form, text, None, why, candidate.cycles or None)]
    return []


def assembly(of: Study, films: int | None = None) -> dict[str, str]:
    """The assembly of each kernel's functions by kernel name, or of the slowest ones only: code is
    compiled again for it."""
    model = of.model
    texts = backend_of(model.target).texts(
        lambda: launching(model.lowered, set(by_time(of)[:films])),
        job_for(backend_of(model.target).with_threads(model.target, model.threads), model.contract),
        None,
    )
    text = texts["asm"]()
    found: dict[str, str] = {}
    for match in LABEL.finditer(text):
        end = END.search(text, match.end())
        name = match[1]
        body = text[match.start() : end.start() if end else len(text)]
        kept = [line for line in body.splitlines() if not line.lstrip().startswith((".cfi", ".p2"))]
        found[name] = (found.get(name, "") + "\n" + "\n".join(kept)).lstrip("\n")
    return found


def launching(of: Lowered, kernels: Set[int]) -> Lowered:
    """A lowered model that launches some of its kernels only."""
    regions = [
        tuple(step for step in region if not isinstance(step, Launch) or step.kernel in kernels)
        for region in of.program.regions
    ]
    return evolve(of, program=evolve(of.program, regions=tuple(regions)))
