"""Fuzzing of native code: random kernels, randomly scheduled, compute what they mean.

>>> fuzz(examples=2).finding is None
True
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from plica.codegen.backend import TARGETS, backend_named
from plica.codegen.llvm import toolchain
from plica.codegen.native import Entry
from plica.codegen.subject import (
    CPU,
    Elsewhere,
    FuzzSubject,
    Passes,
    ReadySubject,
    Verdict,
    WrongCode,
    guilty_pass,
    judge,
    judge_together,
    ready,
    scheduled,
    subject,
)
from plica.core import Name
from plica.ir.graph import Var, module
from plica.ir.loop.statement import For, statements
from plica.rewrite.check.report import literal
from plica.rewrite.fuzz.driver import ByNumber, Campaign, Say, Skipped, Tally
from plica.rewrite.fuzz.report import SKIPPED, Finding, FuzzReport
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.schedule.fuzz import numbered
from plica.schedule.smaller import smallest

MAX_SHRINK_TRIES: Final = 4
"""How many kernels are drawn for each that runs, at most: some are for other machines."""


def fuzz(
    examples: int = 200,
    seed: int = 0,
    *,
    first: int = 0,
    length: int = 6,
    guard: bool = False,
    isolated: bool = True,
    passes: Passes = CPU,
    target: str = "cpu",
    entry: Entry | None = None,
    together: int = 1,
    say: Say | None = None,
) -> FuzzReport[Finding]:
    """A number of kernels natively, with traces of up to `length` steps, until the first finding.

    The target's backend compiles them, unless an `entry` is given. Kernels that cannot run here
    (with a trace for a GPU, say) are counted separately. As many as `together` form one program, if
    starting one is slow; without `guard`, in this process.
    """
    toolchain.assembly("", toolchain.host())  # what LLVM prepares once is there for every child
    way = KernelWay(passes, guard, isolated, target, entry or entry_for(target))
    known: dict[int, Verdict] = {}
    left = examples

    def made(number: int) -> FuzzSubject | Skipped:
        if (drawn := subject(seed, number, length)) is None:
            return Skipped("the kernel is ill formed")
        if together > 1 and number not in known:
            numbers = range(number, number + min(together, left))
            known.update(way.judge_together({at: subject(seed, at, length) for at in numbers}))
        return drawn

    def oracle(of: FuzzSubject, number: int, tally: Tally) -> Finding | Skipped | None:
        nonlocal left
        if isinstance(verdict := known.pop(number, None) or way.judge(of), Elsewhere):
            return Skipped(verdict.reason)
        left -= 1
        tally["steps"].update(step.instruction.kind for step in of.trace.steps)
        tally["loops"].update(_loops(of))
        if not isinstance(verdict, WrongCode):
            return None
        return Finding(verdict.kind, verdict.broken or "", verdict.reason)

    campaign = Campaign(
        Finding,
        ByNumber(made, smallest),
        oracle,
        MAX_SHRINK_TRIES,
        way.blame,
        counters={"steps": (), "loops": (), SKIPPED: ()},
        settings={"guard": guard},
    )
    return campaign.run(examples, seed, first=first, say=say)


@attrs.frozen(eq=False)
class KernelWay:
    """How kernels become code and run."""

    passes: Passes
    guard: bool
    isolated: bool
    target: str
    entry: Entry

    def judge(self, of: FuzzSubject) -> Verdict:
        """Whether native code of a subject computes what it means."""
        return judge(of, self.passes, guard=self.guard, isolated=self.isolated, entry=self.entry)

    def judge_together(self, of: Mapping[int, FuzzSubject | None]) -> dict[int, Verdict]:
        """The same of several at once, by their numbers."""
        found = {at: ready(each, self.passes) for at, each in of.items() if each is not None}
        fit = {at: each for at, each in found.items() if isinstance(each, ReadySubject)}
        judged = judge_together(tuple(fit.values()), self.entry)
        told = {at: each for at, each in found.items() if not isinstance(each, ReadySubject)}
        return {**told, **dict(zip(fit, judged, strict=True))}

    @property
    def emitter(self) -> str:
        """The pass that makes code of kernels."""
        return backend_named(self.target.partition(":")[0]).pipeline().names[-1]

    def blame(self, least: FuzzSubject, found: Finding) -> Finding:
        """The finding of a smallest subject with a test, and the pass that is guilty."""
        bad = None if found.guilty else guilty_pass(least, self.passes)
        guilty = found.guilty or (self.emitter if bad is None else bad[0])
        text = as_pytest(least, f"{guilty}: {found.reason}", self.guard, self.target)
        steps = numbered(least.trace.steps)
        return attrs.evolve(found, guilty=guilty, pytest=text, parts=steps)


def _loops(of: FuzzSubject) -> list[str]:
    kernel = scheduled(of)
    assert kernel is not None  # it ran
    return [statement.kind for statement in statements(kernel.body) if isinstance(statement, For)]


def entry_for(target: str) -> Entry:
    """What makes code for a target that this process calls; a target without it is refused."""
    backend = backend_named(target.partition(":")[0])
    if backend.entry is None:
        message = f"Code for {target!r} does not run in this process."
        fit = [name for name in TARGETS.own if backend_named(name).entry is not None]
        raise UnsupportedError(Diagnostic("unsupported", message, None, ", ".join(fit), target))
    return backend.entry(backend.settled(backend.parse(target)))


def as_pytest(of: FuzzSubject, reason: str, guard: bool, target: str = "cpu") -> str:
    """A test that fails as long as native code is wrong; with `guard`, or dies."""
    kernel = str(module({Var(Name("kernel"), None): of.kernel})).rstrip()
    arrays = "".join(f"        {literal(array)},\n" for array in of.arrays)
    said = " ".join(reason.split())
    return f'''import numpy as np
import pytest

import plica
from plica.codegen.fuzz import entry_for
from plica.codegen.lower.passes import lower
from plica.codegen.native import run_native
from plica.ir.interpret.kernel import run_kernel
from plica.schedule import Trace, replay
from plica.schedule.replay import kernel_of

# {said}
KERNEL = """
{kernel}
"""
TRACE = """
{of.trace.to_python().strip()}
"""


@pytest.mark.parametrize("side", {["end", "start"] if guard else [None]!r})
def test_native(side: str | None) -> None:
    program = plica.from_text(KERNEL)
    inputs = [
{arrays}    ]
    expected = run_kernel(kernel_of(program)[2], inputs)
    scheduled = kernel_of(replay(Trace.from_python(TRACE), program))[2]
    entry = entry_for("{target}")
    found = run_native(lower(scheduled), inputs, fused={of.fused}, side=side, entry=entry)
    for ours, meant in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, meant, rtol=1e-4, atol=1e-4)
'''
