"""The table: one row for each operator of TFLite, by the number that files have for it.

Images are (n, h, w, c) in files, and (n, c, h, w) in convolutions and pools here.

>>> TABLE[14][0], NAMES["CONV_2D"]
('LOGISTIC', 3)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from plica.frontend.tflite.node import TfliteNode, many
from plica.frontend.word import like, rank, to
from plica.ir.graph.expression import Expr, const
from plica.ir.op.namespace import op

Row: TypeAlias = Callable[[TfliteNode], "Expr | Sequence[Expr]"]
Pads: TypeAlias = "tuple[tuple[int, int], ...]"


def _unary(of: Callable[[Expr], Expr]) -> Row:
    return lambda node: of(node.x())


def _binary(of: Callable[[Expr, Expr], Expr], fused: bool = False) -> Row:
    def row(node: TfliteNode) -> Expr:
        expr = of(node.x(0), node.x(1))
        return node.activated(expr, 0) if fused else expr

    return row


def _reduction(of: Callable[..., Expr]) -> Row:
    def row(node: TfliteNode) -> Expr:
        axes = node.constant(1)
        return of(node.x(), axis=axes, keepdims=bool(node.options.byte(0))) if axes else node.x()

    return row


def _pads(padding: int, sizes: Sequence[int], windows: Sequence[int], strides: Sequence[int]
          ) -> Pads:  # fmt: skip
    """No padding, or what makes a result of one element per stride."""
    if padding == 1:
        return ((0, 0),) * len(sizes)
    found = []
    for size, window, stride in zip(sizes, windows, strides, strict=True):
        total = max((-(-size // stride) - 1) * stride + window - size, 0)
        found.append((total // 2, total - total // 2))
    return tuple(found)


def _convolution(groups: bool) -> Row:
    def row(node: TfliteNode) -> Expr:
        x, w, options = node.x(0), node.x(1), node.options
        first = 4 if groups else 3
        strides = options.number(2, 1), options.number(1, 1)
        dilation = options.number(first + 2, 1), options.number(first + 1, 1)
        (_, high, wide, channels), filter_sizes = node.sizes(0, 4), node.sizes(1, 4)
        if min(*strides, *dilation, channels, filter_sizes[3]) < 1:
            node.refuse("A convolution has steps and channels.", "1 or more", "0")
        windows = [(k - 1) * d + 1 for k, d in zip(filter_sizes[1:3], dilation, strict=True)]
        pads = _pads(options.byte(0), (high, wide), windows, strides)
        order = (3, 0, 1, 2) if groups else (0, 3, 1, 2)
        count = channels if groups else channels // filter_sizes[3]
        expr = op.nn.conv(
            op.transpose(x, axes=(0, 3, 1, 2)), op.transpose(w, axes=order), strides=strides,
            padding=pads, dilation=dilation, groups=count,
        )  # fmt: skip
        expr = op.transpose(expr, axes=(0, 2, 3, 1))
        bias = node.maybe(2)
        return node.activated(expr if bias is None else expr + bias, first)

    return row


def _pool(of: Callable[..., Expr]) -> Row:
    def row(node: TfliteNode) -> Expr:
        x, options = node.x(), node.options
        strides = options.number(2, 1), options.number(1, 1)
        kernel = options.number(4, 1), options.number(3, 1)
        if min(strides) < 1:
            node.refuse("A pool has steps.", "1 or more", str(min(strides)))
        pads = _pads(options.byte(0), node.sizes(0, 4)[1:3], kernel, strides)
        expr = of(op.transpose(x, axes=(0, 3, 1, 2)), kernel=kernel, strides=strides, padding=pads)
        return node.activated(op.transpose(expr, axes=(0, 2, 3, 1)), 5)

    return row


def _fully_connected(node: TfliteNode) -> Expr:
    x, w, bias = node.x(0), node.x(1), node.maybe(2)
    if node.options.byte(1):
        node.refuse("Weights are stored shuffled.", "rows", str(node.options.byte(1)))
    flat = op.reshape(x, shape=(-1, node.sizes(1, 2)[1]))
    expr = op.matmul(flat, op.transpose(w, axes=(1, 0)))
    expr = op.reshape(expr if bias is None else expr + bias, shape=node.shapes[0])
    return node.activated(expr, 0)


def _batch_matmul(node: TfliteNode) -> Expr:
    sides = []
    for at in range(2):
        x = node.x(at)
        if rank(x) < 2:
            node.refuse("A factor is a matrix.", "rank 2 or more", str(rank(x)))
        axes = (*range(rank(x) - 2), rank(x) - 1, rank(x) - 2)
        sides.append(op.transpose(x, axes=axes) if node.options.byte(at) else x)
    return op.matmul(*sides)


def _reshape(node: TfliteNode) -> Expr:
    return op.reshape(node.x(), shape=node.shapes[0])


def _softmax(node: TfliteNode) -> Expr:
    return op.nn.softmax(node.x() * like(node.options.real(0), node.x()), axis=-1)


def _concatenation(node: TfliteNode) -> Expr:
    axis = node.axis(node.options.number(0), len(node.shapes[0]))
    if node.options.byte(1):  # interpreters compute none
        node.refuse("A concatenation has an activation.", "none", str(node.options.byte(1)))
    return op.concat(many(node.args), axis=axis)


def _pad(node: TfliteNode) -> Expr:
    sizes = node.sizes()
    flat = node.constant(1, 2 * len(sizes))
    pairs = tuple(zip(flat[::2], flat[1::2], strict=True))
    if (value := node.maybe(2)) is None:
        return op.pad(node.x(), pad_width=pairs)
    inside = op.pad(op.full(shape=sizes, dtype="bool", value=1), pad_width=pairs)
    return op.where(inside, op.pad(node.x(), pad_width=pairs), value)


def _slice(node: TfliteNode) -> Expr:
    sizes = node.sizes()
    begins, counts = (node.constant(at, len(sizes)) for at in (1, 2))
    stops = [
        size if count < 0 else begin + count
        for begin, count, size in zip(begins, counts, sizes, strict=True)
    ]
    return op.slice(node.x(), starts=begins, stops=tuple(stops))


def _strided_slice(node: TfliteNode) -> Expr:
    options = node.options
    if options.number(2) or options.number(3) or options.byte(5):
        node.refuse("A slice with an ellipsis, a new axis or an offset.", "plain axes", "others")
    sizes, count = node.sizes(), len(node.constant(1))
    rows = [*zip(*[node.constant(at, count) for at in (1, 2, 3)], strict=True)]
    if count > len(sizes) or any(step == 0 for *_, step in rows) or 0 in sizes[:count]:
        node.refuse("A slice has steps and elements.", f"{len(sizes)} axes", str(rows))
    starts, stops, steps = [], [], []
    for axis, (begin, end, step) in enumerate(rows):
        size, bit = sizes[axis], 1 << axis
        if options.number(4) & bit:
            begin %= size
            bounds = begin, begin + 1, 1
        else:
            first = None if options.number(0) & bit else begin
            last = None if options.number(1) & bit else end
            bounds = slice(first, last, step).indices(size)
        starts.append(bounds[0])
        stops.append(-size - 1 if bounds[2] < 0 and bounds[1] < 0 else bounds[1])
        steps.append(bounds[2])
    axes = tuple(range(len(starts)))
    expr = op.slice(
        node.x(), starts=tuple(starts), stops=tuple(stops), steps=tuple(steps), axes=axes
    )
    return op.reshape(expr, shape=node.shapes[0])


def _parts(x: Expr, axis: int, sizes: Sequence[int]) -> list[Expr]:
    found, start = [], 0
    for size in sizes:
        found.append(op.slice(x, starts=(start,), stops=(start + size,), axes=(axis,)))
        start += size
    return found


def _split(node: TfliteNode) -> list[Expr]:
    axis = node.axis(node.constant(0, 1)[0], rank(node.x(1)))
    return _parts(node.x(1), axis, [shape[axis] for shape in node.shapes if axis < len(shape)])


def _unpack(node: TfliteNode) -> list[Expr]:
    axis = node.axis(node.options.number(1), rank(node.x()))
    parts = _parts(node.x(), axis, [1] * len(node.shapes))
    return [op.reshape(part, shape=of) for part, of in zip(parts, node.shapes, strict=True)]


def _pack(node: TfliteNode) -> Expr:
    return op.stack(many(node.args), axis=node.axis(node.options.number(1), len(node.shapes[0])))


def _gather(node: TfliteNode) -> Expr:
    if node.options.number(1):
        node.refuse("A gather with batch axes.", "0", str(node.options.number(1)))
    axis = node.axis(node.options.number(0), rank(node.x()))
    return op.take(node.x(0), node.x(1), axis=axis)


def _arg(of: Callable[..., Expr]) -> Row:
    return lambda node: to(of(node.x(), axis=node.constant(1, 1)[0]), node.dtypes[0])


def _blocks(of: Callable[..., Expr]) -> Row:
    def row(node: TfliteNode) -> Expr:
        flat = node.constant(2, 2 * len(node.constant(1)))
        pairs = tuple(zip(flat[::2], flat[1::2], strict=True))
        return of(node.x(), block=node.constant(1), sides=pairs)

    return row


def _depth_to_space(node: TfliteNode) -> Expr:
    (n, high, wide, depth), b = node.sizes(0, 4), node.block()
    apart = op.reshape(node.x(), shape=(n, high, wide, b, b, depth // (b * b)))
    return op.reshape(op.transpose(apart, axes=(0, 1, 3, 2, 4, 5)), shape=node.shapes[0])


def _space_to_depth(node: TfliteNode) -> Expr:
    (n, high, wide, depth), b = node.sizes(0, 4), node.block()
    apart = op.reshape(node.x(), shape=(n, high // b, b, wide // b, b, depth))
    return op.reshape(op.transpose(apart, axes=(0, 1, 3, 2, 4, 5)), shape=node.shapes[0])


def _select(node: TfliteNode) -> Expr:
    c, x, y = node.x(0), node.x(1), node.x(2)
    if node.name == "SELECT" and rank(c) not in (0, rank(x)):
        node.refuse("A condition selects rows.", f"rank {rank(x)}", f"rank {rank(c)}")
    return op.where(c, x, y)


def _leaky_relu(node: TfliteNode) -> Expr:
    return op.nn.leaky_relu(node.x(), alpha=node.options.real(0))


def _gelu(node: TfliteNode) -> Expr:
    return op.nn.gelu(node.x(), approximate="tanh" if node.options.byte(0) else "none")


def _prelu(x: Expr, alpha: Expr) -> Expr:
    return op.where(x >= like(0, x), x, alpha * x)


def _hard_swish(x: Expr) -> Expr:
    return x * op.nn.relu6(x + like(3, x)) / like(6, x)


def _shape_of(node: TfliteNode) -> Expr:
    return const(np.array(node.sizes(), node.dtypes[0].numpy), node.dtypes[0])


# fmt: off
TABLE: Final[dict[int, tuple[str, Row]]] = {
    **{number: (name, _unary(of)) for number, name, of in (
        (8, "FLOOR", op.floor), (14, "LOGISTIC", op.sigmoid), (19, "RELU", op.nn.relu),
        (21, "RELU6", op.nn.relu6), (28, "TANH", op.tanh), (47, "EXP", op.exp),
        (59, "NEG", op.negative), (66, "SIN", op.sin), (73, "LOG", op.log), (75, "SQRT", op.sqrt),
        (76, "RSQRT", op.rsqrt), (87, "LOGICAL_NOT", op.logical_not), (92, "SQUARE", op.square),
        (93, "ZEROS_LIKE", op.zeros_like), (101, "ABS", op.absolute), (104, "CEIL", op.ceil),
        (108, "COS", op.cos), (111, "ELU", op.nn.elu), (116, "ROUND", op.round),
        (117, "HARD_SWISH", _hard_swish), (158, "SIGN", op.sign),
    )},
    **{number: (name, _binary(of)) for number, name, of in (
        (54, "PRELU", _prelu), (55, "MAXIMUM", op.maximum), (57, "MINIMUM", op.minimum),
        (58, "LESS", op.less), (61, "GREATER", op.greater), (62, "GREATER_EQUAL", op.greater_equal),
        (63, "LESS_EQUAL", op.less_equal), (71, "EQUAL", op.equal), (72, "NOT_EQUAL", op.not_equal),
        (78, "POW", op.power), (84, "LOGICAL_OR", op.logical_or),
        (86, "LOGICAL_AND", op.logical_and),
    )},
    0: ("ADD", _binary(lambda x, y: x + y, True)),
    1: ("AVERAGE_POOL_2D", _pool(op.nn.avg_pool)),
    2: ("CONCATENATION", _concatenation),
    3: ("CONV_2D", _convolution(False)),
    4: ("DEPTHWISE_CONV_2D", _convolution(True)),
    5: ("DEPTH_TO_SPACE", _depth_to_space),
    6: ("DEQUANTIZE", lambda node: to(node.x(), node.dtypes[0])),
    9: ("FULLY_CONNECTED", _fully_connected),
    11: ("L2_NORMALIZATION", lambda node: op.nn.l2_normalize(node.x(), axis=-1, epsilon=1e-6)),
    17: ("MAX_POOL_2D", _pool(op.nn.max_pool)),
    18: ("MUL", _binary(lambda x, y: x * y, True)),
    20: ("RELU_N1_TO_1", _unary(lambda x: op.clip(x, min=-1, max=1))),
    22: ("RESHAPE", _reshape),
    25: ("SOFTMAX", _softmax),
    26: ("SPACE_TO_DEPTH", _space_to_depth),
    34: ("PAD", _pad),
    36: ("GATHER", _gather),
    37: ("BATCH_TO_SPACE_ND", _blocks(op.nn.batch_to_space)),
    38: ("SPACE_TO_BATCH_ND", _blocks(op.nn.space_to_batch)),
    39: ("TRANSPOSE", lambda node: op.transpose(node.x(), axes=node.constant(1))),
    40: ("MEAN", _reduction(op.mean)),
    41: ("SUB", _binary(lambda x, y: x - y, True)),
    42: ("DIV", _binary(lambda x, y: x / y, True)),
    43: ("SQUEEZE", _reshape),
    45: ("STRIDED_SLICE", _strided_slice),
    49: ("SPLIT", _split),
    50: ("LOG_SOFTMAX", lambda node: op.nn.log_softmax(node.x(), axis=-1)),
    53: ("CAST", lambda node: to(node.x(), node.dtypes[0])),
    56: ("ARG_MAX", _arg(op.argmax)),
    60: ("PADV2", _pad),
    64: ("SELECT", _select),
    65: ("SLICE", _slice),
    69: ("TILE", lambda node: op.tile(node.x(), reps=node.constant(1))),
    70: ("EXPAND_DIMS", _reshape),
    74: ("SUM", _reduction(op.sum)),
    77: ("SHAPE", _shape_of),
    79: ("ARG_MIN", _arg(op.argmin)),
    81: ("REDUCE_PROD", _reduction(op.prod)),
    82: ("REDUCE_MAX", _reduction(op.max)),
    83: ("PACK", _pack),
    88: ("UNPACK", _unpack),
    89: ("REDUCE_MIN", _reduction(op.min)),
    98: ("LEAKY_RELU", _leaky_relu),
    99: ("SQUARED_DIFFERENCE", _binary(lambda x, y: op.square(x - y))),
    105: ("REVERSE_V2", lambda node: op.flip(node.x(), axis=node.constant(1))),
    114: ("QUANTIZE", lambda node: node.x()),
    123: ("SELECT_V2", _select),
    126: ("BATCH_MATMUL", _batch_matmul),
    130: ("BROADCAST_TO", lambda node: op.broadcast_to(node.x(), shape=node.shapes[0])),
    150: ("GELU", _gelu),
}
# fmt: on

NAMES: Final[dict[str, int]] = {name: number for number, (name, _) in TABLE.items()}
