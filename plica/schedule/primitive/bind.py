"""bind: the iterations of a loop are threads of a grid.

    before                      after  bind(i, "blockIdx.x")
    for i in range(n): …        for i in thread("blockIdx.x", n): …

`virtual` makes threads that one thread runs in turns.  A loop bound to the name of a loop around it
is shared out: each of those threads does one part of what all of them did.

Preconditions: `known-thread` (blockIdx or threadIdx with .x .y .z, or virtual), `plain-loop`
(serial; annotations may stay), `independent` (threads do not meet in memory, but in buffers of a
scope where each has its own, in shared memory of which each fills a part, or in the result of a
reduction across threadIdx: so the loops of a copy are bound before the threads around it),
`cooperative` (a loop that is shared out fills shared memory, the same for all, with as many parts
as threads),
`handed-over` (what threads of one loop write and those of another use is in shared memory, where
lowering puts barriers; shared and private memory is not used outside the threads that have it).
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
