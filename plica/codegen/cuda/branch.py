r"""Branches: the dependences between steps of a program, so that a GPU can overlap others.

    step 0  writes a                     after = ((), (0,), (), (1, 2))
    step 1  reads a, writes b     -->    0 - 1
    step 2  writes c                           \
    step 3  reads b and c                2 ----- 3

>>> a, b, c, d = ((0, 4), (4, 8), (8, 12), (12, 16))
>>> steps = [((), (a,)), ((a,), (b,)), ((), (c,)), ((b, c), (d,))]
>>> waits(steps)
((), (0,), (), (1, 2))
>>> depth(waits(steps))
3
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from plica.codegen.device_program import Unit
from plica.runtime.cuda.step import DeviceCopy, SlotLayout

Span: TypeAlias = tuple[int, int]  # where a tensor begins in memory, and where it ends

Touched: TypeAlias = tuple[Sequence[Span], Sequence[Span]]
"""The spans a step reads, and those it writes."""

Waits: TypeAlias = tuple[tuple[int, ...], ...]  # for each step those before it that it waits for

SHARE: Final = 0.75
"""Steps that follow one another, of all, at most, where branches are worth their delay."""

FEWEST: Final = 8  # steps that are worth branches


def branches(of: Unit, sizes: Sequence[int], layout: SlotLayout) -> Waits:
    """What each step of a unit waits for; nothing where all are to follow one another."""
    if len(of.steps) < FEWEST:
        return ()
    found = waits(_touched(of, sizes, layout))
    return found if depth(found) <= SHARE * len(of.steps) else ()


def _touched(of: Unit, sizes: Sequence[int], layout: SlotLayout) -> list[Touched]:
    """Where each step reads and writes; constants are read alone, and scratch is one for all."""
    held = {slot for slot, _ in layout.constants}
    found: list[Touched] = []
    for step, results in zip(of.steps, of.results, strict=True):
        slots = (step.source, step.target) if isinstance(step, DeviceCopy) else step.slots
        scratch = 0 if isinstance(step, DeviceCopy) else step.scratch
        spans = [None if slot in held else (at := layout.places[slot], at + max(sizes[slot], 1))
                 for slot in slots]  # fmt: skip
        first = len(slots) - results
        shared = [(at, at + 1) for at in layout.scratch[:scratch]]
        read, written = ([span for span in some if span is not None]
                         for some in (spans[:first], spans[first:]))  # fmt: skip
        found.append((read, [*written, *shared]))
    return found


def waits(steps: Sequence[Touched]) -> Waits:
    """For each step the last ones that it has to wait for."""
    every = sorted({span for read, written in steps for span in (*read, *written)})
    beside = _overlapping(every)
    writer: dict[Span, int] = {}
    readers: dict[Span, list[int]] = {}
    before: list[int] = []  # for each step the bits of all that come before it
    found: list[tuple[int, ...]] = []
    for number, (read, written) in enumerate(steps):
        asked = {writer[other] for span in (*read, *written) for other in beside[span]
                 if other in writer}  # fmt: skip
        asked |= {one for span in written for other in beside[span]
                  for one in readers.get(other, ())}  # fmt: skip
        reached, own = 0, []
        for one in sorted(asked, reverse=True):
            if not reached >> one & 1:
                own.append(one)
                reached |= before[one] | 1 << one
        found.append(tuple(reversed(own)))
        before.append(reached)
        for span in written:
            writer[span], readers[span] = number, []
        for span in read:
            readers.setdefault(span, []).append(number)
    return tuple(found)


def _overlapping(spans: Sequence[Span]) -> dict[Span, list[Span]]:
    """For each span, in order, those that overlap it."""
    found: dict[Span, list[Span]] = {span: [] for span in spans}
    there: list[Span] = []
    for span in spans:
        there = [other for other in there if other[1] > span[0]]
        for other in there:
            found[other].append(span)
            found[span].append(other)
        found[span].append(span)
        there.append(span)
    return found


def depth(of: Waits) -> int:
    """How many steps follow one another, at most."""
    found: list[int] = []
    for each in of:
        found.append(1 + max([found[one] for one in each], default=0))
    return max(found, default=0)


__all__ = ["branches", "depth", "waits"]
