"""reindex: stage a buffer in the iteration order of a block.

    before                              after  reindex(c, "read", 0)
    for i, j in grid(n, m):             for ax, ax_1 in grid(n, m):
        with block("C", v=i, u=j):          with block("A_reindex", w=ax, x=ax_1):
            C[v, u] = A[v * 2 + u, 0]           A_reindex[w, x] = A[w * 2 + x, 0]
                                        for i, j in grid(n, m):
                                            with block("C", v=i, u=j):
                                                C[v, u] = A_reindex[v, u]

The copy has one dimension per block variable that the access depends on. With `map`, it has one per
result of a map of the block's variables. The copy of an input is placed as by `cache_read`, the
copy of an output as by `cache_write`.

Preconditions:

- `stage-pipeline`: only loops and blocks in the scope.
- `side`, `read-index`, `write-index`: the block has a buffer of that number.
- `scope`: a declared memory scope.
- `one-place`: the block accesses the buffer with one index, which does not depend on data.
- `in-bounds`: that index is inside the buffer for all values of the variables.
- `rank`, `map-dims`, `injective`: the map takes the block's variables and determines those of the
  access.
- `sole-writer`, `written-before`: no loop both writes and reads the buffer.
- `covered`: all that is copied has been written.
- for an output: a complete block: `spatial-only`, `sole-writer`, `no-self-read`,
  `distinct-writes`; or a reduction: `reduce-kinds`, `reducer`, `same-element`, `distinct-writes`,
  `starts`.
- for an output also `affine` and `spatial-only`, of the map.
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis.access import inside
from plica.analysis.dependence import scope_of
from plica.analysis.index import EMPTY
from plica.analysis.index.inversion import image_shape
from plica.analysis.index.iteration import iteration_map
from plica.analysis.site import Site, allocate, fresh_label, fresh_names
from plica.core import Name, Term, free_vars
from plica.ir.loop import Block, Buffer, Load, Scalar, ScalarVar, Stmt, Store
from plica.ir.loop.index_map import IndexMap
from plica.ir.type import known
from plica.schedule import scope_edit
from plica.schedule.dataflow import FlowStage, common, stages, steady
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.launch import unsafe_after
from plica.schedule.precondition import bindings_of, known_scope, only_loops
from plica.schedule.primitive.cache import after_all, after_writer
from plica.schedule.primitive.transform_layout import buffer_of, unfit
from plica.schedule.problem import Problem
from plica.schedule.touched_box import at_values, is_filled, is_written, reached, stays_inside


@primitive("reindex")
@frozen(eq=False)
class Reindex(Instruction):
    """A buffer of a block, by side and number; gives the block that copies."""

    gives = "one"

    block: Handle
    side: str
    index: int
    scope: str = "global"
    map: IndexMap | None = None

    def check(self, scene: Scene) -> Problem | None:
        kernel, site = scene.kernel, scene.block(self.block)
        block, where = site.node, f"the block {site.node.label}"
        if (odd := only_loops(scene, site)) is not None:
            return odd
        if isinstance(buffer := buffer_of(scene, self.block, self.side, self.index), Problem):
            return buffer
        problem = known_scope(self.scope, where)
        if problem is None and self.map is not None:
            problem = unfit(self.map, kernel, len(block.vars), where)
        if problem is not None:
            return problem
        if (place := _place(block, buffer)) is None:
            expected = f"one place of {buffer.name} that does not depend on data"
            return Problem("one-place", where, expected, "several, or one that does")
        if not stays_inside(block, buffer):
            expected = f"a place inside {buffer.name} for all values of the variables"
            return Problem("in-bounds", where, expected, "that is not shown")
        problem = self._unclear(block, place)
        if problem is None and self.side == "write":
            problem = self._unwritable(site)
        if problem is not None:
            return problem
        spot = self._spot(scene, buffer)
        return spot if isinstance(spot, Problem) else unsafe_after(self, scene)

    def edit(self, scene: Scene) -> Edited:
        kernel, site = scene.kernel, scene.block(self.block)
        block = site.node
        buffer = buffer_of(scene, self.block, self.side, self.index)
        assert isinstance(buffer, Buffer)
        place, spot = _place(block, buffer), self._spot(scene, buffer)
        assert place is not None
        assert isinstance(spot, scope_edit.InsertionPoint)
        indices, shape = self._layout(block, place)
        (name,) = fresh_names(kernel, [_hint(buffer)])
        cache = Buffer(name, shape, buffer.dtype, self.scope)
        used = _used(block, (*place, *indices))
        label = fresh_label(kernel, str(name))
        variables = scope_edit.fresh_vars(kernel, "v", len(used))
        values: dict[ScalarVar, Scalar] = dict(zip(used, variables, strict=True))
        here = cache, [at_values(index, values) for index in indices]
        there = buffer, [at_values(scalar, values) for scalar in place]
        sizes = dict(zip(block.vars, block.extents, strict=True))
        pairs = [(new, sizes[old]) for old, new in zip(used, variables, strict=True)]
        target, source = (here, there) if self.side == "read" else (there, here)
        nest = scope_edit.nest_of(
            kernel, scope_edit.copy_block(label, target, source, pairs), [None] * len(used), EMPTY
        )

        def staged(node: Load | Store) -> Term | None:
            if node.buffer is not buffer:
                return None
            if isinstance(node, Load):
                return Load(cache, indices)
            return Store(cache, indices, node.value)

        def change(each: Block) -> Stmt:
            return scope_edit.with_elements(each, staged) if each is block else each

        new = scope_edit.reworked(scope_of(kernel, site), change, spot, nest)
        return Edited(allocate(scope_edit.with_scope(kernel, site, new), (cache,)), (label,))

    def _layout(
        self, block: Block, place: tuple[Scalar, ...]
    ) -> tuple[tuple[Scalar, ...], tuple[Scalar, ...]]:
        """The indices of the copy in terms of the block's variables, and its shape."""
        sizes = dict(zip(block.vars, block.extents, strict=True))
        if self.map is None:
            used = _used(block, place)
            return used, tuple([sizes[var] for var in used])
        shape = image_shape(self.map, block.extents)
        assert shape is not None
        return self.map.apply(block.vars), shape

    def _unclear(self, block: Block, place: tuple[Scalar, ...]) -> Problem | None:
        """A map under which elements of the copy would stand for several of the buffer."""
        if self.map is None:
            return None
        expected = "a map of which the results tell the variables of the access"
        problem = Problem("injective", block, expected, "that is not shown")
        if (shape := image_shape(self.map, block.extents)) is None:
            return problem
        loops = zip(self.map.vars, block.extents, strict=True)
        told = iteration_map(loops, self.map.results, shape).recovered(self.map.results)
        names = dict(zip(block.vars, self.map.vars, strict=True))
        sizes = dict(zip(block.vars, block.extents, strict=True))
        lost = [v for v in _used(block, place) if known(sizes[v]) != 1 and names[v] not in told]
        return problem if lost else None

    def _unwritable(self, site: Site[Block]) -> Problem | None:
        block = site.node
        if (problem := steady(block)) is not None:
            return problem
        if not bindings_of(site).surjective:
            expected = "loops in which each instance of the block runs"
            return Problem("affine", block, expected, "that is not shown")
        if self.map is not None:
            kinds = dict(zip(self.map.vars, block.kinds, strict=True))
            for each in self.map.results:
                if any(kinds.get(v) == "reduce" for v in free_vars(each)):  # type: ignore[call-overload]  # another variable is in no map
                    expected, found = "a map of spatial variables", "one of reduce variables"
                    return Problem("spatial-only", block, expected, found)
        return None

    def _spot(self, scene: Scene, buffer: Buffer) -> scope_edit.InsertionPoint | Problem:
        """The position of the copy."""
        site = scene.block(self.block)
        scope = scope_of(scene.kernel, site)
        every = stages(scope)
        mine, where = every[site.node.label], f"the block {site.node.label}"
        others = [flow_stage for flow_stage in every.values() if flow_stage is not mine]
        writers = [flow_stage for flow_stage in others if buffer in flow_stage.writes]
        if len(writers) > (1 if self.side == "read" else 0):
            names = ", ".join(str(writer.block.label) for writer in writers)
            return Problem("sole-writer", where, f"one writer of {buffer.name}", names)
        if self.side == "write":
            readers = [flow_stage for flow_stage in others if buffer in flow_stage.reads]
            return _apart(mine, readers) if readers else after_all(mine)
        if not writers:
            if is_filled(scene.kernel, site, buffer):
                return scope_edit.front_of(scope)
            expected = f"all of {buffer.name} to be written before it is copied"
            return Problem("covered", where, expected, "that is not shown")
        if isinstance(place := _apart(writers[0], [mine]), Problem):
            return place
        box = reached([mine], buffer, (), EMPTY, written=False)
        if steady(writers[0].block) or not is_written(writers[0], (), box, EMPTY):
            expected = f"{writers[0].block.label} to write all of {buffer.name} that is copied"
            return Problem("covered", where, expected, "that is not shown")
        return place


