"""Loops made one, and a loop of one iteration."""

from __future__ import annotations

from itertools import pairwise

from attrs import frozen

from plica.analysis.enclosing import context_of, simple
from plica.analysis.index import EMPTY, Context
from plica.analysis.index.context import conjuncts
from plica.analysis.site import fresh_names, rebuilt, replace, with_body, with_parts
from plica.core import Name, free_vars, substitute
from plica.ir.loop import Block, For, Lit, Lt, Scalar, ScalarVar, Stmt
from plica.ir.type import i64, known
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.precondition import all_of, plain_loop
from plica.schedule.problem import Problem
from plica.schedule.tidy import mapped, tidied, trimmed


@primitive("fuse")
@frozen(eq=False)
class Fuse(Instruction):
    """Merge perfectly nested loops into one.

        before                      after  fuse(i, j)
        for i in range(n):          for i_j in range(n * m):
            for j in range(m): …        …  with i = i_j // m, j = i_j % m

    Iterations in which no block runs are dropped, so fusing the result of a split restores the
    loop.

    Preconditions:

    - `count`: at least two loops.
    - `plain-loop`: a serial loop without annotations.
    - `chain`: each loop is the only statement of the previous one.
    - `independent`: no extent depends on an outer loop of these.
    """

    gives = "one"

    loops: tuple[Handle, ...]

    def check(self, scene: Scene) -> Problem | None:
        loops = [scene.loop(handle).node for handle in self.loops]
        if len(loops) < 2:
            return Problem("count", "fuse", "at least two loops", f"{len(loops)}")
        for loop in loops:
            if (problem := plain_loop(loop)) is not None:
                return problem
        for outer, inner in pairwise(loops):
            where = f"the loop {inner.var.name}"
            if outer.body is not inner:
                expected = f"it to be all that stands in the loop {outer.var.name}"
                return Problem("chain", where, expected, "something else stands there")
        outside = {loop.var for loop in loops}
        for loop in loops:
            if not free_vars(loop.extent).isdisjoint(outside):
                where, found = f"the loop {loop.var.name}", "its extent depends on one of them"
                return Problem("independent", where, "extents apart from the loops", found)
        return None

    def edit(self, scene: Scene) -> Edited:
        sites = [scene.loop(handle) for handle in self.loops]
        loops = [site.node for site in sites]
        hint = "_".join(str(loop.var.name) for loop in loops)
        (name,) = fresh_names(scene.kernel, [Name(hint)])
        var = ScalarVar(name, i64)
        extent: Scalar = loops[0].extent
        for loop in loops[1:]:
            extent = extent * loop.extent
        values: dict[ScalarVar, Scalar] = {}
        rest: Scalar = var
        for loop in reversed(loops[1:]):
            values[loop.var] = rest % loop.extent
            rest = rest // loop.extent
        values[loops[0].var] = rest
        context = context_of(sites[0].above)
        whole = simple(extent)
        inside = context.loop(var, whole)
        body = loops[-1].body
        if any(known(loop.extent) is None for loop in loops[1:]):
            body = gathered(body, loops, var)
        body = tidied(substitute(body, values), frozenset({var}), inside)
        new = trimmed(For(var, whole, "serial", body), context)
        return Edited(replace(scene.kernel, sites[0], new), (var,))


def gathered(body: Stmt, loops: list[For], var: ScalarVar) -> Stmt:
    """The statement where terms that depend on the place in all loops together say so.

    The simplifier does not know `x // n * n + x % n` for a symbolic n, which might be 0.
    """
    rest: Scalar = loops[0].var
    for loop in loops[1:-1]:
        rest = rest * loop.extent + loop.var
    last = loops[-1]
    value = {last.var: var - rest * last.extent}
    mine = {loop.var for loop in loops}

    def gather(term: Scalar) -> Scalar:
        if last.var not in free_vars(term):
            return term
        whole = simple(substitute(term, value))
        return whole if free_vars(whole).isdisjoint(mine) else term

    def change(stmt: Stmt, _: Context) -> Stmt:
        if not isinstance(stmt, Block):
            return stmt
        conditions = []
        for conjunct in conjuncts(stmt.predicate):
            if isinstance(conjunct, Lt):
                conjunct = Lt(gather(conjunct.left), gather(conjunct.right))
            conditions.append(conjunct)
        bindings = tuple([gather(binding) for binding in stmt.bindings])
        return with_parts(stmt, bindings=bindings, predicate=all_of(conditions))

    return mapped(body, change, EMPTY)


def fuse(*loops: Handle) -> Instruction:
    """Loops directly inside one another, outermost first; gives the one they become."""
    return Fuse(loops)


@primitive("add_unit_loop")
@frozen(eq=False)
class AddUnitLoop(Instruction):
    """Add a loop of one iteration around a loop or a block.

        before                      after  add_unit_loop(c)
        with block("C"): …          for u in range(1):
                                        with block("C"): …

    Preconditions: none.
    """

    gives = "one"

    target: Handle

    def check(self, scene: Scene) -> Problem | None:
        return None

    def edit(self, scene: Scene) -> Edited:
        site = scene.loop(self.target) if self.target.sort == "loop" else scene.block(self.target)
        (name,) = fresh_names(scene.kernel, [Name("u")])
        var = ScalarVar(name, i64)
        around = For(var, Lit(1, i64), "serial", site.node)
        return Edited(with_body(scene.kernel, rebuilt(site.above, around)), (var,))


add_unit_loop = AddUnitLoop
