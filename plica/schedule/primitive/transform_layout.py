"""transform_layout: change the layout of a buffer everywhere by an index map.

    before                          after  transform_layout(b, "write", 0, index_map(lambda i: (i // 4, i % 4)))
    B = alloc(Buffer[(n,), f32])    B = alloc(Buffer[((n + 3) // 4, 4), f32])
    … B[v] …                        … B[v // 4, v % 4] …

The index counts the buffers that the block reads (and does not write), or those it writes. If the
new shape has elements without an old index, they are never accessed; with `pad`, a block at the
start of the kernel fills them. After a map without such elements, its inverse restores the
program.

The layout of a parameter belongs to the caller. So a buffer in the new layout replaces it inside
the kernel: a block at the start copies an input in, one at the end copies an output out.

Preconditions:

- `side`: read or write.
- `read-index`, `write-index`: the block has a buffer of that number.
- `rank`: the map takes its indices.
- `map-dims`: the map uses only dims of the kernel.
- `injective`: different elements get different indices. All are tried where sizes are known;
  otherwise it must be proved, or the caller asserts it by `assume_injective`.
- `image`: the new indices have known bounds.
- `pad`: the elements to fill are known.
- `element-accesses`: the buffer is loaded and stored by single elements.
- `covered`: an output is written completely.
"""  # noqa: E501  # the call is one line

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from attrs import frozen

from plica.analysis.dependence import scope_of
from plica.analysis.enclosing import simple
from plica.analysis.index import EMPTY, Context
from plica.analysis.index.context import Range
from plica.analysis.index.inversion import are_apart, image_shape, inverse
from plica.analysis.region import Box
from plica.analysis.site import allocate, fresh_label, fresh_names, map_of, with_body, with_parts
from plica.analysis.statement import holding
from plica.core.binding import free_vars, substitute
from plica.core.fold import map_within
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.loop import statement as st
from plica.ir.loop.index_map import IndexMap
from plica.ir.loop.scalar import Buffer, Load, Scalar, index, lit
from plica.schedule.dataflow import stages
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.launch import unsafe_after
from plica.schedule.problem import Problem
from plica.schedule.scope_edit import copy_block, fresh_vars, front_of, nest_of, reworked
from plica.schedule.touched_box import is_written

"""The index of a name that nothing in a kernel has."""


@primitive("transform_layout")
@frozen(eq=False)
class TransformLayout(Instruction):
    """A buffer of a block, by side and number, and a map of its indices; gives nothing."""

    block: Handle
    side: str
    index: int
    map: IndexMap
    pad: int | float | None = None
    assume_injective: bool = False

    def check(self, scene: Scene) -> Problem | None:
        if isinstance(buffer := buffer_of(scene, self.block, self.side, self.index), Problem):
            return buffer
        where = f"the buffer {buffer.name}"
        if (problem := unfit(self.map, scene.kernel, len(buffer.shape), where)) is not None:
            return problem
        if (problem := self.unproved(buffer, where)) is not None:
            return problem
        if not has_single_elements(scene.kernel.body, buffer):
            expected = "loads and stores of single elements"
            return Problem("element-accesses", where, expected, "a region")
        if buffer in scene.kernel.params[scene.kernel.inputs :] and not _is_whole(scene, buffer):
            return Problem("covered", where, "an output that is written whole", "that is not shown")
        return unsafe_after(self, scene)

    def unproved(self, buffer: Buffer, where: str) -> Problem | None:
        """Why the map is not known to take different elements to different places in a shape."""
        if inverse(self.map, buffer.shape) is not None:
            return None
        expected = "a map that takes different elements to different places"
        apart = are_apart(self.map, buffer.shape)
        if not apart and (apart is False or not self.assume_injective):
            shown = "that is not shown" if apart is None else "two come to one place"
            return Problem("injective", where, expected, shown)
        if image_shape(self.map, buffer.shape) is None:
            return Problem("image", where, "places with bounds that are seen", "none are seen")
        if self.pad is not None:
            return Problem("pad", where, "a map whose inverse is seen", "none is seen")
        return None

    def place(self, scene: Scene, buffer: Buffer) -> Buffer:
        """The buffer in its other layout: it has its name, unless a parameter has it."""
        new = relaid(buffer, self.map)
        if buffer not in scene.kernel.params:
            return new
        (name,) = fresh_names(scene.kernel, [Name(f"{buffer.name}_layout")])
        return Buffer(name, new.shape, new.dtype, "global", (), new.align)

    def edit(self, scene: Scene) -> Edited:
        kernel = scene.kernel
        buffer = buffer_of(scene, self.block, self.side, self.index)
        assert isinstance(buffer, Buffer)
        place = self.place(scene, buffer)
        body = laid_out(kernel.body, buffer, place, self.map, self.ranges(scene))
        new = with_body(kernel, body)
        if buffer in kernel.params:
            new = _copied(new, buffer, place, self.map)
        back = inverse(self.map, buffer.shape)
        if self.pad is None or back is None or back.exact:
            return Edited(new)
        return Edited(_padded(new, place, back.map, back.padding, self.pad))

    def ranges(self, scene: Scene) -> Context:
        """The context of all variables of the kernel, which have unique names."""
        return all_ranges(scene.kernel)


