"""Inlining: a block where its result is read, or where its input is made."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from attrs import frozen

from plica.analysis.access import inside
from plica.analysis.dependence import scope_of
from plica.analysis.enclosing import context_of
from plica.analysis.index import EMPTY, can_prove
from plica.analysis.site import Site, with_parts
from plica.core import Name, Term, free_vars, map_bottom_up, post_order, substitute
from plica.ir.loop import Reduce
from plica.ir.loop.scalar import And, Buffer, Le, Load, Lt, Scalar, ScalarVar, index
from plica.ir.loop.statement import TRUE, Block, Stmt, Store, statements
from plica.ir.type import known
from plica.schedule.block_class import complete_body
from plica.schedule.dataflow import FlowStage, common, depth_of, stages, steady, unsettled, users
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.launch import unsafe_after
from plica.schedule.precondition import bindings_of, intermediate
from plica.schedule.problem import Problem
from plica.schedule.scope_edit import reworked, with_elements, with_scope, without_buffer
from plica.schedule.touched_box import at_values, is_written, reached, stays_inside, whole


@primitive("compute_inline")
@frozen(eq=False)
class ComputeInline(Instruction):
    """Compute a block where its result is read.

        before                          after  compute_inline(b)
        for i in range(n):              for j in range(n):
            with block("B", v=i):           with block("C", w=j):
                B[v] = A[v] + 1                 C[w] = (A[w] + 1) * 2
        for j in range(n):
            with block("C", w=j):
                C[w] = B[w] * 2

    The block and its buffer are removed. After `cache_read` this restores the program.

    Preconditions:

    - a complete block: `spatial-only`, `sole-writer`, `no-self-read`, `distinct-writes`.
    - `plain-store`: the body is one store, indexed by the variables, each once.
    - `intermediate`: the buffer is not visible outside the kernel.
    - `sole-writer`, `has-consumers`.
    - `same-scope`: the buffer is used in one scope.
    - `written-before`: the readers come after it.
    - `element-reads`: the readers load single elements inside blocks.
    - settled inputs, which have the same values later: `stage-pipeline`, `finished`.
    - `names`: no reduction in a consumer binds a variable of the expression.
    - `covered`: inside a block, what is read was written there.
    - `allocated`: the readers are inside the allocations of the buffers that it reads.
    """

    block: Handle

    def check(self, scene: Scene) -> Problem | None:
        kernel, site = scene.kernel, scene.block(self.block)
        block, scope = site.node, scope_of(scene.kernel, site)
        problem = complete_body(block) or unsettled(scope, block.label)
        if problem is not None:
            return problem
        if plain_store(block) is None:
            expected = "one store whose indices are the block's variables, each once"
            return Problem("plain-store", block, expected, "another body")
        assert isinstance(block.body, Store)
        buffer = block.body.buffer
        problem = intermediate(scene, buffer) or users(kernel, site, buffer)
        if problem is not None:
            return problem
        every = list(stages(scope).values())
        mine = next(flow_stage for flow_stage in every if flow_stage.block is block)
        rivals = [str(e.block.label) for e in every if buffer in e.writes and e is not mine]
        if rivals:
            expected = f"the only writer of {buffer.name}"
            return Problem("sole-writer", block, expected, ", ".join(rivals))
        if not (readers := [flow_stage for flow_stage in every if buffer in flow_stage.reads]):
            return Problem("has-consumers", block, f"a block that reads {buffer.name}", "none")
        if every.index(readers[0]) < every.index(mine):
            found = f"{readers[0].block.label} before it"
            return Problem("written-before", block, "its readers after it", found)
        bound = free_vars(block.body.value).difference(block.vars)
        for reader in readers:
            if not axes_of(reader.block).isdisjoint(bound):
                expected = "axes of reductions with names of their own"
                return Problem("names", reader.block, expected, "namesakes")
        if site.scope is not None:
            for reader in readers:
                shared = common(mine, reader)
                context = context_of(site.above[: depth_of(site.above, shared)])
                box = reached([reader], buffer, shared, context, written=False)
                if not is_written(mine, shared, box, context):
                    expected = f"all of {buffer.name} that {reader.block.label} reads"
                    return Problem("covered", block, expected, "that is not shown")
        left = inlined(scope, block.label)  # it may hold the allocation, which binds the buffer
        if buffer in free_vars(left) or any(
            _mentions(stage.block, buffer) for stage in stages(left).values()
        ):
            expected = f"readers that load single elements of {buffer.name}"
            return Problem("element-reads", block, expected, "a region, or a load outside a block")
        return unsafe_after(self, scene)

    def edit(self, scene: Scene) -> Edited:
        kernel, site = scene.kernel, scene.block(self.block)
        assert isinstance(site.node.body, Store)
        new = inlined(scope_of(kernel, site), site.node.label)
        changed = with_scope(kernel, site, new)
        return Edited(without_buffer(changed, site.node.body.buffer))


def plain_store(block: Block) -> Mapping[ScalarVar, int] | None:
    """The index of the only store that each variable of a block is, or None.

    A variable of extent 1 may be none of them: it is always 0.
    """
    body = block.body
    if block.init is not None or not isinstance(body, Store):
        return None
    return plain_indices(block, body.indices)


def plain_indices(block: Block, indices: tuple[Scalar, ...]) -> Mapping[ScalarVar, int] | None:
    """The place of each variable of a block among indices that are variables, or 0."""
    found: dict[ScalarVar, int] = {}
    for at, each in enumerate(indices):
        if known(each) == 0:
            continue
        if not isinstance(each, ScalarVar) or each not in block.vars or each in found:
            return None
        found[each] = at
    for var, extent in zip(block.vars, block.extents, strict=True):
        if var not in found and known(extent) != 1:
            return None
    return found


@lru_cache(maxsize=256)
def inlined(scope: Stmt, label: Name) -> Stmt:
    """The scope without a block, whose value is computed in its readers."""
    block = stages(scope)[label].block
    places, store = plain_store(block), block.body
    assert places is not None
    assert isinstance(store, Store)
    buffer, value = store.buffer, store.value

    def there(node: Load | Store) -> Term | None:
        if not isinstance(node, Load) or node.buffer is not buffer:
            return None
        return substitute(
            value, {v: node.indices[places[v]] if v in places else index(0) for v in block.vars}
        )

    def change(each: Block) -> Stmt | None:
        if each is block:
            return None
        return with_elements(each, there) if _mentions(each, buffer) else each

    return reworked(scope, change)


def _mentions(block: Block, buffer: Buffer) -> bool:
    return buffer in free_vars(block)


@lru_cache(maxsize=1024)
def axes_of(block: Block) -> frozenset[Term]:
    """The variables that reductions inside a block bind."""
    found: set[Term] = set()
    for node in post_order(block):
        if isinstance(node, Reduce):
            found.update(node.axes)
    return frozenset(found)


compute_inline = ComputeInline


@primitive("reverse_compute_inline")
@frozen(eq=False)
class ReverseComputeInline(Instruction):
    """Merge a block into the block that produces its input.

        before                          after  reverse_compute_inline(c)
        for i in range(n):              for i in range(n):
            with block("B", v=i):           with block("B", v=i):
                B[v] = A[v] + 1                 C[v] = (A[v] + 1) * 2
        for j in range(n):
            with block("C", w=j):
                C[w] = B[w] * 2

    The block and the buffer between the two are removed. A block that only copies is merged into a
    reduction too: after `cache_write` this restores the program.

    Preconditions:

    - a complete block: `spatial-only`, `sole-writer`, `no-self-read`, `distinct-writes`.
    - `one-store`: the body is one store.
    - `one-producer`: it reads one buffer that is written in the scope.
    - `plain-load`: at its variables, each once.
    - `intermediate`, `same-scope`, `sole-writer`, `written-before`.
    - `sole-reader`: nothing else reads that buffer.
    - `complete-producer`: unless the block only copies.
    - settled inputs, which have the same values later: `stage-pipeline`, `finished`.
    - `available`: other inputs are available when the producer runs.
    - `covered`: the producer writes all that is read.
    - `affine`: each instance of the block runs.
    - `unread-before`: nothing before it reads what it writes.
    - `element-writes`: the producer stores single elements.
    - `inside`: if the producer writes more than is read, it stores at its variables.
    - `names`: no reduction in the block binds a variable of the producer.
    - `allocated`: the producer is inside the allocations of the block's buffers.
    """

    block: Handle

    def check(self, scene: Scene) -> Problem | None:
        site = scene.block(self.block)
        block, scope = site.node, scope_of(scene.kernel, site)
        problem = complete_body(block) or unsettled(scope, block.label)
        if problem is not None:
            return problem
        if block.init is not None or not isinstance(block.body, Store):
            return Problem("one-store", block, "a body of one store", "another body")
        every = list(stages(scope).values())
        mine = next(flow_stage for flow_stage in every if flow_stage.block is block)
        buffers = [b for b in mine.inputs if any(b in e.writes for e in every)]
        if (problem := _between(scene, site, mine, every, buffers)) is not None:
            return problem
        if not bindings_of(site).surjective:
            expected = "loops in which each instance of the block runs"
            return Problem("affine", block, expected, "that is not shown")
        (buffer, producer), output = _read(mine, every), block.body.buffer
        for stage in every:
            if stage is not mine and output in stage.writes:
                expected, found = f"the only writer of {output.name}", f"{stage.block.label} too"
                return Problem("sole-writer", block, expected, found)
            if output in stage.reads and every.index(stage) < every.index(mine):
                found = f"{stage.block.label} does"
                return Problem("unread-before", block, f"nobody to read {output.name}", found)
        return _fits(site, producer, buffer) or unsafe_after(self, scene)

    def edit(self, scene: Scene) -> Edited:
        kernel, site = scene.kernel, scene.block(self.block)
        scope = scope_of(kernel, site)
        every = list(stages(scope).values())
        mine = next(flow_stage for flow_stage in every if flow_stage.block is site.node)
        buffer, producer = _read(mine, every)
        new = _taken_in(producer.block, site.node, buffer)

        def change(each: Block) -> Stmt | None:
            if each is site.node:
                return None
            return new if each is producer.block else each

        changed = with_scope(kernel, site, reworked(scope, change))
        return Edited(without_buffer(changed, buffer))


def _between(
    scene: Scene, site: Site[Block], mine: FlowStage, every: list[FlowStage], made: list[Buffer]
) -> Problem | None:
    """The problem of the buffer between producer and block."""
    block = mine.block
    if not any(_loads(block, each) is not None for each in made):
        expected = "an input that it loads at its variables, each once"
        word = "plain-load" if made else "one-producer"
        return Problem(word, block, expected, f"{len(made)} inputs made in the scope")
    buffer, producer = _read(mine, every)
    problem = intermediate(scene, buffer) or users(scene.kernel, site, buffer)
    if problem is not None:
        return problem
    for flow_stage in every:
        if flow_stage not in (mine, producer) and buffer in flow_stage.reads:
            expected, found = f"the only reader of {buffer.name}", f"{flow_stage.block.label} too"
            return Problem("sole-reader", block, expected, found)
    for other in made:
        if other is buffer:
            continue
        (writer,) = [flow_stage for flow_stage in every if other in flow_stage.writes]
        late = every.index(writer) > every.index(producer)
        if late or writer is producer or common(writer, producer):
            expected = f"{other.name} to be made before {producer.block.label} runs"
            return Problem("available", block, expected, f"{writer.block.label} makes it")
    return None


def _read(mine: FlowStage, every: list[FlowStage]) -> tuple[Buffer, FlowStage]:
    """The last made of the inputs that are loaded at the block's variables, and who makes it."""
    found: tuple[Buffer, FlowStage] | None = None
    for stage in every:
        for buffer in stage.writes:
            if buffer in mine.inputs and _loads(mine.block, buffer) is not None:
                found = buffer, stage
    assert found is not None
    return found


