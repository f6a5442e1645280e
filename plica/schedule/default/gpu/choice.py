"""Choices among many by one number: halves instead of one after another.

    x if i < 1 else (y if i < 2 else (z if i < 3 else …))
      -->  (x if i < 1 else y) if i < 2 else (z if i < 3 else …)

Elements of a concatenation (the steps of a recurrent layer, say) select their piece; each thread
does so, and a condition costs as much as an addition.

>>> from plica.core.name import Name
>>> from plica.ir.type.dtype import f32, i64
>>> i, chain = sc.ScalarVar(Name("i"), i64), sc.Lit(9.0, f32)
>>> for n in reversed(range(9)):
...     chain = sc.Select(sc.Lt(i, sc.index(n + 1)), sc.Lit(float(n), f32), chain)
>>> halved(chain).condition.right
Lit(5, DType('i64'))
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from attrs import frozen

from plica.core import Term, map_bottom_up, post_order
from plica.ir.loop import Each, Stage, Stages, scalar as sc
from plica.ir.loop.stages import stages

LONG: Final = 6  # questions in a row that are worth halves
DEEP: Final = 3  # how often choices that are inside of choices are looked for


@frozen(eq=False)
class ChoiceChain:
    """Values by the first limit that a number is below, and one for all others."""

    number: sc.Scalar
    limits: tuple[int, ...]
    values: tuple[sc.Scalar, ...]
    rest: sc.Scalar

    def halved(self) -> sc.Scalar:
        """The same in halves; `begin` and `end` say among which values."""

        def among(begin: int, end: int) -> sc.Scalar:
            if begin == end:
                return self.values[begin] if begin < len(self.values) else self.rest
            middle = (begin + end) // 2
            below = sc.Lt(self.number, sc.Lit(self.limits[middle], sc.dtype_of(self.number)))
            return sc.Select(below, among(begin, middle), among(middle + 1, end))

        return among(0, len(self.values))


def with_halves(of: Stages) -> Stages:
    """Stages with long chains of selects balanced; unchanged if there are none."""
    made = [_halved_stage(stage) for stage in of.stages]
    same = all(new is old for new, old in zip(made, of.stages, strict=True))
    return of if same else stages(of.inputs, made, of.outputs)


def _halved_stage(of: Stage) -> Stage:
    if not isinstance(of, Each) or (new := halved(of.value)) is of.value:
        return of
    return Each(of.out, of.axes, new)


def halved(of: sc.Scalar) -> sc.Scalar:
    """A value whose long choices are made in halves."""
    for _ in range(DEEP):
        every = [each for each in post_order(of) if isinstance(each, sc.Select)]
        if len(every) < LONG:
            return of
        inner = {select.orelse for select in every}
        heads = {select: chain for select in every
                 if select not in inner and (chain := _chain(select)) is not None}  # fmt: skip
        nearest: dict[Term, Term] = {
            head: chain.halved() for head, chain in heads.items()
            if not any(node in heads for node in post_order(*chain.values, chain.rest))
        }  # fmt: skip
        if not nearest:
            return of
        of = map_bottom_up(partial(_instead, nearest), of)
    return of


def _instead(of: Mapping[Term, Term], node: Term) -> Term:
    return of.get(node, node)


def _chain(of: sc.Select) -> ChoiceChain | None:
    """The choices that begin with one, if they are many, by one number that is below ever more."""
    number: sc.Scalar | None = None
    limits: list[int] = []
    values: list[sc.Scalar] = []
    at: sc.Scalar = of
    while isinstance(at, sc.Select):
        match at.condition:
            case sc.Lt(left, sc.Lit(limit)) if isinstance(limit, int):
                pass
            # The first places are found one after another: the next is the smallest remaining.
            case sc.Eq(sc.ScalarVar() as left, sc.Lit(place)) if place == len(limits):
                limit = len(limits) + 1
            case _:
                break
        if (number is not None and left is not number) or (limits and limit <= limits[-1]):
            break
        number = left
        limits.append(limit)
        values.append(at.then)
        at = at.orelse
    if number is None or len(limits) < LONG:
        return None
    return ChoiceChain(number, tuple(limits), tuple(values), at)
