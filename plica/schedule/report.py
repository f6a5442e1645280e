"""Reports: what became of each instruction of a trace that was transported.

    same       it is there as it was
    adapted    it is there with other numbers, another place, or less to do
    dropped    what it is about does not exist in the new program
    refused    it would break a precondition there

>>> from plica.schedule.spelling import spell
>>> fate = Fate(2, Step(spell("enter_postproc")), "dropped", "there is no loop", None)
>>> print(TransportReport((fate,)))
2 enter_postproc: dropped, there is no loop
0 same, 0 adapted, 1 dropped, 0 refused
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Literal, TypeAlias, get_args

from attrs import frozen

from plica.schedule.diff import described
from plica.schedule.problem import Problem
from plica.schedule.trace import Step

Verdict: TypeAlias = Literal["same", "adapted", "dropped", "refused"]

VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
KEPT_VERDICTS: Final[frozenset[Verdict]] = frozenset({"same", "adapted"})


@frozen(eq=False)
class Fate:
    """What became of a step: the verdict, how or why, and the step in the new trace."""

    number: int
    step: Step
    verdict: Verdict
    how: str
    after: Step | None
    problem: Problem | None = None

    def __str__(self) -> str:
        detail = f", {self.how}" if self.how else ""
        return f"{self.number} {described(self.step)}: {self.verdict}{detail}"


@frozen(eq=False)
class TransportReport:
    """The fates of all steps, in order."""

    fates: tuple[Fate, ...]

    def count(self, verdict: Verdict) -> int:
        """How many steps had that fate."""
        return Counter(fate.verdict for fate in self.fates)[verdict]

    @property
    def kept(self) -> float:
        """The fraction of instructions that are unchanged or adapted; 1 if there are none."""
        kept = sum(fate.verdict in KEPT_VERDICTS for fate in self.fates)
        return kept / len(self.fates) if self.fates else 1.0

    def __str__(self) -> str:
        counts = ", ".join(f"{self.count(verdict)} {verdict}" for verdict in VERDICTS)
        return "\n".join((*map(str, self.fates), counts))
