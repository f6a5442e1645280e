"""The reference: each operator in terms of numpy and scipy, written without looking at ours.

A function takes the arrays and the attributes as a user gives them.  Floats are computed in f64
where one rounding is to be compared; the comparison brings the result back to its dtype.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, Final

import ml_dtypes
import numpy as np
from scipy import special

from plica.ir.type.dtype import dtype as dtype_of

# Any: arrays of any element type, attributes of any kind.
Array = Any
Meaning = Callable[..., Any]

REFERENCE: Final[dict[str, Meaning]] = {}


def wide(x: Array) -> Array:
    """Floats in f64, everything else as it is."""
    return x.astype(np.float64) if is_float(x) else x


def is_float(x: Array) -> bool:
    """Whether the elements are floats, those of ml_dtypes included."""
    return dtype_of(x.dtype).is_float


def exact(**functions: Meaning) -> None:
    """Meanings at the dtype of the arguments; bf16 by way of f32."""

    def at_own_dtype(function: Meaning) -> Meaning:
        def meaning(*args: Array, **attrs: Any) -> Any:
            given = [x.astype(np.float32) if x.dtype == ml_dtypes.bfloat16 else x for x in args]
            return function(*given, **attrs)

        return meaning

    REFERENCE.update({name: at_own_dtype(each) for name, each in functions.items()})


def rounded(**functions: Meaning) -> None:
    """Meanings whose floats are computed in f64."""

    def in_f64(function: Meaning) -> Meaning:
        return lambda *args, **attrs: function(*map(wide, args), **attrs)

    REFERENCE.update({name: in_f64(each) for name, each in functions.items()})


def nn(name: str) -> Callable[[Meaning], Meaning]:
    """A meaning under a name of its own, floats in f64."""

    def note(function: Meaning) -> Meaning:
        rounded(**{name: function})
        return function

    return note


# --- one argument --------------------------------------------------------------------------------

rounded(
    **{
        name: getattr(np, name)
        for name in (
            "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan",
            "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh",
            "degrees", "radians",
        )
    },
    rsqrt=lambda x: 1 / np.sqrt(x),
    reciprocal=lambda x: 1 / x,
    erf=special.erf,
)  # fmt: skip
exact(
    **{
        name: getattr(np, name)
        for name in (
            "floor", "ceil", "trunc", "absolute", "sign", "negative", "isnan", "isinf", "isfinite",
            "signbit", "square", "logical_not", "bitwise_not",
        )
    },
    round=np.rint,
    copy=lambda x: x,
)  # fmt: skip

# --- two arguments -------------------------------------------------------------------------------


def _c_division(a: int, b: int) -> tuple[int, int]:
    if b == 0:
        return 0, 0
    q = abs(a) // abs(b)
    q = q if (a < 0) == (b < 0) else -q
    return q, a - q * b


def _wrapped(function: Callable[[int, int], int]) -> Meaning:
    """Integers by Python's own arithmetic, wrapped around."""

    def meaning(x: Array, y: Array) -> Any:
        a, b = np.broadcast_arrays(x, y)
        bits = 8 * a.dtype.itemsize
        values = [
            function(int(p), int(q)) % (1 << bits) for p, q in zip(a.flat, b.flat, strict=True)
        ]
        unsigned = np.array(values, f"u{a.dtype.itemsize}").reshape(a.shape)
        return unsigned.view(a.dtype)

    return meaning


def by_kind(floats: Meaning, integers: Callable[[int, int], int]) -> Meaning:
    """One meaning for floats, Python's for integers."""
    whole = _wrapped(integers)
    return lambda x, y: floats(x, y) if is_float(x) else whole(x, y)


def _float_power(x: Array, y: Array) -> Any:
    # In full: where one exponent serves many elements numpy takes roots of -inf for powers.
    a, b = (each.copy() for each in np.broadcast_arrays(x, y))
    return np.power(a.reshape(-1), b.reshape(-1)).reshape(a.shape)


