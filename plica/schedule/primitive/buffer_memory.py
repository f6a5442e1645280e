"""Where a buffer of a kernel is: its memory scope, and the strides of its rows."""

from __future__ import annotations

from attrs import evolve, frozen

from plica.analysis.access import accesses
from plica.analysis.dependence import children
from plica.analysis.enclosing import simple
from plica.analysis.site import map_of, replace, with_parts
from plica.core import did_you_mean, substitute
from plica.ir.loop.memory_scope import is_scope, scopes
from plica.ir.loop.scalar import Buffer, Scalar, index
from plica.ir.loop.statement import Alloc, Kernel, annotated
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.launch import safe_threads, thread_loops
from plica.schedule.precondition import intermediate
from plica.schedule.problem import Problem
from plica.schedule.scope_edit import with_alloc


@primitive("set_scope")
@frozen(eq=False)
class SetScope(Instruction):
    """Change the memory scope of a buffer that a block writes.

        before                                after  set_scope(c, 0, "shared")
        T = alloc(Buffer[(n,), f32])          T = alloc(Buffer[(n,), f32, "shared"])

    Preconditions:

    - `written`: the block writes that many buffers.
    - `intermediate`: a buffer made inside the kernel.
    - `known-scope`: a declared memory scope.
    - `independent`, `handed-over`: as for `bind`, if loops over threads use the buffer.
    """

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


KEY = "storage_align"


@primitive("storage_align")
@frozen(eq=False)
class StorageAlign(Instruction):
    """Pad the rows of a buffer to avoid bank conflicts.

        before                                after  storage_align(c, 0, 0, 8, 1)
        T = alloc(Buffer[(4, 16), f32])       T = alloc(Buffer[(4, 16), f32, strides=(17, 1)])

    The stride of the dimension `axis` becomes the smallest number that is `offset` more than a
    multiple of `factor` and not less than needed. The block records this in an annotation, since
    lowering may shrink the buffer.

    Preconditions:

    - `written`: the block writes that many buffers.
    - `intermediate`: a buffer made inside the kernel.
    - `row-major`: its strides were not set before.
    - `axis`: a dimension of the buffer.
    - `alignment`: 0 <= offset < factor.
    """

    block: Handle
    number: int
    axis: int
    factor: int
    offset: int = 0

    def check(self, scene: Scene) -> Problem | None:
        if isinstance(buffer := written_by(scene, self.block, self.number), Problem):
            return buffer
        if (problem := intermediate(scene, buffer)) is not None:
            return problem
        rank = len(buffer.shape)
        if buffer.strides:
            return Problem("row-major", buffer, "a buffer without strides", "strides")
        if not -rank <= self.axis < rank:
            return Problem("axis", buffer, f"an axis from {-rank} to {rank - 1}", str(self.axis))
        if not 0 <= self.offset < self.factor:
            expected, found = "0 <= offset < factor", f"{self.offset} and {self.factor}"
            return Problem("alignment", buffer, expected, found)
        return None

    def edit(self, scene: Scene) -> Edited:
        buffer = written_by(scene, self.block, self.number)
        assert isinstance(buffer, Buffer)
        axis = self.axis % len(buffer.shape)
        strides = aligned(buffer.shape, axis, self.factor, self.offset)
        kernel = with_buffer(scene.kernel, buffer, evolve(buffer, strides=strides))
        site = map_of(kernel).blocks[scene.block(self.block).node.label]
        said = (self.number, axis, self.factor, self.offset)
        notes = annotated(site.node.annotations, **{KEY: said})
        return Edited(replace(kernel, site, with_parts(site.node, annotations=notes)))


def aligned(shape: tuple[Scalar, ...], axis: int, factor: int, offset: int) -> tuple[Scalar, ...]:
    """Row-major strides of a shape where that of one dimension is aligned.

    >>> [each.value for each in aligned((index(2), index(4), index(16)), 1, 8, 1)]
    [68, 17, 1]
    """
    strides: list[Scalar] = []
    stride = index(1)
    for at in range(len(shape) - 1, -1, -1):
        if at == axis:
            stride = simple(stride + (offset - stride) % factor)
        strides.append(stride)
        stride = simple(stride * shape[at])
    return tuple(reversed(strides))


storage_align = StorageAlign
