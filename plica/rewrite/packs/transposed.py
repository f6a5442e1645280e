"""Transposed: a transposed convolution becomes an ordinary one, on parts of its window.

A result at place i of an axis has the taps k of the window for which stride divides i + before - k.
So places that leave the same rest have the same taps: they are an ordinary convolution with these,
reversed.  Such a phase is a group of channels, and the results of all are interleaved:

    before:  nn.conv_transpose(x, w, strides=2, padding=1)                      w of 4 x 4
    after:   nn.conv(the pixels that each phase reads, windows of 2 x 2, groups=4), in turns

Phases that read the same pixels, as in a 4 x 4 window without padding, become outputs of one
convolution, adjacent in each group of channels. If phases have different numbers of taps, each is a
separate convolution, and one without taps is zeros. If only one has taps, its results are spread
with zeros between them; if no phase with taps has results, all are zeros. Strides of one have one
phase, which is scheduled directly unless it has groups. For an image of one pixel every result has
one tap: that is a matrix product. Few outputs of many channels are a matrix product too, of all
taps with all pixels: a phase sums rows of it.

Measure: each rule removes a transposed convolution.

>>> [rule.name for rule in TRANSPOSED]
['conv-transpose-pixel', 'conv-transpose-product', 'conv-transpose-turned', 'conv-transpose-phases']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np
from attrs import evolve

from plica.ir.contract import reassociates
from plica.ir.graph.expression import Expr, const
from plica.ir.op.convolution import conv, conv_transpose
from plica.ir.op.create import zeros
from plica.ir.op.cut import slice_, unslice
from plica.ir.op.elementwise import add
from plica.ir.op.join import concat
from plica.ir.op.linear import matmul
from plica.ir.op.pad import pad
from plica.ir.op.relation import FLOAT
from plica.ir.op.shape import reshape, transpose
from plica.ir.op.window import windows
from plica.ir.type import TensorType, f32, normal_dim, static_shape, tensor, type_of
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.phase import (
    Phase,
    Sizes,
    Transposed,
    between,
    cut,
    empty,
    found,
    of_all_phases,
    reversed_taps,
    sizes_of,
    with_padding,
    within,
)
from plica.rewrite.pattern import hole, holes

Choose: TypeAlias = Callable[[Sequence[Any]], Any]  # Any: whatever the sequence holds

MAX_PHASES: Final = 32  # this many phases, at most
MAX_IDLE_OUTPUTS: Final = 8  # outputs that leave most lanes of a vector without work
MIN_CHANNELS_PER_OUTPUT: Final = 4
"""Channels for each output that make adding up rows a small part of the work."""


def is_apart(strides: Any) -> bool:
    """Whether results have different taps."""
    steps = strides if isinstance(strides, tuple) else (strides,)
    return bool(1 < max(steps, default=1) <= MAX_PHASES)


def is_close(strides: Any) -> bool:
    """Whether all results have the same taps."""
    return set(strides if isinstance(strides, tuple) else (strides,)) == {1}


def is_dense(dilation: Any) -> bool:
    """Whether a window has no gaps."""
    return set(dilation if isinstance(dilation, tuple) else (dilation,)) == {1}


x: Any = hole("x", dtypes=FLOAT, rank=(3, 4, 5))
w: Any = hole("w", dtypes=FLOAT, rank=(3, 4, 5))
known: Any = hole("w", constant=True, dtypes=FLOAT, rank=(3, 4, 5))
apart: Any = hole("strides", when=is_apart)
close: Any = hole("strides", when=is_close)
several: Any = hole("groups", when=lambda groups: groups > 1)
dense: Any = hole("dilation", when=is_dense)
strides, padding, groups, more = holes("strides padding groups more")


# --- phases ---------------------------------------------------------------------------------------


def by_phases(m: PatternMatch) -> Expr | None:
    """The phases of a transposed convolution, interleaved."""
    of = found(m)
    if of is None:
        return by_open_phases(m)
    if not 1 < prod(of.steps) <= MAX_PHASES:
        return None
    axes = of.axes
    residues = [
        [at for at, phase in enumerate(axis) if phase.taps > 0 and at < result]
        for axis, result in zip(axes, of.result[2:], strict=True)
    ]
    if not all(residues):
        return zeros(of.result, of.dtype)
    if all(len(residue) == 1 for residue in residues):
        return spread(m, of, axes, [rest for (rest,) in residues])
    if all(residue == list(range(residue[0], residue[-1] + 1)) for residue in residues):
        axes = [[axis[at] for at in residue] for axis, residue in zip(axes, residues, strict=True)]
    else:
        residues = [list(range(step)) for step in of.steps]
    padding, data = with_padding(m.x, of, axes)
    every = list(product(*axes))

    def read(phase: Sequence[Phase]) -> Expr:
        return cut(data, of, [p.start - at for p, at in zip(phase, padding, strict=True)], phase)

    if len({tuple([(each.taps, each.start) for each in phase]) for phase in every}) == 1:
        taps, seen = of_all_phases(m.w, of, every), within(m.x, of, every[0])
        part, sides = seen or (read(every[0]), 0)
        return between(conv(part, taps, padding=sides, groups=of.groups), of, residues, of.groups)
    if len({tuple([each.taps for each in phase]) for phase in every}) == 1:
        count, weights = len(every) * of.groups, [reversed_taps(m.w, of, phase) for phase in every]
        whole = conv(concat(tuple(map(read, every)), axis=1), concat(tuple(weights)), groups=count)
    else:
        parts = [
            empty(of) if min(each.taps for each in phase) < 1
            else conv(read(phase), reversed_taps(m.w, of, phase), groups=of.groups)
            for phase in every
        ]  # fmt: skip
        whole = concat(tuple(parts), axis=1)
    return between(whole, of, residues)


def turned_around(m: PatternMatch) -> Expr | None:
    """The one phase of steps of one: an ordinary convolution, with padding around the data."""
    of = found(m)
    if of is None:
        return None
    phase = [one for (one,) in of.axes]
    if (seen := within(m.x, of, phase)) is None:
        return None
    part, sides = seen
    return conv(part, reversed_taps(m.w, of, phase), padding=sides, groups=of.groups)


def spread(
    m: PatternMatch, of: Transposed, axes: Sequence[Sequence[Phase]], residues: Sequence[int]
) -> Expr:
    """The results of the one phase that has taps, strided; the elements between them are zeros."""
    phase = []
    for axis, rest, length, result, step in zip(
        axes, residues, of.lengths, of.result[2:], of.steps, strict=True
    ):
        missing = length - -(-(result - rest) // step)
        phase.append(evolve(axis[rest], stop=axis[rest].stop - missing))
    padding, data = with_padding(m.x, of, [[each] for each in phase])
    part = cut(data, of, [p.start - at for p, at in zip(phase, padding, strict=True)], phase)
    results = conv(part, reversed_taps(m.w, of, phase), groups=of.groups)
    ends = (None,) * len(phase)
    return unslice(results, tuple(residues), ends, of.steps, axes=of.spatial, shape=of.result)


# --- open sizes -----------------------------------------------------------------------------------


def by_open_phases(m: PatternMatch) -> Expr | None:
    """The phases of an image whose size is open, each as long as the image is.

    None if sizes are known, or some phase has no taps or a different number of results.
    """
    result = conv_transpose(m.x, m.w, m.strides, m.padding, m.dilation, m.groups, m.more)
    data, made, weight = type_of(m.x), type_of(result), sizes_of(m.w)
    assert isinstance(data, TensorType)
    assert isinstance(made, TensorType)
    if weight is None or static_shape(data) is not None or 0 in weight:
        return None
    settings = {"strides": m.strides, "padding": m.padding, "dilation": m.dilation}
    sliding = windows("nn.conv_transpose", settings, len(weight) - 2)
    steps = [window.stride for window in sliding]
    lengths = data.shape[2:]
    wanted = zip(made.shape[2:], lengths, steps, strict=True)
    if any(normal_dim(size) is not normal_dim(length * step) for size, length, step in wanted):
        return None
    # A phase needs the size only for its reach, which one pixel determines as well.
    one = Transposed(
        (1, weight[0], *[1] * len(steps)), weight, (1, 1, *steps), sliding, m.groups, made.dtype
    )
    every = list(product(*one.axes))
    if prod(steps) > MAX_PHASES or any(p.taps < 1 or p.start > 0 for each in every for p in each):
        return None
    weights = [reversed_taps(m.w, one, phases) for phases in every]
    sides = [tuple([(-p.start, p.stop - 1) for p in phases]) for phases in every]
    if m.groups == 1 and len({*sides}) == 1:
        whole = conv(m.x, concat(tuple(weights)), padding=sides[0])
    else:
        pairs = zip(weights, sides, strict=True)
        parts = [conv(m.x, expr, padding=side, groups=m.groups) for expr, side in pairs]
        whole = concat(tuple(parts), axis=1)
    rank, outputs = len(steps), weight[1] * m.groups
    apart_ = reshape(whole, (data.shape[0], *steps, outputs, *lengths))
    order = [0, rank + 1]
    for axis in range(rank):
        order += [rank + 2 + axis, axis + 1]
    return reshape(transpose(apart_, tuple(order)), made.shape)


# --- few outputs ----------------------------------------------------------------------------------


def by_product(m: PatternMatch) -> Expr | None:
    """The products of all taps with all pixels, added up for each phase."""
    of = found(m)
    if of is None or of.groups != 1 or prod(of.steps) > MAX_PHASES:
        return None
    (batch, channels), outputs = of.data[:2], of.weight[1]
    if outputs > MAX_IDLE_OUTPUTS or channels < MIN_CHANNELS_PER_OUTPUT * outputs:
        return None
    axes = of.axes
    taps, pixels = of.weight[2:], prod(of.data[2:])
    rows = transpose(reshape(m.w, (channels, outputs * prod(taps))), (1, 0))
    every = matmul(rows, reshape(m.x, (batch, channels, pixels)))
    expr = reshape(every, (batch, outputs, *taps, *of.data[2:]))
    parts = [tapped(expr, of, phase) for phase in product(*axes)]
    return between(concat(tuple(parts), axis=1), of)


def tapped(every: Expr, of: Transposed, phase: Sequence[Phase]) -> Expr:
    """The sum of a phase's taps, from the last to the first, each one pixel further."""
    rank = len(phase)
    total: Expr | None = None
    for at in product(*[range(each.taps) for each in phase]):
        taps = [p.first + (p.taps - 1 - n) * s for p, n, s in zip(phase, at, of.steps, strict=True)]
        starts = [p.start + n for p, n in zip(phase, at, strict=True)]
        one = slice_(
            every, tuple(taps), tuple([n + 1 for n in taps]), axes=tuple(range(2, 2 + rank))
        )
        rows = reshape(one, (*of.result[:2], *of.data[2:]))
        read = shifted(rows, of, starts)
        total = read if total is None else add(total, read)
    return empty(of) if total is None else total


