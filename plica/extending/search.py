"""Checking what a package adds to search: schedule rules, and models of cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from plica.core.extension import FAILURES, said
from plica.extending.verdict import ExtensionVerdict
from plica.ir.loop.stage import placeholder, stage
from plica.ir.loop.stages import Stages, evaluate_stages, stages
from plica.ir.loop.tensor import reduce
from plica.ir.type import f32
from plica.schedule.default import Machine
from plica.schedule.form import Facts
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import scheduled
from plica.schedule.unlowered import run_unlowered
from plica.search.feature.packs import Packs
from plica.search.feature.store import WIDTH
from plica.search.sketch_rule import Query, hoisted_kernel

MACHINE: Final = Machine(256, 16)


def works() -> tuple[Stages, ...]:
    """Something for each element, and a product of matrices; small ones."""
    x = placeholder("x", (3, 5), f32)
    a, b = placeholder("a", (4, 6), f32), placeholder("b", (6, 8), f32)
    product = stage("c", (4, 8), lambda i, j: reduce("sum", (6,), lambda k: a[i, k] * b[k, j]))
    return (
        stages((x,), (stage("y", (3, 5), lambda i, j: x[i, j] * 2),)),
        stages((a, b), (product,)),
    )


def check_schedule_rule(name: str, of: Any, examples: int, seed: int) -> Iterator[ExtensionVerdict]:
    """Whatever a rule makes of some work means what the work means."""
    group, made = "plica.schedule_rules", 0
    for work in works():
        arrays = _whole_numbers(work, seed)
        wanted = np.asarray(evaluate_stages(work, arrays))
        facts = Facts((False,) * len(work.inputs))
        try:
            for form, formed in of.forms(Query(work, facts), MACHINE):
                kernel = hoisted_kernel(formed, facts.constant).kernel
                for word, trace in of.traces(kernel, MACHINE):
                    found = run_unlowered(scheduled(trace, kernel), arrays, {})[0]
                    made += 1
                    if not np.array_equal(found.ravel(), wanted.ravel()):
                        why = f"the schedule {name}/{form}/{word} computes something else"
                        yield ExtensionVerdict(group, name, "refuted", why, str(trace))
                        return
        except ScheduleRefused as refused:
            yield ExtensionVerdict(group, name, "refuted", f"a trace is refused: {refused}")
            return
        except FAILURES as error:
            yield ExtensionVerdict(group, name, "refuted", f"it fails: {said(error)}", str(work))
            return
    if not made:
        yield ExtensionVerdict(group, name, "untested", "it has no schedule for a product or a map")
    else:
        yield ExtensionVerdict(group, name, "tested", f"{made} schedules of {len(works())} works")


def _whole_numbers(work: Stages, seed: int) -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(seed)
    return [
        random.integers(-4, 5, [int(size.value) for size in each.shape]).astype(np.float32)  # type: ignore[attr-defined]  # all are literals
        for each in work.inputs
    ]


def check_cost_model(name: str, of: Any, examples: int, seed: int) -> Iterator[ExtensionVerdict]:
    """A model that has learned is the same again, and thinks something of every candidate."""
    group = "plica.cost_models"
    random = np.random.default_rng(seed)
    count = max(8, min(examples, 64))
    packs = Packs.of([random.uniform(0, 4, (2, WIDTH)) for _ in range(count)])
    costs = random.uniform(1e-6, 1e-3, count)
    try:
        first, second = (of.fitted(packs, costs).scores(packs) for _ in range(2))
    except FAILURES as error:
        yield ExtensionVerdict(group, name, "refuted", f"it fails: {said(error)}")
        return
    if np.shape(first) != (count,) or not np.all(np.isfinite(first)):
        why = f"it gives {np.shape(first)} for {count} candidates, or what is no number"
        yield ExtensionVerdict(group, name, "refuted", why)
    elif not np.array_equal(first, second):
        why = "it thinks something else of the same candidates when it has learned the same again"
        yield ExtensionVerdict(group, name, "refuted", why)
    else:
        yield ExtensionVerdict(group, name, "tested", f"on {count} candidates")