def buffer_of(scene: Scene, block: Handle, side: str, number: int) -> Buffer | Problem:
    """The buffer of that number that a block reads, or writes."""
    site = scene.block(block)
    stage = stages(scope_of(scene.kernel, site))[site.node.label]
    if side not in ("read", "write"):
        return Problem("side", site, "'read' or 'write'", repr(side))
    mine = stage.inputs if side == "read" else stage.writes
    if not 0 <= number < len(mine):
        found = f"number {number} of {len(mine)}"
        return Problem(f"{side}-index", site, f"the number of a buffer it {side}s", found)
    return mine[number]


def unfit(of: IndexMap, kernel: st.Kernel, rank: int, where: str) -> Problem | None:
    """Why a map is not one of a given number of indices, in terms of the kernel."""
    if of.rank != rank:
        return Problem("rank", where, f"a map of {rank} indices", f"one of {of.rank}")
    strange = sorted(str(v.name) for v in free_vars(of) if v not in kernel.dims)  # type: ignore[attr-defined]  # every variable and hole has a name
    if strange:
        expected = "a map that speaks of dims of the kernel at most"
        return Problem("map-dims", where, expected, ", ".join(strange))
    return None


def relaid(buffer: Buffer, of: IndexMap) -> Buffer:
    """The buffer whose shape a map makes of that of another one."""
    shape = image_shape(of, buffer.shape)
    assert shape is not None
    return Buffer(buffer.name, shape, buffer.dtype, buffer.scope, (), buffer.align)


def has_single_elements(body: st.Stmt, buffer: Buffer) -> bool:
    """Whether a buffer is loaded and stored by single elements alone."""
    return not any(
        isinstance(operand, st.Region) and operand.buffer is buffer
        for stmt in st.statements(body)
        if isinstance(stmt, st.Invoke)
        for operand in stmt.operands
    )


