"""Merged runs: two sorted runs become one by a look at the first of each, again and again.

    y[k] = the place of the k-th of two runs, found by halving
      -->  for k:  y[k] = left if x[left] comes first else right;  that one goes on

`merge_runs` computes the source of each output separately, which takes a search. On a processor
that produces outputs in order, the previous one has done all but a step of it. Two runs of equal
length are merged from both ends at once, half of the outputs each: so neither reaches the end of a
run, and two elements are in flight. The epilogue of an output is applied in place.

>>> from plica.ir.loop.tensor import buffer
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.type.dtype import f32
>>> x = buffer("x", (3, 100), f32)
>>> runs = stage("y", (3, 100), lambda r, k: merged_place(x, (r, k), 16, False))
>>> [type(each).__name__ for each in merging_form(stages((x,), (runs,)), Machine(512, 32)).stages]
['ExternStage']
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Final

from attrs import frozen

from plica.core import map_bottom_up, post_order, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import Each, ExternStage
from plica.ir.loop.stages import Names, Stages, stages
from plica.ir.loop.statement import NOTHING, Alloc, Bind, Branch, For, LoopKind, Stmt, Store, seq
from plica.ir.op.order import is_before, merged_place
from plica.ir.type import i64, known
from plica.schedule.default.machine import MIN_SHARED_ELEMENTS, Machine
from plica.schedule.default.selection import over_rows

SIDE_BY_SIDE: Final = 4  # pairs that are merged at once: each waits for what it compared before


def merging_form(of: Stages, machine: Machine) -> Stages | None:
    """A stage of merged runs in the form for its loops, or None."""
    match of.stages:
        case (Each(out, axes, value),) if axes:
            pass
        case _:
            return None
    if not all(known(dim) for dim in out.shape):
        return None
    wanted = known(out.shape[-1]) or 0
    for x in of.inputs:
        if not x.shape or x.shape[:-1] != out.shape[:-1] or (known(x.shape[-1]) or 0) < wanted:
            continue
        places = [
            sc.index(0) if known(size) == 1 else axis
            for axis, size in zip(axes, x.shape, strict=True)
        ]
        if (runs := runs_of(x, places, value)) is not None:
            body = _Merging(x, out, runs, Names(of)).body(axes, machine)
            return stages(of.inputs, (ExternStage((out,), body),))
    return None


@frozen
class Runs:
    """The length of a stage's runs, whether they descend, and the output's place in the stage's
    value."""

    width: int
    descending: bool
    place: sc.Scalar
    value: sc.Scalar


def runs_of(x: sc.Buffer, places: Sequence[sc.Scalar], value: sc.Scalar) -> Runs | None:
    """The runs of x that a stage merges, or None."""
    nodes = set(post_order(value))
    numbers = {n.value for n in nodes if isinstance(n, sc.Lit) and n.dtype is i64}
    for width in sorted(number for number in numbers if number > 0 and 2 * number in numbers):
        for descending in (False, True):
            place = merged_place(x, places, int(width), descending)
            if place in nodes:
                return Runs(int(width), descending, place, value)
    return None


def _groups(count: int) -> Iterator[tuple[int, int, int]]:
    """Groups of pairs: the first, how many, and of how many each, for all of a given number of
    pairs."""
    whole, left = divmod(count, SIDE_BY_SIDE)
    if whole:
        yield 0, whole, SIDE_BY_SIDE
    if left:
        yield whole * SIDE_BY_SIDE, 1, left


class _Merging:
    """The loops of merged runs under construction."""

    def __init__(self, x: sc.Buffer, out: sc.Buffer, runs: Runs, names: Names) -> None:
        self.x, self.out, self.names = x, out, names
        self.width, self.descending = runs.width, runs.descending
        self.size, self.shown = (known(buffer.shape[-1]) or 0 for buffer in (x, out))
        hole = self.place = names.var("place")
        self.value = map_bottom_up(lambda each: hole if each is runs.place else each, runs.value)

    def body(self, axes: Sequence[sc.ScalarVar], machine: Machine) -> Stmt:
        """All rows, and of each all pairs of runs; one that is left over ends the row."""
        self.rows, self.axis = tuple(axes[:-1]), axes[-1]
        counts = [known(dim) or 0 for dim in self.x.shape[:-1]]
        shares = machine.cores > 1 and prod(counts) * self.size >= MIN_SHARED_ELEMENTS
        whole, left = divmod(self.size, 2 * self.width)
        alone: LoopKind = "parallel" if shares and prod(counts) == 1 else "serial"
        parts: list[Stmt] = []
        for begin, count, beside in _groups(whole):
            pair, one = self.names.var("pair"), self.names.var("u")
            start = (pair * beside + (one + begin)) * (2 * self.width)
            some = self.both_ends(start, one, beside, self.width)
            parts.append(For(pair, sc.index(count), alone, some))
        begin = whole * 2 * self.width
        if left > self.width:
            rest = self.both_ends(sc.index(begin), self.names.var("u"), 1, left - self.width)
            parts.append(rest)
        elif left:  # a run without another
            step = self.names.var("k")
            kind: LoopKind = "vectorized" if self.is_bare else "serial"
            parts.append(For(step, sc.index(left), kind, self.stored(step + begin, step + begin)))
        return over_rows(seq(*parts), self.rows, counts, shares=shares)

    def both_ends(self, start: sc.Scalar, one: sc.ScalarVar, beside: int, second: int) -> Stmt:
        """Two runs from a place on: the first half from the front, the other from the back.

        Several such pairs, indexed by `one`, go in parallel. A second run may be shorter than the
        first, which is as long as both halves: its next element always exists. The middle of an odd
        number is written twice.
        """
        front, back = (self.state(each, beside) for each in ("front", "back"))
        step, width = self.names.var("k"), self.width
        low, high = (self.names.var(each) for each in ("low", "high"))
        last, most = start + (width + second - 1), sc.index(second - 1)
        ahead_by, back_by = step - low, step - high  # how many of the second were taken
        left, own = start + low, start + (width - 1) - high
        ends = second < width
        right = start + width + (sc.Min(ahead_by, most) if ends else ahead_by)
        other = last - (sc.Min(back_by, most) if ends else back_by)
        forward, backward = self.comes_first(right, left), self.comes_first(other, own)
        if ends:
            forward = sc.And(forward, sc.Le(ahead_by, most))
            backward = sc.Or(backward, sc.Lt(most, back_by))
        ahead, behind = (self.names.var(each) for each in ("ahead", "behind"))
        inner = seq(
            self.either(start + step, left, right, ahead),
            self.either(last - step, other, own, behind),
            Store(front, (one,), low + 1 - ahead),
            Store(back, (one,), high + behind),
        )
        inner = Bind(ahead, sc.Cast(forward, i64), Bind(behind, sc.Cast(backward, i64), inner))
        taken = [
            sc.Max(sc.index(0), sc.Min(sc.Load(buffer, (one,)), step))  # so that it is known to be
            for buffer in (front, back)
        ]
        inner = Bind(low, taken[0], Bind(high, taken[1], inner))
        other_one = self.names.var("u")
        begin = seq(*[Store(buffer, (other_one,), sc.index(0)) for buffer in (front, back)])
        every = For(
            step,
            sc.index(-(-(width + second) // 2)),
            "serial",
            For(one, sc.index(beside), "unrolled", inner),
        )
        before = For(other_one, sc.index(beside), "unrolled", begin)
        return Alloc(front, Alloc(back, seq(before, every)))

    def either(self, at: sc.Scalar, one: sc.Scalar, other: sc.Scalar, which: sc.Scalar) -> Stmt:
        """One of two indices, loaded from memory, to avoid a mispredicted branch."""
        both = sc.Buffer(self.names.name("both"), (sc.index(2),), i64, "local")
        places = [Store(both, (sc.index(n),), scalar) for n, scalar in enumerate((one, other))]
        return Alloc(both, seq(*places, self.stored(at, sc.Load(both, (which,)))))

    def comes_first(self, one: sc.Scalar, other: sc.Scalar) -> sc.Scalar:
        """Whether the element at an index precedes that at another."""
        mine, yours = (sc.Load(self.x, (*self.rows, at)) for at in (one, other))
        return is_before(mine, yours, self.descending)

    @property
    def is_bare(self) -> bool:
        """Whether a place is all that is made, of all elements."""
        return self.value is self.place and self.size == self.shown

    def stored(self, at: sc.Scalar, place: sc.Scalar) -> Stmt:
        """The epilogue of an output, unless it is beyond the wanted ones."""
        value = substitute(self.value, {self.place: place, self.axis: at})
        store = Store(self.out, (*self.rows, at), value)
        if self.size == self.shown:
            return store
        return Branch(sc.Lt(at, sc.index(self.shown)), store, NOTHING)

    def state(self, name: str, count: int) -> sc.Buffer:
        """The number of elements taken from a run, for a number of pairs."""
        return sc.Buffer(self.names.name(name), (sc.index(count),), i64, "local")
