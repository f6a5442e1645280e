"""Fuzzing of native code: random kernels, randomly scheduled, compute what they mean.

A kernel goes through a trace, the lowering passes and LLVM, and runs in a process of its own; what
it writes is held to the interpreter's word: integers and sums of whole numbers exactly, other
floats within rounding.  With `guard` no array may be left by a single byte.  What goes wrong is
made smaller, trace, kernel and data, and printed as a test.

>>> fuzz(examples=2).finding is None
True
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import attrs

from plica.codegen.backend import backend_named, backends
from plica.codegen.llvm import toolchain
from plica.codegen.lower.passes import lower
from plica.codegen.native import Entry
from plica.codegen.smaller import smallest
from plica.codegen.subject import Lowering, Passed, Subject, Wrong, judge, scheduled, subject
from plica.core.fold import map_bottom_up
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.graph import Var
from plica.ir.loop import For, Kernel, statements
from plica.ir.module import module
from plica.ir.scalar import Add, Sub, index
from plica.rewrite.check.report import literal
from plica.runtime.error import Diagnostic, UnsupportedError

TRIES: Final = 4
"""How many kernels are drawn for each that runs, at most: some are for other machines."""


@attrs.frozen
class Finding:
    """A smallest kernel and trace whose native code is wrong, as a test."""

    kind: str
    case: int
    reason: str
    steps: int
    pytest: str

    def to_data(self) -> dict[str, Any]:
        return attrs.asdict(self)


@attrs.frozen
class Report:
    """How many kernels ran, with how many steps and loops of which kind, and what was found."""

    examples: int
    seed: int
    guard: bool
    steps: dict[str, int]
    loops: dict[str, int]
    skipped: dict[str, int]
    finding: Finding | None

    def to_data(self) -> dict[str, Any]:
        return attrs.asdict(self)


def fuzz(
    examples: int = 200,
    seed: int = 0,
    *,
    length: int = 6,
    guard: bool = False,
    isolated: bool = True,
    lowering: Lowering = lower,
    target: str = "cpu",
) -> Report:
    """So many kernels natively, with traces of up to `length` steps, until the first finding.

    The backend of the target makes their code.  Those that cannot run here (their trace is for a
    graphics processor, say) are counted apart.
    """
    toolchain.assembly("", toolchain.host())  # what LLVM prepares once is there for every child
    entry = _entry(target)
    steps: Counter[str] = Counter()
    loops: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    ran = number = 0
    finding = None
    while ran < examples and number < TRIES * examples + TRIES and finding is None:
        drawn = subject(seed, number, length)
        if drawn is None:
            skipped["the kernel is ill formed"] += 1
        else:
            verdict = judge(drawn, lowering, guard=guard, isolated=isolated, entry=entry)
            if isinstance(verdict, Passed | Wrong):
                ran += 1
                steps.update(each.instruction.kind for each in drawn.trace.steps)
                loops.update(_loops(drawn))
            else:
                skipped[verdict.reason] += 1
            if isinstance(verdict, Wrong):
                finding = blame(drawn, number, verdict, lowering, guard, isolated, target)
        number += 1
    return Report(
        ran,
        seed,
        guard,
        dict(sorted(steps.items())),
        dict(sorted(loops.items())),
        dict(sorted(skipped.items())),
        finding,
    )


def blame(  # noqa: PLR0917  # how it was found
    of: Subject,
    number: int,
    verdict: Wrong,
    lowering: Lowering,
    guard: bool,
    isolated: bool,
    target: str = "cpu",
) -> Finding:
    """The smallest subject that goes wrong in the same way."""
    entry = _entry(target)

    def same(each: Subject) -> Wrong | None:
        found = judge(each, lowering, guard=guard, isolated=isolated, entry=entry)
        return found if isinstance(found, Wrong) and found.kind == verdict.kind else None

    least = smallest(of, lambda each: same(each) is not None)
    again = same(least) or verdict
    text = as_pytest(least, again.reason, guard, target)
    return Finding(again.kind, number, again.reason, len(least.trace), text)


def _loops(of: Subject) -> list[str]:
    made = scheduled(of)
    assert made is not None  # it ran
    return [each.kind for each in statements(made.body) if isinstance(each, For)]


def _entry(target: str) -> Entry:
    """How a backend makes code that runs in this process; one that cannot is refused."""
    found = backend_named(target).entry
    if found is None:
        message = f"Code for {target!r} does not run in this process."
        fit = [name for name in backends() if backend_named(name).entry is not None]
        raise UnsupportedError(Diagnostic("unsupported", message, None, ", ".join(fit), target))
    return found


def as_pytest(of: Subject, reason: str, guard: bool, target: str = "cpu") -> str:
    """A test that fails as long as native code is wrong; with `guard`, or dies."""
    kernel = str(module({Var(Name("kernel"), None): of.kernel})).rstrip()
    arrays = "".join(f"        {literal(each)},\n" for each in of.arrays)
    said = " ".join(reason.split())
    return f'''import numpy as np
import pytest

import plica
from plica.codegen.backend import backend_named
from plica.codegen.lower.passes import lower
from plica.codegen.native import run_native
from plica.ir.run import run_kernel
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
    entry = backend_named("{target}").entry
    found = run_native(lower(scheduled), inputs, fused={of.fused}, side=side, entry=entry)
    for ours, meant in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, meant, rtol=1e-4, atol=1e-4)
'''


# --- wrong on purpose --------------------------------------------------------------------------


def with_a_longer_loop(kernel: Kernel) -> Kernel:
    """Lowering with a mistake: the last loop runs once too often."""
    made = lower(kernel)
    loops = [each for each in statements(made.body) if isinstance(each, For)]
    if not loops:
        return made
    last = loops[-1]
    longer = For(last.var, last.extent + index(1), last.kind, last.body, last.annotations)
    return _mapped(made, lambda node: longer if node is last else node)


def with_another_order(kernel: Kernel) -> Kernel:
    """Lowering with a mistake: `x + (y - z)` becomes `(x - y) + z`."""

    def regrouped(node: Term) -> Term:
        if isinstance(node, Add) and isinstance(node.right, Sub):
            return Add(Sub(node.left, node.right.left), node.right.right)
        return node

    return _mapped(lower(kernel), regrouped)


PLANTS: Final[dict[str, Lowering]] = {
    "bound": with_a_longer_loop,
    "order": with_another_order,
}
"""Mistakes that must be found."""


def _mapped(kernel: Kernel, change: Any) -> Kernel:
    made = map_bottom_up(change, kernel)
    assert isinstance(made, Kernel)
    return made
