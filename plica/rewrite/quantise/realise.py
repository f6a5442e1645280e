"""Realise: operations on dequantised numbers become operations on the integers themselves.

    before:  quantise(nn.relu(nn.conv(dequantise(x, s, 0), dequantise(w, t, 0)) + b), u, 0)
    after:   cast(clip(fixed_multiply(nn.conv(cast(x, i32), cast(w, i32)) + b', m, n), 0, 127), i8)

Rules move `dequantise` towards the result until it meets a `quantise`; there the two become one
integer rescaling (`plica.rewrite.quantise.word`), a shift if scales are powers of two
(`plica.rewrite.quantise.form`). A layer keeps its sums in 32 bits, so only quantised values are
rounded, once. Operators without a rule stay in floats, between a `dequantise` and a `quantise`.

Note [Steps]: a change of scale in whole numbers is exact, that in floats is not, so a number next
to the middle of two steps may go to the other.  The contract of such rules is one step of a byte.

Measure: `dequantise` moves towards the result, never back, or disappears.

>>> [rule.name for rule in REALISE][:3]
['integer-conv', 'integer-dense', 'integer-matmul']
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from plica.ir.contract import reassociates
from plica.ir.graph.expression import Expr
from plica.ir.op.activation import relu
from plica.ir.op.convolution import conv
from plica.ir.op.elementwise import clip
from plica.ir.op.linear import dense, matmul
from plica.ir.op.pad import pad
from plica.ir.op.pool import avg_pool, global_avg_pool
from plica.ir.op.reduction import mean, sum_
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import either, hole, holes
from plica.rewrite.quantise.arrange import CARRIERS, TABLED, carried, padded, tabled
from plica.rewrite.quantise.layer import (
    averaged,
    biased,
    layer,
    rescaled_bytes,
    rescaled_sums,
    windowed,
)
from plica.rewrite.quantise.rescale import behind_clip, behind_relu, joined, rescaled, summed
from plica.rewrite.quantise.word import STEP, bytes_, c, f, into, least, most, tensor, weight, whole
from plica.rewrite.rule import Rule

conv_attributes = [hole(attribute.name) for attribute in conv.attributes]
matmul_attributes = [hole(attribute.name) for attribute in matmul.attributes]
axis, keepdims, kernel, strides, padding, ceil, counts, width, mode, value = holes(
    "axis keepdims kernel strides padding ceil counts width mode value"
)


def tables() -> Iterator[Rule]:
    """A rule for each operator of the two lists."""
    yield from (carried(name) for name in CARRIERS)
    yield from (tabled(name) for name in TABLED)


def spatial(m: PatternMatch) -> tuple[int, ...]:
    """All axes of an image but the first two."""
    return tuple(range(2, len(tensor(m.x).shape)))


def mean_of(m: PatternMatch) -> Expr | None:
    """A mean over the axes it says."""
    return averaged(m, m.axis, m.keepdims)


def sum_of(m: PatternMatch) -> Expr | None:
    """A sum over the axes it says."""
    return averaged(m, m.axis, m.keepdims, mean=False)


def global_of(m: PatternMatch) -> Expr | None:
    """A mean over whole images."""
    return averaged(m, spatial(m), keepdims=True)


convolved: Any = conv(bytes_, weight, *conv_attributes)
multiplied: Any = matmul(bytes_, weight, *matmul_attributes)
pooled: Any = avg_pool(bytes_, kernel, strides, padding, ceil, counts)
means, totals = mean(bytes_, axis, keepdims), sum_(bytes_, axis, keepdims)
biases: Any = either(whole + c, c + whole)
scales: Any = either(whole * c, c * whole)
factors: Any = either(bytes_ * c, c * bytes_)

# fmt: off
REALISE: Final[Pack] = pack(
    "realise",
    rule("integer-conv",     convolved,                  layer(conv, 0, None), float=reassociates),
    rule("integer-dense",    dense(bytes_, weight),      layer(dense, 0, 0),   float=reassociates),
    rule("integer-matmul",   multiplied,                 layer(matmul, -1, 0), float=reassociates),
    rule("integer-bias",     biases,                     biased,               float=STEP),
    rule("scale-sums",       scales,                     rescaled_sums,        float=reassociates),
    rule("scale-bytes",      factors,                    rescaled_bytes,       float=reassociates),
    rule("integer-mean",     means,                      mean_of,              float=reassociates),
    rule("integer-sum",      totals,                     sum_of,               float=reassociates),
    rule("integer-global",   global_avg_pool(bytes_),    global_of,            float=reassociates),
    rule("integer-avg-pool", pooled,                     windowed,             float=reassociates),
    rule("integer-pad",      pad(bytes_, width, mode, value), padded),
    rule("quantise-relu",    into(relu(f)),              behind_relu),
    rule("quantise-clip",    into(clip(f, least, most)), behind_clip),
    rule("rescale-sums",     into(whole),                rescaled,             float=STEP),
    rule("rescale-bytes",    into(bytes_),               rescaled,             float=STEP),
    rule("integer-add",      into(f),                    summed,               float=STEP),
    rule("integer-concat",   into(f),                    joined),
    tables(),
    version="1",
    doc="What is computed of restored numbers is computed of the integers themselves.",
)
# fmt: on
