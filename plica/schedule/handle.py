"""Handles: references to results of earlier instructions.

A handle says which instruction of a trace made something and which of its results it is, never a
name: a trace survives renaming.

>>> Handle(3, 0, "loop")
Handle(3, 0, 'loop')
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from attrs import frozen

from plica.core import Name, Term
from plica.ir.loop.scalar import ScalarVar

Sort: TypeAlias = Literal["block", "loop", "number"]
SORTS: Final[tuple[Sort, ...]] = get_args(Sort)
Output: TypeAlias = Name | ScalarVar | int
"""The object of a handle in a kernel: a block label, a loop variable, or a decided number."""


@frozen(eq=False)
class Handle(Term):
    """The `output`th result of the instruction at `step`."""

    step: int
    output: int
    sort: Sort


def sort_of(output: Output) -> Sort:
    """What kind of thing an output is."""
    if isinstance(output, Name):
        return "block"
    return "loop" if isinstance(output, ScalarVar) else "number"
