"""merge_loops: merge adjacent loop nests into one.

    before                      after  merge_loops(i, j)
    for i in range(n): A        for i in range(n):
    for j in range(n): B            A
                                    B  with j = i

The given loops are the innermost merged loop of each nest. Their enclosing loops are merged too, up
to where the nests diverge. The first nest keeps its handles.

Preconditions:

- `count`: at least two loops.
- `siblings`: the nests are adjacent, with only loops between where they part and the given loops.
- `depth`: the same number of loops in each.
- `extents`: equal, loop by loop.
- `plain-loop`: a serial loop without annotations.
- `independent`: the nests conflict only in the same iteration.
"""

from __future__ import annotations

from itertools import pairwise

from attrs import frozen

from plica.analysis.access import accesses
from plica.analysis.site import Above, rebuilt, with_body
from plica.core import substitute
from plica.ir.loop import Buffer, For, Scalar, ScalarVar, Seq, Stmt, seq
from plica.ir.type import same_dim
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.order import ways
from plica.schedule.precondition import plain_loop
from plica.schedule.problem import Problem


@frozen(eq=False)
class Nests:
    """The common enclosing statements, the index of the first nest, and the loops of each."""

    above: Above
    first: int
    loops: tuple[tuple[For, ...], ...]


@primitive("merge_loops")
@frozen(eq=False)
class MergeLoops(Instruction):
    """The innermost loop of each nest, in the order of the text; gives the one they become."""

    gives = "one"

    loops: tuple[Handle, ...]

    def check(self, scene: Scene) -> Problem | None:
        if isinstance(found := self.nests(scene), Problem):
            return found
        first = found.loops[0]
        for nest in found.loops:
            if len(nest) != len(first):
                where, expected = f"the loop {nest[-1].var.name}", f"{len(first)} loops to merge"
                return Problem("depth", where, expected, f"{len(nest)}")
            values = {theirs.var: mine.var for mine, theirs in zip(first, nest, strict=True)}
            for mine, theirs in zip(first, nest, strict=True):
                if (problem := plain_loop(theirs)) is not None:
                    return problem
                if not same_dim(mine.extent, substitute(theirs.extent, values)):
                    where, expected = f"the loop {theirs.var.name}", f"that of {mine.var.name}"
                    return Problem("extents", where, expected, "another extent")
        return self.meets(found)

    def nests(self, scene: Scene) -> Nests | Problem:
        """The nests from where they diverge."""
        sites = [scene.loop(loop) for loop in self.loops]
        if len(sites) < 2 or len({site.node for site in sites}) < len(sites):
            return Problem("count", "merge_loops", "at least two loops, each once", f"{len(sites)}")
        common = 0
        while len({site.above[common] for site in sites if len(site.above) > common}) == 1 and all(
            len(site.above) > common for site in sites
        ):
            common += 1
        expected = "nests directly after one another, with only loops around the loops named"
        places = [site.above[common] for site in sites if len(site.above) > common]
        if len(places) < len(sites) or not isinstance(places[0][0], Seq):
            return Problem("siblings", sites[1], expected, "a loop inside another")
        for (a, before), (b, after) in pairwise(places):
            if a is not b or after != before + 1:
                return Problem("siblings", sites[1], expected, "another order")
        loops = []
        for site in sites:
            inside = [stmt for stmt, _ in site.above[common + 1 :]]
            nest = [stmt for stmt in inside if isinstance(stmt, For)]
            if len(nest) < len(inside):
                return Problem("siblings", sites[1], expected, "something else around it")
            loops.append((*nest, site.node))
        return Nests(sites[0].above[: common + 1], places[0][1], tuple(loops))

    def meets(self, found: Nests) -> Problem | None:
        """The problem of nests that touch the same elements in different iterations."""
        touched: dict[Buffer, set[int]] = {}
        written: set[Buffer] = set()
        for number, nest in enumerate(found.loops):
            for access in accesses(nest[0]):
                touched.setdefault(access.buffer, set()).add(number)
                if access.written:
                    written.add(access.buffer)
        shared = frozenset([b for b, by in touched.items() if len(by) > 1 and b in written])
        seen: dict[Buffer, tuple[Scalar | None, ...]] = {}
        for nest in found.loops:
            span = tuple([loop.var for loop in nest])
            for buffer, way in ways(nest[0], span, shared).items():
                if None in way or seen.setdefault(buffer, way) != way:
                    expected = "nests that meet only in the same iteration"
                    return Problem("independent", nest[-1], expected, f"they meet in {buffer.name}")
        return None

    def edit(self, scene: Scene) -> Edited:
        found = self.nests(scene)
        assert not isinstance(found, Problem)
        first = found.loops[0]
        bodies: list[Stmt] = []
        for nest in found.loops:
            values = {theirs.var: mine.var for mine, theirs in zip(first, nest, strict=True)}
            bodies.append(substitute(nest[-1].body, values))
        body = seq(*bodies)
        for loop in reversed(first):
            body = For(loop.var, loop.extent, loop.kind, body, loop.annotations)
        (whole, _), count = found.above[-1], len(found.loops)
        assert isinstance(whole, Seq)
        kept = (*whole.stmts[: found.first], body, *whole.stmts[found.first + count :])
        after = rebuilt(found.above[:-1], seq(*kept))
        return Edited(with_body(scene.kernel, after), (_var(first),))


def _var(nest: tuple[For, ...]) -> ScalarVar:
    return nest[-1].var


def merge_loops(*loops: Handle) -> Instruction:
    """Nests that stand one after another as one, by their innermost loops; gives the loop."""
    return MergeLoops(loops)
