"""Rows of pools: windows that are reduced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plica.frontend.measured import Piece, amount, matched, places
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.window import Slide, bordered, settled, slide
from plica.frontend.onnx.row.word import Row, along, direct, dtype, in_f32, like, rank, shape, to
from plica.frontend.onnx.run_time import lawful, pieces, size_from
from plica.frontend.sampled_place import window_places
from plica.ir.graph.expression import Expr
from plica.ir.op.namespace import op
from plica.ir.op.pool import lowest
from plica.ir.type import is_size, known, normal_dim, product, same_dim


def pool_window(node: OnnxNode) -> Slide:
    """How the windows of a pool lie."""
    kernel = node.integers("kernel_shape") or ()
    if node.rank() < 3 or len(kernel) != node.rank() - 2 or any(each < 1 for each in kernel):
        expected, found = f"{node.rank() - 2} sizes", str(kernel)
        node.malformed(f"{node.proto.op_type} takes a kernel for each axis.", expected, found)
    return slide(node, kernel)


def _max_pool(node: OnnxNode) -> list[Expr]:
    by_columns, window = node.flag("storage_order"), pool_window(node)
    x, settled_ = settled(node.x(), window, lowest(dtype(node.x())).value)
    how = {
        "kernel": settled_.kernel,
        "strides": settled_.strides,
        "padding": settled_.padding,
        "dilation": settled_.dilation,
        "ceil_mode": node.flag("ceil_mode"),
    }
    y = op.nn.max_pool(x, **how)
    if not any(node.proto.output[1:]):
        return [y]
    if window.cuts:
        node.unsupported("Places in a padding that depends on open sizes.", "known sizes")
    image = places(product(shape(x)[:2]))
    image = op.reshape(image, (*shape(x)[:2], *(1,) * (rank(x) - 2)))
    inside = window_places(x, y, how, by_columns)
    return [y, image * amount(product(shape(x)[2:])) + inside]


def _average_pool(node: OnnxNode) -> Expr:
    window = pool_window(node)
    ceil, padded = node.flag("ceil_mode"), node.flag("count_include_pad")
    if set(window.dilation) <= {1} and not window.cuts:
        return op.nn.avg_pool(
            node.x(),
            kernel=window.kernel,
            strides=window.strides,
            padding=window.padding,
            ceil_mode=ceil,
            count_include_pad=padded,
        )
    x = in_f32(_inhabited(node))
    held = op.full(shape=shape(x), value=1.0, dtype=dtype(x))
    held = bordered(held, window, 1.0 if padded else 0.0)
    total = _windows(node, bordered(x, window), window, ceil)
    return to(total / _windows(node, held, window, ceil), node.type().dtype)


def _windows(node: OnnxNode, x: Expr, window: Slide, ceil: bool) -> Expr:
    """The sum of each window of padded images."""
    count = len(window.kernel)
    extra = [(0, 0)] * count
    if ceil and not window.cuts:  # with auto_pad no window hangs over
        for at in range(count):
            size, stride = known(shape(x)[2 + at]), window.strides[at]
            if size is None:
                node.unsupported("ceil_mode with dilations needs known sizes.", "numbers")
            room = size - window.reach(at)
            number = -(-room // stride) + 1
            before = size - window.padding[at][1]
            if (number - 1) * stride >= before:
                number -= 1
            extra[at] = (0, max(0, (number - 1) * stride + window.reach(at) - size))
    padded = op.pad(x, ((0, 0), (0, 0), *extra))
    batch, planes, *spatial = shape(padded)
    channels = known(planes)
    # With an open number of channels, each becomes a separate image.
    images = padded if channels is not None else op.reshape(padded, (batch * planes, 1, *spatial))
    groups = 1 if channels is None else channels
    summed = op.nn.conv(
        images,
        op.full(shape=(groups, 1, *window.kernel), value=1.0, dtype=dtype(x)),
        strides=window.strides,
        dilation=window.dilation,
        groups=groups,
    )
    return (
        summed if channels is not None else op.reshape(summed, (batch, planes, *shape(summed)[2:]))
    )


def _inhabited(node: OnnxNode) -> Expr:
    """The images, which are not empty: pools of those that are have no value."""
    x = node.x()
    if 0 in map(known, shape(x)[2:]):
        message = f"{node.proto.op_type} over an empty axis has no value."
        node.malformed(message, "axes of size 1 or more", str(node.type()))
    least = tuple(size - 1 for size in shape(x)[2:] if known(size) is None)
    return op.match_shape(x, shape(x), least=least) if least else x


def _power(node: OnnxNode) -> int:
    p = node.integer("p", 2)
    if p < 1:
        node.malformed("The power of a norm is 1 or more.", "1 or more", str(p))
    return p


def _to_power(x: Expr, p: int) -> Expr:
    """Magnitudes to a power; those that vectors have instructions for are no powers."""
    match p:
        case 1:
            return op.absolute(x)
        case 2:
            return op.square(x)
        case _:
            return op.absolute(x) ** like(p, x)


def _to_root(total: Expr, p: int) -> Expr:
    """The root of a sum that is not negative, of which a square root is the power of a half."""
    match p:
        case 1:
            return total
        case 2:
            return op.sqrt(total)
        case _:
            return total ** like(1.0 / p, total)


def _lp_pool(node: OnnxNode) -> Expr:
    window = pool_window(node)
    p = _power(node)
    x = in_f32(_inhabited(node))
    powers = _to_power(bordered(x, window), p)
    total = _windows(node, powers, window, node.flag("ceil_mode"))
    return to(_to_root(total, p), node.type().dtype)


def _global_lp_pool(node: OnnxNode) -> Expr:
    x, p = in_f32(_inhabited(node)), _power(node)
    axes = tuple(range(2, rank(x)))
    total = op.sum(_to_power(x, p), axis=axes, keepdims=True)
    return to(_to_root(total, p), node.type().dtype)


def _max_unpool(node: OnnxNode) -> Expr:
    """Each element at its original index in the window's input, and zeros elsewhere, up to the
    requested size."""
    x, at, sizes = node.x(0), node.x(1), node.shape(0)
    window = pool_window(node)
    inner = [
        normal_dim((size - 1) * stride + (kernel - sum(sides)))
        for size, stride, sides, kernel in zip(
            sizes[2:], window.strides, window.padding, window.kernel, strict=True
        )
    ]
    whole = (*sizes[:2], *inner)
    wanted: list[Piece] = list(whole) if node.value(2) is None else pieces(node, 2)
    if node.rank(1) != len(sizes) or len(wanted) != len(whole):
        node.malformed("Each element has a place.", str(node.type(0)), str(node.type(1)))
    for mine, other in zip(sizes, node.shape(1), strict=True):
        if None not in (known(mine), known(other)) and known(mine) != known(other):
            node.malformed("Each element has a place.", str(node.type(0)), str(node.type(1)))
    if any((number := known(size)) is not None and number < 0 for size in inner):
        node.malformed("MaxUnpool makes nothing less than empty.", "0 or more", str(inner))
    least = tuple(size for size in inner if not is_size(size))
    x = op.match_shape(x, sizes, least=least) if least else x
    nothing = op.full(shape=(product(whole),), value=0, dtype=dtype(x))
    flat = op.scatter_elements(
        nothing, *(op.reshape(expr, (product(sizes),)) for expr in (matched(at, sizes), x))
    )
    return _extended(node, op.reshape(flat, whole), wanted)


def _extended(node: OnnxNode, x: Expr, wanted: Sequence[Piece]) -> Expr:
    """x with zeros behind it, as large as asked, which is no less than it is."""
    for axis, (mine, piece) in enumerate(zip(shape(x), wanted, strict=True)):
        if not isinstance(piece, Expr) and same_dim(mine, size_from(node, piece)):
            continue
        length, size = amount(mine), amount(piece)
        after = node.measured(lawful(size, length <= size, "room"), axis)
        at = places(after)
        if known(mine) == 0:
            sizes = tuple(after if o == axis else s for o, s in enumerate(shape(x)))
            x = op.full(shape=sizes, value=0, dtype=dtype(x))
            continue
        inside = along(at < length, axis, rank(x))
        x = op.where(inside, op.take(x, at, axis=axis, mode="clip"), like(0, x))
    return x


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "MaxPool":           _max_pool,
    "AveragePool":       _average_pool,
    "LpPool":            _lp_pool,
    "GlobalAveragePool": direct(op.nn.global_avg_pool),
    "GlobalMaxPool":     direct(op.nn.global_max_pool),
    "GlobalLpPool":      _global_lp_pool,
    "MaxUnpool": _max_unpool,
}
# fmt: on
