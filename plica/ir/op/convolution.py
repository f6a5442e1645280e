"""Convolutions of one, two or three spatial axes: (n, c, …) with (out, c / groups, …).

Groups split channels and outputs; as many groups as channels make it depthwise.  Padding is zeros.

>>> from plica.ir.type.term import tensor
>>> _, attrs = conv.bind((1.0, 1.0), {"padding": 1, "strides": 2})
>>> x, w = tensor((1, 3, 8, 8), "f32"), tensor((4, 3, 3, 3), "f32")
>>> [size.value for size in conv.relation(dict(attrs), x, w).shape]
[1, 4, 4, 4]
"""

from __future__ import annotations

from collections.abc import Sequence

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Values
from plica.ir.loop.scalar import Buffer, Eq, FloorDiv, FloorMod, Le, Lit, Lt, Scalar, index
from plica.ir.loop.tensor import Compute
from plica.ir.op.attribute import attribute, natural, per_axis as per_axis_reader, positive
from plica.ir.op.cotangent import reshape, slice_, sum_, transpose
from plica.ir.op.linear import sum_of_products
from plica.ir.op.pad import guarded
from plica.ir.op.record import plus, primitive, tensor_of, times
from plica.ir.op.relation import NUMBER, need, per_axis, rank_is, refuse, same, shown
from plica.ir.op.window import DILATION, PADDING, STRIDES, windows
from plica.ir.type import TensorType, known, normal_dim, product, quotient, same_dim

_GROUPS = attribute("groups", positive, 1)


def _ranks(name: str, x: TensorType, weight: TensorType) -> int:
    rank = len(x.shape)
    if not 3 <= rank <= 5:
        message = f"{name} takes (n, c, …) with one to three spatial axes."
        refuse("shape-conflict", message, "rank 3 to 5", str(x))
    rank_is(name, "the weight", weight, rank)
    return rank - 2


def _share(name: str, what: str, whole: Scalar, groups: int) -> Scalar:
    if (part := quotient(whole, index(groups))) is None:
        message = f"{name}: {what} are shared out evenly among groups."
        refuse("shape-conflict", message, f"a multiple of {groups}", shown((whole,)))
    return part


def _conv_rule(attrs: Values, x: TensorType, weight: TensorType) -> TensorType:
    rank = _ranks("nn.conv", x, weight)
    groups = attrs["groups"]
    channels = product((weight.shape[1], index(groups)))
    same("nn.conv", "the channels and the weight's, times groups,", x.shape[1], channels)
    _share("nn.conv", "outputs", weight.shape[0], groups)
    sliding = windows("nn.conv", attrs, rank)
    places = zip(sliding, x.shape[2:], weight.shape[2:], strict=True)
    sizes = tuple(window.count("nn.conv", size, kernel) for window, size, kernel in places)
    return TensorType((x.shape[0], weight.shape[0], *sizes), x.dtype)


def _conv_body(attrs: Values, out: TensorType, x: Buffer, weight: Buffer) -> Compute:
    sliding = windows("nn.conv", attrs, len(x.shape) - 2)
    groups, per_group = attrs["groups"], weight.shape[1]
    outputs = _share("nn.conv", "outputs", weight.shape[0], groups)

    def factors(i: Sequence[Scalar], k: Sequence[Scalar]) -> Sequence[Scalar]:
        n, o, *at = i
        c, *inner = k
        channel = c
        if groups > 1:
            group = o if known(outputs) == 1 else FloorDiv(o, outputs)
            channel = plus(times(group, per_group), c)
        places = [w.place(a, b) for w, a, b in zip(sliding, at, inner, strict=True)]
        checks = [
            check
            for window, place, size in zip(sliding, places, x.shape[2:], strict=True)
            for check in window.inside(place, size)
        ]
        value = guarded(checks, x[(n, channel, *places)], Lit(0, x.dtype))
        return value, weight[(o, c, *inner)]

    return sum_of_products((x, weight), out.shape, weight.shape[1:], factors)


def conv_pullback(attrs: Values, d: Expr, y: Expr, x: Expr, weight: Expr) -> list[Expr | None]:
    """The cotangents of data and weight."""
    return [_by_data(attrs, d, x, weight), by_weight(attrs, x, d, weight)]