def _loads(block: Block, buffer: Buffer) -> tuple[Scalar, ...] | None:
    """The indices at which a block loads a buffer, if they are one and plain."""
    places = {access.starts for access in inside(block) if access.buffer is buffer}
    if len(places) != 1:
        return None
    (indices,) = places
    plain = tuple([scalar for scalar in indices if scalar is not None])
    if len(plain) != len(indices) or plain_indices(block, plain) is None:
        return None
    return plain


def _fits(site: Site[Block], producer: FlowStage, buffer: Buffer) -> Problem | None:
    """Why a block cannot go into the producer of its input."""
    block, maker = site.node, producer.block
    assert isinstance(block.body, Store)
    copies = isinstance(block.body.value, Load)
    problem = steady(maker) if copies else complete_body(maker)
    if problem is not None:
        if not copies and steady(maker) is None:
            expected, found = "a complete block, or one that only copies", "a reduction"
            return Problem("complete-producer", maker, expected, found)
        return problem
    if any(None in access.starts for access in inside(maker) if access.buffer is buffer):
        expected = f"stores to elements of {buffer.name} that do not depend on data"
        return Problem("element-writes", maker, expected, "one that does")
    if not axes_of(block).isdisjoint(free_vars(maker.body).union(maker.vars)):
        return Problem("names", maker, "axes of reductions with names of their own", "namesakes")
    new = _taken_in(maker, block, buffer)
    if buffer in free_vars(new):
        expected = f"stores of single elements of {buffer.name}"
        return Problem("element-writes", maker, expected, "a region")
    if new.predicate is not maker.predicate:
        for stmt in statements(maker.body):
            if isinstance(stmt, Store) and plain_writes(maker, stmt.indices) is None:
                expected = f"stores to {buffer.name} at the block's variables"
                return Problem("inside", maker, expected, "other indices")
        if len(producer.writes) > 1:
            return Problem("inside", maker, "one output", f"{len(producer.writes)} outputs")
    box = whole(block, buffer, written=False)
    if not stays_inside(block, buffer) or not is_written(producer, (), box, EMPTY):
        return Problem("covered", maker, f"all of {buffer.name} that is read", "that is not shown")
    return None