def shifted(x: Expr, of: Transposed, starts: Sequence[int]) -> Expr:
    """As many pixels as a phase has, from a place on; 0 outside."""
    stops = [start + length for start, length in zip(starts, of.lengths, strict=True)]
    inside = zip(starts, stops, of.data[2:], strict=True)
    sides = [(max(0, -start), max(0, stop - size)) for start, stop, size in inside]
    cuts = [
        (max(0, start), min(stop, size))
        for start, stop, size in zip(starts, stops, of.data[2:], strict=True)
    ]
    if any(start >= stop for start, stop in cuts):
        return empty(of)
    lows, highs = (tuple([cut[n] for cut in cuts]) for n in (0, 1))
    part = slice_(x, lows, highs, axes=of.spatial)
    return pad(part, ((0, 0), (0, 0), *sides)) if any(map(any, sides)) else part


# --- pixels ---------------------------------------------------------------------------------------


def of_a_pixel(m: PatternMatch) -> Expr | None:
    """The product of the channels of one pixel with all taps."""
    of = found(m)
    if of is None or prod(of.data[2:]) != 1 or of.groups != 1 or of.result[2:] != of.weight[2:]:
        return None
    if any(window.before or window.after for window in of.sliding):
        return None
    if not np.isfinite(m.w.numpy().astype(np.float64)).all():
        return None  # where there is no pixel stands a zero, which no such number leaves one
    taps = reshape(m.w, (of.weight[0], prod(of.weight[1:])))
    return reshape(matmul(reshape(m.x, of.data[:2]), taps), of.result)