def _by_data(attrs: Values, d: Expr, x: Expr, weight: Expr) -> Expr:
    """The transposed convolution, as long as the data was."""
    shape, kernel = tensor_of(x).shape[2:], tensor_of(weight).shape[2:]
    sliding = windows("nn.conv", attrs, len(shape))
    extra: list[int] = []
    exact = True
    for window, size, k in zip(sliding, shape, kernel, strict=True):
        room = known(normal_dim(plus(size, window.before + window.after) - window.reach(k)))
        # Elements past the last window are unused; with open sizes their number is unknown.
        extra.append(window.stride - 1 if room is None else room % window.stride)
        exact = exact and (room is not None or window.stride == 1)
    how = {name: attrs[name] for name in ("strides", "padding", "dilation", "groups")}
    expr = conv_transpose(d, weight, **how, output_padding=tuple(extra))
    spatial = tuple(range(2, 2 + len(shape)))
    return expr if exact else slice_(expr, (0,) * len(shape), shape, axes=spatial)


def by_weight(attrs: Values, data: Expr, windows_: Expr, weight: Expr) -> Expr:
    """The cotangent of a weight: data slid over by what came of the windows, strides and dilation
    exchanged, with examples in the place of channels.

    (n, g·c, …) and (n, g·o, …) give (g·o, c, …): groups are independent.
    """
    groups = attrs["groups"]
    types = tensor_of(data), tensor_of(windows_), tensor_of(weight)
    (n, channels, *sizes), (_, outputs, *counts) = (tensor_type.shape for tensor_type in types[:2])
    rank = len(sizes)
    own = _share("nn.conv", "channels", channels, groups)
    spatial = range(3, 3 + rank)
    if groups > 1:
        grouped = reshape(data, (n, index(groups), own, *sizes))
        turned = transpose(grouped, (2, 1, 0, *spatial))
        data = reshape(turned, (own, product((index(groups), n)), *sizes))
    else:
        data = transpose(data, (1, 0, *range(2, 2 + rank)))
    how = {"strides": attrs["dilation"], "padding": attrs["padding"], "dilation": attrs["strides"]}
    if groups == 1 and _fits_apart(*types):
        # Computes one example at a time, then sums: reused data stays in cache.
        kernel = reshape(windows_, (product((n, outputs)), index(1), *counts))
        every = conv(data, kernel, **how, groups=known(n))
        over = windows("nn.conv", how, rank)
        places = [w.count("nn.conv", s, k) for w, s, k in zip(over, sizes, counts, strict=True)]
        total = sum_(reshape(every, (channels, n, product((outputs, *places)))), axis=(1,))
        expr = reshape(total, (channels, outputs, *places))
    else:
        kernel = transpose(windows_, (1, 0, *range(2, 2 + rank)))
        expr = conv(data, kernel, **how, groups=groups)
    wanted = types[2].shape[2:]
    sliding = windows("nn.conv", attrs, rank)
    exact = all(
        same_dim(plus(size, w.before + w.after), w.reach(k) + times(plus(count, -1), w.stride))
        for w, size, k, count in zip(sliding, sizes, wanted, counts, strict=True)
    )
    if not exact:
        expr = slice_(expr, (0,) * rank, wanted, axes=tuple(range(2, 2 + rank)))
    return transpose(expr, (1, 0, *range(2, 2 + rank)))


def _fits_apart(data: TensorType, windows_: TensorType, weight: TensorType) -> bool:
    """Whether the per-example weight gradients are smaller than their operands."""
    sizes = [known(product(tensor_type.shape[1:])) for tensor_type in (data, windows_)]
    made, n = known(product(weight.shape)), known(data.shape[0])
    if made is None or None in sizes or n is None or n < 2:
        return False
    return made <= sum([size or 0 for size in sizes])


conv = primitive(
    "nn.conv", ("x", "weight"), _conv_rule, _conv_body,
    "The cross-correlation of (n, c, …) with (out, c / groups, …).",
    attributes=(STRIDES, PADDING, DILATION, _GROUPS), admits=NUMBER, onnx=("Conv",),
    aliases=("nn.conv1d", "nn.conv2d", "nn.conv3d"), gradient=conv_pullback,
)  # fmt: skip

# --- the transposed convolution ------------------------------------------------------------------


