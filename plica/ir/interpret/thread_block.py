"""Thread blocks: simulates the threads of a grid on one machine.

>>> import numpy as np
>>> from plica.ir.type.dtype import i32
>>> from plica.ir.loop.statement import Kernel, Store, seq
>>> from plica.ir.interpret.kernel import run_kernel
>>> from plica.ir.loop.scalar import index
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, z, t = *[buffer(name, (2,), i32) for name in "xyz"], axis("t")
>>> turned = seq(Store(y, (t,), x[t]), Barrier("global"), Store(z, (t,), y[1 - t]))
>>> kernel = Kernel((), (x, y, z), 1, For(t, index(2), "threadIdx.x", turned))
>>> run_kernel(kernel, (np.array([5, 6], np.int32),))[1]
array([6, 5], dtype=int32)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import attrs

from plica.core import EvaluationError, Term
from plica.ir.interpret.race import KernelRun, ThreadGrid
from plica.ir.interpret.storage import Storage
from plica.ir.loop.memory_scope import MemoryScope, scope
from plica.ir.loop.statement import Barrier, For
from plica.runtime.error import Place


@attrs.define(eq=False)
class Thread:
    """A suspended thread: its remaining work, the barrier it waits at, and its variables."""

    number: int
    rest: Iterator[Barrier]
    at: Barrier | None = None
    inside: dict[Term, Any] | None = None

    def advance(self, machine: KernelRun) -> Barrier | None:
        """Runs to the next barrier; None if the thread has ended."""
        self.at = next(self.rest, None)
        self.inside = None if self.at is None else dict(machine.env)
        return self.at


def spread(machine: KernelRun, loop: For, extent: int) -> Iterator[Barrier]:
    """Run a loop over threads."""
    begun = machine.launch is None
    if machine.launch is None:
        machine.launch = ThreadGrid()
        machine.watchers.append(machine.launch)
        machine.launch.held = {each for each in machine.env.values() if isinstance(each, Storage)}
    launch = machine.launch
    yield from _team(machine, launch, loop, max(0, extent))
    if begun:
        machine.settle()
        machine.watchers.remove(launch)
        machine.launch = None


def coordinate(machine: KernelRun, loop: For, extent: int) -> int | None:
    """The running thread's coordinate along a loop's axis, or None if that axis is not yet bound.

    A loop inside another of the same name is the same threads again, as many or fewer.
    """
    launch = machine.launch
    here = None if launch is None else launch.coordinates.get(loop.kind)
    if launch is None or here is None:
        return None
    if extent > launch.extents[loop.kind]:
        message = f"A loop over {loop.kind} has more iterations than there are threads."
        place = Place(node=str(loop.var.name))
        expected, found = f"at most {launch.extents[loop.kind]}", str(extent)
        raise EvaluationError.of("thread-extent", message, place, expected, found)
    launch.variables[loop.var] = loop.kind
    return here


def meets(machine: KernelRun, barrier: Barrier) -> bool:
    """Whether a barrier has threads to wait for."""
    if scope(barrier.scope).reach not in ("all", "block", "warp"):
        message = "A barrier is for memory that threads have together."
        found = f"the scope {barrier.scope!r}"
        raise EvaluationError.of("unsupported", message, None, "shared, global, warp", found)
    if machine.launch is None:
        return False
    if machine.watchers[-1] is not machine.launch:
        _divergent("a barrier inside a parallel or vectorized loop")
    return True


def _team(machine: KernelRun, launch: ThreadGrid, loop: For, extent: int) -> Iterator[Barrier]:
    """The iterations of a loop over threads, from barrier to barrier."""
    tag, env = loop.kind, machine.env
    outside, alone = dict(env), not launch.has_threads
    before = launch.extents.get(tag)
    launch.extents[tag] = extent
    launch.variables[loop.var] = tag
    if extent > launch.met.get(tag, extent):
        _divergent(f"a loop over {extent} threads where {launch.met[tag]} met before")
    narrow = _narrow(launch, tag, outside)
    waiting = [Thread(number, machine.steps(loop.body)) for number in range(extent)]
    together = tag.startswith("threadIdx")
    teams = [waiting] if together else [[thread] for thread in waiting]
    for team in teams:
        size = len(team)
        while team:
            parked = []
            for thread in team:
                _resume(machine, launch, thread, loop, outside, narrow)
                if thread.advance(machine) is not None:
                    parked.append(thread)
            if not parked:
                break
            if len(parked) != size or any(thread.at is not parked[0].at for thread in parked):
                _divergent(f"{len(parked)} of {size} threads along {tag} come to it")
            if together:
                launch.met[tag] = extent
            if alone:
                launch.phase += 1
            elif parked[0].at is not None:
                del launch.coordinates[tag]
                launch.place()
                yield parked[0].at
            team = parked
    launch.coordinates.pop(tag, None)
    launch.place()
    if before is not None:
        launch.extents[tag] = max(before, extent)
    env.clear()
    env.update(outside)


def _narrow(
    launch: ThreadGrid, tag: str, outside: dict[Term, Any]
) -> list[tuple[Term, MemoryScope, Storage]]:
    """The buffers of which each thread or block has a private copy."""
    found = []
    for buffer, each in outside.items():
        if isinstance(each, Storage):
            of = scope(each.buffer.scope)
            if of.reach in ("thread", "warp") or (
                of.reach == "block" and (tag.startswith("blockIdx") or each in launch.held)
            ):
                found.append((buffer, of, each))
    return found


def _resume(  # noqa: PLR0917  # who, where, and with what
    machine: KernelRun,
    launch: ThreadGrid,
    thread: Thread,
    loop: For,
    outside: dict[Term, Any],
    narrow: list[tuple[Term, MemoryScope, Storage]],
) -> None:
    """Make a thread the running one."""
    env = machine.env
    launch.coordinates[loop.kind] = thread.number
    launch.place()
    env.clear()
    if thread.inside is not None:
        env.update(thread.inside)
        return
    env.update(outside)
    env[loop.var] = thread.number
    for buffer, of, storage in narrow:
        env[buffer] = launch.instance(storage, of, storage)


def _divergent(found: str) -> NoReturn:
    """Refuse a barrier that not all threads of the block reach together."""
    message = "Not all threads of a block come to the same barrier."
    expected = "every thread of the block at the barrier, or none"
    raise EvaluationError.of("divergent-barrier", message, None, expected, found)
