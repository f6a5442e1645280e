"""Pixels: images (n, c, h, w) whose channels and pixels are exchanged or repeated.

>>> from plica.ir.type.term import tensor
>>> found = depth_to_space.relation(
...     {"block": 2, "column_row_depth": False}, tensor((1, 8, 3, 5), "f32")
... )
>>> [size.value for size in found.shape]
[1, 2, 6, 10]
"""

from __future__ import annotations

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Values
from plica.ir.loop.scalar import Buffer, FloorDiv, index
from plica.ir.loop.tensor import Compute, compute
from plica.ir.op.attribute import attribute, flag, positive
from plica.ir.op.cotangent import sum_
from plica.ir.op.record import composite, primitive, tensor_of
from plica.ir.op.relation import Shape, rank_at_least, refuse
from plica.ir.op.shape import reshape, transpose
from plica.ir.type.dim import product, quotient
from plica.ir.type.term import TensorType


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
    "nn.depth_to_space",
    ("x",),
    lambda attrs, x: TensorType(_blocks("nn.depth_to_space", x, attrs["block"], True), x.dtype),
    _depth_to_space,
    "Channels as blocks of pixels: (n, c, h, w) to (n, c/b², h·b, w·b).",
    attributes=(_BLOCK, attribute("column_row_depth", flag, False)),
    onnx=("DepthToSpace",),
)
space_to_depth = composite(
    "nn.space_to_depth",
    ("x",),
    lambda attrs, x: TensorType(_blocks("nn.space_to_depth", x, attrs["block"], False), x.dtype),
    _space_to_depth,
    "Blocks of pixels as channels: (n, c, h, w) to (n, c·b², h/b, w/b).",
    attributes=(_BLOCK,),
    onnx=("SpaceToDepth",),
)


def _upsample_rule(attrs: Values, x: TensorType) -> TensorType:
    rank_at_least("nn.upsample", x, 3)
    scale = index(attrs["scale"])
    return TensorType((*x.shape[:2], *(product((s, scale)) for s in x.shape[2:])), x.dtype)


def _upsample_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    scale = index(attrs["scale"])
    return compute((x,), out.shape, lambda n, c, *i: x[(n, c, *(FloorDiv(at, scale) for at in i))])


def _upsample_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    shape, scale = tensor_of(x).shape, index(attrs["scale"])
    parts = [each for size in shape[2:] for each in (size, scale)]
    inner = tuple(range(3, 2 + len(parts), 2))
    return [sum_(reshape(d, (*shape[:2], *parts)), axis=inner)]


upsample = primitive(
    "nn.upsample",
    ("x",),
    _upsample_rule,
    _upsample_body,
    "Each pixel of (n, c, …) as a block of itself: the nearest neighbour.",
    attributes=(attribute("scale", positive),),
    gradient=_upsample_pullback,
)
