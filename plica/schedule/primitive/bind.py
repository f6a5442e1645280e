"""bind: bind the iterations of a loop to threads of a grid.

    before                      after  bind(i, "blockIdx.x")
    for i in range(n): …        for i in thread("blockIdx.x", n): …

`virtual` makes virtual threads, which one thread runs one after another. A loop that is bound to
the name of an enclosing loop is distributed over those threads: each runs one part.

Preconditions:

- `known-thread`: blockIdx or threadIdx with .x .y .z, or virtual.
- `plain-loop`: a serial loop; annotations are allowed.
- `independent`: no two threads access one element that one of them writes, except in private
  buffers, in shared memory that each thread fills in part, and in the result of a reduction across
  threadIdx. So bind the loops of a copy before the enclosing threads.
- `cooperative`: a distributed loop fills shared memory with values that do not depend on the
  thread, in as many parts as there are threads.
- `handed-over`: data that one thread writes and another reads is in shared memory, where lowering
  inserts barriers. This includes data for a later iteration of a serial loop around the threads.
  Shared and private memory is not used outside the threads that own it.
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis.site import replace
from plica.core import did_you_mean
from plica.ir.contract import Contract, exact, reassociates
from plica.ir.loop.statement import THREADS, For
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.launch import safe_threads
from plica.schedule.order import reduces_floats
from plica.schedule.precondition import serial
from plica.schedule.problem import Problem

WORDS = (*THREADS, "virtual")


@primitive("bind")
@frozen(eq=False)
class BindLoop(Instruction):
    """A loop, and the axis of the grid it is to be."""

    contract = reassociates

    loop: Handle
    thread: str

    def check(self, scene: Scene) -> Problem | None:
        loop = scene.loop(self.loop).node
        if self.thread not in WORDS:
            hint = did_you_mean(self.thread, WORDS)
            where, expected = f"the loop {loop.var.name}", f"one of {', '.join(WORDS)}"
            return Problem("known-thread", where, expected, repr(self.thread), hint)
        problem = serial(loop)
        if problem is not None or scene.late:
            return problem
        after = Scene(scene.after(self).kernel, scene.outputs)
        return safe_threads(after, after.map.loops[loop.var])

    def keeps(self, scene: Scene) -> Contract:
        """Threads that reduce floats together combine them as a tree."""
        loop = scene.loop(self.loop)
        return self.contract if reduces_floats(scene, loop) else exact

    def edit(self, scene: Scene) -> Edited:
        site = scene.loop(self.loop)
        loop = site.node
        new = For(loop.var, loop.extent, self.thread, loop.body, loop.annotations)  # type: ignore[arg-type]  # checked
        return Edited(replace(scene.kernel, site, new))


def bind(loop: Handle, thread: str) -> Instruction:
    """A loop whose iterations are to be threads."""
    return BindLoop(loop, thread)
