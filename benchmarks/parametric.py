"""How fast a layer is by a parametric trace learnt from the other layers of its network.

    python benchmarks/parametric.py tune --db F.db [--trials 24] [--seconds 150]
    python benchmarks/parametric.py show --db F.db [--rounds 9]

`tune` searches the convolutions of ResNet-18 one after another and goes on where it stopped.
`show` leaves out each layer in turn: it learns from what was tuned for others in the form of the
nearest one, transports that to the layer, and times the default, the transported and the natively
tuned schedule in turns.  A line: microseconds of the three, the speed of the transported one
relative to the tuned one, the share of steps that are the same or adapted, and from how many traces
it was learnt.
"""

from __future__ import annotations

import argparse
import time
from statistics import geometric_mean

from attrs import frozen

from plica.codegen.backend import backend_of, find_target
from plica.codegen.lower.processor import machine_of
from plica.codegen.target import Target
from plica.frontend.zoo import NETWORKS
from plica.ir.contract import DEFAULT_CONTRACT
from plica.runtime.error import PlicaError
from plica.schedule.parametric import apart, extents, learn
from plica.schedule.trace import Trace
from plica.search.course import TuningSubject
from plica.search.measure import LocalMeasurer, TrialLimits
from plica.search.policy.named import policy_named
from plica.search.record import Database, fingerprint, versions
from plica.search.space import Point, Sketch, Space, sketch
from plica.search.target import tuning_of
from plica.search.task import Task, tasks
from plica.search.tune_loop import Run, tuned


@frozen(eq=False)
class TunedLayer:
    """A layer, its space, and the best sketch of it with what was decided."""

    task: Task
    space: Space
    sketch: Sketch
    trace: Trace


def layers(target: Target) -> list[Task]:
    """The distinct convolutions of ResNet-18."""
    of = tasks(NETWORKS["resnet18"](), DEFAULT_CONTRACT, (), target)
    return [each for each in of if "conv" in each.name]


def searched(target: Target, database: Database, trials: int, seconds: float) -> list[TunedLayer]:
    """Every layer that was tuned with so many trials; what is missing is measured while there is
    time."""
    until, found = time.monotonic() + seconds, []
    space_of, machine = tuning_of(target).space, machine_of(target)
    assert space_of is not None
    policy, mark = policy_named("guided", machine), fingerprint(target)
    with LocalMeasurer(target, TrialLimits(threads=1)) as measurer:
        for task in layers(target):
            if len(database.all(task.key, mark)) < trials:
                if (left := until - time.monotonic()) <= 0:
                    continue
                subject = TuningSubject(task, space_of(task, target))
                run = Run(policy, measurer, database, mark, 0, versions(target))
                tuned([subject], run, trials, seconds=left, finals=False)
            count, best = len(database.all(task.key, mark)), database.best(task.key, mark)
            print(f"{task.name}: {count} trials", flush=True)
            if count >= trials and best is not None and best.error == "":
                space, trace = space_of(task, target), Trace.from_json(best.trace_json)
                of = next(each for each in space.sketches if each.name == best.form)
                found.append(TunedLayer(task, space, of, trace))
    return found


def shown(target: Target, every: list[TunedLayer], rounds: int) -> None:
    """Time each layer by the trace that was learnt from the others."""
    speeds, kept = list[float](), list[float]()
    with LocalMeasurer(target, TrialLimits(threads=1)) as measurer:
        for layer in every:
            others = [each for each in every if each is not layer]
            line = transported(layer, others)
            if line is None:
                print(f"{layer.task.name}: no other layer has a schedule of a form it has")
                continue
            space, share, learnt = line
            points = [Point(n, ()) for n in range(3)]
            timed = measurer.finals(layer.task, space, points, rounds)
            if any(each.cost is None for each in timed):
                print(f"{layer.task.name}: {[each.message for each in timed]}")
                continue
            default, moved, native = [each.cost or 0.0 for each in timed]
            speeds.append(native / moved)
            kept.append(share)
            times = "  ".join(f"{1e6 * each:9.1f}" for each in (default, moved, native))
            print(f"{times}  {native / moved:5.2f}  {share:5.0%}  {learnt}  {layer.task.name}")
    if speeds:
        mean, least = geometric_mean(speeds), min(speeds)
        print(f"{len(speeds)} layers: {mean:.2f} of the tuned speed, {least:.2f} at least; "
              f"{min(kept):.0%} of the steps are kept at least")  # fmt: skip


def transported(layer: TunedLayer, others: list[TunedLayer]) -> tuple[Space, float, int] | None:
    """The default, the transported and the tuned schedule of a layer, none with open decisions."""
    names = {each.name: each for each in layer.space.sketches}
    alike = [each for each in others if each.sketch.name in names]
    if not alike:
        return None
    here = extents(layer.space.sketches[0].kernel)
    nearest = min(alike, key=lambda each: apart(extents(each.space.sketches[0].kernel), here))
    of = names[nearest.sketch.name]
    same = [each for each in alike if each.sketch.name == of.name]
    learnt = learn([(each.trace, each.sketch.kernel) for each in same], near=of.kernel)
    moved = learnt.on(of.kernel)
    first = layer.space.sketches[0]
    made = [
        sketch("default", first.kernel, layer.space.trace(layer.space.default), first.form),
        sketch("transported", of.kernel, moved.trace, of.form),
        sketch("tuned", layer.sketch.kernel, layer.trace, layer.sketch.form),
    ]
    closed = [Sketch(e.name, e.kernel, e.trace, (), (), e.form) for e in made]
    return Space(tuple(closed)), moved.report.kept, learnt.learnt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("tune", "show"))
    parser.add_argument("--db", required=True)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    here = find_target("cpu")
    target = backend_of(here).with_threads(here, 1)
    with Database(given.db) as database:
        every = searched(target, database, given.trials, given.seconds)
    if given.what == "show":
        try:
            shown(target, every, given.rounds)
        except PlicaError as error:
            raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
