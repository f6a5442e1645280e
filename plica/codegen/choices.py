"""Choices: which schedule each kernel of a model gets from tuning, and why, as data.

>>> print(table((ChoiceRow("matmul + relu", 3, "tuned", "12.5 us as thumb/window/default"),)))
kernel         times  schedule  why
matmul + relu      3  tuned     12.5 us as thumb/window/default
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from attrs import frozen


@frozen
class ChoiceRow:
    """The choice for one kernel, and its reason."""

    name: str
    weight: int
    status: Literal["tuned", "default"]
    why: str


def table(rows: Sequence[ChoiceRow]) -> str:
    """The choices as a text, one line a kernel."""
    wide = max([6, *[len(row.name) for row in rows]])
    lines = [f"{'kernel':{wide}}  times  schedule  why"]
    for row in rows:
        lines.append(f"{row.name:{wide}}  {row.weight:5}  {row.status:8}  {row.why}")
    return "\n".join(lines)
