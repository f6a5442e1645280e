"""Gradients of pools.

A window over (n, c, …) is described as in `plica.ir.op.pool`.  Of the places of a window that hold
its maximum the first counts, in row-major order; where that is nan, the last, as in torch.

    nn.window_sum     the sum of each window; padding counts as zeros
    nn.window_spread  its adjoint: every place has the sum of the windows that it lies in
    nn.window_first   which place of its window, counted through it, is the first to hold a value
    nn.window_take    the element at such a place
    nn.window_put     its adjoint: each value added at such a place, zeros elsewhere

>>> from plica.ir.type.term import tensor
>>> _, attrs = window_spread.bind((1.0,), {"kernel": 2, "size": (8, 8)})
>>> found = window_spread.relation(dict(attrs), tensor((1, 3, 4, 4), "f32"))
>>> [size.value for size in found.shape]
[1, 3, 8, 8]
"""

from __future__ import annotations

from collections.abc import Sequence

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Operator, Values
from plica.ir.loop import scalar as sc
from plica.ir.loop.tensor import Compute, compute, reduce
from plica.ir.op.attribute import attribute, dims
from plica.ir.op.elementwise import call
from plica.ir.op.index import integers
from plica.ir.op.pad import guarded
from plica.ir.op.pool import WINDOW, pool_rule, sliding_windows, window_places
from plica.ir.op.record import as_dtype, plus, primitive, tensor_of, times
from plica.ir.op.relation import NUMBER, refuse, wide
from plica.ir.op.window import Window
from plica.ir.type import TensorType, i64, known, same_dim

_SIZE = attribute("size", dims)


def settings(attrs: Values) -> dict[str, object]:
    """The attributes that describe a window; those of pools that have no dilation included."""
    return {each.name: attrs.get(each.name, each.default) for each in WINDOW}


def _sum_body(attrs: Values, out: TensorType, x: sc.Buffer) -> Compute:
    kernel, sliding = sliding_windows("nn.window_sum", attrs, len(x.shape) - 2)
    inner = wide(x.dtype)

    def element(n: sc.Scalar, c: sc.Scalar, *at: sc.Scalar) -> sc.Scalar:
        def load(*k: sc.Scalar) -> sc.Scalar:
            places, checks = window_places(attrs, sliding, at, k, x)
            return as_dtype(guarded(checks, x[(n, c, *places)], sc.Lit(0, x.dtype)), inner)

        return as_dtype(reduce("sum", kernel, load), x.dtype)

    return compute((x,), out.shape, element)


def _spatial(of: Expr) -> tuple[sc.Scalar, ...]:
    return tensor_of(of).shape[2:]


window_sum = primitive(
    "nn.window_sum", ("x",), lambda attrs, x: pool_rule("nn.window_sum", attrs, x), _sum_body,
    "The sum of each window; padding counts as zeros.", attributes=WINDOW, admits=NUMBER,
    gradient=lambda attrs, d, y, x: [window_spread(d, **settings(attrs), size=_spatial(x))],
)  # fmt: skip


def _whole(name: str, attrs: Values, x: TensorType) -> TensorType:
    """The input type of a pool with these windows; refuses if no input gives such a pool."""
    whole = TensorType((*x.shape[:2], *attrs["size"]), x.dtype)
    tensor_type = pool_rule(name, attrs, whole)
    fits = len(tensor_type.shape) == len(x.shape) and all(map(same_dim, tensor_type.shape, x.shape))
    if not fits:
        message = f"{name}: windows over this size give another number of results."
        refuse("shape-conflict", message, str(tensor_type), str(x))
    return whole


def _holding(
    sliding: Sequence[Window],
    at: Sequence[sc.Scalar],
    k: Sequence[sc.Scalar],
    counts: Sequence[sc.Scalar],
) -> tuple[list[sc.Scalar], list[sc.Scalar]]:
    """The windows whose element `k` is at `at`, and the conditions under which they exist."""
    scalars: list[sc.Scalar] = []
    checks: list[sc.Scalar] = []
    for window, place, inner, count in zip(sliding, at, k, counts, strict=True):
        reached = plus(place, window.before) - times(inner, window.dilation)
        stride = sc.index(window.stride)
        if window.stride > 1:
            checks.append(sc.Eq(sc.FloorMod(reached, stride), sc.index(0)))
        number = reached if window.stride == 1 else sc.FloorDiv(reached, stride)
        checks += [sc.Le(sc.index(0), number), sc.Lt(number, count)]
        scalars.append(number)
    return scalars, checks


