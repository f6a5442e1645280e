"""Hops: instruments of the driver that say how a model became code, pass by pass.

    hops = Hops(perf_counter)
    kernels = KernelCount()
    emitted(page, lowered(page, module, job, (hops, kernels)), job, (hops, kernels))
    print(hops)

Digests are those of the module, then of the program, then of the artefact: where a hop gives what
it takes, nothing changed.  The time of making digests is nobody's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from attrs import frozen

from plica.codegen.road import RoadState
from plica.core.digest import digest, digests
from plica.ir.passes import Kind, Pass
from plica.rewrite.fuse.to_stages import to_stages

SHORT = 12
"""Characters of a digest that are shown."""


@frozen
class Hop:
    """A pass that ran: what it took, what it gave, and for how long it ran; how many kernels there
    are then, and which schedules it passed over."""

    name: str
    kind: Kind
    taken: str
    given: str
    seconds: float
    kernels: int = 0
    passed_over: tuple[str, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """The hop as JSON holds it."""
        return {
            "pass": self.name, "kind": self.kind, "input": self.taken, "output": self.given,
            "seconds": self.seconds, "kernels": self.kernels, "passed_over": self.passed_over,
        }  # fmt: skip


class Hops:
    """Every hop, by a clock that is given."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.hops: list[Hop] = []
        self._taken = ""
        self._began = 0.0
        self._told: set[str] = set()

    def before(self, each: Pass, state: RoadState) -> None:
        """A pass is about to run."""
        self._taken = digest_of(state)
        self._began = self.clock()

    def after(self, each: Pass, state: RoadState) -> None:
        """A pass has run."""
        seconds = self.clock() - self._began
        passed_over = tuple([why for why in passed_over_in(state) if why not in self._told])
        self._told.update(passed_over)
        given, kernels = digest_of(state), kernels_in(state)
        hop = Hop(each.name, each.kind, self._taken, given, seconds, kernels, passed_over)
        self.hops.append(hop)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of hops there were, in order."""
        return tuple(dict.fromkeys(each.kind for each in self.hops))

    def __str__(self) -> str:
        wide = max([4, *[len(each.name) for each in self.hops]])
        title = f"{'pass':{wide}}  kind      {'input':{SHORT}}  {'output':{SHORT}}  {'ms':>9}"
        lines = [f"{title}  kernels"]
        for each in self.hops:
            given = each.given[:SHORT] if each.given != each.taken else "same"
            lines.append(
                f"{each.name:{wide}}  {each.kind:8}  {each.taken[:SHORT]}  {given:{SHORT}}"
                f"  {1e3 * each.seconds:9.3f}  {each.kernels or '':>7}".rstrip()
            )
            lines += [f"{'':{wide}}  passed over: {why}" for why in each.passed_over]
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

    def before(self, each: Pass, state: RoadState) -> None:
        """Nothing is counted before a pass."""

    def after(self, each: Pass, state: RoadState) -> None:
        """A pass that emits code emits the kernels of the program."""
        if each.kind == "emit":
            self.emitted = len(getattr(state.program, "kernels", ()))

    def __str__(self) -> str:
        return f"{self.built} kernels built, {self.emitted} emitted"


def passed_over_in(state: RoadState) -> tuple[str, ...]:
    """The schedules that were passed over so far, and why."""
    if state.program is not None:
        return tuple(getattr(state.program, "passed_over", ()))
    found = []
    for (function, _), group in (state.groups or {}).items():
        source = to_stages(function).source
        found += [f"{source}: {why}" for why in group.passed_over]
    return tuple(dict.fromkeys(found))


def kernels_in(state: RoadState) -> int:
    """How many kernels there are, or groups that become one each."""
    if state.program is not None:
        return len(getattr(state.program, "kernels", ()))
    return len(state.groups or ())


def digest_of(state: RoadState) -> str:
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
