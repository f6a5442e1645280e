"""Adapting: the legal instructions nearest to an illegal one.

    adapter("split")(function)      what to try for a kind: (step, scene, origin) -> candidate*

>>> fitted(56, (4, 2, 16))
(2, 2, 14)
>>> fitted(48, (7, 2, 16))
(3, 1, 16)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isqrt
from random import Random
from typing import Any, Final, TypeAlias

from plica.core.term import MANY, field_kinds, field_names
from plica.ir.type import known
from plica.schedule.handle import Handle
from plica.schedule.instruction import Decision, Instruction, Sampling, Scene
from plica.schedule.primitive.split import Split
from plica.schedule.trace import Step, handles

Candidate: TypeAlias = tuple[Step, str]
"""A step to try, and how it differs from the one asked for; nothing where it is that one."""

Origin: TypeAlias = "tuple[Instruction, Scene] | None"
"""The instruction as it was, and the scene it was for, where that program is known."""

Adapter: TypeAlias = Callable[[Step, Scene, Origin], Iterator[Candidate]]

DRAWN: Final = 64  # decisions, to find a near one among

_adapters: Final[dict[str, Adapter]] = {}


def adapter(kind: str) -> Callable[[Adapter], Adapter]:
    """Declare how steps of a kind are adapted."""

    def declare(how: Adapter) -> Adapter:
        _adapters[kind] = how
        return how

    return declare


def candidates(step: Step, scene: Scene, origin: Origin) -> Iterator[Candidate]:
    """What to try for a step whose handles exist here, the nearest first."""
    what = step.instruction
    if scene.missing(what) is not None:
        yield step, ""  # its refusal says what is gone
    elif what.kind in _adapters:
        yield from _adapters[what.kind](step, scene, origin)
    elif isinstance(what, Sampling) and step.decision is not None:
        yield from _decisions(what, step.decision, scene)
    else:
        yield step, ""


def fewer(what: Instruction, missing: frozenset[Handle]) -> Instruction | None:
    """The instruction without missing handles, if it takes any number of them."""
    values: list[Any] = []
    cls = type(what)
    for name, kind in zip(field_names(cls), field_kinds(cls), strict=True):
        value = getattr(what, name)
        if kind is MANY:
            value = tuple(each for each in value if each not in missing)
            if not value:
                return None
        values.append(value)
    less = cls(*values)
    return less if missing.isdisjoint(handles(less)) else None


def fitted(extent: int, parts: Decision) -> Decision:
    """Parts whose product is an extent, the inner ones the nearest divisors below the old
    values."""
    rest, found = extent, list[int]()
    for part in reversed(parts[1:]):
        factor = divisor(rest, part)
        found.append(factor)
        rest //= max(factor, 1)
    return (rest, *reversed(found))


def divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is at most another; at least 1."""
    small = [each for each in range(1, isqrt(max(number, 0)) + 1) if number % each == 0]
    return max([d for each in small for d in (each, number // each) if d <= most], default=1)


@adapter("split")
def _splits(step: Step, scene: Scene, origin: Origin) -> Iterator[Candidate]:
    """The old decision, unless it newly introduces idle iterations; then divisors."""
    what = step.instruction
    assert isinstance(what, Split)
    extent = known(scene.loop(what.loop).node.extent)
    numbers = what.numbers(scene)
    fits = what.exact(scene.loop(what.loop).node, numbers) or not _was_exact(origin)
    if fits:
        yield step, ""
    plain = not any(isinstance(factor, Handle) for factor in what.factors)
    if plain and extent is not None and extent > 0 and len(numbers) > 1:
        inner = tuple(number for number in numbers if number is not None)
        if None in numbers:
            at = numbers.index(None)
            sizes = fitted(extent, (1, *inner))[1:]
            new: tuple[int | None, ...] = (*sizes[:at], None, *sizes[at:])
        else:
            new = fitted(extent, inner)
        yield Step(Split(what.loop, new)), f"factors {new}"
    if not fits:
        yield step, ""


def _was_exact(origin: Origin) -> bool:
    if origin is None:
        return False
    what, scene = origin
    assert isinstance(what, Split)
    return what.exact(scene.loop(what.loop).node, what.numbers(scene))


def _decisions(what: Sampling, decision: Decision, scene: Scene) -> Iterator[Candidate]:
    if what.check(scene) is not None or what.accepts(scene, decision) is None:
        yield Step(what, decision), ""
        return
    loop = getattr(what, "loop", None)
    if isinstance(loop, Handle) and loop.sort == "loop":
        extent = known(scene.loop(loop).node.extent)
        if extent:
            near = fitted(extent, decision)
            if what.accepts(scene, near) is None:
                yield Step(what, near), f"decided {near}"
                return
    drawn = {what.decide(scene, Random(f"transport/{seed}")) for seed in range(DRAWN)}
    ordered = sorted(drawn, key=lambda each: (_distance(each, decision), each))
    for each in ordered:
        if what.accepts(scene, each) is None:
            yield Step(what, each), f"decided {each}"


def _distance(a: Decision, b: Decision) -> float:
    if len(a) != len(b):
        return float("inf")
    return sum(abs(x - y) / max(abs(x), abs(y), 1) for x, y in zip(a, b, strict=True))