@lru_cache(maxsize=256)
def laid_out(body: st.Stmt, buffer: Buffer, new: Buffer, of: IndexMap, ranges: Context) -> st.Stmt:
    """The body with another buffer for one, by a map of indices; declared regions of it go away."""

    def at(indices: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        return tuple([simple(each, within(each, ranges)) for each in of.apply(indices)])

    return _relaid(body, buffer, new, at)


def _relaid(
    body: st.Stmt,
    buffer: Buffer,
    new: Buffer,
    at: Callable[[tuple[Scalar, ...]], tuple[Scalar, ...]],
) -> st.Stmt:
    def each(node: Term) -> Term:
        match node:
            case Load(found, indices) if found is buffer:
                return Load(new, at(indices))
            case st.Store(found, indices, value) if found is buffer:
                return st.Store(new, at(indices), value)
            case st.Alloc(found, inside) if found is buffer:
                return st.Alloc(new, inside)
            case st.Block() if any(r.buffer is buffer for r in node.reads + node.writes):
                return with_parts(node, reads=(), writes=())
            case _:
                return node

    holds = holding(lambda stmt: isinstance(stmt, st.Alloc) and stmt.buffer is buffer)
    return map_within(
        each,
        body,
        lambda node: buffer in free_vars(node) or (isinstance(node, st.Stmt) and holds(node)),
    )


def within(term: Scalar, ranges: Context) -> Context:
    """The part of a context about the variables of a term."""
    free = free_vars(term)
    return Context(tuple([each for each in ranges.ranges if each.var in free]))


@lru_cache(maxsize=256)
def all_ranges(kernel: st.Kernel) -> Context:
    """The ranges of all loops and block variables of a kernel whose names are distinct."""
    sites = map_of(kernel)
    found = [(loop.var, loop.extent) for loop in sites.loops.nodes.values()]
    for block in sites.blocks.nodes.values():
        found += zip(block.vars, block.extents, strict=True)
    return Context(tuple([Range(var, index(0), extent) for var, extent in found]))


def _is_whole(scene: Scene, output: Buffer) -> bool:
    """Whether a block outside of all others is shown to write each element of an output."""
    box = Box(output, tuple([index(0)] * len(output.shape)), output.shape, False)
    every = stages(scene.kernel.body).values()
    return any(output in stage.writes and is_written(stage, (), box, EMPTY) for stage in every)


def _copied(kernel: st.Kernel, param: Buffer, place: Buffer, of: IndexMap) -> st.Kernel:
    """The kernel with a parameter's replacement, filled first or copied back last."""
    variables = fresh_vars(kernel, "v", len(param.shape))
    there, here = (place, of.apply(variables)), (param, variables)
    is_input = param in kernel.params[: kernel.inputs]
    target, source = (there, here) if is_input else (here, there)
    label = fresh_label(kernel, str(place.name))
    extents = zip(variables, param.shape, strict=True)
    copy = copy_block(label, target, source, extents)
    nest = nest_of(kernel, copy, [None] * len(variables), EMPTY)
    if is_input:
        body = reworked(kernel.body, lambda block: block, front_of(kernel.body), nest)
    else:
        body = st.seq(kernel.body, nest)
    return allocate(with_body(kernel, body), (place,))


def _padded(
    kernel: st.Kernel, buffer: Buffer, back: IndexMap, padding: Scalar, value: int | float
) -> st.Kernel:
    """The kernel with a block that fills the padding elements."""
    variables = fresh_vars(kernel, "v", len(buffer.shape))
    store = st.Store(buffer, variables, lit(value, buffer.dtype))
    spatial = ("spatial",) * len(variables)
    label = fresh_label(kernel, f"{buffer.name}_pad")
    block = st.Block(label, variables, buffer.shape, spatial, variables, st.TRUE, None, store)  # type: ignore[arg-type]  # the kinds are a literal, repeated
    nest = nest_of(kernel, block, [None] * len(variables), EMPTY)
    loops: list[st.For] = []
    inner: st.Stmt = nest
    while isinstance(inner, st.For):
        loops.append(inner)
        inner = inner.body
    assert isinstance(inner, st.Block)
    condition = substitute(padding, dict(zip(back.vars, inner.bindings, strict=True)))
    filled: st.Stmt = with_parts(inner, predicate=condition)
    for loop in reversed(loops):
        filled = st.For(loop.var, loop.extent, loop.kind, filled, loop.annotations)
    body = reworked(kernel.body, lambda block: block, front_of(kernel.body), filled)
    return with_body(kernel, body)


transform_layout = TransformLayout