exact(
    add=by_kind(np.add, lambda a, b: a + b),
    subtract=by_kind(np.subtract, lambda a, b: a - b),
    multiply=by_kind(np.multiply, lambda a, b: a * b),
    floor_divide=by_kind(np.floor_divide, lambda a, b: a // b if b else 0),
    mod=by_kind(np.mod, lambda a, b: a % b if b else 0),
    trunc_divide=by_kind(lambda x, y: np.trunc(x / y), lambda a, b: _c_division(a, b)[0]),
    fmod=by_kind(np.fmod, lambda a, b: _c_division(a, b)[1]),
    left_shift=_wrapped(lambda a, b: a << b if 0 <= b < 64 else 0),
    right_shift=_wrapped(lambda a, b: a >> (b if 0 <= b < 64 else 64)),
    **{
        name: getattr(np, name)
        for name in (
            "maximum", "minimum", "fmax", "fmin", "copysign", "equal", "not_equal", "less",
            "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor",
            "bitwise_and", "bitwise_or", "bitwise_xor",
        )
    },
)  # fmt: skip
rounded(
    divide=np.divide,
    power=by_kind(_float_power, lambda a, b: pow(a, b, 1 << 64) if b >= 0 else 0),
    arctan2=np.arctan2,
    logaddexp=np.logaddexp,
)


@nn("clip")
def _clip(x: Array, min: Any = None, max: Any = None) -> Any:
    lifted = x if min is None else np.maximum(x, np.asarray(min, x.dtype))
    return lifted if max is None else np.minimum(lifted, np.asarray(max, x.dtype))


def _cast(x: Array, dtype: Any) -> Any:
    target = dtype_of(dtype)
    if target.name == "bool":
        return x != 0
    if is_float(x) and not target.is_float:
        low, high = target.bounds
        numbers = [0 if math.isnan(v) else v for v in map(float, x.flat)]
        whole = [(high if v > 0 else low) if math.isinf(v) else int(v) for v in numbers]
        clipped = [min(max(v, low), high) for v in whole]
        return np.array(clipped, target.numpy).reshape(x.shape)
    return x.astype(target.numpy)


def _bits_as(x: Array, dtype: Any) -> Any:
    into = dtype_of(dtype)
    codes = b"".join((int(v) % (1 << into.bits)).to_bytes(into.bytes, "little") for v in x.flat)
    return np.frombuffer(codes, into.numpy).reshape(x.shape)


def _bits_of(x: Array) -> Any:
    codes = np.frombuffer(x.tobytes(), f"<u{x.itemsize}")
    return codes.astype(f"u{x.itemsize}").reshape(x.shape)


REFERENCE["cast"], REFERENCE["bits_as"], REFERENCE["bits_of"] = _cast, _bits_as, _bits_of

# --- reductions ----------------------------------------------------------------------------------


def _axis(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


def _bound(dtype: Any, *, least: bool) -> Any:
    """What every number is at least, or at most."""
    if np.issubdtype(dtype, np.integer):
        return np.iinfo(dtype).min if least else np.iinfo(dtype).max
    return -np.inf if least else np.inf


rounded(
    sum=lambda x, axis=None, keepdims=False: np.sum(x, _axis(axis), x.dtype, keepdims=keepdims),
    prod=lambda x, axis=None, keepdims=False: np.prod(x, _axis(axis), x.dtype, keepdims=keepdims),
    supremum=lambda x, axis=None, keepdims=False: np.max(
        x, _axis(axis), keepdims=keepdims, initial=_bound(x.dtype, least=True)
    ),
    infimum=lambda x, axis=None, keepdims=False: np.min(
        x, _axis(axis), keepdims=keepdims, initial=_bound(x.dtype, least=False)
    ),
    max=lambda x, axis=None, keepdims=False: np.max(x, _axis(axis), keepdims=keepdims),
    min=lambda x, axis=None, keepdims=False: np.min(x, _axis(axis), keepdims=keepdims),
    all=lambda x, axis=None, keepdims=False: np.all(x, _axis(axis), keepdims=keepdims),
    any=lambda x, axis=None, keepdims=False: np.any(x, _axis(axis), keepdims=keepdims),
    mean=lambda x, axis=None, keepdims=False: np.mean(x, _axis(axis), keepdims=keepdims),
    var=lambda x, axis=None, keepdims=False, ddof=0: np.var(
        x, _axis(axis), ddof=ddof, keepdims=keepdims
    ),
    std=lambda x, axis=None, keepdims=False, ddof=0: np.std(
        x, _axis(axis), ddof=ddof, keepdims=keepdims
    ),
    logsumexp=lambda x, axis=None, keepdims=False: np.log(
        np.sum(np.exp(x), _axis(axis), keepdims=keepdims)
    ),
)


def _running(function: Any) -> Meaning:
    def meaning(x: Array, axis: int, exclusive: bool = False, reverse: bool = False) -> Any:
        y = np.flip(x, axis) if reverse else x
        total = function(y, axis=axis, dtype=x.dtype)
        if exclusive:
            first = np.full_like(np.take(total, [0], axis), 0 if function is np.cumsum else 1)
            total = np.concatenate((first, np.delete(total, -1, axis)), axis)
        return np.flip(total, axis) if reverse else total

    return meaning


def _position(function: Any) -> Meaning:
    def meaning(x: Array, axis: Any = None, keepdims: bool = False, last: bool = False) -> Any:
        if not last:
            return function(x, axis=axis, keepdims=keepdims)
        size = x.size if axis is None else x.shape[axis]
        return size - 1 - function(np.flip(x, axis), axis=axis, keepdims=keepdims)

    return meaning


rounded(
    cumsum=_running(np.cumsum),
    cumprod=_running(np.cumprod),
    cummax=_running(np.maximum.accumulate),
    cummin=_running(np.minimum.accumulate),
    argmax=_position(np.argmax),
    argmin=_position(np.argmin),
)

# --- shapes --------------------------------------------------------------------------------------


def _slice(x: Array, starts: Any, stops: Any, steps: Any = None, axes: Any = None) -> Any:
    cuts: list[Any] = [slice(None)] * x.ndim
    steps = [1] * len(starts) if steps is None else steps
    axes = range(len(starts)) if axes is None else axes
    for start, stop, step, at in zip(starts, stops, steps, axes, strict=True):
        cuts[at] = slice(start, stop, step)
    return x[tuple(cuts)]


def _pad(x: Array, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Any:
    if x.ndim == 0:
        return x
    if mode == "constant":
        return np.pad(x, pad_width, constant_values=constant_values)
    return np.pad(x, pad_width, mode=mode)  # type: ignore[call-overload]  # the modes of numpy


def _flatten(x: Array, axis: int = 1) -> Any:
    at = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:at]), math.prod(x.shape[at:]))


