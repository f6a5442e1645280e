"""Cycles as a cost: points of a layer's space are built and simulated, never run.

>>> from plica.codegen.accel.conv import Convolution
>>> from plica.codegen.accel.vta import osdi
>>> task = LayerTask(osdi(), Convolution(32, 6, 6, 32, kernel=3, pad=1))
>>> course = searched(task, trials=4)
>>> course.trials, course.best.cost <= course.observations[0].cost
(4, True)

Ridge: the least model that learns, quadratic in the features of each point.

It serves where no learned model is wanted: in tests, in examples, and as the line that a better
model has to beat.  A pack's features are summed, as its stores are in the larger models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Final

import numpy as np
from attrs import frozen

from plica.codegen.accel.conv import ConvTiling, convolution
from plica.codegen.accel.cycle import Timed, simulate
from plica.codegen.accel.declaration import Accelerator
from plica.codegen.accel.instruction import BadInstruction, Stream
from plica.codegen.accel.stream import build
from plica.core import CompilerBug, digest
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.search.accel.space import LayerTask, layer_space, tiling_of
from plica.search.course import Course, TuningSubject
from plica.search.feature.packs import Packs
from plica.search.measure import Measured, SpaceWork
from plica.search.measure.outcome import Outcome, failed, measured
from plica.search.policy.cost_judge import Array, CostJudge, knobs
from plica.search.policy.fold import Policy
from plica.search.policy.named import policy_by
from plica.search.record.database import Database
from plica.search.space import Point, Space
from plica.search.tune_loop import Run, tuned

FAILED: Final = 4.0  # a trial that failed counts as this many times the slowest one


@frozen(eq=False)
class Ridge:
    """Weights, empty before training, and their regularisation."""

    weights: Array | None = None
    hold: float = 1e-3

    def fitted(self, packs: Packs, costs: Array) -> Ridge:
        """The least squares of the logarithm of speed."""
        array = _squares(packs)
        slow = FAILED * costs[np.isfinite(costs)].max(initial=0.0)
        speed = -np.log(np.maximum(np.where(np.isfinite(costs), costs, slow), 1e-30))
        system = array.T @ array + self.hold * np.eye(array.shape[1])
        return Ridge(np.linalg.solve(system, array.T @ speed), self.hold)

    def scores(self, packs: Packs) -> Array:
        """Higher is faster; all alike before it has learned."""
        array = _squares(packs)
        if self.weights is None:
            return np.zeros(len(array))
        scores: Array = array @ self.weights
        return scores


def _squares(packs: Packs) -> Array:
    """Each pack as one row: a constant, the features, their products."""
    rows = packs.rows
    summed = np.zeros((packs.count, rows.shape[1]))
    np.add.at(summed, packs.owner, rows)
    above = np.triu_indices(rows.shape[1])
    products = summed[:, above[0]] * summed[:, above[1]]
    return np.concatenate([np.ones((packs.count, 1)), summed, products], axis=1)


@frozen(eq=False)
class CycleMeasurer:
    """A measurer whose clock is the cycle simulator."""

    def measure(
        self,
        task: SpaceWork,
        space: Space,
        points: Sequence[Point],
        arrived: Callable[[Measured], None] | None = None,
    ) -> tuple[Measured, ...]:
        """The simulated seconds of each point."""
        if not isinstance(task, LayerTask):
            raise CompilerBug(f"a {type(task).__name__} is not a layer of an accelerator")
        sizes_measured: list[Measured] = []
        for point in points:
            sizes_measured.append(measured(point, _outcome(task, tiling_of(space, point))))
            if arrived is not None:
                arrived(sizes_measured[-1])
        return tuple(sizes_measured)


def _outcome(task: LayerTask, tiling: ConvTiling) -> Outcome:
    start = perf_counter()
    try:
        _, timed = simulated(task, tiling)
    except (BadInstruction, UnsupportedError) as error:
        return failed("refused", "lower", str(error.diagnostics[0].message), {})
    spent = {"time": perf_counter() - start}
    return Outcome("ok", (timed.cycles / (task.machine.timing.megahertz * 1e6),), 0.0, spent)


def simulated(task: LayerTask, tiling: ConvTiling) -> tuple[Stream, Timed]:
    """The stream of a tiling, and when its instructions run."""
    stream = build(task.machine, convolution(task.machine, task.of, tiling), checked=False)
    return stream, simulate(task.machine, stream)


def machine_name(machine: Accelerator) -> str:
    """A machine as records call it: two configurations of one are two machines."""
    return f"accel:{machine.name}/{digest(machine)[:16]}"


JUDGE: Final = CostJudge("ridge", Ridge(), knobs)  # a model of its sizes


def policy(name: str = "guided") -> Policy[Any]:  # an explorer's memory is its own affair
    """The layer policy of this name; raises `InputError` if there is none."""
    return policy_by(name, lambda: JUDGE)


def searched(
    task: LayerTask,
    trials: int,
    seed: int = 0,
    database: Database | None = None,
    by: Policy[Any] | None = None,
) -> Course:
    """The result of a search; every trial is in the database before it counts."""
    if type(trials) is not int or trials < 1:
        message = "The number of trials must be at least 1."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "1 or more", repr(trials)))
    space = layer_space(task.machine, task.of)
    records = Database() if database is None else database
    run = Run(by or policy(), CycleMeasurer(), records, machine_name(task.machine), seed)
    (course,) = tuned([TuningSubject(task, space)], run, trials)
    return course
