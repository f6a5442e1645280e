"""Padding: an explicit `pad` becomes the padding of the convolution or pool behind it.

    before:  nn.conv(pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), w, padding=0)
    after:   nn.conv(x, w, padding=((1, 1), (1, 1)))

A convolution pads with zeros, so zero padding folds into it; max pooling ignores its padding, so
padding with the lowest number folds into it, and zeros do after a relu. Mean pooling counts padding
only on request, which is possible if the pad was all of it. Padding of examples or channels,
mirrored edges, and windows of padding alone are not folded.

Window elements that are always in the padding are cut off, with their weights:

    before:  nn.conv(x, w, padding=3)                        x of 3x3 pixels, windows of 7x7
    after:   nn.conv(x, w[:, :, 1:6, 1:6], padding=2)

A convolution between `space_to_batch` and `batch_to_space`, as TensorFlow writes dilated ones, is
dilated itself; transposes between the three move out:

    before:  batch_to_space(conv(space_to_batch(x, (1, 2, 2)), w), (1, 2, 2))
    after:   nn.conv(x, w, dilation=2)

Measure: each rule removes a pad, weights, or a transpose inside of such a pair.

>>> [rule.name for rule in PADDING][:2]
['conv-pad', 'conv-taps-outside']
"""

from __future__ import annotations

import math
from typing import Any, Final, TypeAlias

from plica.core import IllTyped
from plica.ir.contract import reassociates, signless_zero
from plica.ir.graph import Expr, Operator, const
from plica.ir.loop.scalar import index
from plica.ir.op.activation import relu
from plica.ir.op.convolution import conv
from plica.ir.op.pad import pad
from plica.ir.op.pixel import batch_to_space, space_to_batch
from plica.ir.op.pool import avg_pool, lowest, max_pool
from plica.ir.op.relation import FLOAT, NUMBER
from plica.ir.op.shape import transpose
from plica.ir.op.window import Window, sides, windows
from plica.ir.type import TensorType, known, same_type, type_of
from plica.rewrite.closed import are_finite, closed, value_of
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import hole, holes

Sides: TypeAlias = tuple[tuple[int, int], ...]


def is_zero(value: Any) -> bool:
    """Whether zeros are added, and none below zero."""
    return value == 0 and math.copysign(1.0, value) > 0


def is_low(value: Any) -> bool:
    """Whether a number could be the lowest of some dtype."""
    return value == float("-inf") or any(
        value == dtype.bounds[0] for dtype in NUMBER if not dtype.is_float
    )


def is_spatial(widths: Any) -> bool:
    """Whether neither examples nor channels are added."""
    if isinstance(widths, int):
        return widths == 0
    return not any(side for pair in widths[:2] for side in pair)


RANKS: Final = (3, 4, 5)
x: Any = hole("x", dtypes=NUMBER, rank=RANKS)
f: Any = hole("f", dtypes=FLOAT, rank=RANKS)
w: Any = hole("w", dtypes=NUMBER, rank=RANKS)
c: Any = closed("c", dtypes=NUMBER, rank=RANKS)
widths: Any = hole("widths", when=is_spatial)
zero: Any = hole("value", when=is_zero)
low: Any = hole("value", when=is_low)
strides, padding, dilation, groups, kernel, ceil = holes(
    "strides padding dilation groups kernel ceil"
)
in_zeros = pad(x, widths, "constant", zero)


def folded(m: PatternMatch, record: Operator, *args: Expr, **settings: Any) -> Expr | None:
    """The operator on the unpadded operand with more padding, or None if it cannot have that.

    `padding` is the operator's existing padding. A result of another size is rejected: if the last
    window may overhang, explicit padding counts differently.
    """
    more = spatial(m)
    own = sides(record.name, settings.pop("padding"), len(more))
    both = tuple((a + c, b + d) for (a, b), (c, d) in zip(own, more, strict=True))
    before = record(pad_of(m, args[0]), *args[1:], padding=own, **settings)
    after = record(*args, padding=both, **settings)
    try:
        return after if same_type(type_of(after), type_of(before)) else None
    except IllTyped:  # a window could lie in the padding alone
        return None


def pad_of(m: PatternMatch, data: Expr) -> Expr:
    """The pad as it was found."""
    return pad(data, m.widths, "constant", m.value)


