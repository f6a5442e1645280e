"""split: split a loop into a nest of loops.

    before                      after  split(i, (None, 4))
    for i in range(n):          for i_0 in range((n + 3) // 4):
        with block(v=i): …          for i_1 in range(4):
                                        with block(v=i_0 * 4 + i_1, where=i_0 * 4 + i_1 < n): …

One factor may be None: as many iterations as needed. If the product is not known to be the
extent, every block inside gets a predicate.

Preconditions:

- `plain-loop`: a serial loop without annotations.
- `factors`: at least two, positive, at most one None.
- `covers`: factors without None reach the extent.
- `blocks-only`: only loops and blocks inside, where a predicate is needed.
"""

from __future__ import annotations

from math import prod

from attrs import frozen

from plica.analysis.enclosing import context_of, simple
from plica.analysis.site import fresh_names, replace
from plica.core import Name, substitute
from plica.ir.loop import For, Lit, Lt, Scalar, ScalarVar
from plica.ir.type import i64, known, quotient
from plica.runtime.error import wrong_argument
from plica.schedule.do import Body, DoBlock as Do
from plica.schedule.handle import Handle
from plica.schedule.instruction import LARGEST, Edited, Instruction, Number, Scene, primitive
from plica.schedule.precondition import guarded, plain_loop, unguardable
from plica.schedule.primitive.sample import SampledTile
from plica.schedule.problem import Problem
from plica.schedule.tidy import tidied


@primitive("split")
@frozen(eq=False)
class Split(Instruction):
    """A loop by factors, outermost first; gives the new loops."""

    gives = "several"

    loop: Handle
    factors: tuple[Number | None, ...]

    def check(self, scene: Scene) -> Problem | None:
        loop = scene.loop(self.loop).node
        if (problem := plain_loop(loop)) is not None:
            return problem
        factors = self.numbers(scene)
        positive = all(factor is None or factor > 0 for factor in factors)
        product = prod(factor for factor in factors if factor is not None)
        if len(factors) < 2 or not positive or factors.count(None) > 1 or product >= LARGEST:
            expected = "two or more positive factors of a product in range, one may be None"
            return Problem("factors", loop, expected, str(factors))
        extent = known(loop.extent)
        if None not in factors and (extent is None or product < extent):
            expected = f"factors whose product is at least {extent or 'the extent'}"
            hint = "Leave one factor open: None."
            return Problem("covers", loop, expected, f"{factors}: {product}", hint)
        if not self.exact(loop, factors):
            return unguardable(loop)
        return None

    def edit(self, scene: Scene) -> Edited:
        site = scene.loop(self.loop)
        loop, factors = site.node, self.numbers(scene)
        inner = prod(factor for factor in factors if factor is not None)
        extents: list[Scalar] = []
        outer = quotient(loop.extent, Lit(inner, i64))
        for factor in factors:
            if factor is None:
                extents.append(outer or simple((loop.extent + (inner - 1)) // inner))
            else:
                extents.append(Lit(factor, i64))
        hints = [Name(loop.var.name.hint, loop.var.name.index)] * len(factors)
        names = fresh_names(scene.kernel, hints)
        variables = [ScalarVar(name, i64) for name in names]
        value: Scalar = variables[0]
        for var, extent in zip(variables[1:], extents[1:], strict=True):
            value = value * extent + var
        body = substitute(loop.body, {loop.var: value})
        if not self.exact(loop, factors):
            body = guarded(body, Lt(value, loop.extent))
        context = context_of(site.above)
        for var, extent in zip(variables, extents, strict=True):
            context = context.loop(var, extent)
        body = tidied(body, frozenset(variables), context)
        for var, extent in zip(reversed(variables), reversed(extents), strict=True):
            body = For(var, extent, "serial", body)
        return Edited(replace(scene.kernel, site, body), tuple(variables))

    def numbers(self, scene: Scene) -> list[int | None]:
        """The factors as numbers."""
        return [None if factor is None else scene.number(factor) for factor in self.factors]

    def exact(self, loop: For, factors: list[int | None]) -> bool:
        """Whether the factors are known to make no more iterations than there were."""
        extent = known(loop.extent)
        inner = prod(factor for factor in factors if factor is not None)
        if extent is None:
            return quotient(loop.extent, Lit(inner, i64)) is not None
        return extent % inner == 0 if None in factors else inner == extent


def split(loop: Handle, factors: SampledTile | tuple[Number | None, ...]) -> Instruction | Do:
    """A loop by factors, or by factors that are sampled."""
    if isinstance(factors, tuple | list):
        return Split(loop, tuple(factors))
    if not isinstance(factors, SampledTile):
        message = "split takes a tuple of factors, or sample_tile(…)."
        raise wrong_argument(message, "a tuple, as (None, 8)", factors)
    tile = factors

    def sampled() -> Body:
        decided = yield tile.of(loop)
        return (yield Split(loop, decided))

    return Do(sampled)
