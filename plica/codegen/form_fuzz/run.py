"""Fuzzing of forms: random stages of every kind through every form, template and lowering pass.

>>> fuzz(examples=1).finding is None
True
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import attrs
import numpy as np
from hypothesis import strategies as st

from plica.codegen.form_fuzz.judge import GPUS, MACHINES, FormWay, Guilty, judge
from plica.rewrite.check.report import as_comment
from plica.rewrite.fuzz.driver import ByStrategy, Campaign, Say, Tally
from plica.rewrite.fuzz.report import Finding, FuzzReport
from plica.schedule.default import Machine
from plica.schedule.default.gpu import Gpu
from plica.schedule.generate.stages import GPU_KINDS, KINDS, ON_SMALL, StagesCase

Drawn = tuple[StagesCase, "Machine | Gpu"]

MAX_SHRINK_TRIES: Final = 60  # the maximum number of smaller cases tried for a failure


COUNTERS: Final = {"kinds": (), "forms": (), "templates": ()}


@attrs.frozen
class FormFinding(Finding):
    """A smallest failing case: the `kind` of the culprit, and the form before it."""

    form: str = ""


def kinds() -> dict[str, st.SearchStrategy[Drawn]]:
    """The kinds of drawn stages by name: for processors and for GPUs."""
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
    tries: int = MAX_SHRINK_TRIES,
    say: Say | None = None,
) -> FuzzReport[FormFinding]:
    """A number of cases, cycling through the kinds, until the first finding."""
    through = way or FormWay()
    every = kinds()
    names = tuple(every)

    def oracle(drawn: Drawn, number: int, tally: Tally) -> FormFinding | None:
        try:
            with np.errstate(all="ignore"):
                forms, templates = judge(*drawn, through)
        except Guilty as by:
            shown = as_comment(repr(drawn[0]))
            return FormFinding(by.level, by.name, by.reason, shown, form=by.form)
        tally["kinds"][names[number % len(names)]] += 1
        tally["forms"].update(forms)
        tally["templates"].update(templates)
        return None

    generator = ByStrategy(lambda number: every[names[number % len(names)]], _key, tries)
    return Campaign(FormFinding, generator, oracle, counters=COUNTERS).run(
        examples, seed, first=first, say=say
    )


def _key(drawn: Drawn) -> Hashable:
    of, machine = drawn
    return of.stages, of.facts, machine, tuple([array.tobytes() for array in of.arrays])
