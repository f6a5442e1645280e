"""Wide: products of narrow floats are made of wide ones, for machines that multiply no others.

    before:  nn.conv(x, w, padding=1)                                              of f16 or bf16
    after:   cast(nn.conv(cast(x, "f32"), cast(w, "f32"), padding=1), "f16")

A product of narrow floats is defined by its f32 sum, rounded once at the end: the right side says
the same, to the bit. Weights are constants, so their cast is folded; that of the data joins the
epilogue of the previous kernel. A window's maximum is one of its numbers, so it is the same in f32,
which has vector instructions.

A norm in f32 behind such a product moves its scale into the weight; the rounding between the two
disappears, which changes a result by no more than reordering the sum.

    before:  cast(cast(nn.conv(x, w), "f32") * s + a, "f16")
    after:   cast(nn.conv(cast(x, "f32"), cast(w, "f32") * s') + a, "f16")

    before:  nn.max_pool(x, kernel=(5, 5), strides=1)                        25 comparisons each
    after:   nn.max_pool(nn.max_pool(x, kernel=(5, 1), strides=1), kernel=(1, 5), strides=1)      10

A large window is reduced axis by axis, which shares work between overlapping windows. Means
likewise.

Measure: each rule removes a contraction or a window of narrow floats, or an axis of a window.

>>> [rule.name for rule in WIDE][:2]
['wide-matmul', 'wide-nn-batch-matmul']
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import prod
from typing import Any, Final

import attrs

from plica.core import Term
from plica.ir.contract import approx, reassociates
from plica.ir.graph import Apply, Expr, Operator
from plica.ir.op.convolution import conv, conv_transpose
from plica.ir.op.elementwise import cast
from plica.ir.op.linear import batch_matmul, dense, matmul
from plica.ir.op.pool import avg_pool, max_pool, sliding_windows
from plica.ir.op.relation import NUMBER
from plica.ir.type import DType, bf16, f16, f32, known
from plica.rewrite.closed import are_finite, closed
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.composite import own_dtype
from plica.rewrite.packs.scale import LAYERS, LinearLayer, lies_along
from plica.rewrite.packs.word import FirstFilled, tensor
from plica.rewrite.pattern import either, hole
from plica.rewrite.rule import Rule

CONTRACTIONS: Final = (matmul, batch_matmul, dense, conv, conv_transpose)
NARROW: Final = (f16, bf16)

x: Any = hole("x", dtypes=NARROW)
y: Any = hole("y", dtypes=NARROW)
s, a = closed("s", dtypes=f32), closed("a", dtypes=f32)
n: Any = hole("n", dtypes=NUMBER - frozenset(NARROW), rank=(4, 5))

MIN_VECTOR_RATIO: Final = 2
"""The minimum ratio of vectors read by the window to those read axis by axis."""


def by_axes(pool: Operator, m: PatternMatch) -> Expr | None:
    """The maximum or mean along the first window axis, then along the others; None if that reads
    more than half as many vectors. The number of counted elements of a window is the product of
    those along its axes, so the mean of means is the mean."""
    settings = {attribute.name: getattr(m, attribute.name) for attribute in pool.attributes}
    rank = len(tensor(m.n).shape) - 2
    kernel, sliding = sliding_windows(pool.name, settings, rank)
    wide_ = [at for at in range(rank) if kernel[at] > 1]
    strides = [each.stride for each in sliding]
    # Rows that are read in strides are as many vectors as a stride is long.
    apart = sum(kernel[at] * prod(strides[min(at + 1, rank - 1) :]) for at in wide_)
    if len(wide_) < 2 or prod(kernel) * strides[-1] < MIN_VECTOR_RATIO * apart:
        return None
    for size, window, k in zip(tensor(m.n).shape[2:], sliding, kernel, strict=True):
        if not known(size) and window.before + window.after > (k - 1) * window.dilation:
            return None  # there may be nothing but padding, which other axes do not have

    def along(x: Expr, axes: Sequence[int]) -> Expr:
        def own(values: Iterable[Any], other: Any) -> tuple[Any, ...]:  # Any: of any attribute
            return tuple(each if at in axes else other for at, each in enumerate(values))

        windows = {
            "kernel": own(kernel, 1),
            "strides": own((each.stride for each in sliding), 1),
            "padding": own(((each.before, each.after) for each in sliding), (0, 0)),
            "dilation": own((each.dilation for each in sliding), 1),
        }
        return pool(x, **{name: windows.get(name, value) for name, value in settings.items()})

    return along(along(m.n, wide_[:1]), [at for at in range(rank) if at != wide_[0]])


def wide(record: Operator, *operands: Any) -> Rule:
    """The rule of one operator, whatever its attributes are."""
    settings: dict[str, Any] = {each.name: hole(each.name) for each in record.attributes}
    name = record.name.replace(".", "-").replace("_", "-")
    expr = record(*(cast(operand, dtype=f32) for operand in operands), **settings)
    left = record(*operands, **settings)
    return rule(f"wide-{name}", left, cast(expr, dtype=own_dtype(None, operands[0])))


@attrs.frozen
class ScalesWideOutputs:
    """A guard: finite factors along the channels of the result of a layer."""

    layer: LinearLayer

    def __call__(self, m: PatternMatch) -> bool:
        axis = self.layer.outputs[0](self.layer.settings(m))
        along = lies_along(m.s, axis, self.layer.found(m))
        return along and are_finite(cast(m.w, dtype=f32), m.s)


def norm_behind(layer: LinearLayer, narrow: DType) -> Rule:
    """The rule for one layer with an f32 scale per output."""
    slides = any(attribute.name == "groups" for attribute in layer.record.attributes)
    # A vector on the right leaves a product without the axis before the last.
    ranks = layer.ranks if slides else (2, 3, 4, 5) if layer.data == 1 else None
    data: Any = hole("x", dtypes=narrow, rank=ranks)
    expr = cast(layer.pattern(data, (narrow,)), dtype=f32)
    times = either(expr * s, s * expr)
    left = cast(either(times, times + a, a + times), dtype=narrow)
    weight = layer.scaled_weight("outputs", cast(hole("w"), dtype=f32), s)
    whole = layer.on(cast(data, dtype=f32), weight)
    right = FirstFilled((cast(whole + a, dtype=narrow), cast(whole, dtype=narrow)))
    return rule(
        f"{narrow}-{layer.slug}-norm", left, right, when=ScalesWideOutputs(layer),
        float=reassociates,
    )  # fmt: skip


def is_used_elsewhere(node: Term, using: Sequence[Term]) -> bool:
    """A product with other users, directly or through its cast: it would be computed twice."""
    return isinstance(node, Apply) and (node.op == "cast" or node.op in LINEAR)


LINEAR: Final = frozenset(layer.record.name for layer in LAYERS)

WIDE_SCALE: Final[Pack] = pack(
    "wide-scale",
    *(norm_behind(layer, narrow) for layer in LAYERS for narrow in NARROW),
    version="1",
    doc="Norms of f32 behind products of narrow floats have their scales in the weights.",
    whole=is_used_elsewhere,
)

_SETTINGS: Final[dict[str, Any]] = {each.name: hole(each.name) for each in max_pool.attributes}
_AVERAGED: Final[dict[str, Any]] = {each.name: hole(each.name) for each in avg_pool.attributes}

WIDE: Final[Pack] = pack(
    "wide",
    *(wide(contraction, x, y) for contraction in CONTRACTIONS),
    wide(max_pool, x),
    rule("max-pool-by-axes", max_pool(n, **_SETTINGS), partial(by_axes, max_pool)),
    rule(
        "avg-pool-by-axes", avg_pool(n, **_AVERAGED), partial(by_axes, avg_pool), float=approx(1e-5)
    ),
    version="1",
    doc="Products of narrow floats made of wide ones, and wide windows axis by axis.",
)