def _transpose_rule(attrs: Values, x: TensorType, weight: TensorType) -> TensorType:
    name = "nn.conv_transpose"
    rank = _ranks(name, x, weight)
    same(name, "the channels and the weight's", x.shape[1], weight.shape[0])
    _share(name, "channels", x.shape[1], attrs["groups"])
    sliding = windows(name, attrs, rank)
    extra = per_axis(name, "output padding", attrs["output_padding"], rank)
    sizes = []
    for window, size, kernel, more in zip(
        sliding, x.shape[2:], weight.shape[2:], extra, strict=True
    ):
        whole = times(plus(size, -1), window.stride) + window.reach(kernel)
        sizes.append(normal_dim(plus(whole, more - window.before - window.after)))
    if any((known(size) or 0) < 0 for size in sizes) or any(known(s) == 0 for s in x.shape[2:]):
        message = f"{name}: the padding leaves nothing."
        refuse("shape-conflict", message, "less padding", str(attrs["padding"]))
    for size in (*sizes, *[plus(dim, -1) for dim in x.shape[2:]]):
        need(size)
    outputs = product((weight.shape[1], index(attrs["groups"])))
    return TensorType((x.shape[0], outputs, *sizes), x.dtype)


def _transpose_body(attrs: Values, out: TensorType, x: Buffer, weight: Buffer) -> Compute:
    sliding = windows("nn.conv_transpose", attrs, len(x.shape) - 2)
    groups, outputs = attrs["groups"], weight.shape[1]
    per_group = _share("nn.conv_transpose", "channels", x.shape[1], groups)

    def factors(i: Sequence[Scalar], k: Sequence[Scalar]) -> Sequence[Scalar]:
        n, o, *at = i
        c, *inner = k
        channel, own = c, o
        if groups > 1:
            group = o if known(outputs) == 1 else FloorDiv(o, outputs)
            own = index(0) if known(outputs) == 1 else FloorMod(o, outputs)
            channel = plus(times(group, per_group), c)
        places: list[Scalar] = []
        taps: list[Scalar] = []  # between pixels there is nothing, not a zero times a weight
        checks: list[Scalar] = []
        for window, a, b, size in zip(sliding, at, inner, x.shape[2:], strict=True):
            reached = plus(a, window.before) - times(b, window.dilation)
            stride = index(window.stride)
            place = reached if window.stride == 1 else FloorDiv(reached, stride)
            if window.stride > 1:
                taps.append(Eq(FloorMod(reached, stride), index(0)))
            checks += [Le(index(0), place), Lt(place, size)]
            places.append(place)
        value = guarded([*taps, *checks], x[(n, channel, *places)], Lit(0, x.dtype))
        return value, guarded(taps, weight[(channel, own, *inner)], Lit(0, x.dtype))

    extents = (per_group, *weight.shape[2:])
    return sum_of_products((x, weight), out.shape, extents, factors)


def conv_transpose_pullback(
    attrs: Values, d: Expr, y: Expr, x: Expr, weight: Expr
) -> list[Expr | None]:
    """The same of a transposed convolution."""
    shape = tensor_of(x).shape[2:]
    how = {name: attrs[name] for name in ("strides", "padding", "dilation", "groups")}
    extra = per_axis("nn.conv_transpose", "output padding", attrs["output_padding"], len(shape))
    strides = per_axis("nn.conv_transpose", "stride", attrs["strides"], len(shape))
    by_x = conv(d, weight, **how)
    if any(more >= stride for more, stride in zip(extra, strides, strict=True)):
        by_x = slice_(by_x, (0,) * len(shape), shape, axes=tuple(range(2, 2 + len(shape))))
    return [by_x, by_weight(how, d, x, weight)]


conv_transpose = primitive(
    "nn.conv_transpose", ("x", "weight"), _transpose_rule, _transpose_body,
    "The transpose of a convolution: (n, c, …) with (c, out / groups, …).",
    attributes=(
        STRIDES,
        PADDING,
        DILATION,
        _GROUPS,
        attribute("output_padding", per_axis_reader(natural), 0),
    ),
    admits=NUMBER, onnx=("ConvTranspose",),
    aliases=("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose"),
    gradient=conv_transpose_pullback,
)  # fmt: skip
