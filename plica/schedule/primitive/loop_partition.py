"""loop_partition: cut a loop into several loops, one after another.

    before                      after  loop_partition(i, (2, None))
    for i in range(n): …        for i_0 in range(min(2, n)): …  with i = i_0
                                for i_1 in range(max(n - 2, 0)): …  with i = 2 + i_1

One length may be None: the remainder. Blocks and loops inside are copied for each part; the first
copy keeps their handles. With a constant extent, conditions that the range of a part decides are
resolved: a part of a concatenation reads one tensor.

Preconditions:

- `plain-loop`: a serial loop without annotations.
- `lengths`: at least two, positive, at most one None.
- `fits`: the lengths add up to the extent; with a None, to at most the extent. With a symbolic
  extent the last one is None.
- `independent`, `handed-over`: parallel loops inside stay legal when the parts share buffers that
  were private before.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from plica.analysis.enclosing import simple
from plica.analysis.site import distinct, fresh_names, replace
from plica.core import substitute
from plica.ir.loop.scalar import Lit, Max, Min, Scalar, ScalarVar, index
from plica.ir.loop.statement import For, Stmt, seq
from plica.ir.type import i64, known
from plica.schedule.choice import chosen_in
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Number, Scene, primitive
from plica.schedule.launch import unsafe_after
from plica.schedule.precondition import plain_loop
from plica.schedule.problem import Problem


@primitive("loop_partition")
@frozen(eq=False)
class LoopPartition(Instruction):
    """A loop, and the lengths of its parts; gives the new loops."""

    gives = "several"

    loop: Handle
    lengths: tuple[Number | None, ...]

    def check(self, scene: Scene) -> Problem | None:
        loop = scene.loop(self.loop).node
        if (problem := plain_loop(loop)) is not None:
            return problem
        lengths = self.numbers(scene)
        positive = all(length is None or length > 0 for length in lengths)
        if len(lengths) < 2 or not positive or lengths.count(None) > 1:
            expected = "at least two positive lengths, one of which may be None"
            return Problem("lengths", loop, expected, str(lengths))
        extent, total = known(loop.extent), sum(length or 0 for length in lengths)
        if extent is None:
            if lengths[-1] is not None:
                hint = "Leave the last length open: None."
                return Problem("fits", loop, "the extent", f"{lengths}", hint)
        elif total > extent or (None not in lengths and total != extent):
            expected = f"lengths that add up to {extent}"
            hint = "Leave one length open: None."
            return Problem("fits", loop, expected, f"{lengths}: {total}", hint)
        return unsafe_after(self, scene)

    def edit(self, scene: Scene) -> Edited:
        site = scene.loop(self.loop)
        loop, lengths = site.node, self.numbers(scene)
        names = fresh_names(scene.kernel, [loop.var.name] * len(lengths))
        variables = tuple([ScalarVar(name, i64) for name in names])
        total, start = sum(each or 0 for each in lengths), 0
        whole, begin = known(loop.extent), index(0)
        parts: list[Stmt] = []
        for var, length in zip(variables, lengths, strict=True):
            extent: Scalar
            if whole is not None:
                size = whole - total if length is None else length
                extent, start = Lit(size, i64), start + size
                following: Scalar = Lit(start, i64)
            else:
                left = Max(loop.extent - begin, index(0))
                extent = simple(left if length is None else Min(index(length), left))
                following = begin if length is None else simple(begin + length)
            place = simple(begin + var)
            body: Any = substitute(loop.body, {loop.var: place})
            if whole is not None:
                body = chosen_in(body, place, start - (known(extent) or 0), start)
            parts.append(For(var, extent, "serial", body))
            begin = following
        after = distinct(replace(scene.kernel, site, seq(*parts)))
        return Edited(after, variables)

    def numbers(self, scene: Scene) -> list[int | None]:
        """The lengths as numbers."""
        return [None if length is None else scene.number(length) for length in self.lengths]


def loop_partition(loop: Handle, lengths: tuple[Number | None, ...]) -> Instruction:
    """A loop as several, one after another, of these lengths."""
    return LoopPartition(loop, tuple(lengths))
