"""Graph-level search: forms of a whole model, ranked by the cost model, then timed alternately."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Final

from attrs import field, frozen

from plica.codegen.backend import AnyTarget, backend_of
from plica.codegen.operation_count import operations
from plica.codegen.program_kind import static_form
from plica.core.deadline import DeadlinePassed, deadline
from plica.ir.contract import Contract
from plica.ir.graph.module import Module
from plica.ir.loop.stages import kernel_of
from plica.rewrite.pack import Pack
from plica.runtime.error import UnsupportedError
from plica.runtime.executable import Executable
from plica.search.graph_form import NAMED, GraphForm, alternatives, graph_key
from plica.search.in_place import CLEARLY, calls, copies, drawn_inputs, is_less
from plica.search.model.shipped import shipped
from plica.search.policy.cost_judge import stores
from plica.search.progress import duration
from plica.search.record.order import IN_PLACE
from plica.search.record.record import Record, record
from plica.search.target import tuning_of
from plica.search.task import Task, tasks_of

TRIED: Final = 4  # forms that are compiled and timed, at most
WORTH: Final = 1.25  # times the pipeline's estimated cost at most, to be tried
SHARE: Final = 0.25  # the part of the time of a search that forms may take
Compile = Callable[[GraphForm], Executable]  # the model compiled in a form, with default schedules


@frozen
class FormTrial:
    """The result of a form: its estimate relative to the pipeline's, and its time, if it
    was tried."""

    form: GraphForm
    estimated: float  # what the kernels that differ take, of what those of the pipeline take
    seconds: float | None = None


@frozen(eq=False)
class GraphTuned:
    """The form that was chosen, all that were thought of, and the records of those timed."""

    form: GraphForm = field(factory=GraphForm)
    trials: tuple[FormTrial, ...] = ()
    records: tuple[Record, ...] = ()

    def __str__(self) -> str:
        timed = [trial for trial in self.trials if trial.seconds is not None]
        said = [f"{form_trial.form} {duration(form_trial.seconds or 0.0)}" for form_trial in timed]
        return f"graph: {self.form}" + (f" ({', '.join(said)})" if said else "")


def tuned_graph(  # noqa: PLR0917  # a search is these things
    module: Module,
    contract: Contract,
    packs: Sequence[Pack],
    target: AnyTarget,
    compiled: Compile,
    versions: tuple[tuple[str, str], ...],
    seconds: float | None = None,
) -> GraphTuned:
    """The form of a model that is the fastest by its time as a whole."""
    end = math.inf if seconds is None else time.monotonic() + SHARE * seconds
    if static_form(module) is not module:
        return GraphTuned()  # it is compiled in segments, which are other models
    (_, usual), *others = alternatives(module, contract, packs, target)
    if not others or (values := drawn_inputs(module)) is None:
        return GraphTuned()
    mine = tasks_of(usual, target, contract)
    thought = [
        FormTrial(form, changed(mine, tasks_of(made, target, contract), target))
        for form, made in others
    ]
    thought.sort(key=lambda each: each.estimated)
    try:
        with deadline(end):
            pipeline = copies(compiled(GraphForm()))
    except DeadlinePassed:
        return GraphTuned()
    trials: list[FormTrial] = []
    times: dict[GraphForm, tuple[float, ...]] = {}
    best = GraphForm()
    for trial in thought:
        if trial.estimated > WORTH or len(times) > TRIED:
            trials.append(trial)
            continue
        try:
            with deadline(end):
                usually, now = calls(pipeline, copies(compiled(trial.form)), values)
        except (UnsupportedError, DeadlinePassed):
            trials.append(trial)  # the pipeline needs that pass for this model, or there is no time
            continue
        times.setdefault(GraphForm(), usually)
        times[trial.form] = now
        trials.append(FormTrial(trial.form, trial.estimated, mean(now)))
        # Both were timed against the pipeline, so their ratios compare.
        faster = is_less(now, usually) and mean(now) <= CLEARLY * mean(usually)
        if faster and (best == GraphForm() or _part(times, trial.form) < _part(times, best)):
            best = trial.form
    key, name = graph_key(module, contract, packs), tuning_of(target).fingerprint(target)
    kept = [
        record(key, name, form.text, NAMED, (mean(of),), versions=versions, policy=IN_PLACE)
        for form, of in times.items()
        if form in (GraphForm(), best)
    ]
    first = [FormTrial(GraphForm(), 1.0, mean(times[GraphForm()]))] if times else []
    return GraphTuned(best, (*first, *trials), tuple(kept))


def _part(times: dict[GraphForm, tuple[float, ...]], form: GraphForm) -> float:
    return mean(times[form]) / mean(times[GraphForm()])


def changed(usual: Sequence[Task], other: Sequence[Task], target: AnyTarget) -> float:
    """The estimated time of kernels only in one form, relative to those only in the other; 1 if
    there is no difference."""
    here, there = (Counter({task.key: task.weight for task in of}) for of in (usual, other))
    by_key = {task.key: task for task in (*usual, *other)}

    def taken(of: Counter[str]) -> float:
        return sum([many * estimated(by_key[key], target) for key, many in sorted(of.items())])

    before, after = taken(here - there), taken(there - here)
    return (after + 1.0) / (before + 1.0)


def estimated(task: Task, target: AnyTarget) -> float:
    """About the cycles of a kernel with its default schedule."""
    tuning = tuning_of(target)
    make = tuning.first_space or tuning.space
    assert make is not None  # that was asked before
    space = make(task, target)
    if not space.sketches:  # nothing can be decided of it
        return float(operations(kernel_of(task.stages)))
    packs = stores(backend_of(target).machine(target))(space, (space.default,))
    if not packs.is_legal[0]:
        return float(operations(space.sketches[0].kernel))
    return math.exp(-float(shipped().scores(packs)[0]))
