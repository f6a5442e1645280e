"""Scheduling tasks: which piece of a model to tune next.

The next batch of trials goes where it promises to save the most seconds of the whole model:

    gain = weight * (a * backward + (1 - a) * forward)
    backward   what the last few batches gained, per batch
    forward    the lesser of two hopes: the best falls by its share of one batch, halved by every
               batch in vain; the work reaches the roof that other work of the model has shown

The defaults of all pieces are timed first. Everything is a function of the observations.

>>> slow, fast = Standing(weight=10, best=(4.0, 3.0)), Standing(weight=1, best=(4.0, 3.0))
>>> next_task([fast, slow])
1
>>> next_task([fast, Standing(weight=10)]), next_task([Standing(best=(1.0,), finished=True)])
(1, None)

>>> tuned, new = Standing(weight=1, best=(4.0, 3.0)), Standing(weight=10, best=(4.0,))
>>> promised([tuned, new], batches=8)
11.0
>>> promised([tuned, new], batches=1), promised([tuned, new], batches=0)
(10.0, 0.0)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

BACKWARD: Final = 0.2  # how much what has been gained counts, against what is hoped for
WINDOW: Final = 3  # how many batches back it looks
LEAST_GAIN: Final = 0.01  # what falls by less has gained nothing
HIGHER: Final = 1.1  # how much higher the roof may be than what was seen


@frozen
class Standing:
    """The state of a piece of work: how often it occurs, and the best seconds after each batch."""

    weight: float = 1.0
    best: tuple[float | None, ...] = ()
    finished: bool = False  # whether there is nothing left to try
    operations: float = 0.0  # how much is computed; none where that is not known
    bytes: float = 0.0  # how much is read and written, if each element is once

    def rates(self) -> tuple[float, float]:
        """Operations and bytes a second of the best; none before anything has worked."""
        if not self.best or not (best := self.best[-1]):
            return 0.0, 0.0
        return self.operations / best, self.bytes / best


def next_task(standings: Sequence[Standing]) -> int | None:
    """The index of the piece to continue with, or None if all are exhausted."""
    if not (open_ := [n for n, standing in enumerate(standings) if not standing.finished]):
        return None
    if new := [n for n in open_ if not standings[n].best]:
        return new[0]
    gains = [gain(standings[n], standings) for n in open_]
    return open_[gains.index(max(gains))]


def gain(of: Standing, among: Sequence[Standing]) -> float:
    """How many seconds of the whole one more batch promises."""
    if (best := of.best[-1]) is None:
        # Nothing has worked yet: it is worth as much as the slowest piece.
        known = [e.weight * e.best[-1] for e in among if e.best and e.best[-1] is not None]
        return max(known, default=1.0) / (1 + len(of.best))
    forward = best / (len(of.best) << _in_vain(of.best, best))
    forward = min(forward, max(0.0, best - _at_roof(of, among)))
    return of.weight * (BACKWARD * _backward(of.best, best) + (1 - BACKWARD) * forward)


def _at_roof(of: Standing, among: Sequence[Standing]) -> float:
    """The estimated seconds of a piece at its roof, by comparison with the others."""
    peaks = [max(each) for each in zip(*[one.rates() for one in (of, *among)], strict=True)]
    works = zip((of.operations, of.bytes), peaks, strict=True)
    return max([work / (HIGHER * peak) for work, peak in works if peak], default=0.0)


def promised(standings: Sequence[Standing], batches: int) -> float:
    """How many seconds of the whole this many more batches are expected to gain."""
    timed = [(standing, [cost for cost in standing.best if cost]) for standing in standings]
    firsts = [1 - costs[-1] / costs[0] for _, costs in timed if len(costs) > 1]
    usual = sum(firsts) / len(firsts) if firsts else 0.0
    gains = [
        each.weight * (_backward(each.best, costs[-1]) if len(costs) > 1 else usual * costs[-1])
        for each, costs in timed
        if costs and not each.finished
    ]
    return sum(sorted(gains, reverse=True)[:batches], 0.0)


def _in_vain(history: tuple[float | None, ...], best: float) -> int:
    """How many of the last batches have gained nothing; the first begins, whatever it gives."""
    earlier = [each for each in history[:-1] if each is not None]
    return sum(each * (1 - LEAST_GAIN) <= best for each in earlier)


def _backward(history: tuple[float | None, ...], best: float) -> float:
    """The recent gain of a batch."""
    if len(history) <= 1:
        return 0.0
    window = min(WINDOW, len(history) - 1)
    before = history[-1 - window]
    return 0.0 if before is None else (before - best) / window
