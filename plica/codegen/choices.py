"""Choices: which schedule each kernel of a model gets from tuning, and why, as data.

`plica.search.choice` makes them of the records of a database; compiling only takes them, one for
each group that is not kept from before.

>>> print(table((ChoiceRow("matmul + relu", 3, "tuned", "12.5 us as thumb/window/default"),)))
kernel         times  schedule  why
matmul + relu      3  tuned     12.5 us as thumb/window/default
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from attrs import frozen

from plica.codegen.lower.scheduled import TunedBy
from plica.ir.graph.module import Module


@frozen
class ChoiceRow:
    """What was chosen for one kernel, and why."""

    name: str
    weight: int
    status: Literal["tuned", "default"]
    why: str


@frozen(eq=False)
class Chooser:
    """What chooses schedules by records of tuning, and tells these records from others."""

    digest: str
    choose: TunedBy
    """The schedule of one function; it depends on nothing else in a module."""
    explain: Callable[[Module], tuple[ChoiceRow, ...]]
    """What there is to say about each kernel of a module whose operators are grouped."""


def table(rows: Sequence[ChoiceRow]) -> str:
    """The choices as a text, one line a kernel."""
    wide = max([6, *[len(each.name) for each in rows]])
    lines = [f"{'kernel':{wide}}  times  schedule  why"]
    for each in rows:
        lines.append(f"{each.name:{wide}}  {each.weight:5}  {each.status:8}  {each.why}")
    return "\n".join(lines)
