"""Progress: how a tuning run is going, on one line that changes.

`shown(False, …)` tells nobody.

>>> with shown(False, trials=8) as listener:
...     listener is None
True
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from plica.search.tune_loop import Course, Listener


@contextmanager
def shown(wanted: bool, trials: int, console: Console | None = None) -> Iterator[Listener | None]:
    """A listener that shows the trials spent, and the best so far of what is being tuned."""
    if not wanted:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console or Console(stderr=True)) as bar:
        row = bar.add_task("tuning", total=trials)

        def listener(courses: Sequence[Course], number: int, spent: int) -> None:
            bar.update(row, completed=spent, description=standing(courses, number))

        yield listener


def standing(courses: Sequence[Course], number: int) -> str:
    """What is being tuned, and how fast it is so far."""
    course = courses[number]
    best = course.best
    cost = "nothing works yet" if best is None or best.cost is None else duration(best.cost)
    whole = "".join(
        [f"; all {duration(now)} of {duration(then)}" for then, now in together(courses)]
    )
    return f"{course.subject.task.name} ({number + 1} of {len(courses)}): {cost}{whole}"


def together(courses: Sequence[Course]) -> list[tuple[float, float]]:
    """What all kernels took at first and take now, each as often as it occurs; nothing as long as
    one of them has not been timed."""
    found = [(each.subject.task.weight, each.first, each.least) for each in courses]
    pairs = [(weight * one, weight * two) for weight, one, two in found if one and two]
    if len(pairs) < len(courses) or len(courses) < 2:
        return []
    return [(sum(each[0] for each in pairs), sum(each[1] for each in pairs))]


def duration(seconds: float) -> str:
    """Seconds as people write them.

    >>> duration(0.00213), duration(2.5), duration(4e-6)
    ('2.13 ms', '2.5 s', '4 µs')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
