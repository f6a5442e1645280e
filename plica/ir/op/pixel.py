"""Pixels: images whose pixels are exchanged with channels or examples, or repeated.

>>> from plica.ir.type.term import tensor
>>> found = depth_to_space.relation(
...     {"block": 2, "column_row_depth": False}, tensor((1, 8, 3, 5), "f32")
... )
>>> [size.value for size in found.shape]
[1, 2, 6, 10]
"""

from __future__ import annotations

import math
from typing import Any

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Values
from plica.ir.loop.scalar import Buffer, FloorDiv, index
from plica.ir.loop.tensor import Compute, compute
from plica.ir.op.attribute import attribute, flag, many, number, optional, pairs, positive
from plica.ir.op.cotangent import pad, slice_, sum_
from plica.ir.op.record import composite, primitive, tensor_of
from plica.ir.op.relation import Shape, literal, rank_at_least, refuse
from plica.ir.op.shape import reshape, transpose
from plica.ir.type import TensorType, known, normal_dim, product, quotient


def _blocks(name: str, x: TensorType, block: int, deep: bool) -> Shape:
    """Batch, channels, height and width after the move."""
    if len(x.shape) != 4:
        refuse("shape-conflict", f"{name} takes images (n, c, h, w).", "rank 4", str(x))
    n, c, h, w = x.shape
    b = index(block)
    if deep:
        fewer = quotient(c, index(block * block))
        result = None if fewer is None else (n, fewer, product((h, b)), product((w, b)))
    else:
        rows, columns = quotient(h, b), quotient(w, b)
        more = product((c, index(block * block)))
        result = None if rows is None or columns is None else (n, more, rows, columns)
    if result is None:
        refuse("shape-conflict", f"{name}: blocks of {block} do not divide.", None, str(x))
    return result


def _depth_to_space(attrs: Values, x: Expr) -> Expr:
    block, of = attrs["block"], tensor_of(x)
    n, _, h, w = of.shape
    fewer = _blocks("nn.depth_to_space", of, block, True)
    b = index(block)
    if attrs["column_row_depth"]:
        parts, order = (n, fewer[1], b, b, h, w), (0, 1, 4, 2, 5, 3)
    else:
        parts, order = (n, b, b, fewer[1], h, w), (0, 3, 4, 1, 5, 2)
    return reshape(transpose(reshape(x, parts), order), fewer)


def _space_to_depth(attrs: Values, x: Expr) -> Expr:
    block, of = attrs["block"], tensor_of(x)
    n, c, _, _ = of.shape
    deeper = _blocks("nn.space_to_depth", of, block, False)
    b = index(block)
    split = reshape(x, (n, c, deeper[2], b, deeper[3], b))
    return reshape(transpose(split, (0, 3, 5, 1, 2, 4)), deeper)


_BLOCK = attribute("block", positive)
depth_to_space = composite(
    "nn.depth_to_space", ("x",),
    lambda attrs, x: TensorType(_blocks("nn.depth_to_space", x, attrs["block"], True), x.dtype),
    _depth_to_space, "Move channels into blocks of pixels: (n, c, h, w) to (n, c/b², h·b, w·b).",
    attributes=(_BLOCK, attribute("column_row_depth", flag, False)), onnx=("DepthToSpace",),
)  # fmt: skip
space_to_depth = composite(
    "nn.space_to_depth", ("x",),
    lambda attrs, x: TensorType(_blocks("nn.space_to_depth", x, attrs["block"], False), x.dtype),
    _space_to_depth, "Move blocks of pixels into channels: (n, c, h, w) to (n, c·b², h/b, w/b).",
    attributes=(_BLOCK,), onnx=("SpaceToDepth",),
)  # fmt: skip


def _batched(name: str, attrs: Values, x: TensorType) -> tuple[tuple[int, ...], Any]:
    """The block sizes of the axes after the first, and the padding or cropping of each."""
    blocks = attrs["block"]
    rank_at_least(name, x, 1 + len(blocks))
    sides = attrs["sides"] or ((0, 0),) * len(blocks)
    if len(sides) != len(blocks):
        message = f"{name} takes a pair of sides for each block."
        refuse("bad-attribute", message, f"{len(blocks)} pairs", str(len(sides)))
    return blocks, sides


def _to_batch_rule(attrs: Values, x: TensorType) -> TensorType:
    blocks, sides = _batched("nn.space_to_batch", attrs, x)
    literal("nn.space_to_batch", attrs["value"], x.dtype)
    fewer = [
        quotient(normal_dim(size + sum(side)), index(block))
        for size, side, block in zip(x.shape[1:], sides, blocks, strict=False)
    ]
    sizes = [scalar for scalar in fewer if scalar is not None]
    if len(sizes) < len(fewer):
        message = "nn.space_to_batch: the blocks do not divide the padded axes."
        refuse("shape-conflict", message, f"multiples of {blocks}", str(x))
    n = product((x.shape[0], index(math.prod(blocks))))
    return TensorType((n, *sizes, *x.shape[1 + len(blocks) :]), x.dtype)


