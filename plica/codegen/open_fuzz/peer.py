"""The peer: what a program with open sizes means, by numpy alone and in doubles.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor(("n",), "f32"))
>>> meaning(x + x, {x: np.ones(2)}, {})
array([2., 2.])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from plica.core import CompilerBug, Term, post_order
from plica.ir.graph.expression import Apply, Const, Expr, If, Tuple, Var
from plica.ir.loop.scalar import Scalar
from plica.ir.type import evaluate

Array: TypeAlias = np.ndarray[Any, Any]
Attrs: TypeAlias = dict[str, Any]  # Any: what attributes hold


def meaning(body: Expr, given: Mapping[Var, Array], sizes: Mapping[Term, int]) -> Any:
    """The value of an expression: an array, or a tuple of them."""
    memo: dict[Term, Any] = {}
    memo.update(given.items())
    for node in post_order(body):
        if node in memo or not isinstance(node, Expr):
            continue
        match node:
            case Const():
                memo[node] = _wide(node.numpy())
            case Apply(op, args, attributes):
                attrs = {name: _number(value, sizes) for name, value in attributes}
                found = MEANING[op](attrs, *[memo[arg] for arg in args])
                memo[node] = _wide(np.asarray(found))
            case If(condition, then, orelse):
                memo[node] = memo[then] if memo[condition] else memo[orelse]
            case Tuple(items):
                memo[node] = tuple([memo[item] for item in items])
            case _:
                raise CompilerBug(f"The peer knows no {type(node).__name__}.")
    return memo[body]


def _wide(of: Array) -> Array:
    return of.astype(np.float64) if of.dtype.kind == "f" else of


def _number(value: Any, sizes: Mapping[Term, int]) -> Any:
    """An attribute whose dims are numbers."""
    if isinstance(value, Scalar):
        return evaluate(value, sizes)
    return tuple([_number(each, sizes) for each in value]) if isinstance(value, tuple) else value


def _axes(attrs: Attrs) -> Any:
    return attrs["axis"]


def _reduction(of: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, x: of(x, axis=_axes(a), keepdims=a["keepdims"])


def _logsumexp(a: Attrs, x: Array) -> Array:
    most = x.max(axis=a["axis"], keepdims=True)
    total = np.log(np.exp(x - most).sum(axis=a["axis"], keepdims=True)) + most
    return np.asarray(total if a["keepdims"] else total.squeeze(axis=a["axis"]))


def _softmax(a: Attrs, x: Array) -> Array:
    powers = np.exp(x - x.max(axis=a["axis"], keepdims=True))
    return np.asarray(powers / powers.sum(axis=a["axis"], keepdims=True))


def _layer_norm(a: Attrs, x: Array, gamma: Array, beta: Array) -> Array:
    middle, spread = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return np.asarray((x - middle) / np.sqrt(spread + a["epsilon"]) * gamma + beta)


def _l2(a: Attrs, x: Array) -> Array:
    length = np.sqrt((x * x).sum(axis=a["axis"], keepdims=True))
    return np.asarray(x / np.maximum(length, a["epsilon"]))


def _cumsum(a: Attrs, x: Array) -> Array:
    axis = a["axis"]
    turned = np.flip(x, axis) if a["reverse"] else x
    total = np.cumsum(turned, axis)
    total = total - turned if a["exclusive"] else total
    return np.flip(total, axis) if a["reverse"] else total


def _slice(a: Attrs, x: Array) -> Array:
    cut = [slice(None)] * x.ndim
    for axis, start, stop, step in zip(
        a["axes"] or range(x.ndim), a["starts"], a["stops"], a["steps"], strict=True
    ):
        cut[axis] = slice(start, stop, step)
    return x[tuple(cut)]


def _each(value: Any, rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else tuple(value)


def _windows(x: Array, kernel: tuple[int, ...], a: Attrs, fill: float) -> Array:
    """[n, c, places ..., inside ...] of an image with a border."""
    rank = len(kernel)
    strides, border = _each(a["strides"], rank), _each(a["padding"], rank)
    widths, counts = [(0, 0), (0, 0)], []
    for size, k, s, p in zip(x.shape[2:], kernel, strides, border, strict=True):
        room = size + 2 * p - k
        if room < 0:
            raise ValueError("the window does not fit")
        count = room // s + 1
        if a.get("ceil_mode", False):
            count = min(-(-room // s) + 1, (size + p - 1) // s + 1)
        counts.append(count)
        widths.append((p, p + max(0, (count - 1) * s + k - (size + 2 * p))))
    whole = np.pad(x, widths, constant_values=fill)
    every = np.lib.stride_tricks.sliding_window_view(whole, kernel, tuple(range(2, 2 + rank)))
    cut = [slice(None), slice(None)]
    cut += [slice(0, (n - 1) * s + 1, s) for n, s in zip(counts, strides, strict=True)]
    return every[tuple(cut)]


def _max_pool(a: Attrs, x: Array) -> Array:
    inside = tuple(range(-len(a["kernel"]), 0))
    return np.asarray(_windows(x, a["kernel"], a, -np.inf).max(axis=inside))


def _avg_pool(a: Attrs, x: Array) -> Array:
    inside = tuple(range(-len(a["kernel"]), 0))
    total = _windows(x, a["kernel"], a, 0.0).sum(axis=inside)
    return np.asarray(total / _windows(np.ones_like(x), a["kernel"], a, 0.0).sum(axis=inside))


def _conv(a: Attrs, x: Array, weight: Array) -> Array:
    kernel = weight.shape[2:]
    every = _windows(x, kernel, a, 0.0)
    places = "hw"[: len(kernel)]
    inside = "kl"[: len(kernel)]
    return np.asarray(np.einsum(f"nc{places}{inside},oc{inside}->no{places}", every, weight))


def _upsample(a: Attrs, x: Array) -> Array:
    for axis, many in enumerate(_each(a["scale"], x.ndim - 2)):
        x = np.repeat(x, many, axis + 2)
    return x


def _pad(a: Attrs, x: Array) -> Array:
    if a["mode"] == "constant":
        return np.pad(x, a["pad_width"], constant_values=a["constant_values"])
    return np.pad(x, a["pad_width"], mode=a["mode"])


def _iota(a: Attrs, x: Array) -> Array:
    axis = a["axis"]
    line = np.arange(x.shape[axis]).reshape([-1 if at == axis else 1 for at in range(x.ndim)])
    return np.broadcast_to(line, x.shape)


def _inner(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


def _function(of: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, *xs: of(*xs)


_PLAIN: Final = (
    np.tanh, np.negative, np.absolute, np.add, np.subtract, np.multiply, np.maximum,
    np.floor_divide, np.less, np.where,
)  # fmt: skip

MEANING: Final[Mapping[str, Callable[..., Any]]] = {
    **{each.__name__: _function(each) for each in _PLAIN},
    **{name: _reduction(getattr(np, name)) for name in ("mean", "sum", "max", "min", "var")},
    "nn.relu": lambda a, x: np.maximum(x, 0.0),
    "nn.sigmoid": lambda a, x: 1.0 / (1.0 + np.exp(-x)),
    "nn.silu": lambda a, x: x / (1.0 + np.exp(-x)),
    "cast": lambda a, x: x.astype(np.float64),
    "logsumexp": _logsumexp,
    "nn.softmax": _softmax,
    "nn.log_softmax": lambda a, x: np.log(_softmax(a, x)),
    "nn.l2_normalize": _l2,
    "nn.layer_norm": _layer_norm,
    "transpose": lambda a, x: np.transpose(x, a["axes"]),
    "flip": lambda a, x: np.flip(x, a["axis"]),
    "roll": lambda a, x: np.roll(x, a["shift"], a["axis"]),
    "cumsum": _cumsum,
    "reshape": lambda a, x: x.reshape(a["shape"]),
    "expand_dims": lambda a, x: np.expand_dims(x, a["axis"]),
    "pad": _pad,
    "slice": _slice,
    "stack": lambda a, *xs: np.stack(xs, a["axis"]),
    "concat": lambda a, *xs: np.concatenate(xs, a["axis"]),
    "repeat": lambda a, x: np.repeat(x, a["repeats"], a["axis"]),
    "tile": lambda a, x: np.tile(x, a["reps"]),
    "nn.max_pool": _max_pool,
    "nn.avg_pool": _avg_pool,
    "nn.global_avg_pool": lambda a, x: x.mean(axis=_inner(x), keepdims=True),
    "nn.global_max_pool": lambda a, x: x.max(axis=_inner(x), keepdims=True),
    "nn.conv": _conv,
    "nn.upsample": _upsample,
    "matmul": lambda a, x, y: x @ y,
    "take": lambda a, x, i: np.take(x, i, a["axis"]),
    "take_along_axis": lambda a, x, i: np.take_along_axis(x, i, a["axis"]),
    "iota_like": _iota,
    "size": lambda a, x: prod(x.shape[at] for at in a["axis"] or range(x.ndim)),
    "tril": lambda a, x: np.tril(x, a["k"]),
    "triu": lambda a, x: np.triu(x, a["k"]),
}
"""Each operator that is drawn."""
