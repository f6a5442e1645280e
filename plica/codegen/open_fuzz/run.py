"""Fuzzing of open sizes: one code for a random program, at many sizes, computes what it means."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from plica.codegen.open_fuzz.case import Case, open_cases
from plica.codegen.open_fuzz.judge import CaseVerdict, Compile, judge
from plica.core import post_order
from plica.ir.graph.expression import Apply
from plica.rewrite.check.report import as_comment, text
from plica.rewrite.fuzz.driver import ByStrategy, Campaign, Say, Tally
from plica.rewrite.fuzz.report import CASES, Finding, FuzzReport

TRIES: Final = 150  # how many smaller programs are compiled for one that goes wrong


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
    say: Say | None = None,
) -> FuzzReport[Finding]:
    """A given number of programs of up to `most` operators, from the `first` on, until a given
    number of findings.

    One case in `renames` is also compiled with its dims renamed. A failure is shrunk in at most
    `tries` attempts.
    """

    def oracle(case: Case, number: int, tally: Tally) -> Finding | None:
        again = bool(renames) and number % renames == 0
        verdict = judge(case, compiled, renames=again, isolated=isolated)
        _count(tally, case, verdict)
        if not verdict.is_wrong:
            return None
        return Finding(verdict.kind, verdict.kind, verdict.reason, as_pytest(case, verdict.reason))

    campaign = Campaign(
        Finding,
        ByStrategy(lambda number: open_cases(most), _key, tries),
        oracle,
        ends=lambda found: len(found) >= findings,
        counters={"refused": (), "operators": (), "dims": ()},
    )
    return campaign.run(examples, seed, first=first, say=say)


def _key(of: Case) -> Hashable:
    sizes = tuple([tuple(size.items()) for size in of.sizes])
    return of.module, sizes, of.threads, of.contract, of.rotation


def _count(tally: Tally, case: Case, verdict: CaseVerdict) -> None:
    body = case.module.main_function().body
    tally["operators"].update(node.op for node in post_order(body) if isinstance(node, Apply))
    tally["dims"][str(len(case.dims))] += 1
    refused = verdict.kind == "refused"
    tally[CASES].update(
        compiled=not refused, runs=verdict.runs, without_value=verdict.without_value
    )
    if refused:
        tally["refused"][verdict.reason] += 1


def as_pytest(of: Case, reason: str) -> str:
    """A test that fails as long as the code is wrong."""
    return f'''import numpy as np

import plica
from plica.codegen.open_fuzz.case import arrays_for, with_names

{as_comment(reason)}
SOURCE = """
{text(of.module)}
"""
SIZES = {[dict(size) for size in of.sizes]}


def test_open_sizes() -> None:
    module = plica.from_text(SOURCE)
    options = {{"threads": {of.threads}, "contract": {of.contract!r}}}
    exe = plica.compile(module, **options)
    other = plica.compile(with_names(module, {of.renamed}), **options)
    print(exe, other, sep="\\n")
    for sizes in SIZES:
        arrays = arrays_for(module, sizes)
        expected = plica.interpret(module, *arrays)
        for each in (exe, other):
            np.testing.assert_allclose(each(*arrays), expected, rtol=1e-3, atol=1e-4)
'''