def spatial(m: PatternMatch) -> Sides:
    """The padding along each window axis."""
    of = type_of(m.x if "x" in m.filling else m.f)
    assert isinstance(of, TensorType)
    return ((0, 0),) * (len(of.shape) - 2) if m.widths == 0 else m.widths[2:]


def is_lowest(m: PatternMatch) -> bool:
    """Whether the padding value is below every number of the dtype."""
    of = type_of(m.x)
    assert isinstance(of, TensorType)
    return bool(m.value == lowest(of.dtype).value)


def into_conv(m: PatternMatch) -> Expr | None:
    return folded(
        m, conv, m.x, m.w,
        strides=m.strides, padding=m.padding, dilation=m.dilation, groups=m.groups,
    )  # fmt: skip


def into_max_pool(m: PatternMatch) -> Expr | None:
    settings = {"kernel": m.kernel, "strides": m.strides, "padding": m.padding}
    return folded(m, max_pool, m.x, **settings, dilation=m.dilation, ceil_mode=m.ceil)


def behind_relu(m: PatternMatch) -> Expr | None:
    """Every window has a number in it, and that is not below zero; an empty axis has none."""
    of = type_of(m.f)
    assert isinstance(of, TensorType)
    if not all(known(size) for size in of.shape[2:]):
        return None
    if sum(side for pair in sides("nn.max_pool", m.padding, len(spatial(m))) for side in pair):
        return None  # of two paddings only the explicit one is zeros
    return folded(m, max_pool, relu(m.f), kernel=m.kernel, strides=m.strides, padding=0)


def into_avg_pool(m: PatternMatch) -> Expr | None:
    """A mean that counts all of its padding."""
    return folded(
        m, avg_pool, m.x,
        kernel=m.kernel, strides=m.strides, padding=m.padding, count_include_pad=True,
    )  # fmt: skip


def counts_alone(m: PatternMatch) -> Expr | None:
    """A mean without padding of its own counted all of the pad."""
    if any(side for pair in sides("nn.avg_pool", m.padding, len(spatial(m))) for side in pair):
        return None
    return into_avg_pool(m)


def reached(window: Window, size: int, kernel: int) -> tuple[int, int] | None:
    """The first and last window element that is ever inside along an axis; None if no window has
    any, or if the remaining window would start inside.

    >>> reached(Window(1, 1, 3, 3), 3, 7), reached(Window(1, 1, 1, 1), 3, 3)
    ((1, 5), (0, 2))
    """
    count = known(window.count("nn.conv", index(size), index(kernel))) or 0
    begins = range(-window.before, count * window.stride - window.before, window.stride)
    found = [
        at
        for at in range(kernel)
        if any(0 <= begin + at * window.dilation < size for begin in begins)
    ]
    if not found or found[0] * window.dilation > window.before:
        return None
    return found[0], found[-1]


def without_outside(m: PatternMatch) -> Expr | None:
    """The convolution with only the window elements that are ever inside."""
    data, weight = type_of(m.x), type_of(m.c)
    assert isinstance(data, TensorType)
    assert isinstance(weight, TensorType)
    given = {"strides": m.strides, "padding": m.padding, "dilation": m.dilation}
    sliding = windows("nn.conv", given, len(data.shape) - 2)
    cuts: dict[int, tuple[int, int]] = {}
    pads: list[tuple[int, int]] = []
    for axis, window in enumerate(sliding, 2):
        size, kernel = known(data.shape[axis]), known(weight.shape[axis])
        kept = reached(window, size, kernel) if size and kernel else None
        first, last = (0, (kernel or 1) - 1) if kept is None else kept
        less = window.dilation * ((kernel or 1) - 1 - last)
        if kept is not None and (first or less) and less <= window.after:
            cuts[axis] = first, last + 1
            pads.append((window.before - window.dilation * first, window.after - less))
        else:
            pads.append((window.before, window.after))
    if not cuts or not are_finite(m.c):  # zero times infinity is no number
        return None
    value = value_of(m.c)
    assert value is not None
    part = value[tuple([slice(*cuts.get(axis, (None,))) for axis in range(value.ndim)])]
    return conv(m.x, const(part, weight.dtype), m.strides, tuple(pads), m.dilation, m.groups)


