"""Tuned: how to search for the schedules of a model, and what came of it.

    TuneOptions(trials=200)     trials in all, the seed, the policy, how long
    Tuned                       a course for each kernel, and how it is in the network

Options and results are values for every target; the search is `plica.search.tune`, or the target's
own (`plica.search.target`).
"""

from __future__ import annotations

from typing import Final

from attrs import asdict, frozen

from plica.schedule.trace import Trace
from plica.search.course import Course
from plica.search.measure import TrialLimits
from plica.search.progress import duration
from plica.search.report import page as report_page

DEFAULT_POLICY: Final = "guided"  # the policy, where none is named


@frozen(eq=False)
class TuneOptions:
    """Search options: the number of trials, the seed, and the progress display."""

    trials: int
    seed: int = 0
    progress: bool = True
    policy: str = DEFAULT_POLICY
    seconds: float | None = None
    limits: TrialLimits | None = None


@frozen
class InPlace:
    """A network's seconds per call, untuned and tuned, and the kernels that reverted to their
    default."""

    untuned: float
    tuned: float
    back: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = f"in the network: {duration(self.untuned)} untuned, {duration(self.tuned)} tuned"
        one = len(self.back) == 1
        kept = "1 kernel keeps its" if one else f"{len(self.back)} kernels keep their"
        why = f"; {kept} default, which is not clearly slower there"
        return said + (why if self.back else "")


@frozen(eq=False)
class Tuned:
    """The result of each kernel's search; kernels without decisions are omitted."""

    courses: tuple[Course, ...]
    fixed: tuple[str, ...] = ()  # the kernels of which nothing can be decided
    in_place: InPlace | None = None  # how it is in the network, where that was tried
    graph: str = ""  # in which form the graph is compiled, where that was searched for

    @property
    def trace(self) -> Trace | None:
        """The fastest schedule that was found, of the first kernel."""
        best = self.courses[0].best if self.courses else None
        return None if best is None else self.courses[0].subject.space.trace(best.point)

    @property
    def trials(self) -> int:
        """How many candidates were built and run."""
        return sum(each.trials for each in self.courses)

    def page(self, title: str = "Tuning") -> str:
        """A page with the curves, as HTML."""
        return report_page(self.courses, title)

    def to_data(self) -> dict[str, object]:
        """The same as the table, as plain data; times are seconds."""
        kernels = []
        for each in self.courses:
            best = None if each.best is None else each.best.point
            default, fastest = each.cost_of(each.subject.space.default), each.cost_of(best)
            name, times = each.subject.task.name, each.subject.task.weight
            kernels.append({
                "kernel": name, "times": times, "trials": each.trials, "twins": each.twins,
                "candidates": each.subject.space.size, "more": each.subject.grow is not None,
                "default": default, "best": fastest, "broken": each.broken or None,
            })  # fmt: skip
        network = None if self.in_place is None else asdict(self.in_place)
        return {"kernels": kernels, "fixed": self.fixed, "graph": self.graph, "network": network}

    def __str__(self) -> str:
        """One line a kernel: candidates (`+`: of the first sketch alone), default and best."""
        wide = max([6, *[len(each.subject.task.name) for each in self.courses]])
        lines = [f"{'kernel':{wide}}  times  candidates  trials     default        best"]
        for each in self.courses:
            task = each.subject.task
            best = None if each.best is None else each.best.point
            points = (each.subject.space.default, best)
            known = [each.cost_of(point) for point in points]
            costs = ["-" if cost is None else duration(cost) for cost in known]
            size = f"{each.subject.space.size}{'+' if each.subject.grow is not None else ''}"
            numbers = f"{task.weight:5}  {size:>10}  {each.trials:6}"
            numbers += f"  {costs[0]:>10}  {costs[1]:>10}"
            lines.append(f"{task.name:{wide}}  {numbers}")
        lines += [f"{each:{wide}}  nothing can be decided" for each in self.fixed]
        if same := sum(each.twins for each in self.courses):
            share = f"{same / (same + self.trials):.1%} of all"
            lines.append(
                f"candidates that laws make equal to others, not measured: {same}, {share}"
            )
        lines += [
            f"{each.subject.task.name}: not searched, since its default fails. {each.broken}"
            for each in self.courses
            if each.broken
        ]
        lines += [self.graph] if self.graph else []
        lines += [] if self.in_place is None else [str(self.in_place)]
        return "\n".join(lines)
