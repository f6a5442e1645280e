"""overlap_split: tile a loop so that the last tile overlaps the previous one.

    before                      after  overlap_split(i, 8)
    for i in range(20):         for i_0 in range(3):
        with block(v=i): …          for i_1 in range(8):
                                        with block(v=min(i_0 * 8, 12) + i_1): …

No tile is cut: vectors need no guard at the end, but some elements are computed twice (Halide's
`ShiftInwards`). A length that divides the extent overlaps nothing.

Preconditions:

- `plain-loop`: a serial loop without annotations.
- `length`: from 1 to the extent, which is a number.
- `one-block`: the loop contains one block and nothing else.
- repeatable stores: `spatial-only`, `no-self-read`, `distinct-writes`.
- `independent`, `handed-over`: parallel loops around it and inside it stay legal.
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis.enclosing import context_of
from plica.analysis.site import fresh_names, replace
from plica.core.binding import substitute
from plica.ir.loop.scalar import Min, Scalar, ScalarVar, index
from plica.ir.loop.statement import For
from plica.ir.type.dim import known
from plica.ir.type.dtype import i64
from plica.schedule.block_class import complete_body
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Number, Scene, primitive
from plica.schedule.launch import unsafe_after
from plica.schedule.precondition import plain_loop
from plica.schedule.primitive.rfactor import block_below
from plica.schedule.problem import Problem
from plica.schedule.tidy import tidied


@primitive("overlap_split")
@frozen(eq=False)
class OverlapSplit(Instruction):
    """A loop, and how long its tiles are; gives the loop of tiles and the one in a tile."""

    gives = "several"

    loop: Handle
    length: Number

    def check(self, scene: Scene) -> Problem | None:
        site = scene.loop(self.loop)
        loop = site.node
        if (problem := plain_loop(loop)) is not None:
            return problem
        length, extent = scene.number(self.length), known(loop.extent)
        if extent is None or not 1 <= length <= extent:
            found = f"{length} and {loop.extent!r}"
            return Problem("length", loop, "at least 1, and no more than the extent", found)
        if (inside := block_below(scene, site)) is None:
            return Problem("one-block", loop, "one block inside it, and nothing else", "another")
        return complete_body(inside.node) or unsafe_after(self, scene)

    def edit(self, scene: Scene) -> Edited:
        site = scene.loop(self.loop)
        loop, length = site.node, scene.number(self.length)
        extent = known(loop.extent) or 0
        names = fresh_names(scene.kernel, [loop.var.name] * 2)
        tile, inner = (ScalarVar(name, i64) for name in names)
        start: Scalar = tile * length
        if extent % length:
            start = Min(start, index(extent - length))
        tiles, size = index(-(-extent // length)), index(length)
        context = context_of(site.above).loop(tile, tiles).loop(inner, size)
        body = substitute(loop.body, {loop.var: start + inner})
        body = tidied(body, frozenset((tile, inner)), context)
        nest = For(tile, tiles, "serial", For(inner, size, "serial", body))
        return Edited(replace(scene.kernel, site, nest), (tile, inner))


overlap_split = OverlapSplit