def _space_to_batch(attrs: Values, x: Expr) -> Expr:
    of = tensor_of(x)
    blocks, sides = _batched("nn.space_to_batch", attrs, of)
    out, count = _to_batch_rule(attrs, of).shape, len(blocks)
    rest = out[1 + count :]
    x = pad(x, ((0, 0), *sides, *((0, 0),) * len(rest)), constant_values=attrs["value"])
    parts = [scalar for pair in zip(out[1:], map(index, blocks), strict=False) for scalar in pair]
    inner = tuple(range(2, 2 + 2 * count, 2))
    order = (*inner, 0, *(at - 1 for at in inner), *range(1 + 2 * count, 1 + 2 * count + len(rest)))
    return reshape(transpose(reshape(x, (of.shape[0], *parts, *rest)), order), out)


def _to_space_rule(attrs: Values, x: TensorType) -> TensorType:
    blocks, sides = _batched("nn.batch_to_space", attrs, x)
    if (n := quotient(x.shape[0], index(math.prod(blocks)))) is None:
        message = "nn.batch_to_space: the blocks do not divide the batch."
        refuse("shape-conflict", message, f"a multiple of {math.prod(blocks)}", str(x))
    sizes = []
    for size, block, side in zip(x.shape[1:], blocks, sides, strict=False):
        sizes.append(normal_dim(size * block - sum(side)))
        if (known(sizes[-1]) or 0) < 0:
            message = "nn.batch_to_space cuts away more than there is."
            refuse("shape-conflict", message, f"at most {sum(side)}", str(x))
    return TensorType((n, *sizes, *x.shape[1 + len(blocks) :]), x.dtype)


def _batch_to_space(attrs: Values, x: Expr) -> Expr:
    of = tensor_of(x)
    blocks, sides = _batched("nn.batch_to_space", attrs, of)
    out, count = _to_space_rule(attrs, of).shape, len(blocks)
    rest = of.shape[1 + count :]
    spread = reshape(x, (*map(index, blocks), out[0], *of.shape[1:]))
    pairs = [at for number_ in range(count) for at in (count + 1 + number_, number_)]
    order = (count, *pairs, *range(2 * count + 1, 2 * count + 1 + len(rest)))
    whole = [size * block for size, block in zip(of.shape[1:], blocks, strict=False)]
    joined = reshape(transpose(spread, order), (out[0], *whole, *rest))
    if not any(map(any, sides)):
        return joined
    starts = tuple(before for before, _ in sides)
    stops = tuple(before + size for (before, _), size in zip(sides, out[1:], strict=False))
    return slice_(joined, starts, stops, axes=tuple(range(1, 1 + count)))


_BLOCKS = attribute("block", many(positive))
_SIDES = attribute("sides", optional(pairs), None)
space_to_batch = composite(
    "nn.space_to_batch", ("x",), _to_batch_rule, _space_to_batch,
    "Pad, then move blocks of the spatial axes into the batch.",
    attributes=(_BLOCKS, _SIDES, attribute("value", number, 0)),
)  # fmt: skip
batch_to_space = composite(
    "nn.batch_to_space", ("x",), _to_space_rule, _batch_to_space,
    "Move the batch into blocks of the spatial axes, then crop.",
    attributes=(_BLOCKS, _SIDES),
)  # fmt: skip


def _upsample_rule(attrs: Values, x: TensorType) -> TensorType:
    rank_at_least("nn.upsample", x, 3)
    scale = index(attrs["scale"])
    return TensorType((*x.shape[:2], *(product((s, scale)) for s in x.shape[2:])), x.dtype)


def _upsample_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    scale = index(attrs["scale"])
    return compute((x,), out.shape, lambda n, c, *i: x[(n, c, *(FloorDiv(at, scale) for at in i))])


def _upsample_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    shape, scale = tensor_of(x).shape, index(attrs["scale"])
    parts = [scalar for size in shape[2:] for scalar in (size, scale)]
    inner = tuple(range(3, 2 + len(parts), 2))
    return [sum_(reshape(d, (*shape[:2], *parts)), axis=inner)]


upsample = primitive(
    "nn.upsample", ("x",), _upsample_rule, _upsample_body,
    "Nearest-neighbour upsampling of (n, c, …).",
    attributes=(attribute("scale", positive),), gradient=_upsample_pullback,
)  # fmt: skip
