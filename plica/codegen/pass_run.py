"""Pass runs: instruments that record how a model became code, pass by pass.

    log, kernels = PassLog(perf_counter), KernelCount()
    emitted(pipeline, lowered(pipeline, module, job, (log, kernels)), job, (log, kernels))
    print(log)

Digests are those of the module, then of the program, then of the artefact; equal digests of input
and output mean that the pass changed nothing.  The time of computing digests is not counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from attrs import frozen

from plica.codegen.compilation import CompilationState
from plica.core.digest import digest, digests
from plica.ir.passes import Kind, Pass
from plica.rewrite.fuse.to_stages import to_stages

SHORT = 12  # characters of a digest that are shown


@frozen
class PassRun:
    """A pass that ran: digests of its input and output, its time, the number of kernels after it,
    and the schedules that it passed over."""

    name: str
    kind: Kind
    input: str
    output: str
    seconds: float
    kernels: int = 0
    passed_over: tuple[str, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """The run as JSON holds it."""
        return {
            "pass": self.name, "kind": self.kind, "input": self.input, "output": self.output,
            "seconds": self.seconds, "kernels": self.kernels, "passed_over": self.passed_over,
        }  # fmt: skip


class PassLog:
    """Records every pass that runs, timed by a clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.runs: list[PassRun] = []
        self._input = ""
        self._start = 0.0
        self._reported: set[str] = set()

    def before(self, each: Pass, state: CompilationState) -> None:
        """A pass is about to run."""
        self._input = digest_of(state)
        self._start = self.clock()

    def after(self, each: Pass, state: CompilationState) -> None:
        """A pass has run."""
        seconds = self.clock() - self._start
        passed_over = tuple([why for why in passed_over_in(state) if why not in self._reported])
        self._reported.update(passed_over)
        output, kernels = digest_of(state), kernels_in(state)
        self.runs.append(
            PassRun(each.name, each.kind, self._input, output, seconds, kernels, passed_over)
        )

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of passes that ran, in order."""
        return tuple(dict.fromkeys(run.kind for run in self.runs))

    def __str__(self) -> str:
        width = max([4, *[len(run.name) for run in self.runs]])
        title = f"{'pass':{width}}  kind      {'input':{SHORT}}  {'output':{SHORT}}  {'ms':>9}"
        lines = [f"{title}  kernels"]
        for run in self.runs:
            output = run.output[:SHORT] if run.output != run.input else "same"
            lines.append(
                f"{run.name:{width}}  {run.kind:8}  {run.input[:SHORT]}  {output:{SHORT}}"
                f"  {1e3 * run.seconds:9.3f}  {run.kernels or '':>7}".rstrip()
            )
            lines += [f"{'':{width}}  passed over: {why}" for why in run.passed_over]
        return "\n".join(lines)


class KernelCount:
    """How many kernels were built, and how many of them became code."""

    def __init__(self) -> None:
        self._built: set[str] = set()
        self.emitted = 0

    def tell(self, key: str) -> None:
        """A kernel was built, of this digest."""
        self._built.add(key)

    @property
    def built(self) -> int:
        """How many different kernels were built."""
        return len(self._built)

    def before(self, each: Pass, state: CompilationState) -> None:
        """Nothing is counted before a pass."""

    def after(self, each: Pass, state: CompilationState) -> None:
        """A pass that emits code emits the kernels of the program."""
        if each.kind == "emit":
            self.emitted = len(getattr(state.program, "kernels", ()))

    def __str__(self) -> str:
        return f"{self.built} kernels built, {self.emitted} emitted"


def passed_over_in(state: CompilationState) -> tuple[str, ...]:
    """The schedules that were passed over so far, and why."""
    if state.program is not None:
        return tuple(getattr(state.program, "passed_over", ()))
    found = []
    for (function, _), group in (state.groups or {}).items():
        source = to_stages(function).source
        found += [f"{source}: {why}" for why in group.passed_over]
    return tuple(dict.fromkeys(found))


def kernels_in(state: CompilationState) -> int:
    """How many kernels there are, or groups that become one each."""
    if state.program is not None:
        return len(getattr(state.program, "kernels", ()))
    return len(state.groups or ())


def digest_of(state: CompilationState) -> str:
    """What tells a state from others."""
    if state.artefact is not None:
        artefact = state.artefact
        whole = hashlib.sha256()
        for each in getattr(artefact, "objects", ()):
            whole.update(each)
        whole.update(str(getattr(artefact, "text", "")).encode())
        return whole.hexdigest()
    if state.program is None:
        if state.groups is None:
            return digest(state.history.module)
        return hashlib.sha256(
            f"{digests([e.term for e in state.groups.values()])}".encode()
        ).hexdigest()
    kernels = digests(getattr(state.program, "kernels", ()))
    plan = "" if state.plan is None else repr(getattr(state.plan, "where", state.plan))
    return hashlib.sha256(f"{kernels} {plan}".encode()).hexdigest()