def _apart(kernel: Sequence[int], sliding: Sequence[Window]) -> bool:
    """Whether no two windows share a place."""
    return all(
        window.dilation == 1 and size <= window.stride
        for size, window in zip(kernel, sliding, strict=True)
    )


def _only(
    kernel: Sequence[int],
    sliding: Sequence[Window],
    at: Sequence[sc.Scalar],
    counts: Sequence[sc.Scalar],
    sizes: Sequence[sc.Scalar],
) -> tuple[list[sc.Scalar], list[sc.Scalar], list[sc.Scalar]]:
    """Of windows that are apart, the one that `at` may lie in; where in it; whether it does."""
    scalars: list[sc.Scalar] = []
    inner: list[sc.Scalar] = []
    checks: list[sc.Scalar] = []
    for size, window, place, count, whole in zip(kernel, sliding, at, counts, sizes, strict=True):
        reached = plus(place, window.before)
        stride = sc.index(window.stride)
        scalars.append(reached if window.stride == 1 else sc.FloorDiv(reached, stride))
        inner.append(sc.index(0) if window.stride == 1 else sc.FloorMod(reached, stride))
        if size < window.stride:
            checks.append(sc.Lt(inner[-1], sc.index(size)))
        windows_, length = known(count), known(whole)
        if windows_ is None or length is None or length + window.before > windows_ * window.stride:
            checks.append(sc.Lt(scalars[-1], count))
    return scalars, inner, checks


def _spread_body(attrs: Values, out: TensorType, x: sc.Buffer) -> Compute:
    kernel, sliding = sliding_windows("nn.window_spread", attrs, len(x.shape) - 2)
    inner = wide(x.dtype)
    apart = _apart(kernel, sliding)

    def element(n: sc.Scalar, c: sc.Scalar, *at: sc.Scalar) -> sc.Scalar:
        if apart:
            scalars, _, checks = _only(kernel, sliding, at, x.shape[2:], out.shape[2:])
            return guarded(checks, x[(n, c, *scalars)], sc.Lit(0, x.dtype))

        def load(*k: sc.Scalar) -> sc.Scalar:
            terms, checks = _holding(sliding, at, k, x.shape[2:])
            return as_dtype(guarded(checks, x[(n, c, *terms)], sc.Lit(0, x.dtype)), inner)

        return as_dtype(reduce("sum", kernel, load), x.dtype)

    return compute((x,), out.shape, element)


window_spread: Operator = primitive(
    "nn.window_spread", ("x",), lambda attrs, x: _whole("nn.window_spread", attrs, x), _spread_body,
    "The transpose of nn.window_sum: each element is the sum of the windows that contain it.",
    attributes=(*WINDOW, _SIZE), admits=NUMBER,
    gradient=lambda attrs, d, y, x: [window_sum(d, **settings(attrs))],
)  # fmt: skip

# --- one place of each window --------------------------------------------------------------------


def _count(kernel: Sequence[int], k: Sequence[sc.Scalar]) -> sc.Scalar:
    """The number of a place of a window, counted through it."""
    flat: sc.Scalar = sc.index(0)
    for size, scalar in zip(kernel, k, strict=True):
        flat = plus(times(flat, size), scalar)
    return flat


def _first_rule(attrs: Values, x: TensorType, value: TensorType) -> TensorType:
    tensor = pool_rule("nn.window_first", attrs, x)
    if len(tensor.shape) != len(value.shape) or not all(map(same_dim, tensor.shape, value.shape)):
        message = "nn.window_first takes one value for each window."
        refuse("shape-conflict", message, str(tensor), str(value))
    return TensorType(value.shape, i64)


def _first_body(attrs: Values, out: TensorType, x: sc.Buffer, value: sc.Buffer) -> Compute:
    kernel, sliding = sliding_windows("nn.window_first", attrs, len(x.shape) - 2)
    beyond = 1
    for size in kernel:
        beyond *= size

    def element(n: sc.Scalar, c: sc.Scalar, *at: sc.Scalar) -> sc.Scalar:
        wanted = value[(n, c, *at)]

        def load(*k: sc.Scalar) -> sc.Scalar:
            places, checks = window_places(attrs, sliding, at, k, x)
            there, number = x[(n, c, *places)], _count(kernel, k)
            otherwise: sc.Scalar = sc.index(beyond)
            if x.dtype.is_float:  # of nans the last has the least of numbers below 0
                both = sc.And(call("isnan", there), call("isnan", wanted))
                otherwise = sc.Select(both, sc.index(0) - number, otherwise)
            select = sc.Select(sc.Eq(there, wanted), number, otherwise)
            return guarded(checks, select, sc.index(beyond))

        first = reduce("min", kernel, load)
        return call("abs", first) if x.dtype.is_float else first

    return compute((x, value), out.shape, element)