# --- what the rules are tried on ------------------------------------------------------------------


def few_outputs(choose: Choose) -> dict[str, Any]:
    """Few outputs of many channels, which nothing but this would draw."""
    rank = choose((1, 2))
    outputs = choose((1, 2))
    channels = MIN_CHANNELS_PER_OUTPUT * outputs + choose((0, 1, 5))
    taps, pixels = ([choose((1, 2, 3)) for _ in range(rank)] for _ in range(2))
    stride, before = choose((1, 2, 3)), choose((0, 0, 1))
    return {
        "x": tensor((choose((1, 2)), channels, *pixels), f32),
        "w": drawn((channels, outputs, *taps), choose),
        "strides": stride, "padding": min(before, min(taps) - 1),
        "dilation": 1, "groups": 1, "more": choose((0, stride - 1)),
    }  # fmt: skip


def one_pixel(choose: Choose) -> dict[str, Any]:
    """One pixel of several channels, sometimes of more than one block of a sum."""
    rank, channels = choose((1, 2)), choose((2, 3, 5, 130))
    taps = [choose((1, 2, 3)) for _ in range(rank)]
    return {
        "x": tensor((choose((1, 2)), channels, *[1] * rank), f32),
        "w": drawn((channels, choose((1, 2, 3)), *taps), choose),
        "strides": choose((1, 2)), "padding": 0, "dilation": 1, "groups": 1, "more": 0,
    }  # fmt: skip


def drawn(shape: Sizes, choose: Choose) -> Expr:
    """Weights of full mantissas, or of so few digits that their products are exact."""
    source = np.random.default_rng(choose(range(1 << 16)))
    digits = choose((None, 3, 3))
    values = source.uniform(-2, 2, shape)
    return const((values if digits is None else np.rint(values * digits)).astype(np.float32))


pixel = conv_transpose(x, known, strides, padding, dense, groups, more)
few = conv_transpose(x, known, strides, padding, dense, groups, more)
flat = conv_transpose(x, known, close, padding, dense, several, more)
whole = conv_transpose(x, w, apart, padding, dense, groups, more)

# fmt: off
TRANSPOSED: Final[Pack] = pack(
    "transposed",
    rule("conv-transpose-pixel",   pixel, of_a_pixel, float=reassociates, instances=one_pixel),
    rule("conv-transpose-product", few,   by_product, float=reassociates, instances=few_outputs),
    rule("conv-transpose-turned",  flat,  turned_around, float=reassociates),
    rule("conv-transpose-phases",  whole, by_phases,  float=reassociates),
    version="5",
    doc="Rewrite transposed convolutions as ordinary ones.",
)
# fmt: on
