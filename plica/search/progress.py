"""Progress: how a tuning run is going, on one line that changes.

`shown(False, …)` shows nothing.

>>> with shown(False, trials=8) as listener:
...     listener is None
True
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from plica.search.course import Course, Listener
from plica.search.schedule_tasks import Standing, promised


@contextmanager
def shown(
    wanted: bool,
    trials: int,
    console: Console | None = None,
    *,
    seconds: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Listener | None]:
    """A listener that shows trials or seconds spent, the speed by now and the expected gain."""
    if not wanted:
        yield None
        return
    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[spent]}")]
    times = [] if seconds is not None else [TimeElapsedColumn(), TimeRemainingColumn()]
    start = clock()
    with Progress(*columns, *times, console=console or Console(stderr=True)) as bar:
        row = bar.add_task("tuning", total=trials if seconds is None else seconds, spent="")

        def listener(courses: Sequence[Course], number: int, spent: int) -> None:
            gone = clock() - start
            if seconds is None:
                done, total, said = float(spent), float(trials), f"{spent}/{trials}"
            else:
                done, total = min(gone, seconds), seconds
                said = f"{gone / 60:.1f} of {seconds / 60:.3g} min, {spent} trials"
            told = standing(courses, number) + hoped(courses, (total - done) / max(done, 1e-9))
            bar.update(row, completed=done, description=told, spent=said)

        yield listener


def hoped(courses: Sequence[Course], ahead: float) -> str:
    """The gain that is still expected; nothing as long as a kernel has not been timed."""
    if not (whole := together(courses)):
        return ""
    spent = sum(len(each.batches) for each in courses)
    standings = [Standing(float(each.subject.task.weight), each.batches) for each in courses]
    gain = promised(standings, round(ahead * spent)) / whole[0][1]
    return f"; {100 * gain:.0f} % more expected"


def standing(courses: Sequence[Course], number: int) -> str:
    """The kernel being tuned, and its current speed."""
    course = courses[number]
    best = course.best
    cost = "nothing works yet" if best is None or best.cost is None else duration(best.cost)
    whole = "".join(
        [f"; all {duration(now)} of {duration(then)}" for then, now in together(courses)]
    )
    name = course.subject.task.name
    short = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 2]} …"
    return f"{short} ({number + 1} of {len(courses)}): {cost}{whole}"


LONGEST_NAME: Final = 32  # characters of the name of a kernel: the line must hold the rest, too


def together(courses: Sequence[Course]) -> list[tuple[float, float]]:
    """What all kernels took at first and take now; nothing until each has been timed."""
    found = [(each.subject.task.weight, each.first, each.least) for each in courses]
    pairs = [(weight * one, weight * two) for weight, one, two in found if one and two]
    if len(pairs) < len(courses):
        return []
    return [(sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs))]


def duration(seconds: float) -> str:
    """Seconds as people write them.

    >>> duration(0.00213), duration(2.5), duration(4e-6)
    ('2.13 ms', '2.5 s', '4 µs')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
