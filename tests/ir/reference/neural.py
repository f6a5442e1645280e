"""The reference for neural operators: sliding windows by slices, norms by their formulas."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from scipy import special

from tests.ir.reference.meaning import Array, nn, rounded

# --- linear --------------------------------------------------------------------------------------

rounded(matmul=np.matmul, einsum=lambda *xs, equation: np.einsum(equation, *xs))


@nn("nn.dense")
def _dense(x: Array, weight: Array) -> Any:
    return np.einsum("...i,oi->...o", x, weight)


@nn("nn.batch_matmul")
def _batch_matmul(x: Array, y: Array, transpose_x: bool = False, transpose_y: bool = False) -> Any:
    x = x.transpose(0, 2, 1) if transpose_x else x
    y = y.transpose(0, 2, 1) if transpose_y else y
    return np.matmul(x, y)


# --- windows -------------------------------------------------------------------------------------


def per_axis(value: Any, rank: int) -> tuple[Any, ...]:
    """One value for each axis."""
    return tuple(value) if isinstance(value, list | tuple) else (value,) * rank


def sides(padding: Any, rank: int) -> list[tuple[int, int]]:
    """Padding before and after each axis."""
    return [p if isinstance(p, tuple) else (p, p) for p in per_axis(padding, rank)]


@nn("nn.conv")
def _conv(
    x: Array,
    weight: Array,
    *,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    rank = x.ndim - 2
    s, d, p = per_axis(strides, rank), per_axis(dilation, rank), sides(padding, rank)
    x = np.pad(x, [(0, 0), (0, 0), *p])
    kernel = weight.shape[2:]
    out = [(x.shape[2 + a] - d[a] * (kernel[a] - 1) - 1) // s[a] + 1 for a in range(rank)]
    xs = np.split(x, groups, 1)
    ws = np.split(weight, groups, 0)
    total = []
    for part, w in zip(xs, ws, strict=True):
        acc = np.zeros((x.shape[0], w.shape[0], *out), x.dtype)
        for at in np.ndindex(*kernel):
            window = tuple(
                slice(at[a] * d[a], at[a] * d[a] + (out[a] - 1) * s[a] + 1, s[a])
                for a in range(rank)
            )
            here = part[(slice(None), slice(None), *window)]
            acc += np.einsum("nc...,oc->no...", here, w[(slice(None), slice(None), *at)])
        total.append(acc)
    return np.concatenate(total, 1)


@nn("nn.conv_transpose")
def _conv_transpose(
    x: Array,
    weight: Array,
    *,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    output_padding: Any = 0,
) -> Any:
    rank = x.ndim - 2
    s, d, p = per_axis(strides, rank), per_axis(dilation, rank), sides(padding, rank)
    extra = per_axis(output_padding, rank)
    kernel, size = weight.shape[2:], x.shape[2:]
    full = [(size[a] - 1) * s[a] + d[a] * (kernel[a] - 1) + 1 + extra[a] for a in range(rank)]
    parts = []
    for part, w in zip(np.split(x, groups, 1), np.split(weight, groups, 0), strict=True):
        acc = np.zeros((x.shape[0], w.shape[1], *full), x.dtype)
        for at in np.ndindex(*kernel):
            window = tuple(
                slice(at[a] * d[a], at[a] * d[a] + (size[a] - 1) * s[a] + 1, s[a])
                for a in range(rank)
            )
            spread = np.einsum("nc...,co->no...", part, w[(slice(None), slice(None), *at)])
            acc[(slice(None), slice(None), *window)] += spread
        parts.append(acc)
    whole = np.concatenate(parts, 1)
    crop = tuple(slice(p[a][0], full[a] - p[a][1]) for a in range(rank))
    return whole[(slice(None), slice(None), *crop)]


def windows(
    x: Array, kernel: Any, strides: Any, padding: Any, *, dilation: Any, ceil_mode: bool
) -> tuple[list[int], list[list[list[int]]]]:
    """For each axis the places of each window, those in the padding included."""
    rank = x.ndim - 2
    k = per_axis(kernel, rank)
    s = k if strides is None else per_axis(strides, rank)
    d, p = per_axis(dilation, rank), sides(padding, rank)
    places = []
    for a in range(rank):
        n, (before, after) = x.shape[2 + a], p[a]
        reach = d[a] * (k[a] - 1) + 1
        room = (n + before + after - reach) / s[a]
        count = (math.ceil(room) if ceil_mode else math.floor(room)) + 1
        if ceil_mode and (count - 1) * s[a] >= n + before:
            count -= 1
        starts = [i * s[a] - before for i in range(count)]
        places.append([[start + j * d[a] for j in range(k[a])] for start in starts])
    return [len(each) for each in places], places


@nn("nn.max_pool")
def _max_pool(
    x: Array,
    kernel: Any,
    *,
    strides: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    counts, places = windows(x, kernel, strides, padding, dilation=dilation, ceil_mode=ceil_mode)
    out = np.empty((*x.shape[:2], *counts), x.dtype)
    for at in np.ndindex(*counts):
        inside = [[q for q in places[a][i] if 0 <= q < x.shape[2 + a]] for a, i in enumerate(at)]
        held = [x[(slice(None), slice(None), *q)] for q in itertools.product(*inside)]
        out[(slice(None), slice(None), *at)] = np.max(held, axis=0)
    return out


@nn("nn.avg_pool")
def _avg_pool(
    x: Array,
    kernel: Any,
    *,
    strides: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Any:
    counts, places = windows(x, kernel, strides, padding, dilation=1, ceil_mode=ceil_mode)
    p = sides(padding, x.ndim - 2)
    out = np.empty((*x.shape[:2], *counts), x.dtype)
    for at in np.ndindex(*counts):
        inside = [[q for q in places[a][i] if 0 <= q < x.shape[2 + a]] for a, i in enumerate(at)]
        padded = [
            [q for q in places[a][i] if q < x.shape[2 + a] + p[a][1]] for a, i in enumerate(at)
        ]
        count = math.prod(map(len, padded if count_include_pad else inside))
        held = [x[(slice(None), slice(None), *q)] for q in itertools.product(*inside)]
        out[(slice(None), slice(None), *at)] = np.sum(held, axis=0) / count
    return out


def _adaptive(function: Any) -> Any:
    def meaning(x: Array, output_size: Any) -> Any:
        wanted = per_axis(output_size, x.ndim - 2)
        out = np.empty((*x.shape[:2], *wanted), x.dtype)
        for at in np.ndindex(*wanted):
            cut = tuple(
                slice(i * n // o, -(-(i + 1) * n // o))
                for i, n, o in zip(at, x.shape[2:], wanted, strict=True)
            )
            held = x[(slice(None), slice(None), *cut)]
            out[(slice(None), slice(None), *at)] = function(held, tuple(range(2, x.ndim)))
        return out

    return meaning


rounded(
    **{
        "nn.adaptive_max_pool": _adaptive(np.max),
        "nn.adaptive_avg_pool": _adaptive(np.mean),
        "nn.global_max_pool": lambda x: np.max(x, tuple(range(2, x.ndim)), keepdims=True),
        "nn.global_avg_pool": lambda x: np.mean(x, tuple(range(2, x.ndim)), keepdims=True),
    }
)

# --- norms ---------------------------------------------------------------------------------------


def along(vector: Array, axis: int, rank: int) -> Array:
    """A vector along an axis."""
    return vector.reshape([-1 if at == axis % rank else 1 for at in range(rank)])


def normal(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    """x without its mean, over its deviation."""
    mean = x.mean(axes, keepdims=True)
    variance = x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon)


@nn("nn.batch_norm")
def _batch_norm(x: Array, *vectors: Array, axis: int = 1, epsilon: float = 1e-5) -> Any:
    g, b, m, v = (along(each, axis, x.ndim) for each in vectors)
    return (x - m) / np.sqrt(v + epsilon) * g + b


@nn("nn.layer_norm")
def _layer_norm(x: Array, gamma: Array, beta: Array, axis: int = -1, epsilon: float = 1e-5) -> Any:
    axes = tuple(range(axis % x.ndim, x.ndim))
    return normal(x, axes, epsilon) * gamma + beta


@nn("nn.rms_norm")
def _rms_norm(x: Array, gamma: Array, axis: int = -1, epsilon: float = 1e-5) -> Any:
    axes = tuple(range(axis % x.ndim, x.ndim))
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + epsilon) * gamma


@nn("nn.instance_norm")
def _instance_norm(x: Array, gamma: Array, beta: Array, epsilon: float = 1e-5) -> Any:
    scaled = normal(x, tuple(range(2, x.ndim)), epsilon)
    return scaled * along(gamma, 1, x.ndim) + along(beta, 1, x.ndim)


@nn("nn.group_norm")
def _group_norm(x: Array, gamma: Array, beta: Array, groups: int, epsilon: float = 1e-5) -> Any:
    out = np.empty_like(x)
    for part in np.split(np.arange(x.shape[1]), groups):
        out[:, part] = normal(x[:, part], tuple(range(1, x.ndim)), epsilon)
    return out * along(gamma, 1, x.ndim) + along(beta, 1, x.ndim)


@nn("nn.l2_normalize")
def _l2_normalize(x: Array, axis: Any = (-1,), epsilon: float = 1e-12) -> Any:
    total = np.sum(x * x, tuple(np.atleast_1d(axis)), keepdims=True)
    return x / np.sqrt(np.maximum(total, epsilon))


@nn("nn.lrn")
def _lrn(x: Array, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Any:
    out = np.empty_like(x)
    for c in range(x.shape[1]):
        low = max(0, c - (size - 1) // 2)
        near = x[:, low : c + math.ceil((size - 1) / 2) + 1]
        out[:, c] = x[:, c] / (bias + alpha / size * (near * near).sum(1)) ** beta
    return out


rounded(
    **{
        "nn.softmax": lambda x, axis=-1: special.softmax(x, axis),
        "nn.log_softmax": lambda x, axis=-1: np.log(special.softmax(x, axis)),
    }
)

# --- activations ---------------------------------------------------------------------------------


def _below_zero(x: Array, other: Array) -> Any:
    return np.where(x < 0, other, x)


def _selu(x: Array) -> Any:
    return 1.0507009873554805 * _below_zero(x, 1.6732632423543772 * np.expm1(x))


def _gelu(x: Array, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x * 0.5 * (1 + special.erf(x / math.sqrt(2)))


rounded(
    **{
        "nn.relu": lambda x: np.maximum(x, x.dtype.type(0)),
        "nn.relu6": lambda x: np.minimum(np.maximum(x, x.dtype.type(0)), x.dtype.type(6)),
        "nn.leaky_relu": lambda x, alpha=0.01: _below_zero(x, alpha * x),
        "nn.elu": lambda x, alpha=1.0: _below_zero(x, alpha * np.expm1(x)),
        "nn.celu": lambda x, alpha=1.0: _below_zero(x, alpha * np.expm1(x / alpha)),
        "nn.selu": _selu,
        "nn.gelu": _gelu,
        "nn.sigmoid": special.expit,
        "nn.log_sigmoid": special.log_expit,
        "nn.silu": lambda x: np.where(np.isneginf(x), np.nan, x * special.expit(x)),
        "nn.softplus": lambda x: np.logaddexp(x, 0.0),
        "nn.softsign": lambda x: x / (1 + np.abs(x)),
        "nn.hard_sigmoid": lambda x, alpha=0.2, beta=0.5: np.clip(alpha * x + beta, 0, 1),
        "nn.hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
        "nn.hard_tanh": lambda x: np.clip(x, -1, 1),
        "nn.mish": lambda x: x * np.tanh(np.logaddexp(x, 0.0)),
        "nn.thresholded_relu": lambda x, alpha=1.0: np.where(x > alpha, x, 0.0),
        "nn.prelu": lambda x, slope, axis=1: _below_zero(x, x * along(slope, axis, x.ndim)),
        "nn.bias_add": lambda x, bias, axis=1: x + along(bias, axis, x.ndim),
        "nn.dropout": lambda x, rate=0.5: x,
    }
)


# --- Fourier -------------------------------------------------------------------------------------


@nn("dft")
def _dft(
    x: Array, *, length: Any = None, bins: Any = None, parts: int = 2, inverse: bool = False
) -> Any:
    signal = x.astype(np.float64)
    whole = signal[..., 0, :, :] + (1j * signal[..., 1, :, :] if x.shape[-3] == 2 else 0)
    made = (np.fft.ifft if inverse else np.fft.fft)(whole, length, axis=-2)[..., :bins, :]
    return np.stack([made.real, made.imag][:parts], axis=-3)


# --- Winograd ------------------------------------------------------------------------------------

_PAIRS = ([1, 1, 1], [1, -1, 1])
_WEIGHT = {
    2: np.array([[2, 0, 0], *_PAIRS, [0, 0, 2]]) / 2,
    4: np.array([[6, 0, 0], *np.multiply(_PAIRS, -4), [1, 2, 4], [1, -2, 4], [0, 0, 24]]) / 24,
}
_BACK = {
    2: np.array([[1, 0, 0, 0], [0, 1, -1, 0], [0, 0, 0, 1]]),
    4: np.array([[4, 0, 0, 0, 0, 0], [0, -3, 3, 0, 0, 0], [0, 0, 0, 0, 0, 1]]),
}


@nn("nn.winograd_weight")
def _winograd_weight(weight: Array, *, tile: int) -> Any:
    table = _WEIGHT[tile]
    whole = np.einsum("ak,ockl,bl->abco", table, weight, table)
    return whole.reshape((tile + 2) ** 2, *whole.shape[2:])


@nn("nn.conv_winograd")
def _conv_winograd(x: Array, weight: Array, *, tile: int, padding: Any = 0) -> Any:
    apart = weight.reshape(tile + 2, tile + 2, *weight.shape[1:])
    plain = np.einsum("ka,abco,lb->ockl", _BACK[tile], apart, _BACK[tile])
    return _conv(x, plain, padding=padding)