def _apart(writer: FlowStage, readers: list[FlowStage]) -> scope_edit.InsertionPoint | Problem:
    """The place after a writer that shares no loop with its readers."""
    place = after_writer(writer, readers)
    if isinstance(place, scope_edit.InsertionPoint) and any(
        common(writer, reader) for reader in readers
    ):
        found = "a loop around both"
        return Problem("written-before", writer.block, "readers in loops of their own", found)
    return place


def _place(block: Block, buffer: Buffer) -> tuple[Scalar, ...] | None:
    """The one place at which a block accesses a buffer."""
    places = {
        None if access.inner and not _outside(access.starts, access.inner) else access.starts
        for access in inside(block)
        if access.buffer is buffer and all(known(size) == 1 for size in access.extents)
    }
    if len(places) != 1 or any(
        known(size) != 1 for e in inside(block) if e.buffer is buffer for size in e.extents
    ):
        return None
    (place,) = places
    if place is None:
        return None
    plain = tuple([scalar for scalar in place if scalar is not None])
    return plain if len(plain) == len(place) else None


def _outside(
    starts: tuple[Scalar | None, ...], inner: tuple[tuple[ScalarVar, Scalar], ...]
) -> bool:
    """Whether a place does not depend on loops inside the block."""
    own = {var for var, _ in inner}
    return all(start is not None and free_vars(start).isdisjoint(own) for start in starts)


def _used(block: Block, terms: tuple[Scalar, ...]) -> tuple[ScalarVar, ...]:
    """The block's variables that terms depend on, in its order."""
    free = frozenset[Term]().union(*[free_vars(term) for term in terms])
    return tuple([var for var in block.vars if var in free])


def _hint(buffer: Buffer) -> Name:
    return Name(f"{buffer.name}_reindex")


reindex = Reindex
