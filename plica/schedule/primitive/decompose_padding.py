"""decompose_padding: split a block that pads into one that fills and one that copies the inside.

    before                                 after  decompose_padding(p, i)
    for i in range(n + 2):                 for i_1 in range(n + 2):
        with block("P", v=i):                  with block("P_fill", v_1=i_1):
            P[v] = x[v - 1] if 1 <= v <= n         P[v_1] = 0
                   else 0                  for i in range(n + 2):
                                               with block("P", v=i, where=1 <= i <= n):
                                                   P[v] = x[v - 1]

The constant fills the whole box that the block writes inside the loop, before that loop. The loops
keep their extents: the copy has a predicate, which lowering turns into loop bounds. Returns the
filling block.

Preconditions:

- a complete block: `spatial-only`, `sole-writer`, `no-self-read`, `distinct-writes`.
- `injective`: no instance of the block runs twice, because the second run would fill the buffer
  again.
- `rectangular`.
- `around`: the loop is around the block, in its scope.
- `no-thread`: no loop from there on is over threads.
- `padding`: the body stores either an element or a constant, by a condition on its variables.
- `independent`, `handed-over`: parallel loops around it and inside it stay legal.
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis import site as sites
from plica.analysis.enclosing import simple
from plica.analysis.index.context import negated
from plica.core import Name, free_vars, substitute
from plica.ir.loop.scalar import Buffer, Lit, Scalar, Select
from plica.ir.loop.statement import THREADS, Block, For, Stmt, Store, seq
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.launch import unsafe_after
from plica.schedule.precondition import all_of, complete, injective
from plica.schedule.problem import Problem
from plica.schedule.scope_edit import named_vars


@primitive("decompose_padding")
@frozen(eq=False)
class DecomposePadding(Instruction):
    """A block that pads, and the loop before which it is to be filled; gives the filling block."""

    gives = "one"

    block: Handle
    loop: Handle

    def check(self, scene: Scene) -> Problem | None:
        site, loop = scene.block(self.block), scene.loop(self.loop).node
        if loop not in site.loops:
            found = f"the loop {loop.var.name} is not"
            return Problem("around", site, "a loop around the block, in its scope", found)
        for each in site.loops[site.loops.index(loop) :]:
            if each.kind in THREADS or each.kind == "virtual":
                found = f"{each.var.name} is bound to {each.kind}"
                return Problem("no-thread", site, "loops of one thread", found)
        if padded(site.node) is None:
            expected = "a store of an element or a constant, by a condition on the variables"
            return Problem("padding", site, expected, "something else")
        return complete(scene, site) or injective(scene, site) or unsafe_after(self, scene)

    def edit(self, scene: Scene) -> Edited:
        site, at = scene.block(self.block), scene.loop(self.loop)
        block = site.node
        found = padded(block)
        assert found is not None  # as checked
        assert isinstance(block.body, Store)
        condition, element, constant = found
        fill = self.filling(scene, site, at, constant)
        bound = dict(zip(block.vars, block.bindings, strict=True))
        inside = simple(substitute(condition, bound))
        copy = sites.with_parts(
            block,
            predicate=all_of((block.predicate, inside)),
            body=Store(block.body.buffer, block.body.indices, element),
            reads=(),
            writes=(),
        )
        kernel = sites.replace(scene.kernel, site, copy)
        loop = Scene(kernel, scene.outputs).loop(self.loop)
        nest, label = fill
        return Edited(
            sites.with_body(kernel, sites.rebuilt(loop.above, seq(nest, loop.node))), (label,)
        )

    def filling(
        self, scene: Scene, site: sites.Site[Block], at: sites.Site[For], constant: Lit
    ) -> tuple[Stmt, Name]:
        """The loops inside the given one once more, around a block that stores the constant."""
        block = site.node
        assert isinstance(block.body, Store)
        loops = site.loops[site.loops.index(at.node) :]
        old = [*[loop.var for loop in loops], *block.vars]
        new = dict(zip(old, named_vars(scene.kernel, [var.name for var in old]), strict=True))
        label = sites.fresh_label(scene.kernel, f"{block.label}_fill")
        target = block.body
        nest: Stmt = Block(
            label,
            tuple([new[var] for var in block.vars]),
            block.extents,
            block.kinds,
            tuple(substitute(binding, new) for binding in block.bindings),
            substitute(block.predicate, new),
            None,
            Store(target.buffer, tuple(substitute(term, new) for term in target.indices), constant),
        )
        for loop in reversed(loops):
            nest = For(new[loop.var], loop.extent, "serial", nest)
        return nest, label


def padded(block: Block) -> tuple[Scalar, Scalar, Lit] | None:
    """The condition under which a block stores an element, that element, and the constant else."""
    match block.body:
        case Store(_, _, Select(condition, element, Lit() as constant)) if block.init is None:
            pass
        case Store(_, _, Select(other, Lit() as constant, element)) if block.init is None:
            condition = negated(other)
        case _:
            return None
    if any(isinstance(var, Buffer) for var in free_vars(condition)):
        return None
    return condition, element, constant


decompose_padding = DecomposePadding
