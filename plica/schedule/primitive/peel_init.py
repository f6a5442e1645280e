"""peel_init: start a reduction with its first term instead of the identity.

    before                                  after  peel_init(c, k)
    for i in range(n):                      for i in range(n):
        for k in range(p):                      with block("C_init", vi=i):
            with block("C", …, reduce=k):           C[vi] = A[vi, 0]
                with init(): C[vi] = 0          for k in range(p - 1):
                C[vi] += A[vi, vk]                  with block("C", …, reduce=k):
                                                        C[vi] += A[vi, vk + 1]

This saves short folds an operation and a dependence. A sum of a single term -0.0 keeps its sign.

Preconditions:

- those of `decompose_reduction`, and those of `pad_fold` without `multiple`.
- `sole-reduction`: the block reduces over this loop only.
- `extent`: at least 1.
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis.enclosing import simple
from plica.analysis.index import EMPTY, can_prove
from plica.analysis.reduction import update
from plica.analysis.site import Site, replace, with_parts
from plica.core import Name, substitute
from plica.ir.contract import signless_zero
from plica.ir.loop import Block, For, Lt, Store, index
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.precondition import plain_loop
from plica.schedule.primitive.decompose_reduction import DecomposeReduction
from plica.schedule.primitive.pad_fold import feeds_one_variable, starts_from_identity
from plica.schedule.primitive.rfactor import block_below, joined_update
from plica.schedule.problem import Problem


@primitive("peel_init")
@frozen(eq=False)
class PeelInit(Instruction):
    """A reduction block, and its reduce loop; gives the block of the first term."""

    gives = "one"
    contract = signless_zero

    block: Handle
    loop: Handle

    def check(self, scene: Scene) -> Problem | None:
        site, loop = scene.block(self.block), scene.loop(self.loop).node
        return (
            plain_loop(loop)
            or DecomposeReduction(self.block, self.loop).check(scene)
            or starts_from_identity(site.node)
            or feeds_one_variable(site, loop)
            or self.alone(scene, site)
            or _has_first_term(site, loop)
        )

    def alone(self, scene: Scene, site: Site[Block]) -> Problem | None:
        """The problem of something else in the loop, which would run once less."""
        loop = scene.loop(self.loop)
        if (inside := block_below(scene, loop)) is None or inside.node is not site.node:
            return Problem("one-block", loop, "one block inside it, and nothing else", "another")
        return None

    def edit(self, scene: Scene) -> Edited:
        site, loop = scene.block(self.block), scene.loop(self.loop).node
        block, store = site.node, site.node.body
        assert isinstance(store, Store)
        decomposed = DecomposeReduction(self.block, self.loop).edit(scene)
        kernel = decomposed.kernel
        (label,) = decomposed.outputs
        assert isinstance(label, Name)
        term = update(store)
        assert term is not None
        axis = block.bindings.index(loop.var)
        reduced = block.vars[axis]

        begin = Scene(kernel, {}).map.blocks[label]
        own = [var for var, kind in zip(block.vars, block.kinds, strict=True) if kind == "spatial"]
        first = {**dict(zip(own, begin.node.vars, strict=True)), reduced: index(0)}
        assert isinstance(begin.node.body, Store)
        started = Store(store.buffer, begin.node.body.indices, substitute(term, first))
        kernel = replace(kernel, begin, with_parts(begin.node, body=started, reads=(), writes=()))

        rest = simple(loop.extent - 1)
        later = joined_update(store, substitute(term, {reduced: reduced + 1}))
        updated = Scene(kernel, {}).map.blocks[block.label]
        extents = (*block.extents[:axis], rest, *block.extents[axis + 1 :])
        new = with_parts(updated.node, extents=extents, body=later, reads=(), writes=())
        kernel = replace(kernel, updated, new)
        at = Scene(kernel, {}).map.loops[loop.var]
        shorter = For(loop.var, rest, loop.kind, at.node.body, loop.annotations)
        return Edited(replace(kernel, at, shorter), (label,))


def _has_first_term(site: Site[Block], loop: For) -> Problem | None:
    """The problem of a fold whose first term is not available before the loop."""
    if site.node.kinds.count("reduce") != 1:
        found = f"{site.node.kinds.count('reduce')} reduce variables"
        return Problem("sole-reduction", site, "the loop as its only reduce variable", found)
    if not can_prove(Lt(index(0), loop.extent), EMPTY):
        return Problem("extent", loop, "at least one term", "an extent that may be 0")
    return None


peel_init = PeelInit