def plain_writes(block: Block, indices: tuple[Scalar, ...]) -> dict[ScalarVar, int] | None:
    """The place of each spatial variable among indices that are such variables, or 0."""
    found: dict[ScalarVar, int] = {}
    kinds = dict(zip(block.vars, block.kinds, strict=True))
    for at, each in enumerate(indices):
        if each is index(0):
            continue
        if not isinstance(each, ScalarVar) or kinds.get(each) != "spatial" or each in found:
            return None
        found[each] = at
    return found


def _taken_in(maker: Block, block: Block, buffer: Buffer) -> Block:
    """The producer with the block's computation applied to its results."""
    store = block.body
    assert isinstance(store, Store)
    indices = _loads(block, buffer)
    assert indices is not None
    places = plain_indices(block, indices)
    assert places is not None

    def at(element: tuple[Scalar, ...]) -> dict[ScalarVar, Scalar]:
        return {v: element[places[v]] if v in places else index(0) for v in block.vars}

    def made(node: Load | Store) -> Term | None:
        if node.buffer is not buffer:
            return None
        values = at(node.indices)
        target = tuple([at_values(scalar, values) for scalar in store.indices])
        if isinstance(node, Load):
            return Load(store.buffer, target)
        value = _with_input(at_values(store.value, values), buffer, node.value)
        return Store(store.buffer, target, value)

    new = with_elements(maker, made)
    for scalar in _outside(maker, block, buffer, places):
        both = scalar if new.predicate is TRUE else And(new.predicate, scalar)
        new = with_parts(new, predicate=both)
    return new


def _with_input(value: Scalar, buffer: Buffer, made: Scalar) -> Scalar:
    def each(node: Term) -> Term:
        return made if isinstance(node, Load) and node.buffer is buffer else node

    return map_bottom_up(each, value)


def _outside(
    maker: Block, block: Block, buffer: Buffer, places: Mapping[ScalarVar, int]
) -> list[Scalar]:
    """Conditions that keep the producer to the elements the block reads."""
    context = EMPTY
    for var, extent in zip(maker.vars, maker.extents, strict=True):
        context = context.loop(var, extent)
    values = dict(zip(maker.vars, maker.bindings, strict=True))
    sizes = dict(zip(block.vars, block.extents, strict=True))
    found: dict[Scalar, None] = {}
    for access in inside(maker):
        if access.buffer is not buffer:
            continue
        inner = context
        for axis, extent in access.inner:
            inner = inner.loop(axis, extent)
        for at, place in enumerate(access.starts):
            assert place is not None
            size = next((sizes[var] for var, there in places.items() if there == at), index(1))
            for condition in (Le(index(0), place), Lt(place, size)):
                if not can_prove(condition, inner):
                    term = substitute(condition, values)
                    found[term] = None
    return list(found)


reverse_compute_inline = ReverseComputeInline
