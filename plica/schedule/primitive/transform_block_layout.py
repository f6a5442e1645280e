"""transform_block_layout: change the iteration space of a block by an index map.

    before                          after  transform_block_layout(b, index_map(lambda i, j: (i * m + j,)))
    for i in range(n):              for ax in range(n * m):
        for j in range(m):              with block("B", w=ax):
            with block("B", v=i, u=j):      B[w // m, w % m] = …
                B[v, u] = …

The block's variables become the results of the map, with one new loop for each. After a map, its
inverse restores the program.

Preconditions:

- a complete block: `spatial-only`, `sole-writer`, `no-self-read`, `distinct-writes`; or a
  reduction: `reduce-kinds`, `reducer`, `same-element`, `distinct-writes`, `starts`.
- `affine`: each instance runs exactly once.
- `alone`: nothing else is in its loops.
- `plain-loop`: serial loops without annotations.
- `rank`: the map takes its variables.
- `map-dims`: the map uses only dims of the kernel.
- `bijective`: the map fills the box of its results.
- `one-kind`: each result combines either spatial or reduce variables.
- `zero`: the map takes 0 to 0, where a reduction begins.
"""  # noqa: E501  # the call is one line

from __future__ import annotations

from typing import Any

from attrs import frozen

from plica.analysis.dependence import scope_of
from plica.analysis.enclosing import simple
from plica.analysis.index import EMPTY, Context
from plica.analysis.index.inversion import image_shape, inverse, is_bijective
from plica.analysis.site import rebuilt, with_body, with_parts
from plica.core import Term, free_vars, map_bottom_up, substitute
from plica.ir.contract import Contract, exact, reassociates
from plica.ir.loop.index_map import IndexMap
from plica.ir.loop.scalar import Load, Scalar, index
from plica.ir.loop.statement import TRUE, Block, For, IterKind, Stmt, Store
from plica.ir.type import known
from plica.schedule.dataflow import stages, steady
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.order import writes_floats
from plica.schedule.precondition import affine, plain_loop
from plica.schedule.primitive.transform_layout import unfit
from plica.schedule.problem import Problem
from plica.schedule.scope_edit import fresh_vars, nest_of


@primitive("transform_block_layout")
@frozen(eq=False)
class TransformBlockLayout(Instruction):
    """A block, and a map of its variables; gives nothing."""

    contract = reassociates

    block: Handle
    map: IndexMap

    def keeps(self, scene: Scene) -> Contract:
        """Floats change where the variables of a reduction do."""
        block = scene.block(self.block).node
        return self.contract if "reduce" in block.kinds and writes_floats(block) else exact

    def check(self, scene: Scene) -> Problem | None:
        site = scene.block(self.block)
        block, where = site.node, f"the block {site.node.label}"
        problem = steady(block) or affine(scene, site)
        if problem is not None:
            return problem
        path = stages(scope_of(scene.kernel, site))[block.label].path
        first = next((at for at, (stmt, _) in enumerate(path) if isinstance(stmt, For)), len(path))
        for stmt, _ in path[first:]:
            if not isinstance(stmt, For):
                found = "its loops hold something else"
                return Problem("alone", where, "loops in which nothing else stands", found)
            if (problem := plain_loop(stmt)) is not None:
                return problem
        if (problem := unfit(self.map, scene.kernel, len(block.vars), where)) is not None:
            return problem
        if not is_bijective(self.map, block.extents):
            expected = "a map that fills the box of its results, one to one"
            return Problem("bijective", where, expected, "that is not shown")
        for at, result in enumerate(self.map.results):
            if len(_made_of(self.map, block, result)) > 1:
                found = f"result {at} is made of several kinds"
                return Problem("one-kind", where, "results of variables of one kind", found)
        if block.init is not None:
            zeros = self.map.apply([index(0)] * self.map.rank)
            if any(known(simple(scalar)) != 0 for scalar in zeros):
                return Problem("zero", where, "a map that takes 0 to 0", "another")
        return None

    def edit(self, scene: Scene) -> Edited:
        kernel, site = scene.kernel, scene.block(self.block)
        block = site.node
        back, extents = inverse(self.map, block.extents), image_shape(self.map, block.extents)
        assert back is not None
        assert extents is not None
        variables = fresh_vars(kernel, "v", len(extents))
        context = EMPTY
        for var, extent in zip(variables, extents, strict=True):
            context = context.loop(var, extent)
        olds = [simple(scalar, context) for scalar in back.map.apply(variables)]
        values = dict(zip(block.vars, olds, strict=True))
        kinds = [
            min(_made_of(self.map, block, result), default="spatial") for result in self.map.results
        ]
        new = with_parts(
            block, vars=variables, extents=extents, kinds=tuple(kinds), bindings=variables,
            predicate=TRUE, init=_at(block.init, values, context),
            body=_at(block.body, values, context),
            reads=tuple([substitute(read, values) for read in block.reads]),
            writes=tuple([substitute(write, values) for write in block.writes]),
        )  # fmt: skip
        nest = nest_of(kernel, new, [None] * len(variables), context)
        above = list(site.above)
        while above and isinstance(above[-1][0], For):
            above.pop()
        return Edited(with_body(kernel, rebuilt(tuple(above), nest)))


def _made_of(of: IndexMap, block: Block, result: Scalar) -> set[IterKind]:
    """The kinds of the block's variables that a result of a map depends on."""
    free = free_vars(result)
    return {kind for var, kind in zip(of.vars, block.kinds, strict=True) if var in free}


def _at(stmt: Stmt | None, values: dict[Any, Scalar], context: Context) -> Any:
    """A statement where variables have these values, its indices in their simplest form."""
    if stmt is None:
        return None

    def simplest(indices: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        return tuple([simple(scalar, context) for scalar in indices])

    def each(node: Term) -> Term:
        match node:
            case Load(buffer, indices):
                return Load(buffer, simplest(indices))
            case Store(buffer, indices, value):
                return Store(buffer, simplest(indices), value)
            case _:
                return node

    return map_bottom_up(each, substitute(stmt, values))


transform_block_layout = TransformBlockLayout
