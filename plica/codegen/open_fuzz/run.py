"""Fuzzing of open sizes: one code for a random program, at many sizes, computes what it means.

A program for which there is no one code (it must know its sizes) is counted by the reason.  What
goes wrong is made smaller by hypothesis, operators, dims and sizes, and printed as a script.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final

import attrs

from plica.codegen.open_fuzz.case import Case, open_cases
from plica.codegen.open_fuzz.judge import CaseVerdict, Compile, judge
from plica.core.fold import post_order
from plica.ir.graph.expression import Apply
from plica.rewrite.check.report import as_comment, text
from plica.rewrite.fuzz.driver import ENDLESS, TOO_LONG, Known, campaign, one_case

TRIES: Final = 150
"""How many smaller programs are compiled for one that goes wrong."""


@attrs.frozen
class Finding:
    """A smallest program that goes wrong, as a script."""

    case: int
    kind: str
    reason: str
    script: str

    def to_data(self) -> dict[str, Any]:
        return attrs.asdict(self)


@attrs.define
class Report:
    """What was tried, what has no one code and why, and the first findings."""

    seed: int
    examples: int = 0
    compiled: int = 0
    runs: int = 0
    without_value: int = 0
    refused: Counter[str] = attrs.Factory(Counter)
    operators: Counter[str] = attrs.Factory(Counter)
    dims: Counter[int] = attrs.Factory(Counter)
    findings: list[Finding] = attrs.Factory(list)

    @property
    def finding(self) -> Finding | None:
        """The first finding, if there is one."""
        return self.findings[0] if self.findings else None

    def to_data(self) -> dict[str, Any]:
        """The report as JSON holds it."""
        return {
            "seed": self.seed,
            "examples": self.examples,
            "compiled": self.compiled,
            "runs": self.runs,
            "without_value": self.without_value,
            "refused": dict(sorted(self.refused.items())),
            "operators": dict(sorted(self.operators.items())),
            "dims": {str(key): self.dims[key] for key in sorted(self.dims)},
            "findings": [each.to_data() for each in self.findings],
        }


class Wrong(AssertionError):
    """Raised inside hypothesis where a case goes wrong."""

    def __init__(self, case: Case, verdict: CaseVerdict) -> None:
        super().__init__(verdict.reason)
        self.case, self.verdict = case, verdict


def fuzz(
    compiled: Compile,
    examples: int = 200,
    seed: int = 0,
    *,
    first: int = 0,
    most: int = 6,
    findings: int = 1,
    renames: int = 2,
    tries: int = TRIES,
    isolated: bool = True,
    say: Callable[[str], None] | None = None,
) -> Report:
    """So many programs of up to `most` operators, from the `first` on, until so many findings.

    Every so many-th, as `renames` says, is compiled with other names for its dims as well.  What
    goes wrong is made smaller in so many `tries` at most.
    """
    report = Report(seed)

    def one(number: int) -> Finding | None:
        again = bool(renames) and number % renames == 0
        asked = partial(judge, compiled=compiled, renames=again, isolated=isolated)
        judged = Known[Case, CaseVerdict](asked, _key, CaseVerdict("passed"), tries)

        def tried(case: Case, counts: bool) -> None:
            verdict = judged(case)
            if counts:
                _count(report, case, verdict)
            if verdict.is_wrong:
                raise Wrong(case, verdict)

        try:
            one_case(tried, open_cases(most), seed, number, Wrong)
        except Wrong as wrong:
            kind, reason = wrong.verdict.kind, wrong.verdict.reason
            return Finding(number, kind, reason, as_script(wrong.case, reason))
        return None

    def endless(number: int) -> Finding:
        return Finding(number, ENDLESS, TOO_LONG, "")

    done = campaign(
        one,
        examples,
        hangs=endless,
        first=first,
        ends=lambda found: len(found) >= findings,
        say=say,
    )
    report.findings.extend(done.findings)
    return report


def _key(of: Case) -> Hashable:
    sizes = tuple([tuple(each.items()) for each in of.sizes])
    return of.module, sizes, of.threads, of.contract, of.turn


def _count(report: Report, case: Case, verdict: CaseVerdict) -> None:
    report.examples += 1
    body = case.module.main_function().body
    report.operators.update(node.op for node in post_order(body) if isinstance(node, Apply))
    report.dims[len(case.dims)] += 1
    report.runs += verdict.runs
    report.without_value += verdict.without_value
    if verdict.kind == "refused":
        report.refused[verdict.reason] += 1
    else:
        report.compiled += 1


def as_script(of: Case, reason: str) -> str:
    """A script that fails as long as the code is wrong."""
    return f'''import numpy as np

import plica
from plica.codegen.open_fuzz.case import arrays_for, with_names

{as_comment(reason)}
SOURCE = """
{text(of.module)}
"""
SIZES = {[dict(each) for each in of.sizes]}

module = plica.from_text(SOURCE)
exe = plica.compile(module, threads={of.threads}, contract={of.contract!r})
other = plica.compile(
    with_names(module, {of.renamed}), threads={of.threads}, contract={of.contract!r}
)
print(exe, other, sep="\\n")
for sizes in SIZES:
    arrays = arrays_for(module, sizes)
    expected = plica.interpret(module, *arrays)
    for each in (exe, other):
        np.testing.assert_allclose(each(*arrays), expected, rtol=1e-3, atol=1e-4)
'''