window_first = primitive(
    "nn.window_first", ("x", "value"), _first_rule, _first_body,
    "The flat index of the first match of a value in its window; the last for nan.",
    attributes=WINDOW, admits=NUMBER,
)  # fmt: skip


def _take_rule(attrs: Values, x: TensorType, places: TensorType) -> TensorType:
    integers("nn.window_take", places)
    tensor = pool_rule("nn.window_take", attrs, x)
    if len(tensor.shape) != len(places.shape) or not all(map(same_dim, tensor.shape, places.shape)):
        message = "nn.window_take takes one place for each window."
        refuse("shape-conflict", message, str(tensor), str(places))
    return TensorType(places.shape, x.dtype)


def _take_body(attrs: Values, out: TensorType, x: sc.Buffer, places: sc.Buffer) -> Compute:
    kernel, sliding = sliding_windows("nn.window_take", attrs, len(x.shape) - 2)

    def element(n: sc.Scalar, c: sc.Scalar, *at: sc.Scalar) -> sc.Scalar:
        flat = as_dtype(places[(n, c, *at)], i64)
        inner: list[sc.Scalar] = []
        for number, size in reversed(tuple(enumerate(kernel))):
            inner.insert(0, flat if number == 0 else sc.FloorMod(flat, sc.index(size)))
            flat = sc.FloorDiv(flat, sc.index(size))
        at_ = [w.place(a, k) for w, a, k in zip(sliding, at, inner, strict=True)]
        return x[(n, c, *at_)]

    return compute((x, places), out.shape, element)


def _put_rule(attrs: Values, x: TensorType, places: TensorType) -> TensorType:
    integers("nn.window_put", places)
    if len(places.shape) != len(x.shape) or not all(map(same_dim, places.shape, x.shape)):
        message = "nn.window_put takes one place for each value."
        refuse("shape-conflict", message, str(x), str(places))
    return _whole("nn.window_put", attrs, x)


def _put_body(attrs: Values, out: TensorType, x: sc.Buffer, places: sc.Buffer) -> Compute:
    kernel, sliding = sliding_windows("nn.window_put", attrs, len(x.shape) - 2)
    inner = wide(x.dtype)
    nothing = sc.Lit(0, inner)
    apart = _apart(kernel, sliding)

    def element(n: sc.Scalar, c: sc.Scalar, *at: sc.Scalar) -> sc.Scalar:
        if apart:
            scalars, own, checks = _only(kernel, sliding, at, x.shape[2:], out.shape[2:])
            here = sc.Eq(as_dtype(places[(n, c, *scalars)], i64), _count(kernel, own))
            zero = sc.Lit(0, x.dtype)
            return guarded(checks, sc.Select(here, x[(n, c, *scalars)], zero), zero)

        def load(*k: sc.Scalar) -> sc.Scalar:
            terms, checks = _holding(sliding, at, k, x.shape[2:])
            here = sc.Eq(as_dtype(places[(n, c, *terms)], i64), _count(kernel, k))
            value = sc.Select(here, as_dtype(x[(n, c, *terms)], inner), nothing)
            return guarded(checks, value, nothing)

        return as_dtype(reduce("sum", kernel, load), x.dtype)

    return compute((x, places), out.shape, element)


window_take = primitive(
    "nn.window_take", ("x", "places"), _take_rule, _take_body,
    "The element of each window at a flat index.", attributes=WINDOW,
    admits=NUMBER, like=(0,),
    gradient=lambda attrs, d, y, x, places: [
        window_put(d, places, **settings(attrs), size=_spatial(x)),
        None,
    ],
)  # fmt: skip
window_put: Operator = primitive(
    "nn.window_put", ("x", "places"), _put_rule, _put_body,
    "The transpose of nn.window_take: add each value at an index of its window.",
    attributes=(*WINDOW, _SIZE), admits=NUMBER, like=(0,),
    gradient=lambda attrs, d, y, x, places: [window_take(d, places, **settings(attrs)), None],
)  # fmt: skip
