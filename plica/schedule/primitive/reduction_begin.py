"""How a reduction begins: with an init before a loop, or with its first term."""

from __future__ import annotations

from attrs import frozen

from plica.analysis.access import accesses
from plica.analysis.dependence import children, conflicts
from plica.analysis.enclosing import simple
from plica.analysis.index import EMPTY, can_prove
from plica.analysis.index.context import conjuncts
from plica.analysis.reduction import update
from plica.analysis.site import Site, fresh_label, replace, with_parts
from plica.core import Name, free_vars, substitute
from plica.ir.contract import signless_zero
from plica.ir.loop import Lt, Store
from plica.ir.loop.scalar import Scalar, ScalarVar, index
from plica.ir.loop.statement import THREADS, Block, For, Stmt, seq
from plica.schedule.block_class import reduction_body, scan_begun
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.order import begins_at_zero, reduce_loops
from plica.schedule.precondition import all_of, plain_loop
from plica.schedule.primitive.pad_fold import feeds_one_variable, starts_from_identity
from plica.schedule.primitive.rfactor import block_below, joined_update
from plica.schedule.problem import Problem
from plica.schedule.scope_edit import named_vars


@primitive("decompose_reduction")
@frozen(eq=False)
class DecomposeReduction(Instruction):
    """Turn the init of a reduction or scan into a block before a loop.

        before                             after  decompose_reduction(c, k)
        for i in range(n):                 for i in range(n):
            for k in range(p):                 with block("C_init", vi=i):
                with block("C", …):                C[vi] = 0
                    with init(): C[vi] = 0     for k in range(p):
                    C[vi] += A[vi, vk]             with block("C", …):
                                                       C[vi] += A[vi, vk]

    Preconditions:

    - `around`: the loop is around the block, in its scope.
    - a reduction: `reduce-kinds`, `reducer`, `same-element`, `distinct-writes`, `starts`; or a
      scan: `scan-kinds`, `scanner`, `same-element`, `distinct-writes`, `starts`.
    - `begins`: the reduce variables come from loops of their own, and are 0 where these are.
    - `no-reduce-outside`: no loop around the given one feeds a reduce variable.
    - `no-reduce-thread`: no loop over threads does.
    - `alone`: inside the loop, no other block uses the elements before the reduction is complete,
      and none writes what the init reads.
    """

    gives = "one"

    block: Handle
    loop: Handle

    def check(self, scene: Scene) -> Problem | None:
        site, loop = scene.block(self.block), scene.loop(self.loop).node
        block, where = site.node, f"the block {site.node.label}"
        if loop not in site.loops:
            found = f"the loop {loop.var.name} is not"
            return Problem("around", where, "a loop around the block, in its scope", found)
        begins = scan_begun if "scan" in block.kinds else reduction_body
        if (problem := begins(block)) is not None:
            return problem
        if not begins_at_zero(site):
            expected = "reduce variables that follow from loops of their own, 0 where these are"
            return Problem("begins", where, expected, "bindings that are not shown to be such")
        outside = site.loops[: site.loops.index(loop)]
        for reduce_loop in reduce_loops(site):
            if reduce_loop in outside:
                found = f"{reduce_loop.var.name} does"
                expected = f"no loop around {loop.var.name} to feed a reduce variable"
                return Problem("no-reduce-outside", where, expected, found)
            if reduce_loop.kind in THREADS:
                found = f"{reduce_loop.var.name} is bound to {reduce_loop.kind}"
                return Problem("no-reduce-thread", where, "reduce loops that are no threads", found)
        return self.alone(site, loop)

    def alone(self, site: Site[Block], loop: For) -> Problem | None:
        """The problem if another statement in the loop would see the moved init."""
        block = site.node
        assert block.init is not None
        written = {access.buffer for access in accesses(loop) if access.written}
        begun = {access.buffer for access in accesses(block.init) if access.written}
        for access in accesses(block.init):
            if not access.written and access.buffer in written:
                expected = f"an init that reads nothing which is written in {loop.var.name}"
                return Problem("alone", block, expected, f"it reads {access.buffer.name}")
        mine = next(each for each in children(loop.body) if each.block is block)
        for child in children(loop.body):
            touched = (*child.reads, *child.writes)
            shared = [write for write in mine.writes if write in begun and write in touched]
            if child is mine or not shared:
                continue
            later = children(loop.body).index(child) > children(loop.body).index(mine)
            if not later or not set(shared).isdisjoint(conflicts(loop)):
                found = f"{child.block.label} uses {shared[0].name}"
                expected = f"nobody else to use its elements in {loop.var.name} before"
                return Problem("alone", block, expected, found)
        return None

    def edit(self, scene: Scene) -> Edited:
        site, at = scene.block(self.block), scene.loop(self.loop)
        block, kernel = site.node, scene.kernel
        assert block.init is not None  # as checked
        inside = site.loops[site.loops.index(at.node) :]
        ended = {loop.var: index(0) for loop in reduce_loops(site)}
        loops = [loop for loop in inside if loop.var not in ended and _fed(loop.var, block)]
        spatial = [at for at, kind in enumerate(block.kinds) if kind == "spatial"]
        old = [*[loop.var for loop in loops], *[block.vars[at] for at in spatial]]
        new = dict(zip(old, named_vars(kernel, [var.name for var in old]), strict=True))
        still = {loop.var: index(0) for loop in inside if loop not in loops}
        values: dict[ScalarVar, Scalar] = {**ended, **still, **new}
        label = fresh_label(kernel, f"{block.label}_init")
        started = Block(
            label,
            tuple(new[block.vars[at]] for at in spatial),
            tuple(block.extents[at] for at in spatial),
            tuple(block.kinds[at] for at in spatial),
            tuple(substitute(block.bindings[at], values) for at in spatial),
            all_of(simple(substitute(conjunct, values)) for conjunct in conjuncts(block.predicate)),
            None,
            substitute(block.init, new),
        )
        nest: Stmt = started
        for loop in reversed(loops):
            nest = For(new[loop.var], loop.extent, loop.kind, nest, loop.annotations)
        kernel = replace(kernel, site, with_parts(block, init=None))
        place = Scene(kernel, {}).map.loops[at.node.var]
        return Edited(replace(kernel, place, seq(nest, place.node)), (label,))


def _fed(var: ScalarVar, block: Block) -> bool:
    return any(var in free_vars(scalar) for scalar in (*block.bindings, block.predicate))


decompose_reduction = DecomposeReduction


@primitive("peel_init")
@frozen(eq=False)
class PeelInit(Instruction):
    """Start a reduction with its first term instead of the identity.

        before                                  after  peel_init(c, k)
        for i in range(n):                      for i in range(n):
            for k in range(p):                      with block("C_init", vi=i):
                with block("C", …, reduce=k):           C[vi] = A[vi, 0]
                    with init(): C[vi] = 0          for k in range(p - 1):
                    C[vi] += A[vi, vk]                  with block("C", …, reduce=k):
                                                            C[vi] += A[vi, vk + 1]

    This saves short folds an operation and a dependence. A sum of a single term -0.0 keeps its
    sign.

    Preconditions:

    - those of `decompose_reduction`, and those of `pad_fold` without `multiple`.
    - `sole-reduction`: the block reduces over this loop only.
    - `extent`: at least 1.
    """

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
