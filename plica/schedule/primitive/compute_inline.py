"""compute_inline: compute a block where its result is read.

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

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from attrs import frozen

from plica.analysis.dependence import scope_of
from plica.analysis.enclosing import context_of
from plica.core import Name, Term, free_vars, post_order, substitute
from plica.ir.loop import Block, Buffer, Load, Reduce, Scalar, ScalarVar, Stmt, Store, index
from plica.ir.type import known
from plica.schedule.block_class import complete_body
from plica.schedule.dataflow import common, depth_of, stages, unsettled, users
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.launch import unsafe_after
from plica.schedule.precondition import intermediate
from plica.schedule.problem import Problem
from plica.schedule.scope_edit import reworked, with_elements, with_scope, without_buffer
from plica.schedule.touched_box import is_written, reached


@primitive("compute_inline")
@frozen(eq=False)
class ComputeInline(Instruction):
    """Inlines a block into its readers; returns nothing."""

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
