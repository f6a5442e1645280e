"""Loop kinds: serial loops made parallel, lanes of vectors, unrolled, or threads of a grid."""

from __future__ import annotations

from attrs import frozen

from plica.analysis.dependence import conflicts
from plica.analysis.site import replace
from plica.core import did_you_mean
from plica.ir.contract import Contract, exact, reassociates
from plica.ir.loop.statement import THREADS, For, LoopKind
from plica.ir.type import known
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.launch import safe_threads
from plica.schedule.order import private, reduces_floats, with_private
from plica.schedule.precondition import independent_iterations, serial
from plica.schedule.problem import Problem

WORDS = (*THREADS, "virtual")


def _of_kind(scene: Scene, loop: Handle, kind: LoopKind) -> Edited:
    """The kernel in which a loop is of a kind."""
    site = scene.loop(loop)
    of = site.node
    return Edited(
        replace(scene.kernel, site, For(of.var, of.extent, kind, of.body, of.annotations))
    )


def _symbolic(of: For, hint: str | None = None) -> Problem | None:
    """A loop whose extent is no constant."""
    if known(of.extent) is not None:
        return None
    return Problem("constant-extent", of, "a constant extent", "a symbolic one", hint)


@primitive("unroll")
@frozen(eq=False)
class Unroll(Instruction):
    """Unroll a loop in the code generator.

        before                      after  unroll(i)
        for i in range(4): …        for i in unrolled(4): …

    Preconditions:

    - `plain-loop`: a serial loop; annotations are allowed.
    - `constant-extent`.
    """

    loop: Handle

    def check(self, scene: Scene) -> Problem | None:
        loop = scene.loop(self.loop).node
        return serial(loop) or _symbolic(loop)

    def edit(self, scene: Scene) -> Edited:
        return _of_kind(scene, self.loop, "unrolled")


@primitive("vectorize")
@frozen(eq=False)
class Vectorize(Instruction):
    """Turn the iterations of a loop into vector lanes.

        before                      after  vectorize(i)
        for i in range(8): …        for i in vectorized(8): …

    An outer loop is vectorized in place: its body runs for all lanes at once, and strided elements
    are gathered. Nested vector loops form a tile.

    Preconditions:

    - `plain-loop`: a serial loop; annotations are allowed.
    - `constant-extent`.
    - `independent`: no iteration accesses an element that another writes.
    """

    loop: Handle

    def check(self, scene: Scene) -> Problem | None:
        site = scene.loop(self.loop)
        hint = "Split it by the number of lanes first."
        return (
            serial(site.node) or _symbolic(site.node, hint) or independent_iterations(scene, site)
        )

    def edit(self, scene: Scene) -> Edited:
        return _of_kind(scene, self.loop, "vectorized")


@primitive("parallel")
@frozen(eq=False)
class Parallel(Instruction):
    """Run the iterations of a loop in parallel on several cores.

        before                      after  parallel(i)
        for i in range(n): …        for i in parallel(n): …

    A buffer that each iteration fills before it reads it, and that nothing else uses, becomes
    private to the iteration.

    Preconditions:

    - `plain-loop`: a serial loop; annotations are allowed.
    - `independent`: no iteration accesses an element that another writes, except in private
      buffers.
    """

    loop: Handle

    def check(self, scene: Scene) -> Problem | None:
        site = scene.loop(self.loop)
        if (problem := serial(site.node)) is not None:
            return problem
        meets = private(scene, site) != conflicts(site.node)
        return independent_iterations(scene, site) if meets else None

    def edit(self, scene: Scene) -> Edited:
        site = scene.loop(self.loop)
        kernel = with_private(scene.kernel, site, private(scene, site))
        return _of_kind(Scene(kernel, scene.outputs), self.loop, "parallel")


@primitive("bind")
@frozen(eq=False)
class BindLoop(Instruction):
    """Bind the iterations of a loop to threads of a grid.

        before                      after  bind(i, "blockIdx.x")
        for i in range(n): …        for i in thread("blockIdx.x", n): …

    `virtual` makes virtual threads, which one thread runs one after another. A loop that is bound
    to the name of an enclosing loop is distributed over those threads: each runs one part.

    Preconditions:

    - `known-thread`: blockIdx or threadIdx with .x .y .z, or virtual.
    - `plain-loop`: a serial loop; annotations are allowed.
    - `independent`: no two threads access one element that one of them writes, except in private
      buffers, in shared memory that each thread fills in part, and in the result of a reduction
      across threadIdx. So bind the loops of a copy before the enclosing threads.
    - `cooperative`: a distributed loop fills shared memory with values that do not depend on the
      thread, in as many parts as there are threads.
    - `handed-over`: data that one thread writes and another reads is in shared memory, where
      lowering inserts barriers. This includes data for a later iteration of a serial loop around
      the threads. Shared and private memory is not used outside the threads that own it.
    """

    contract = reassociates

    loop: Handle
    thread: str

    def check(self, scene: Scene) -> Problem | None:
        loop = scene.loop(self.loop).node
        if self.thread not in WORDS:
            hint = did_you_mean(self.thread, WORDS)
            expected = f"one of {', '.join(WORDS)}"
            return Problem("known-thread", loop, expected, repr(self.thread), hint)
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
        return _of_kind(scene, self.loop, self.thread)  # type: ignore[arg-type]  # checked


unroll = Unroll
vectorize = Vectorize
parallel = Parallel
bind = BindLoop
