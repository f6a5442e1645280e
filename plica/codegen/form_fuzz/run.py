"""Fuzzing of forms: random stages of every kind through every form, template and lowering pass.

>>> fuzz(examples=1).finding is None
True
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, Final

import attrs
import numpy as np
from hypothesis import strategies as st

from plica.codegen.form_fuzz.judge import GPUS, MACHINES, FormWay, Guilty, judge
from plica.rewrite.fuzz.driver import ENDLESS, TOO_LONG, Known, campaign, one_case
from plica.schedule.default import Machine
from plica.schedule.default.gpu import Gpu
from plica.schedule.generate.stages import GPU_KINDS, KINDS, ON_SMALL, StagesCase

Drawn = tuple[StagesCase, "Machine | Gpu"]

TRIES: Final = 60
"""How many smaller cases are tried for one that goes wrong."""


@attrs.frozen
class FormFinding:
    """A smallest case that goes wrong: who is guilty, after which form, how, and the stages."""

    level: str
    guilty: str
    form: str
    case: int
    reason: str
    stages: str

    def to_data(self) -> dict[str, Any]:
        return attrs.asdict(self)


@attrs.frozen
class FormReport:
    """How many cases of which kinds there were, which forms and templates applied, how often."""

    examples: int
    seed: int
    kinds: dict[str, int]
    forms: dict[str, int]
    templates: dict[str, int]
    finding: FormFinding | None

    def to_data(self) -> dict[str, Any]:
        return attrs.asdict(self)


def kinds() -> dict[str, st.SearchStrategy[Drawn]]:
    """What is drawn, by its name: stages for processors, and for GPUs."""
    here: dict[str, st.SearchStrategy[Drawn]] = {
        name: st.tuples(make(), st.sampled_from(MACHINES)) for name, make in KINDS.items()
    }
    there: dict[str, st.SearchStrategy[Drawn]] = {
        f"gpu-{name}": st.tuples(make(), st.sampled_from(GPUS if name in ON_SMALL else GPUS[:1]))
        for name, make in GPU_KINDS.items()
    }
    return here | there


def fuzz(
    examples: int = 200,
    seed: int = 0,
    *,
    first: int = 0,
    way: FormWay | None = None,
    tries: int = TRIES,
    say: Callable[[str], None] | None = None,
) -> FormReport:
    """So many cases, each kind in turn, until the first finding."""
    through = way or FormWay()
    counts: Counter[str] = Counter()
    forms: Counter[str] = Counter()
    templates: Counter[str] = Counter()
    every = kinds()
    names = tuple(every)

    def one(number: int) -> FormFinding | None:
        name = names[number % len(names)]
        judged = Known(_verdict(through), _key, None, tries)

        def tried(drawn: Drawn, first: bool) -> None:
            if isinstance(verdict := judged(drawn), Guilty):
                raise _Wrong(drawn, verdict)
            if first and verdict is not None:
                counts[name] += 1
                forms.update(verdict[0])
                templates.update(verdict[1])

        try:
            one_case(tried, every[name], seed, number, _Wrong)
        except _Wrong as wrong:
            by, shown = wrong.guilty, repr(wrong.drawn[0])
            return FormFinding(by.level, by.name, by.form, number, by.reason, shown)
        return None

    def endless(number: int) -> FormFinding:
        name = names[number % len(names)]
        return FormFinding("case", ENDLESS, name, number, TOO_LONG, "")

    done = campaign(one, examples, hangs=endless, first=first, say=say)
    of_kinds, of_forms, of_templates = (
        dict(sorted(each.items())) for each in (counts, forms, templates)
    )
    return FormReport(done.ran, seed, of_kinds, of_forms, of_templates, done.finding)


_Verdict = Guilty | tuple[Counter[str], Counter[str]] | None


class _Wrong(AssertionError):
    """Raised inside hypothesis where a case goes wrong."""

    def __init__(self, drawn: Drawn, guilty: Guilty) -> None:
        super().__init__(guilty.reason)
        self.drawn, self.guilty = drawn, guilty


def _verdict(way: FormWay) -> Callable[[Drawn], _Verdict]:
    def verdict(drawn: Drawn) -> _Verdict:
        with np.errstate(all="ignore"):
            try:
                return judge(*drawn, way)
            except Guilty as guilty:
                return guilty

    return verdict


def _key(drawn: Drawn) -> Hashable:
    of, machine = drawn
    return of.stages, of.facts, machine, tuple([each.tobytes() for each in of.arrays])
