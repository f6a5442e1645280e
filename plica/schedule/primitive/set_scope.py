"""set_scope: change the memory scope of a buffer that a block writes.

    before                                after  set_scope(c, 0, "shared")
    T = alloc(Buffer[(n,), f32])          T = alloc(Buffer[(n,), f32, "shared"])

Preconditions:

- `written`: the block writes that many buffers.
- `intermediate`: a buffer made inside the kernel.
- `known-scope`: a declared memory scope.
- `independent`, `handed-over`: as for `bind`, if loops over threads use the buffer.
"""

from __future__ import annotations

from attrs import evolve, frozen

from plica.analysis.access import accesses
from plica.analysis.dependence import children
from plica.core import did_you_mean, substitute
from plica.ir.loop.memory_scope import is_scope, scopes
from plica.ir.loop.scalar import Buffer
from plica.ir.loop.statement import Alloc, Kernel
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.launch import safe_threads, thread_loops
from plica.schedule.precondition import intermediate
from plica.schedule.problem import Problem
from plica.schedule.scope_edit import with_alloc


@primitive("set_scope")
@frozen(eq=False)
class SetScope(Instruction):
    """A block, the number of a buffer it writes, and the memory that buffer is to be in."""

    block: Handle
    number: int
    scope: str

    def check(self, scene: Scene) -> Problem | None:
        if isinstance(buffer := written_by(scene, self.block, self.number), Problem):
            return buffer
        if (problem := intermediate(scene, buffer)) is not None:
            return problem
        if not is_scope(self.scope):
            names = [scope.name for scope in scopes()]
            hint = did_you_mean(self.scope, names)
            expected = f"one of {', '.join(names)}"
            return Problem("known-scope", buffer, expected, repr(self.scope), hint)
        if scene.late or not thread_loops(scene):
            return None
        after = Scene(scene.after(self).kernel, scene.outputs)
        moved = evolve(buffer, scope=self.scope)
        for site in thread_loops(after):
            if any(access.buffer is moved for access in accesses(site.node)):
                problem = safe_threads(after, site, moved)
                if problem is not None:
                    return problem
        return None

    def edit(self, scene: Scene) -> Edited:
        buffer = written_by(scene, self.block, self.number)
        assert isinstance(buffer, Buffer)
        return Edited(with_buffer(scene.kernel, buffer, evolve(buffer, scope=self.scope)))


def written_by(scene: Scene, block: Handle, number: int) -> Buffer | Problem:
    """The buffer of that number among those a block writes, in the order of its text."""
    node = scene.block(block).node
    (child,) = children(node)
    if 0 <= number < len(child.writes):
        return child.writes[number]
    expected, found = f"a written buffer number {number}", f"{len(child.writes)} written buffers"
    return Problem("written", node, expected, found)


def with_buffer(kernel: Kernel, old: Buffer, new: Buffer) -> Kernel:
    """The kernel where a buffer that is made inside it is another one."""
    return with_alloc(kernel, old, lambda alloc: Alloc(new, substitute(alloc.body, {old: new})))


set_scope = SetScope
