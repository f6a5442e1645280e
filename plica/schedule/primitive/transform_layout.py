"""transform_layout: the elements of a buffer lie in another order, everywhere.

    before                          after  transform_layout(b, "write", 0, index_map(lambda i: (i // 4, i % 4)))
    B = alloc(Buffer[(n,), f32])    B = alloc(Buffer[((n + 3) // 4, 4), f32])
    … B[v] …                        … B[v // 4, v % 4] …

The buffer is the one of that number among those the block reads (and does not write), or writes.
Where the new shape has elements that no old one comes to, they are never touched; with `pad` a block
at the beginning of the kernel fills them.  After a map that leaves no such elements, its inverse
gives the program as it was.

Preconditions: `side` (read or write), `read-index` and `write-index` (the block has so many),
`intermediate` (nobody outside the kernel sees the buffer), `rank` (the map takes its indices),
`map-dims` (it speaks of dims of the kernel at most), `injective` (different elements come to
different places), `element-accesses` (the buffer is loaded and stored by single elements).
"""  # noqa: E501  # the call is one line

from __future__ import annotations

from functools import lru_cache

from attrs import frozen

from plica.analysis.dependence import scope_of
from plica.analysis.enclosing import simple
from plica.analysis.index import EMPTY, Context
from plica.analysis.index.inversion import image_shape, inverse
from plica.analysis.site import fresh_label, map_of, with_body, with_parts
from plica.core.binding import free_vars, substitute
from plica.core.fold import map_bottom_up
from plica.core.term import Term
from plica.ir.loop.index_map import IndexMap
from plica.ir.loop.scalar import Buffer, Load, Scalar, lit
from plica.ir.loop.statement import STATEMENTS, TRUE, Alloc, Block, For, Kernel, Stmt, Store
from plica.schedule.concurrent import unsafe_after
from plica.schedule.dataflow import stages
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.precondition import intermediate
from plica.schedule.problem import Problem
from plica.schedule.scope_edit import fresh_vars, front_of, nest_of, reworked


@primitive("transform_layout")
@frozen(eq=False)
class TransformLayout(Instruction):
    """A buffer of a block, by side and number, and a map of its indices; gives nothing."""

    block: Handle
    side: str
    index: int
    map: IndexMap
    pad: int | float | None = None

    def check(self, scene: Scene) -> Problem | None:
        buffer = buffer_of(scene, self.block, self.side, self.index)
        if isinstance(buffer, Problem):
            return buffer
        problem = intermediate(scene, buffer)
        if problem is not None:
            return problem
        where = f"the buffer {buffer.name}"
        problem = unfit(self.map, scene.kernel, len(buffer.shape), where)
        if problem is not None:
            return problem
        if inverse(self.map, buffer.shape) is None:
            expected = "a map that takes different elements to different places"
            return Problem("injective", where, expected, "that is not shown")
        if buffer in free_vars(laid_out(scene.kernel.body, buffer, self.map, self.ranges(scene))):
            expected = "loads and stores of single elements"
            return Problem("element-accesses", where, expected, "a region")
        return unsafe_after(self, scene)

    def edit(self, scene: Scene) -> Edited:
        kernel = scene.kernel
        buffer = buffer_of(scene, self.block, self.side, self.index)
        assert isinstance(buffer, Buffer)
        body = laid_out(kernel.body, buffer, self.map, self.ranges(scene))
        new = with_body(kernel, body)
        back = inverse(self.map, buffer.shape)
        assert back is not None
        if self.pad is None or back.exact:
            return Edited(new)
        return Edited(_padded(new, relaid(buffer, self.map), back.map, back.padding, self.pad))

    def ranges(self, scene: Scene) -> Context:
        """What is known of all variables of the kernel: each has a name of its own."""
        return all_ranges(scene.kernel)


def buffer_of(scene: Scene, block: Handle, side: str, number: int) -> Buffer | Problem:
    """The buffer of that number that a block reads, or writes."""
    site = scene.block(block)
    where = f"the block {site.node.label}"
    stage = stages(scope_of(scene.kernel, site))[site.node.label]
    if side not in ("read", "write"):
        return Problem("side", where, "'read' or 'write'", repr(side))
    mine = stage.inputs if side == "read" else stage.writes
    if not 0 <= number < len(mine):
        found = f"number {number} of {len(mine)}"
        return Problem(f"{side}-index", where, f"the number of a buffer it {side}s", found)
    return mine[number]


def unfit(of: IndexMap, kernel: Kernel, rank: int, where: str) -> Problem | None:
    """Why a map is not one of so many indices, in terms of the kernel."""
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


@lru_cache(maxsize=256)
def laid_out(body: Stmt, buffer: Buffer, of: IndexMap, ranges: Context) -> Stmt:
    """The body with a buffer in another layout; a region of it that was declared goes away."""
    new = relaid(buffer, of)

    def at(indices: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        return tuple([simple(each, within(each, ranges)) for each in of.apply(indices)])

    def each(node: Term) -> Term:
        match node:
            case Load(found, indices) if found is buffer:
                return Load(new, at(indices))
            case Store(found, indices, value) if found is buffer:
                return Store(new, at(indices), value)
            case Alloc(found, inside) if found is buffer:
                return Alloc(new, inside)
            case Block() if any(r.buffer is buffer for r in node.reads + node.writes):
                return with_parts(node, reads=(), writes=())
            case _:
                return node

    made = map_bottom_up(each, body)
    assert isinstance(made, STATEMENTS)
    return made


def within(term: Scalar, ranges: Context) -> Context:
    """What a context says of the variables of a term."""
    free = free_vars(term)
    return Context(tuple([each for each in ranges.ranges if each.var in free]))


@lru_cache(maxsize=256)
def all_ranges(kernel: Kernel) -> Context:
    """The ranges of all loops and block variables of a kernel whose names are distinct."""
    found = EMPTY
    for loop in map_of(kernel).loops.values():
        found = found.loop(loop.node.var, loop.node.extent)
    for site in map_of(kernel).blocks.values():
        for var, extent in zip(site.node.vars, site.node.extents, strict=True):
            found = found.loop(var, extent)
    return found


def _padded(
    kernel: Kernel, buffer: Buffer, back: IndexMap, padding: Scalar, value: int | float
) -> Kernel:
    """The kernel with a block that fills what no element comes to."""
    variables = fresh_vars(kernel, "v", len(buffer.shape))
    store = Store(buffer, variables, lit(value, buffer.dtype))
    spatial = ("spatial",) * len(variables)
    label = fresh_label(kernel, f"{buffer.name}_pad")
    block = Block(label, variables, buffer.shape, spatial, variables, TRUE, None, store)  # type: ignore[arg-type]  # the kinds are a literal, repeated
    nest = nest_of(kernel, block, [None] * len(variables), EMPTY)
    loops: list[For] = []
    inner: Stmt = nest
    while isinstance(inner, For):
        loops.append(inner)
        inner = inner.body
    assert isinstance(inner, Block)
    condition = substitute(padding, dict(zip(back.vars, inner.bindings, strict=True)))
    filled: Stmt = with_parts(inner, predicate=condition)
    for loop in reversed(loops):
        filled = For(loop.var, loop.extent, loop.kind, filled, loop.annotations)
    body = reworked(kernel.body, lambda block: block, front_of(kernel.body), filled)
    return with_body(kernel, body)


def transform_layout(
    block: Handle, side: str, index: int, map: IndexMap, pad: int | float | None = None
) -> Instruction:
    """The elements of a buffer that a block reads or writes lie in another order, everywhere."""
    return TransformLayout(block, side, index, map, pad)
