"""What search finds, and how soon: guided against genetic against random, on convolutions and GEMM.

    python benchmarks/search.py [--quick] [--trials N] [--seeds K] [--out FOLDER] [names …]

One core.  Random search draws uniform points of the whole space; `sketches` is a harder baseline:
it draws the sketch first, and so the few made by rule of thumb as often as the many that were not.
The first generation of the genetic search is drawn like that, too.

Tables: the trials each policy needs to come within 5 % of the best-known result and what it has
found in the end (medians over seeds); what needs no trial at all, beside the best; the trials after
learning from the other layers; how well the model orders candidates that it has not seen; and how
many trials a second there are, with the share of each stage.

Measurements are shared: a point that one search has measured is known to the others, so that seeds
are cheap and differ in what they propose, not in what the machine was doing.  Trials count as if
each search had measured its own.  The noise of each task is printed beside its table.  The run that
gives the throughput shares nothing.

Everything measured is in FOLDER/search.db, the curves in FOLDER/search.json and FOLDER/*.svg, and
in FOLDER/search.png where matplotlib is installed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from attrs import evolve, frozen
from rich.console import Console
from rich.table import Table

from plica.codegen.llvm import toolchain
from plica.codegen.lower.scheduled import machine_of
from plica.codegen.target import Target
from plica.core.name import Name
from plica.ir.graph import Apply, Function, Var, const
from plica.ir.module import Module, module
from plica.ir.type import tensor
from plica.rewrite.contract import reassociates
from plica.search.measure import LocalMeasurer, Measured, Work
from plica.search.measure.local import Arrived
from plica.search.model import PackSum, Transferred, pairwise_accuracy, recall
from plica.search.policy.fold import Policy
from plica.search.policy.genetic import Genetic
from plica.search.policy.judge import Features, stores
from plica.search.policy.named import guided
from plica.search.policy.uniform import Uniform
from plica.search.progress import duration
from plica.search.record.database import Database
from plica.search.record.fingerprint import fingerprint, versions
from plica.search.record.record import Record, record
from plica.search.report import plot
from plica.search.space import Point, Space
from plica.search.space_of import space_of
from plica.search.task import tasks
from plica.search.tune_loop import Course, Run, Subject, tuned

NEAR = 0.95
"""The share of the best-known speed that counts as found."""


def conv(channels: int, outputs: int, size: int, window: int, stride: int) -> Module:
    """A convolution and relu, as in the residual network."""
    random = np.random.default_rng(0)
    x = Var(Name("x"), tensor((1, channels, size, size), "f32"))
    weight = const(random.standard_normal((outputs, channels, window, window)).astype(np.float32))
    attrs = (("dilation", 1), ("groups", 1), ("padding", window // 2), ("strides", stride))
    return _main(x, Apply("nn.relu", (Apply("nn.conv", (x, weight), attrs),)))


def gemm(size: int) -> Module:
    """A product with a constant."""
    x = Var(Name("x"), tensor((size, size), "f32"))
    random = np.random.default_rng(0)
    weight = const(random.standard_normal((size, size)).astype(np.float32))
    return _main(x, Apply("matmul", (x, weight)))


def _main(x: Var, body: Any) -> Module:
    main = Var(Name("main"), None)
    return module({main: Function((), (), (x,), None, body)}, main)


# fmt: off
WORK: dict[str, Callable[[], Module]] = {
    "conv 64x56x56 3x3":      lambda: conv(64, 64, 56, 3, 1),
    "conv 128x28x28 3x3":     lambda: conv(128, 128, 28, 3, 1),
    "conv 128x28x28 3x3 /2":  lambda: conv(128, 256, 28, 3, 2),
    "gemm 512":               lambda: gemm(512),
}
ZERO: dict[str, Callable[[], Module]] = {**WORK, "gemm 1024": lambda: gemm(1024)}
# fmt: on


def subject(name: str, target: Target) -> Subject:
    """The work of a module that has one piece of it, and its space: convolutions as they are, for
    their transforms leave next to nothing to decide."""
    (found,) = tasks(ZERO[name](), reassociates, (), target)
    return Subject(evolve(found, name=name), space_of(found, machine_of(target)))


class Sharing:
    """A measurer that measures no point twice, whoever asks."""

    def __init__(self, inner: LocalMeasurer, database: Database, target: str) -> None:
        self.inner, self.database, self.target = inner, database, target
        self.known = dict[tuple[str, str, str], Record]()
        for each in database:
            self.known[each.key, each.form, each.trace_json] = each

    def measure(
        self, task: Work, space: Space, points: Sequence[Point], arrived: Arrived | None = None
    ) -> tuple[Measured, ...]:
        """What came of points, or comes of them now."""
        key: str = getattr(task, "key")  # noqa: B009  # what measuring asks for has none
        places = {
            each: (key, space.sketches[each.sketch].name, space.trace(each).to_json())
            for each in points
        }
        missing = [each for each in points if places[each] not in self.known]

        def kept(of: Measured) -> None:
            error = "" if of.status == "ok" else of.status
            made = record(
                key,
                self.target,
                places[of.point][2],
                places[of.point][1],
                of.times,
                noise=of.noise,
                versions=versions(),
                error=error,
                policy="shared",
                message=of.message,
            )
            self.database.put(made)
            self.known[places[of.point]] = made

        if missing:
            self.inner.measure(task, space, missing, kept)
        found = tuple([_measured(each, self.known[places[each]]) for each in points])
        for each in found:
            if arrived is not None:
                arrived(each)
        return found


def _measured(point: Point, of: Record) -> Measured:
    status: Any = of.error or "ok"
    return Measured(point, status, of.costs, of.noise, {}, of.message)


@frozen(eq=False)
class Bench:
    """Where everything is measured."""

    target: Target
    shared: Sharing
    trials: int
    seeds: int

    def courses(self, of: Subject, policy: Policy[Any], trials: int = 0) -> list[Course]:
        """What a policy finds, for each seed."""
        found = list[Course]()
        for seed in range(self.seeds):
            run = Run(policy, self.shared, Database(), fingerprint(self.target), seed, versions())
            found += tuned([of], run, trials or self.trials, finals=False)
        return found


def policies(target: Target) -> dict[str, Policy[Any]]:
    """The guided search, and what it is compared with."""
    return {
        "guided": guided(machine_of(target)),
        "genetic": Policy(Genetic()),
        "random": Policy(Uniform()),
        "sketches": Policy(Uniform(by_sketch=True)),
    }


def needed(course: Course, cost: float) -> int | None:
    """How many trials it took to find something as fast as that."""
    return next((n for n, e in enumerate(course.curve, 1) if e is not None and e <= cost), None)


def middle(of: Sequence[int | None], trials: int) -> tuple[float, str]:
    """The median of numbers of trials, and how it is written; what was not reached is more."""
    found = float(median([trials + 1 if each is None else each for each in of]))
    return found, f"> {trials}" if found > trials else f"{found:g}"


def found(course: Course, trials: int) -> float:
    """The best after so many trials."""
    return next((e for e in reversed(course.curve[:trials]) if e is not None), float("inf"))


def contest(
    subjects: Mapping[str, Subject], bench: Bench, console: Console
) -> dict[str, dict[str, list[Course]]]:
    """All policies on all tasks."""
    whole = dict[str, dict[str, list[Course]]]()
    for name, of in subjects.items():
        whole[name] = {}
        for kind, policy in policies(bench.target).items():
            start = perf_counter()
            whole[name][kind] = bench.courses(of, policy)
            seconds = perf_counter() - start
            best = median([found(each, bench.trials) for each in whole[name][kind]])
            console.print(f"[dim]{name}: {kind} {duration(best)}, {seconds:.0f} s[/dim]")
    return whole


def best_known(courses: Mapping[str, list[Course]]) -> float:
    """The least cost that anyone has found."""
    return min([found(e, 10**9) for each in courses.values() for e in each])


def noise_of(courses: Mapping[str, list[Course]]) -> float:
    """How far repeats of fast points spread, in the middle."""
    best = best_known(courses)
    fast = [
        seen.noise
        for each in courses.values()
        for course in each
        for seen in course.observations
        if seen.cost is not None and seen.cost < 1.2 * best
    ]
    return median(fast) if fast else 0.0


def contest_table(whole: Mapping[str, Mapping[str, list[Course]]], bench: Bench) -> Table:
    """Trials to come near the best, and what was found in the end."""
    table = Table(title=f"trials to {NEAR:.0%} of the best known; best of {bench.trials} trials")
    for column in ("work", "best known", "noise", *policies(bench.target), "holds"):
        table.add_column(column, justify="left" if column == "work" else "right")
    for name, courses in whole.items():
        best, noise = best_known(courses), noise_of(courses)
        counts = {
            kind: middle([needed(e, best / NEAR) for e in each], bench.trials)
            for kind, each in courses.items()
        }
        ends = {
            kind: median([found(e, bench.trials) for e in each]) for kind, each in courses.items()
        }
        sooner = counts["guided"][0] <= counts["random"][0] / 2
        sooner = sooner and counts["guided"][0] < counts["genetic"][0]
        as_good = ends["guided"] <= min(ends.values()) * (1 + max(noise, 0.01))
        table.add_row(
            name,
            duration(best),
            f"{noise:.1%}",
            *[f"{counts[kind][1]}; {best / ends[kind]:.1%}" for kind in counts],
            "yes" if sooner and as_good else "no",
        )
    return table


def zero_table(bench: Bench, whole: Mapping[str, Mapping[str, list[Course]]]) -> Table:
    """What needs no search, beside the best found, timed in turns."""
    table = Table(title="without any trial, timed in turns with the best found")
    for column in ("work", "no trial", "best", "share", "floor", "holds"):
        table.add_column(column, justify="left" if column == "work" else "right")
    for name in ZERO:
        if name in whole:
            courses = [course for each in whole[name].values() for course in each]
            of = courses[0].subject
        elif set(whole) == set(WORK):
            of = subject(name, bench.target)
            courses = bench.courses(of, policies(bench.target)["guided"], min(64, bench.trials))
        else:
            continue
        fastest = min([e.best for e in courses if e.best], key=lambda e: e.cost or 0.0)
        points = (of.space.default, fastest.point)
        timed = bench.shared.inner.finals(of.task, of.space, points)
        default, best = (each.median or float("inf") for each in timed)
        share, floor = min(default, best) / default, 0.85 if name.startswith("gemm") else 0.75
        cells = (duration(default), duration(min(best, default)), f"{share:.1%}", f"{floor:.0%}")
        table.add_row(name, *cells, "yes" if share >= floor else "no")
    return table


def transfer_table(whole: Mapping[str, Mapping[str, list[Course]]], bench: Bench) -> Table:
    """Trials with and without what was learned from the other layers."""
    table = Table(title=f"transfer: trials to {NEAR:.0%} of the best known")
    for column in ("work", "cold", "after the others", "holds"):
        table.add_column(column, justify="left" if column == "work" else "right")
    features = stores(machine_of(bench.target))
    for name, courses in whole.items():
        others = [each for other, each in whole.items() if other != name]
        old = learned([e for each in others for e in (*each["guided"], *each["random"])], features)
        model = Transferred(old, PackSum())
        policy = guided(machine_of(bench.target), model, f"after-{len(others)}")
        warm = bench.courses(courses["guided"][0].subject, policy)
        best = min(best_known(courses), best_known({"warm": warm}))
        before = middle([needed(e, best / NEAR) for e in courses["guided"]], bench.trials)
        after = middle([needed(e, best / NEAR) for e in warm], bench.trials)
        holds = after[0] <= max(1.0, before[0] / 2)
        table.add_row(name, before[1], after[1], "yes" if holds else "no")
    return table


def learned(courses: Sequence[Course], features: Features) -> PackSum:
    """The model of all that was observed of several tasks."""
    seen = dict[Subject, dict[Point, float]]()
    for course in courses:
        mine = seen.setdefault(course.subject, {})
        mine.update({e.point: e.cost for e in course.observations if e.cost is not None})
    packs = [features(of.space, list(mine)) for of, mine in seen.items()]
    costs = np.array([cost for mine in seen.values() for cost in mine.values()])
    groups = np.repeat(np.arange(len(seen)), [len(mine) for mine in seen.values()])
    return PackSum().fitted(sum(packs[1:], packs[0]), costs, groups)


def model_table(whole: Mapping[str, Mapping[str, list[Course]]], bench: Bench) -> Table:
    """How well the model orders what it has not seen."""
    table = Table(title="the model on candidates that were held out")
    for column in ("work", "learned from", "held out", "pairs", "recall@30", "holds"):
        table.add_column(column, justify="left" if column == "work" else "right")
    features = stores(machine_of(bench.target))
    for name, courses in whole.items():
        costs = {
            seen.point: seen.cost
            for each in courses.values()
            for course in each
            for seen in course.observations
            if seen.cost is not None
        }
        points = list(costs)
        order = np.random.default_rng(0).permutation(len(points))
        packs = features(courses["guided"][0].subject.space, [points[n] for n in order])
        times = np.array([costs[points[n]] for n in order])
        cut = len(points) // 2
        known, held = np.arange(cut), np.arange(cut, len(points))
        scores = PackSum().fitted(packs[known], times[known]).scores(packs[held])
        pairs = pairwise_accuracy(scores, times[held], noise_of(courses))
        recalled = recall(scores, times[held], 30)
        cells = (str(cut), str(len(held)), f"{pairs:.3f}", f"{recalled:.3f}")
        table.add_row(name, *cells, "yes" if pairs >= 0.85 and recalled >= 0.6 else "no")
    return table


class Timed:
    """A measurer that knows how long it was asked for."""

    def __init__(self, inner: LocalMeasurer) -> None:
        self.inner, self.seconds = inner, 0.0

    def measure(
        self, task: Work, space: Space, points: Sequence[Point], arrived: Arrived | None = None
    ) -> tuple[Measured, ...]:
        """What comes of points."""
        start = perf_counter()
        found = self.inner.measure(task, space, points, arrived)
        self.seconds += perf_counter() - start
        return found


def throughput_table(subjects: Mapping[str, Subject], bench: Bench) -> Table:
    """Trials a second of a search that shares nothing; stages overlap, for one is built while
    another is timed."""
    stages = ("replay", "lower", "compile", "validate", "time")
    table = Table(title="throughput, everything included; ms a trial of each stage")
    for column in ("work", "trials", "trials/s", "propose", *stages, "holds"):
        table.add_column(column, justify="left" if column == "work" else "right")
    for name, of in subjects.items():
        timed, policy = Timed(bench.shared.inner), policies(bench.target)["guided"]
        run = Run(policy, timed, Database(), fingerprint(bench.target), 0, versions())
        start = perf_counter()
        (course,) = tuned([of], run, 48, finals=False)
        seconds = perf_counter() - start
        rate, each = course.trials / seconds, 1e3 / course.trials
        shares = [f"{course.stages.get(stage, 0.0) * each:.0f}" for stage in stages]
        proposing = f"{(seconds - timed.seconds) * each:.0f}"
        holds = "yes" if rate >= 2 else "no"
        table.add_row(name, str(course.trials), f"{rate:.1f}", proposing, *shares, holds)
    return table


def median_curve(courses: Sequence[Course], trials: int) -> list[float | None]:
    """The best after each trial, in the middle of the seeds."""
    found_by = [[found(each, n) for each in courses] for n in range(1, trials + 1)]
    return [m if np.isfinite(m := median(each)) else None for each in found_by]


def save(whole: Mapping[str, Mapping[str, list[Course]]], bench: Bench, folder: Path) -> None:
    """The curves, as numbers and as pictures."""
    lines = {
        name: {kind: median_curve(each, bench.trials) for kind, each in courses.items()}
        for name, courses in whole.items()
    }
    seeds = {
        name: {kind: [list(e.curve) for e in each] for kind, each in courses.items()}
        for name, courses in whole.items()
    }
    text = json.dumps(
        {"median": lines, "seeds": seeds, "target": bench.target.describe()}, indent=1
    )
    (folder / "search.json").write_text(text, encoding="utf-8")
    for name, each in lines.items():
        file = "search-" + "".join(c if c.isalnum() else "-" for c in name) + ".svg"
        (folder / file).write_text(plot(each), encoding="utf-8")
    if find_spec("matplotlib") is not None:
        _picture(lines, folder / "search.png")


def _picture(lines: Mapping[str, Mapping[str, Sequence[float | None]]], path: Path) -> None:
    agg = import_module("matplotlib.backends.backend_agg")
    figure = import_module("matplotlib.figure").Figure(figsize=(10, 3 * len(lines)))
    for number, (name, each) in enumerate(lines.items(), 1):
        axes = figure.add_subplot(len(lines), 1, number)
        for kind, line in each.items():
            axes.plot([np.nan if e is None else e * 1e3 for e in line], label=kind)
        axes.set_title(name)
        axes.set_ylabel("ms")
        axes.set_yscale("log")
        axes.legend()
    figure.tight_layout()
    agg.FigureCanvasAgg(figure).print_png(path)


def main(arguments: Sequence[str]) -> None:
    """Everything, one table after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="40 trials, at most 20 minutes")
    parser.add_argument("--trials", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("search-results"))
    parser.add_argument("names", nargs="*", help=", ".join(WORK))
    given = parser.parse_args(arguments)
    trials = given.trials or (40 if given.quick else 256)
    given.out.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 120)
    start = perf_counter()
    target = evolve(toolchain.host(), cores=1)
    with LocalMeasurer(target) as measurer, Database(given.out / "search.db") as database:
        shared = Sharing(measurer, database, fingerprint(target))
        bench = Bench(target, shared, trials, given.seeds)
        subjects = {name: subject(name, target) for name in given.names or WORK}
        for name, of in subjects.items():
            sketches = [each.name for each in of.space.sketches]
            console.print(f"[dim]{name}: {of.space.size:,} points of {', '.join(sketches)}[/dim]")
        console.print(throughput_table(subjects, bench))
        whole = contest(subjects, bench, console)
        console.print(contest_table(whole, bench))
        console.print(zero_table(bench, whole))
        if len(whole) > 1:
            console.print(transfer_table(whole, bench))
        console.print(model_table(whole, bench))
        save(whole, bench, given.out)
    console.print(f"{len(shared.known):,} points measured, {perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
