"""Traced kernels: which kernels of a module are replayed traces, and what made the others.

    traced_kernels(pipeline, module, job) -> (TracedKernel, …)      in the order of their launches
    replayed_digest(kernel.start, kernel.trace, target)         the same code, in any process

>>> LOOPS
('trace', 'form', 'author', 'lowering')
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, Literal, TypeAlias, get_args

from attrs import frozen

from plica.codegen.backend import backend_of, find_target
from plica.codegen.compilation import Job, grouped
from plica.codegen.lower.group import Group, groups_of
from plica.codegen.lower.passes import digest_of, lowered
from plica.codegen.lower.scheduled import Scheduled
from plica.core import Malformed, from_json, to_json
from plica.ir.graph.module import Module
from plica.ir.loop import ExternStage, Kernel, Scan, Stages, reductions
from plica.ir.loop.stage import Fold
from plica.ir.passes import Pipeline
from plica.ir.type import infer
from plica.rewrite.fuse.to_stages import to_stages
from plica.rewrite.history import begun
from plica.runtime.error import Diagnostic
from plica.schedule.hoist import Hoisted
from plica.schedule.replay import scheduled
from plica.schedule.trace import Trace

Loops: TypeAlias = Literal["trace", "form", "author", "lowering"]
"""Who made the loops of a kernel."""

LOOPS: Final[tuple[Loops, ...]] = get_args(Loops)


@frozen
class TracedKernel:
    """How a kernel got its loops; `start` and `trace` are JSON, empty where there is no trace."""

    source: str
    """The operators that it computes."""
    form: str
    template: str
    steps: int
    loops: Loops
    folds: int
    """How many more reductions the form has than the operators: partial ones that it wrote."""
    code: str
    """The digest of the lowered kernel, by which its code is kept."""
    start: str = ""
    trace: str = ""

    @property
    def is_traced(self) -> bool:
        """Whether the loops are a replayed trace."""
        return self.loops == "trace"


def traced_kernels(pipeline: Pipeline, module: Module, job: Job) -> tuple[TracedKernel, ...]:
    """How each kernel of a module got its loops, each group of operators once."""
    history = grouped(pipeline, begun(infer(module)), job)
    scheduler, passes = job.scheduler, pipeline.of("lower").passes
    found = []
    for group in groups_of(history.module, scheduler):
        made = scheduler.schedule(*group, scheduler.chosen(*group))
        found.append(_traced(group, made, digest_of(made.lowered_by(passes))))
    return tuple(found)


def _traced(group: Group, made: Scheduled, code: str) -> TracedKernel:
    asked = to_stages(group[0]).stages
    origin = made.origin
    form = made.hoisted.rest if isinstance(made.hoisted, Hoisted) else asked
    folds = max(0, folds_of(form) - folds_of(asked))
    if origin is None:
        loops: Loops = "author" if has_loops(asked) else "lowering"
        return TracedKernel(made.source, "", "", 0, loops, folds, code)
    loops = "trace"
    if has_loops(form):
        loops = "author" if has_loops(asked) else "form"
    steps, start, trace = len(origin.trace.steps), to_json(origin.kernel), origin.trace.to_json()
    names = origin.form, origin.template
    return TracedKernel(made.source, *names, steps, loops, folds, code, start, trace)


def has_loops(of: Stages) -> bool:
    """Whether somebody wrote loops of some stages."""
    return any(isinstance(each, ExternStage) for each in of.stages)


def folds_of(of: Stages) -> int:
    """How many reductions there are in some stages."""
    return sum(1 if isinstance(each, Fold | Scan) else len(reductions(each)) for each in of.stages)


def replayed_digest(start: str, trace: str, target: str) -> str:
    """The digest of a lowered kernel, from nothing but the JSON of its blocks and of its trace."""
    declare_instructions()
    kernel = from_json(start, own=True)
    if not isinstance(kernel, Kernel):
        expected, found = "a kernel", type(kernel).__name__
        raise Malformed(Diagnostic("bad-json", "No trace begins there.", None, expected, found))
    passes = backend_of(find_target(target)).lowering.passes
    return digest_of(lowered(scheduled(Trace.from_json(trace), kernel), passes))


def declare_instructions() -> None:
    """Declare every step and machine instruction that a trace may name."""
    primitives: Any = import_module("plica.schedule.primitive")  # Any: a lazy package
    for word in primitives.__all__:
        getattr(primitives, word)
    import_module("plica.schedule.default.gpu")
