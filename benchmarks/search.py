"""What search finds, and how soon: guided against genetic against random, on convolutions and GEMM.

    python benchmarks/search.py [--quick] [--trials N] [--seeds K] [--out FOLDER] [names …]

One core, sums may be reassociated.  Random search draws uniform points of the whole space.  In the
long run there is a harder baseline, too: `sketches` draws the sketch first, and so the few made by
rule of thumb as often as the many that were not, as the first generation of the genetic search is.

Tables: the trials each policy needs to come within 5 % of the best-known result and what it has
found in the end (medians over seeds); what needs no trial at all, beside the best; the trials after
learning from the other work; how well the model orders candidates that it has not seen; how many
trials a second there are, with the share of each stage; what is lost where somebody is killed.  At
the end each claim: what is asked, what was seen, whether it holds.

Measurements are shared: a point that one search has measured is known to the others and costs them
the same, so that seeds are cheap and differ in what they propose, not in what the machine was
doing.  Trials count as if each search had measured its own.  The best known is the best of all
searches of a task; the best few of them, and the default, are timed once more, in turns, and the
tables are made of these times.  The run that gives the throughput shares nothing.

What is interrupted goes on when it is asked for again: every measurement is in FOLDER/search.db,
other parts in FOLDER/parts.json; a folder belongs to one state of the sources.  The curves and
claims are in FOLDER/search.json, pictures of them in FOLDER/*.svg, and in FOLDER/search.png where
matplotlib is installed (`plica[report]`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import crashes
import numpy as np
from attrs import asdict, evolve, frozen
from rich.console import Console
from rich.table import Table
from searching import ALONE, WORK, Bench, Courses, Kept, Sharing, costs_of, judged, subject

from plica.codegen.llvm import toolchain
from plica.codegen.lower.processor import machine_of
from plica.codegen.target import Target
from plica.search.course import Course, TuningSubject
from plica.search.measure import LocalMeasurer, Measured, SpaceWork
from plica.search.measure.local import Arrived
from plica.search.model import SummedTime, pairwise_accuracy, recall
from plica.search.policy.cost_judge import stores
from plica.search.policy.fold import Policy
from plica.search.policy.lesson import Lesson
from plica.search.policy.model_free import Genetic, Uniform
from plica.search.policy.named import guided
from plica.search.policy.taught import taught
from plica.search.progress import duration
from plica.search.record.database import Database
from plica.search.report import plot
from plica.search.space import Point, Space
from plica.search.target import fingerprint, versions
from plica.search.tune_loop import Run, tuned

RATE = 6
"""Trials a second that are asked for on two cores."""
NEAR = 0.95
"""The share of the best-known speed that counts as found."""

STAGES = ("replay", "lower", "compile", "validate", "time")
WARM = "after others"

Whole = Mapping[str, Courses]


@frozen
class Claim:
    """What is asked, what was seen, whether that is enough."""

    what: str
    asked: str
    seen: str
    holds: bool


def policies(target: Target, quick: bool) -> dict[str, Policy[Any]]:
    """The guided search, and what it is compared with."""
    harder = {} if quick else {"sketches": Policy(Uniform(by_sketch=True))}
    return {
        "guided": guided(machine_of(target)),
        "genetic": Policy(Genetic()),
        "random": Policy(Uniform()),
        **harder,
    }


def table_of(title: str, *columns: str) -> Table:
    """A table whose first column is words."""
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="left" if column == columns[0] else "right")
    return table


def said(holds: bool) -> str:
    """A verdict."""
    return "yes" if holds else "no"


def needed(course: Course, cost: float) -> int | None:
    """How many trials it took to find something as fast as that."""
    return next((n for n, e in enumerate(course.curve, 1) if e is not None and e <= cost), None)


def middle(of: Sequence[Course], cost: float, trials: int) -> tuple[float, str]:
    """The median of trials to a cost, and how it is written; what was not reached is more."""
    counts = [needed(each, cost) for each in of]
    found = float(median([trials + 1 if each is None else each for each in counts]))
    return found, f"> {trials}" if found > trials else f"{found:g}"


def found(course: Course, trials: int) -> float:
    """The best after a given number of trials."""
    return next((e for e in reversed(course.curve[:trials]) if e is not None), float("inf"))


def best_known(courses: Courses) -> float:
    """The least cost that anyone has found."""
    return min(costs_of(courses).values())


def noise_of(courses: Courses) -> float:
    """How far repeats of fast points spread, in the middle."""
    best = best_known(courses)
    every = [course for each in courses.values() for course in each]
    fast = [e.noise for c in every for e in c.observations if e.cost and e.cost < 1.2 * best]
    return median(fast) if fast else 0.0


# --- the searches ---------------------------------------------------------------------------------


def contest(
    subjects: Mapping[str, TuningSubject], bench: Bench, quick: bool, console: Console
) -> dict[str, dict[str, list[Course]]]:
    """All policies on all tasks; then the guided one again, after what the other tasks taught."""
    whole = dict[str, dict[str, list[Course]]]()
    for name, of in subjects.items():
        whole[name] = {}
        kinds = policies(bench.target, quick)
        if name in ALONE:
            kinds = {"guided": kinds["guided"]}
        for kind, policy in kinds.items():
            start = perf_counter()
            seeds = 1 if name in ALONE else bench.seeds
            whole[name][kind] = bench.courses(of, policy, seeds=seeds)
            _tell(console, name, kind, whole[name][kind], perf_counter() - start)
    for name, of in subjects.items():
        lessons = [lesson_of(each) for other, each in whole.items() if other != name]
        if lessons and name not in ALONE:
            start = perf_counter()
            policy = taught(machine_of(bench.target), lessons)
            whole[name][WARM] = bench.courses(of, policy)
            _tell(console, name, WARM, whole[name][WARM], perf_counter() - start)
    return whole


def lesson_of(courses: Courses) -> Lesson:
    """All that searches without lessons of their own have seen of some work."""
    mine = [course for kind, each in courses.items() if kind != WARM for course in each]
    seen = {e.point: e for course in mine for e in course.observations}
    return Lesson(mine[0].subject.space, tuple(seen.values()))


def _tell(console: Console, name: str, kind: str, of: Sequence[Course], seconds: float) -> None:
    best = median([found(each, 10**9) for each in of])
    console.print(f"[dim]{name}: {kind} {duration(best)}, {seconds:.0f} s[/dim]")


# --- the tables -----------------------------------------------------------------------------------


def contest_table(whole: Whole, bench: Bench) -> tuple[Table, list[Claim]]:
    """Trials to come near the best, and what was found in the end."""
    kinds = [each for each in next(iter(whole.values())) if each != WARM]
    title = f"trials to {NEAR:.0%} of the best known; best of {bench.trials} trials"
    table = table_of(title, "work", "best known", "noise", *kinds, "holds")
    sooner, ends = list[tuple[str, bool]](), list[tuple[str, bool]]()
    for name, courses in whole.items():
        if name in ALONE:
            continue
        best, noise = best_known(courses), noise_of(courses)
        counts = {kind: middle(courses[kind], best / NEAR, bench.trials) for kind in kinds}
        end = {kind: median([found(e, bench.trials) for e in courses[kind]]) for kind in kinds}
        few = counts["guided"][0]
        is_sooner = few <= counts["random"][0] / 2 and few < counts["genetic"][0]
        rivals = min(end["random"], end["genetic"])
        as_good = end["guided"] <= rivals * (1 + max(noise, 0.01))
        sooner.append(
            (" / ".join(counts[k][1] for k in ("guided", "genetic", "random")), is_sooner)
        )
        ends.append((f"{end['guided'] / rivals - 1:+.1%}", as_good))
        table.add_row(
            name,
            duration(best),
            f"{noise:.1%}",
            *[f"{counts[kind][1]}; {best / end[kind]:.1%}" for kind in kinds],
            said(is_sooner and as_good),
        )
    asked = "at most half of random's, fewer than genetic's"
    text = "guided / genetic / random: " + "; ".join(seen for seen, _ in sooner)
    worse = "; ".join(seen for seen, _ in ends)
    return table, [
        Claim(f"1 trials to {NEAR:.0%} of the best known", asked, text, all(e for _, e in sooner)),
        Claim(f"1 best of {bench.trials} trials against the better of both",
              "no worse beyond noise", worse, all(e for _, e in ends)),
    ]  # fmt: skip


def zero_table(whole: Whole) -> tuple[Table, list[Claim]]:
    """What needs no search, beside the best found, timed in turns."""
    columns = ("no trial", "best", "points tried", "share", "floor", "holds")
    table = table_of("without any trial, timed in turns with the best found", "work", *columns)
    claims = list[Claim]()
    for word, floor in (("gemm", 0.85), ("conv", 0.75)):
        shares = list[float]()
        for name, courses in whole.items():
            if not name.startswith(word):
                continue
            costs = costs_of(courses)
            of = next(iter(courses.values()))[0].subject
            default, best = costs[of.space.default], best_known(courses)
            shares.append(best / default)
            cells = (duration(default), duration(best), str(len(costs)), f"{shares[-1]:.1%}")
            table.add_row(name, *cells, f"{floor:.0%}", said(shares[-1] >= floor))
        if shares:
            seen = ", ".join([f"{each:.1%}" for each in shares])
            holds = min(shares) >= floor
            claims.append(Claim(f"2 {word} without a trial", f">= {floor:.0%}", seen, holds))
    return table, claims


def transfer_table(whole: Whole, bench: Bench) -> tuple[Table, list[Claim]]:
    """Trials with and without what was learned from the other work."""
    title = f"transfer: trials to {NEAR:.0%} of the best known"
    table = table_of(title, "work", "cold", WARM, "holds")
    pairs = list[tuple[tuple[float, str], tuple[float, str]]]()
    for name, courses in whole.items():
        if WARM not in courses:
            continue
        best = best_known(courses)
        before = middle(courses["guided"], best / NEAR, bench.trials)
        after = middle(courses[WARM], best / NEAR, bench.trials)
        table.add_row(name, before[1], after[1], said(after[0] <= before[0] / 2))
        pairs.append((before, after))
    cold, warm = (sum(each[at][0] for each in pairs) for at in (0, 1))
    # Where a cold start needs one trial there is nothing to halve, and nothing is shown.
    holds = all(two[0] <= one[0] / 2 for one, two in pairs)
    table.add_row("together", f"{cold:g}", f"{warm:g}", said(holds))
    seen = f"{cold:g} to {warm:g}: " + "; ".join([f"{one[1]} to {two[1]}" for one, two in pairs])
    claim = Claim("3 trials after other work", "at most half of a cold start's", seen, holds)
    return table, [claim] if pairs else []


def model_table(whole: Whole, bench: Bench) -> tuple[Table, list[Claim]]:
    """How well the model orders what it has not seen, in the middle of several halves."""
    columns = ("learned from", "held out", "pairs", "recall@30", "holds")
    title = f"the model on candidates that were held out, median of {bench.seeds} halves"
    table = table_of(title, "work", *columns)
    features = stores(machine_of(bench.target))
    every = list[tuple[float, float]]()
    for name, courses in whole.items():
        if name in ALONE:
            continue
        costs = costs_of(courses)
        packs = features(courses["guided"][0].subject.space, list(costs))
        legal = np.flatnonzero(packs.is_legal)
        packs, times, noise = packs[legal], np.array([*costs.values()])[legal], noise_of(courses)
        cut = len(times) // 2
        seen = list[tuple[float, float]]()
        for seed in range(bench.seeds):
            order = np.random.default_rng(seed).permutation(len(times))
            known, held = order[:cut], order[cut:]
            scores = SummedTime().fitted(packs[known], times[known]).scores(packs[held])
            pairs = pairwise_accuracy(scores, times[held], noise)
            seen.append((pairs, recall(scores, times[held], 30)))
        pairs, recalled = (float(median([each[at] for each in seen])) for at in (0, 1))
        every.append((pairs, recalled))
        cells = (str(cut), str(len(times) - cut), f"{pairs:.3f}", f"{recalled:.3f}")
        table.add_row(name, *cells, said(pairs >= 0.85 and recalled >= 0.6))
    if not every:
        return table, []
    accuracy, recalls = ([each[at] for each in every] for at in (0, 1))
    return table, [
        Claim("4 pairs in order", ">= 0.85", _row(accuracy), min(accuracy) >= 0.85),
        Claim("4 recall@30", ">= 0.6", _row(recalls), min(recalls) >= 0.6),
    ]


def _row(of: Sequence[float]) -> str:
    return ", ".join([f"{each:.3f}" for each in of])


class Timed:
    """A measurer that knows how long it was asked for."""

    def __init__(self, inner: LocalMeasurer) -> None:
        self.inner, self.seconds = inner, 0.0

    def prepare(self, task: SpaceWork, space: Space, points: Sequence[Point]) -> None:
        """Begin to build points that somebody will ask for soon."""
        self.inner.prepare(task, space, points)

    def measure(
        self, task: SpaceWork, space: Space, points: Sequence[Point], arrived: Arrived | None = None
    ) -> tuple[Measured, ...]:
        """What comes of points."""
        start = perf_counter()
        measured = self.inner.measure(task, space, points, arrived)
        self.seconds += perf_counter() - start
        return measured


def throughput_table(
    subjects: Mapping[str, TuningSubject], bench: Bench
) -> tuple[Table, list[Claim]]:
    """Trials a second of a search that shares nothing; stages overlap, for one is built while
    another is validated."""
    title = "throughput, everything included; ms a trial of each stage"
    table = table_of(title, "work", "trials", "trials/s", "propose", *STAGES, "holds")
    rates = list[float]()
    for name, of in subjects.items():
        if name in ALONE:
            continue

        def measured(of: TuningSubject = of) -> dict[str, float]:
            timed, policy = Timed(bench.shared.inner), guided(machine_of(bench.target))
            run = Run(policy, timed, Database(), fingerprint(bench.target), 0, versions())
            start = perf_counter()
            (course,) = tuned([of], run, 64, finals=False)
            seconds = perf_counter() - start
            each = 1e3 / course.trials
            shares = {stage: course.stages.get(stage, 0.0) * each for stage in STAGES}
            proposing = (seconds - timed.seconds) * each
            rate = course.trials / seconds
            return {"trials": course.trials, "rate": rate, "propose": proposing, **shares}

        seen = bench.kept.once(f"throughput/{name}", measured)
        if name.startswith("conv"):
            rates.append(seen["rate"])
        shares = [f"{seen[stage]:.0f}" for stage in ("propose", *STAGES)]
        cells = (f"{seen['trials']:.0f}", f"{seen['rate']:.1f}")
        table.add_row(name, *cells, *shares, said(seen["rate"] >= RATE))
    text = ", ".join([f"{each:.1f}" for each in rates])
    holds = min(rates, default=0.0) >= RATE
    claim = Claim("5 trials a second, conv", f">= {RATE}", text, holds)
    return table, [claim] if rates else []


def crash_claims(bench: Bench) -> list[Claim]:
    """What is lost where somebody is killed."""
    one = bench.kept.once("killed", lambda: crashes.killed(crashes.KILLS, 0))
    seen = f"{one['lost']} lost after {one['kills']} kills, proposals of all {one['trials']} "
    seen += "the same" if one["same"] else "differ"
    holds = one["lost"] == 0 and one["same"]
    asked = f"none lost after {crashes.KILLS}, same proposals"
    claims = [Claim("6 kill -9 and resume", asked, seen, holds)]
    if find_spec("distributed") is not None:
        two = bench.kept.once("pool", crashes.pooled)
        seen = f"{two['records']} records of {two['trials']} trials, {two['distinct']} distinct"
        holds = two["records"] == two["distinct"] == two["trials"] == crashes.TRIALS
        asked = "finishes, none lost or doubled"
        claims.append(Claim("6 one of two pool workers killed", asked, seen, holds))
    return claims


def claims_table(claims: Sequence[Claim]) -> Table:
    """Each claim, and whether it holds."""
    table = Table(title="what is claimed")
    for column in ("claim", "asked", "seen", "holds"):
        table.add_column(column, overflow="fold")
    for each in claims:
        table.add_row(each.what, each.asked, each.seen, said(each.holds))
    return table


# --- what is kept ---------------------------------------------------------------------------------


def median_curve(courses: Sequence[Course], trials: int) -> list[float | None]:
    """The best after each trial, in the middle of the seeds."""
    found_by = [[found(each, n) for each in courses] for n in range(1, trials + 1)]
    return [m if np.isfinite(m := median(each)) else None for each in found_by]


def save(whole: Whole, claims: Sequence[Claim], bench: Bench, folder: Path) -> None:
    """The curves, as numbers and as pictures, and the claims."""
    lines = {
        name: {kind: median_curve(each, bench.trials) for kind, each in courses.items()}
        for name, courses in whole.items()
    }
    seeds = {
        name: {kind: [list(e.curve) for e in each] for kind, each in courses.items()}
        for name, courses in whole.items()
    }
    best = {name: best_known(courses) for name, courses in whole.items()}
    content = {
        "target": bench.target.describe(),
        "claims": [asdict(each) for each in claims],
        "best": best,
        "median": lines,
        "seeds": seeds,
    }
    (folder / "search.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    for name, each in lines.items():
        file = "search-" + "".join(c if c.isalnum() else "-" for c in name) + ".svg"
        (folder / file).write_text(plot(each), encoding="utf-8")
    if find_spec("matplotlib") is not None:
        _picture({n: each for n, each in lines.items() if n not in ALONE}, best,
                 folder / "search.png")  # fmt: skip


def _picture(
    lines: Mapping[str, Mapping[str, Sequence[float | None]]], best: Mapping[str, float], path: Path
) -> None:
    agg = import_module("matplotlib.backends.backend_agg")
    figure = import_module("matplotlib.figure").Figure(figsize=(12, 4 * -(-len(lines) // 2)))
    for number, (name, each) in enumerate(lines.items(), 1):
        axes = figure.add_subplot(-(-len(lines) // 2), 2, number)
        for kind, line in each.items():
            shares = [np.nan if e is None else best[name] / e for e in line]
            axes.plot(range(1, len(line) + 1), shares, label=kind)
        axes.axhline(NEAR, color="grey", linewidth=0.8, linestyle=":")
        axes.set_title(name)
        axes.set_xlabel("trials")
        axes.set_ylabel("share of the best known")
        axes.legend(loc="lower right")
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
    parser.add_argument("names", nargs="*", help=", ".join([*WORK, "SEED/NUMBER of cliffs.py"]))
    given = parser.parse_args(arguments)
    trials = given.trials or (40 if given.quick else 256)
    given.out.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 120)
    start = perf_counter()
    target = evolve(toolchain.host(), cores=1)
    claims = list[Claim]()

    def show(of: tuple[Table, list[Claim]]) -> None:
        console.print(of[0])
        claims.extend(of[1])

    with LocalMeasurer(target) as measurer, Database(given.out / "search.db") as database:
        shared = Sharing(measurer, database, fingerprint(target))
        kept = Kept(given.out / "parts.json", fingerprint(target))
        bench = Bench(target, shared, kept, trials, given.seeds)
        subjects = {name: subject(name, target) for name in given.names or {**WORK, **ALONE}}
        for name, of in subjects.items():
            sketches = [each.name for each in of.space.sketches]
            console.print(f"[dim]{name}: {of.space.size:,} points of {', '.join(sketches)}[/dim]")
        if shared.before:
            console.print(f"{shared.before:,} points were measured by an earlier run")
        show(throughput_table(subjects, bench))
        raw = contest(subjects, bench, given.quick, console)
        whole = {name: judged(name, courses, bench) for name, courses in raw.items()}
        show(contest_table(whole, bench))
        show(zero_table(whole))
        show(transfer_table(whole, bench))
        show(model_table(raw, bench))
        claims.extend(crash_claims(bench))
        claims.sort(key=lambda each: each.what)
        console.print(claims_table(claims))
        save(whole, claims, bench, given.out)
    seconds = perf_counter() - start
    console.print(
        f"{len(shared.known):,} points measured, each once for all searches; {seconds:.0f} s"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