def along_axes(given: Any, rank: int, nothing: Any) -> list[Any]:
    """What `space_to_batch` is given for its axes, for all axes but the first."""
    return [*(given or ()), *[nothing] * (rank - 1 - len(given or ()))]


def dilated(m: PatternMatch) -> Expr | None:
    """The dilated convolution of one over blocks of pixels; crops come off its padding."""
    data = type_of(m.x)
    assert isinstance(data, TensorType)
    rank = len(data.shape)
    blocks = along_axes(m.block, rank, 1)
    before, crops = (along_axes(of, rank, (0, 0)) for of in (m.sides, m.crops))
    own = sides("nn.conv", m.padding, rank - 2)
    padding = tuple([
        (a[0] + step * p[0] - c[0], a[1] + step * p[1] - c[1])
        for a, step, p, c in zip(before[1:], blocks[1:], own, crops[1:], strict=True)
    ])  # fmt: skip
    channels_too = blocks[0] > 1 or any((*before[0], *crops[0]))
    if channels_too or min(map(min, padding)) < 0:
        return None
    return conv(m.x, m.w, padding=padding, dilation=tuple(blocks[1:]), groups=m.groups)


def moved(m: PatternMatch, word: str, *, inward: bool) -> tuple[Any, Any, Any] | None:
    """Axes, blocks and sides on the other side of a transpose that keeps the order of blocks."""
    data = type_of(m.x)
    assert isinstance(data, TensorType)
    rank = len(data.shape)
    axes = tuple([axis % rank for axis in m.axes or range(rank - 1, -1, -1)])
    blocks, given = along_axes(m.block, rank, 1), along_axes(m[word], rank, (0, 0))
    places = [axis if inward else at for at, axis in enumerate(axes)]
    split = [
        axis for axis, place in zip(axes, places, strict=True) if axis and blocks[place - 1] > 1
    ]
    if axes[0] or split != sorted(split):
        return None
    order = axes[1:] if inward else [axes.index(axis) for axis in range(1, rank)]
    return axes, tuple([blocks[at - 1] for at in order]), tuple([given[at - 1] for at in order])


def behind_transpose(m: PatternMatch) -> Expr | None:
    """`space_to_batch` of the transposed tensor."""
    if (found := moved(m, "sides", inward=True)) is None:
        return None
    axes, blocks, sides_ = found
    return space_to_batch(transpose(m.x, axes), blocks, sides_, m.value)


def before_transpose(m: PatternMatch) -> Expr | None:
    """The transpose of `batch_to_space`."""
    if (found := moved(m, "crops", inward=False)) is None:
        return None
    axes, blocks, crops = found
    return transpose(batch_to_space(m.x, blocks, crops), axes)


in_lowest = pad(x, widths, "constant", low)
in_zeros_relu = pad(relu(f), widths, "constant", zero)
slides = (kernel, strides, padding)
greatest = max_pool(in_lowest, *slides, dilation, ceil)
counted = avg_pool(in_zeros, *slides, count_include_pad=True)
block, sides_, crops, axes, value = holes("block sides crops axes value")
in_blocks = conv(space_to_batch(x, block, sides_, zero), w, 1, padding, 1, groups)

# fmt: off
PADDING: Final[Pack] = pack(
    "padding",
    rule("conv-pad", conv(in_zeros, w, strides, padding, dilation, groups), into_conv),
    rule("conv-taps-outside", conv(x, c, strides, padding, dilation, groups), without_outside,
         float=reassociates),
    rule("max-pool-pad", greatest, into_max_pool, when=is_lowest),
    rule("max-pool-pad-relu", max_pool(in_zeros_relu, *slides), behind_relu, float=signless_zero),
    rule("avg-pool-pad", counted, into_avg_pool),
    rule("avg-pool-pad-alone", avg_pool(in_zeros, *slides), counts_alone),
    rule("conv-in-blocks", batch_to_space(in_blocks, block, crops), dilated),
    rule("transpose-blocks", transpose(space_to_batch(x, block, sides_, value), axes),
         behind_transpose),
    rule("blocks-transpose", batch_to_space(transpose(x, axes), block, crops), before_transpose),
    version="3",
    doc="An explicit pad becomes the padding of the convolution or pool behind it.",
)
# fmt: on