def _depth_to_space(x: Array, block: int, column_row_depth: bool = False) -> Any:
    n, c, h, w = x.shape
    inner = c // block**2
    out = np.empty((n, inner, h * block, w * block), x.dtype)
    for i, j, k in itertools.product(range(block), range(block), range(inner)):
        channel = k * block**2 + i * block + j if column_row_depth else (i * block + j) * inner + k
        out[:, k, i::block, j::block] = x[:, channel]
    return out


def _space_to_depth(x: Array, block: int) -> Any:
    n, c, h, w = x.shape
    out = np.empty((n, c * block**2, h // block, w // block), x.dtype)
    for i, j in itertools.product(range(block), range(block)):
        out[:, (i * block + j) * c : (i * block + j + 1) * c] = x[:, :, i::block, j::block]
    return out


def _upsample(x: Array, scale: int) -> Any:
    for at in range(2, x.ndim):
        x = np.repeat(x, scale, at)
    return x


REFERENCE.update(
    {
        "reshape": lambda x, shape: x.reshape(shape),
        "ravel": lambda x: x.ravel(),
        "nn.flatten": _flatten,
        "transpose": lambda x, axes=None: np.transpose(x, axes),
        "swapaxes": np.swapaxes,
        "moveaxis": np.moveaxis,
        "match_shape": np.broadcast_to,
        "squeeze": lambda x, axis=None: np.squeeze(x, _axis(axis)),
        "expand_dims": lambda x, axis: np.expand_dims(x, _axis(axis)),
        "broadcast_to": np.broadcast_to,
        "tile": np.tile,
        "repeat": np.repeat,
        "flip": lambda x, axis=None: np.flip(x, _axis(axis)),
        "roll": np.roll,
        "concat": lambda *xs, axis=0: np.concatenate(xs, axis),
        "stack": lambda *xs, axis=0: np.stack(xs, axis),
        "split": lambda x, indices_or_sections, axis=0: tuple(
            np.split(x, indices_or_sections, axis)
        ),
        "slice": _slice,
        "diagonal": lambda x, offset=0, axis1=0, axis2=1: np.diagonal(x, offset, axis1, axis2),
        "tril": lambda x, k=0: np.tril(x, k),
        "triu": lambda x, k=0: np.triu(x, k),
        "pad": _pad,
        "nn.depth_to_space": _depth_to_space,
        "nn.space_to_depth": _space_to_depth,
        "nn.upsample": _upsample,
    }
)

# --- indices -------------------------------------------------------------------------------------


def _placed(indices: Array, size: int, mode: str) -> Any:
    wanted = indices.astype(np.int64)
    if mode == "clip":
        return np.clip(wanted, 0, size - 1)
    return wanted % size if mode == "wrap" else wanted


def _gather_nd(x: Array, indices: Array, batch_dims: int = 0) -> Any:
    outer = indices.shape[:-1]
    rest = x.shape[batch_dims + indices.shape[-1] :]
    out = np.empty(outer + rest, x.dtype)
    for at in np.ndindex(*outer):
        out[at] = x[at[:batch_dims]][tuple(indices[at].astype(np.int64))]
    return out


def _one_hot(
    indices: Array, depth: int, *, axis: int = -1, dtype: Any = "f32", on: Any = 1, off: Any = 0
) -> Any:
    wanted = indices.astype(np.int64)
    wanted = np.where(wanted < 0, wanted + depth, wanted)
    hit = wanted[..., None] == np.arange(depth)
    hit = np.moveaxis(hit, -1, axis)
    kind = dtype_of(dtype).numpy
    return np.where(hit, np.asarray(on, kind), np.asarray(off, kind))


REFERENCE.update(
    {
        "where": np.where,
        "take": lambda x, indices, axis=0, mode="raise": np.take(
            x, _placed(indices, x.shape[axis], mode), axis
        ),
        "take_along_axis": lambda x, indices, axis=-1, mode="raise": np.take_along_axis(
            x, _placed(indices, x.shape[axis], mode), axis
        ),
        "gather_nd": _gather_nd,
        "one_hot": _one_hot,
    }
)

# --- creation ------------------------------------------------------------------------------------


def _iota(shape: Any, axis: int = 0, dtype: Any = "i64") -> Any:
    return np.indices(shape)[axis].astype(dtype_of(dtype).numpy)


def _numpy(dtype: Any, default: Any = "f32") -> Any:
    return dtype_of(default if dtype is None else dtype).numpy


REFERENCE.update(
    {
        "full": lambda shape, value, dtype="f32": np.full(shape, value, _numpy(dtype)),
        "zeros": lambda shape, dtype="f32": np.zeros(shape, _numpy(dtype)),
        "ones": lambda shape, dtype="f32": np.ones(shape, _numpy(dtype)),
        "full_like": lambda x, value, dtype=None: np.full(x.shape, value, _numpy(dtype, x.dtype)),
        "zeros_like": lambda x, dtype=None: np.zeros(x.shape, _numpy(dtype, x.dtype)),
        "ones_like": lambda x, dtype=None: np.ones(x.shape, _numpy(dtype, x.dtype)),
        "iota": _iota,
        "dim_value": lambda dim: np.asarray(dim, np.int64),
        "iota_like": lambda x, axis=0, dtype="i64": _iota(x.shape, axis, dtype),
        "arange": lambda start, stop, step=1, dtype="i64": np.arange(start, stop, step).astype(
            _numpy(dtype)
        ),
        "eye": lambda n, m=None, k=0, dtype="f32": np.eye(n, m, k, _numpy(dtype)),
        "size": lambda x, axis=None: np.int64(
            x.size if axis is None else math.prod(x.shape[at] for at in np.atleast_1d(axis))
        ),
        "shape_of": lambda x: np.array(x.shape, np.int64),
    }
)
