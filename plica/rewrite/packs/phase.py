"""Phases of a transposed convolution: results that leave the same rest, and what each reads.

The taps of a phase are every `step`th tap of the window, reversed; it reads some of the pixels, and
zeros outside.  Results of all phases lie between each other.

>>> list(phases(size=8, taps=4, result=16, stride=2, before=1))
[Phase(first=1, taps=2, start=-1, stop=8), Phase(first=0, taps=2, start=0, stop=9)]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from attrs import frozen

from plica.ir.graph.expression import Apply, Expr
from plica.ir.op.convolution import conv_transpose
from plica.ir.op.create import zeros
from plica.ir.op.cut import slice_
from plica.ir.op.join import concat
from plica.ir.op.pad import pad
from plica.ir.op.shape import reshape, transpose
from plica.ir.op.window import Window, windows
from plica.ir.type import DType, TensorType, static_shape, type_of
from plica.rewrite.match import PatternMatch

Sizes: TypeAlias = tuple[int, ...]
Sides: TypeAlias = tuple[tuple[int, int], ...]


@frozen
class Phase:
    """One axis of the results that leave the same rest: its taps are every `step`th from the first.

    They read the data from `start` on and before `stop`, which may lie outside.
    """

    first: int
    taps: int
    start: int
    stop: int


def phases(size: int, taps: int, result: int, stride: int, before: int) -> Iterator[Phase]:
    """The phases of an axis, all of one length."""
    length = -(-result // stride)
    for rest in range(stride):
        ahead, first = divmod(rest + before, stride)
        count = -(-(taps - first) // stride)
        yield Phase(first, count, ahead - count + 1, length + ahead)


@frozen(eq=False)
class Transposed:
    """A transposed convolution: its sizes, and its window along each axis."""

    data: Sizes
    weight: Sizes
    result: Sizes
    sliding: tuple[Window, ...]
    groups: int
    dtype: DType

    @property
    def steps(self) -> Sizes:
        return tuple([each.stride for each in self.sliding])

    @property
    def lengths(self) -> Sizes:
        """How many results a phase has along each axis."""
        return tuple([-(-n // s) for n, s in zip(self.result[2:], self.steps, strict=True)])

    @property
    def spatial(self) -> Sizes:
        return tuple(range(2, len(self.data)))

    @property
    def axes(self) -> list[list[Phase]]:
        """The phases of each axis."""
        return [
            list(phases(size, taps, result, each.stride, each.before))
            for each, size, taps, result in zip(
                self.sliding, self.data[2:], self.weight[2:], self.result[2:], strict=True
            )
        ]


def found(m: PatternMatch) -> Transposed | None:
    """The matched convolution, or None if a size is unknown or it is empty."""
    return transposed(conv_transpose(m.x, m.w, m.strides, m.padding, m.dilation, m.groups, m.more))


def transposed(whole: Expr) -> Transposed | None:
    """A transposed convolution, or None if a size is unknown or it is empty."""
    assert isinstance(whole, Apply)
    sizes = [sizes_of(expr) for expr in (*whole.args, whole)]
    if any(size is None or 0 in size for size in sizes):
        return None
    data, weight, result = [size or () for size in sizes]
    settings, of = dict(whole.attrs), type_of(whole)
    assert isinstance(of, TensorType)
    sliding = windows("nn.conv_transpose", settings, len(data) - 2)
    groups = settings["groups"]
    assert isinstance(groups, int)
    return Transposed(data, weight, result, sliding, groups, of.dtype)


def sizes_of(value: Expr) -> Sizes | None:
    of = type_of(value)
    return static_shape(of) if isinstance(of, TensorType) else None


def within(x: Expr, of: Transposed, phase: Sequence[Phase]) -> tuple[Expr, Sides] | None:
    """The data that a phase reads, padded with zeros; None if it reads only zeros."""
    sides = [(-one.start, one.stop - size) for one, size in zip(phase, of.data[2:], strict=True)]
    starts = [max(0, -before) for before, _ in sides]
    stops = [min(size, one.stop) for one, size in zip(phase, of.data[2:], strict=True)]
    if any(start >= stop for start, stop in zip(starts, stops, strict=True)):
        return None
    if any(side < 0 for pair in sides for side in pair):
        x = slice_(x, tuple(starts), tuple(stops), axes=of.spatial)
    return x, tuple([(max(0, before), max(0, after)) for before, after in sides])


def empty(of: Transposed) -> Expr:
    """A phase without taps: sums of nothing."""
    return zeros((*of.result[:2], *of.lengths), of.dtype)


def with_padding(
    x: Expr, of: Transposed, axes: Sequence[Sequence[Phase]]
) -> tuple[list[int], Expr]:
    """The data with zeros where some phase reads outside, and at which place it begins."""
    starts = [min(0, *[phase.start for phase in axis]) for axis in axes]
    ends = [
        max(size, *[phase.stop for phase in axis])
        for axis, size in zip(axes, of.data[2:], strict=True)
    ]
    sides = [
        (-start, end - size) for start, end, size in zip(starts, ends, of.data[2:], strict=True)
    ]
    if not any(side for pair in sides for side in pair):
        return starts, x
    return starts, pad(x, ((0, 0), (0, 0), *sides))


def cut(x: Expr, of: Transposed, starts: Sequence[int], phase: Sequence[Phase]) -> Expr:
    """The part of the data that a phase reads."""
    stops = [s + each.stop - each.start for s, each in zip(starts, phase, strict=True)]
    if not any(starts) and sizes_of(x) == (*of.data[:2], *stops):
        return x
    return slice_(x, tuple(starts), tuple(stops), axes=of.spatial)


def reversed_taps(w: Expr, of: Transposed, phase: Sequence[Phase]) -> Expr:
    """The taps of a phase in reverse order: (out, channels / groups, …)."""
    last = [e.first + (e.taps - 1) * step for e, step in zip(phase, of.steps, strict=True)]
    back = tuple([-step for step in of.steps])
    part = slice_(w, tuple(last), (None,) * len(phase), back, of.spatial)
    channels, outputs, taps = of.weight[0], of.weight[1], [each.taps for each in phase]
    if of.groups == 1:
        return transpose(part, (1, 0, *of.spatial))
    split = reshape(part, (of.groups, channels // of.groups, outputs, *taps))
    swapped = transpose(split, (0, 2, 1, *[axis + 1 for axis in of.spatial]))
    return reshape(swapped, (of.groups * outputs, channels // of.groups, *taps))


def of_all_phases(w: Expr, of: Transposed, every: Sequence[Sequence[Phase]]) -> Expr:
    """The taps of all phases, which read the same pixels: a group has the outputs of each."""
    parts = [reversed_taps(w, of, phase) for phase in every]
    channels, taps = of.weight[0] // of.groups, [each.taps for each in every[0]]
    split = [reshape(part, (of.groups, of.weight[1], channels, *taps)) for part in parts]
    whole = concat(tuple(split), axis=1)
    return reshape(whole, (of.groups * len(every) * of.weight[1], channels, *taps))


def between(
    whole: Expr, of: Transposed, residues: Sequence[Sequence[int]] | None = None, groups: int = 1
) -> Expr:
    """The results of all phases interleaved along each axis, cut to the shape of the result.

    With results for only some adjacent `residues`, the others are zeros. The phases of each group
    of outputs are adjacent.
    """
    rank, (batch, outputs) = len(of.steps), of.result[:2]
    kept = residues or [range(step) for step in of.steps]
    every = reshape(whole, (batch, groups, *map(len, kept), outputs // groups, *of.lengths))
    order = [0, 1, rank + 2]
    for axis in range(rank):
        order += [rank + 3 + axis, axis + 2]
    sizes = tuple([length * step for length, step in zip(of.lengths, of.steps, strict=True)])
    turns = transpose(every, tuple(order))
    if any(len(each) < step for each, step in zip(kept, of.steps, strict=True)):
        sides: list[tuple[int, int]] = [(0, 0), (0, 0), (0, 0)]
        for each, step in zip(kept, of.steps, strict=True):
            sides += [(0, 0), (each[0], step - 1 - each[-1])]
        turns = pad(turns, tuple(sides))
    joined = reshape(turns, (batch, outputs, *sizes))
    if sizes == of.result[2:]:
        return joined
    return slice_(joined, (0,) * rank, of.result[2:], axes=of.spatial)
