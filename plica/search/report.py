"""Reports of tuning: one page with a curve for each piece of work, complete in itself.

    page(courses, title)       HTML: a table, and a plot of the best so far over the trials
    plot(lines, …)             SVG: such a plot, also of several runs side by side

>>> plot({"guided": (3.0, 2.0, 1.0)}, width=200, height=100).count("<polyline")
1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from plica.search.course import Course
from plica.search.progress import duration

COLOURS: Final = ("#1b6ca8", "#d1495b", "#2a9d6f", "#8a5fb5", "#c78b1f", "#4a4a4a")
STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#222;background:#fff}table{border-collapse:collapse;width:100%}"
    "td,th{padding:.3rem .6rem;border-bottom:1px solid #ddd;text-align:right}"
    "td:first-child,th:first-child{text-align:left}h2{margin-top:2rem;font-size:1.1rem}"
    "svg{max-width:100%;height:auto}"
)


def page(courses: Sequence[Course], title: str = "Tuning", notes: Sequence[str] = ()) -> str:
    """The report of a run."""
    rows = "".join([_row(each) for each in courses])
    heads = "".join(
        [
            f"<th>{each}</th>"
            for each in ("work", "times", "trials", "without search", "best", "gain", "failures")
        ]
    )
    plots = "".join(
        [
            f"<h2>{escape(each.subject.task.name)}</h2>"
            + plot({"best so far": each.curve}, dots=_dots(each))
            for each in courses
            if each.trials
        ]
    )
    said = "".join([f"<p>{escape(note)}</p>" for note in notes])
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{said}"
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{plots}{_split(courses)}"
        "</body></html>\n"
    )


def _row(of: Course) -> str:
    best, default = of.best, without_search(of)
    found = None if best is None else best.cost
    cells = (
        escape(of.subject.task.name),
        str(of.subject.task.weight),
        str(of.trials),
        "–" if default is None else duration(default),
        "–" if found is None else duration(found),
        "–" if default is None or not found else f"{default / found:.2f}×",
        escape(", ".join([f"{count} {how}" for how, count in of.errors.items()])) or "none",
    )
    return "<tr>" + "".join([f"<td>{cell}</td>" for cell in cells]) + "</tr>"


def without_search(of: Course) -> float | None:
    """The cost of the point that needs no search, where it was tried."""
    if not of.subject.space.sketches:
        return None
    return of.cost_of(of.subject.space.default)


def _dots(of: Course) -> tuple[float | None, ...]:
    return tuple([observation.cost for observation in of.observations if observation.is_trial])


def _split(courses: Sequence[Course]) -> str:
    """How the time of trials was spent."""
    if not (measured := sum(each.measured for each in courses)):
        return ""
    stages = dict[str, float]()
    for course in courses:
        for name, seconds in course.stages.items():
            stages[name] = stages.get(name, 0.0) + seconds
    rows = "".join(
        [
            f"<tr><td>{escape(name)}</td><td>{duration(seconds / measured)}</td></tr>"
            for name, seconds in stages.items()
        ]
    )
    return (
        "<h2>Where the time of a trial goes</h2><table><thead><tr><th>stage</th>"
        f"<th>mean</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def plot(
    lines: Mapping[str, Sequence[float | None]],
    *,
    dots: Sequence[float | None] = (),
    width: int = 720,
    height: int = 260,
) -> str:
    """Seconds over trials: a line for each name, and single trials as dots."""
    left, right, top, bottom = 64, 12, 10, 34
    if not (whole := [each for line in lines.values() for each in line if each is not None]):
        return ""
    # A trial far above the curve would flatten it: those are drawn at the upper edge.
    low, high = min(whole) * 0.95, min(max(whole), 8 * min(whole)) * 1.05
    count = max([len(dots), *[len(line) for line in lines.values()], 2])

    def at(trial: int, cost: float) -> tuple[float, float]:
        x = left + (width - left - right) * trial / (count - 1)
        y = top + (height - top - bottom) * (1 - (min(cost, high) - low) / (high - low))
        return round(x, 1), round(y, 1)

    parts = list[str]()
    for tick in range(5):
        cost = low + (high - low) * tick / 4
        _, y = at(0, cost)
        parts.append(
            f'<line x1="{left}" x2="{width - right}" y1="{y}" y2="{y}" stroke="#e4e4e4"/>'
            f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{duration(cost)}</text>'
        )
    for trial in dict.fromkeys(
        [0, (count - 1) // 4, (count - 1) // 2, 3 * (count - 1) // 4, count - 1]
    ):
        x, _ = at(trial, low)
        parts.append(f'<text x="{x}" y="{height - 14}" text-anchor="middle">{trial + 1}</text>')
    parts.append(f'<text x="{width / 2}" y="{height - 1}" text-anchor="middle">trials</text>')
    for trial, seen in enumerate(dots):
        if seen is not None:
            x, y = at(trial, seen)
            parts.append(f'<circle cx="{x}" cy="{y}" r="2" fill="#bbb"/>')
    for number, (name, line) in enumerate(lines.items()):
        places = [at(trial, each) for trial, each in enumerate(line) if each is not None]
        path = " ".join([f"{x},{y}" for x, y in places])
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if len(lines) > 1:
            y = top + 14 + 16 * number
            parts.append(
                f'<text x="{width - right}" y="{y}" text-anchor="end" fill="{colour}">'
                f"{escape(name)}</text>"
            )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="11" '
        f'role="img">{"".join(parts)}</svg>'
    )
