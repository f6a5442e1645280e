"""Cases: for each operator a strategy for arrays and attributes that it takes.

Values are *wild* (extremes, subnormals, infinities, nan, both zeros) where an operator works
element by element, and *tame* (small numbers, sometimes infinities and nan) where it sums many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
from hypothesis import assume

from plica.ir.dtype import DTYPES, DType, bool_
from plica.ir.op import Mismatch, Operator, find
from plica.ir.type import tensor

Array = np.ndarray[Any, Any]
Draw = Any  # hypothesis's own draw function


class Case(NamedTuple):
    """Arguments of an operator."""

    args: tuple[Array, ...]
    attrs: Mapping[str, Any]


FLOATS: Final = tuple(each for each in DTYPES if each.is_float)
INTEGERS: Final = tuple(each for each in DTYPES if each.is_integer)
NUMBERS: Final = FLOATS + INTEGERS
CASES: Final[dict[str, st.SearchStrategy[Case]]] = {}


def pool(dtype: DType, wild: bool) -> Array:
    """Values of a dtype worth trying, simple ones first."""
    if dtype is bool_:
        return np.array([False, True])
    if not dtype.is_float:
        low, high = dtype.bounds
        near: list[Any] = [1, 0, 2, 3, 5, 7] + ([-1, -2, -3] if low else [])
        extremes = [low, low + 1, high, high - 1, dtype.bits, dtype.bits - 1]
        return np.array(near + (extremes if wild else []), dtype.numpy)
    tame = [1.0, 0.0, -0.0, 0.5, -1.0, 2.0, -1.5, 2.5, 3.25, -2.75, 0.1, np.inf, -np.inf, np.nan]
    info: Any = np.finfo(np.float32) if dtype.name == "bf16" else np.finfo(dtype.numpy)
    tiny, top = float(info.tiny), float(info.max)
    far: list[float] = [
        tiny,
        -tiny,
        tiny / 4,
        0.3 * top,
        -0.3 * top,
        1e-3,
        17.0,
        -90.0,
        100.5,
        720.0,
    ]
    with np.errstate(all="ignore"):
        return np.array(tame + (far if wild else []), np.float64).astype(dtype.numpy)


@st.composite
def array(
    draw: Draw, dtype: DType, shape: Sequence[int], wild: bool = False, finite: bool = False
) -> Array:
    """An array of values of the pool."""
    values = pool(dtype, wild)
    if finite and dtype.is_float:
        values = values[np.isfinite(values)]
    # Infinities and nan drown everything else in a sum: most arrays have none.
    if not wild and dtype.is_float and draw(st.integers(0, 4)) != 0:
        values = values[np.isfinite(values)]
    places = draw(hnp.arrays(np.int64, tuple(shape), elements=st.integers(0, len(values) - 1)))
    return np.asarray(values[places])


def shapes(low: int = 0, high: int = 4, side: int = 0) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of some ranks and small sides."""
    return (
        hnp.array_shapes(min_dims=low, max_dims=high, min_side=side, max_side=4)
        if low
        else (
            st.one_of(
                st.just(()), hnp.array_shapes(min_dims=1, max_dims=high, min_side=side, max_side=4)
            )
        )
    )


def admitted(record: Operator) -> tuple[DType, ...]:
    """The dtypes that an elementwise operator takes, as its relation says."""
    fit = []
    for each in DTYPES:
        found = record.relation({}, *[tensor((), each) for _ in record.inputs])
        fit += [] if isinstance(found, Mismatch) else [each]
    return tuple(fit)


def known(name: str) -> Operator:
    """The record of a name that must exist."""
    found = find(name)
    assert found is not None, name
    return found


def case(*names: str) -> Callable[[Callable[..., Case]], Callable[..., Case]]:
    """The strategy of the operators that the decorated function draws for."""

    def note(function: Callable[..., Case]) -> Callable[..., Case]:
        build = st.composite(function)
        CASES.update({name: build(name) for name in names})
        return function

    return note


def one(draw: Draw, dtypes: Sequence[DType], shape: Any = None, **how: Any) -> Array:
    """One array of one of the dtypes."""
    size = draw(shapes()) if shape is None else shape
    found: Array = draw(array(draw(st.sampled_from(tuple(dtypes))), size, **how))
    return found


def axis_in(draw: Draw, rank: int) -> int:
    """An axis, counted from either end."""
    return int(draw(st.integers(-rank, rank - 1)))


def some_axes(draw: Draw, rank: int) -> Any:
    """None, or some axes counted from either end."""
    if draw(st.booleans()):
        return None
    chosen = draw(st.lists(st.integers(0, rank - 1), unique=True) if rank else st.just([]))
    return tuple(at - rank * draw(st.integers(0, 1)) for at in chosen)


# --- elementwise ---------------------------------------------------------------------------------


def elementwise(name: str) -> None:
    """An operator without attributes whose arguments broadcast."""
    record = known(name)
    dtypes = admitted(record)

    @case(name)
    def draw_case(draw: Draw, _: str) -> Case:
        dtype = draw(st.sampled_from(dtypes))
        sizes = draw(
            hnp.mutually_broadcastable_shapes(
                num_shapes=len(record.inputs), max_dims=4, min_side=0, max_side=3
            )
        ).input_shapes
        return Case(tuple(draw(array(dtype, each, wild=True)) for each in sizes), {})


# fmt: off
ELEMENTWISE: Final = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos",
    "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh",
    "arctanh", "erf", "floor", "ceil", "round", "trunc", "absolute", "sign", "negative",
    "square", "reciprocal", "degrees", "radians", "copy", "isnan", "isinf", "isfinite",
    "signbit", "add", "subtract", "multiply", "divide", "floor_divide", "trunc_divide", "mod",
    "fmod", "power", "maximum", "minimum", "fmax", "fmin", "arctan2", "copysign", "logaddexp",
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and",
    "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor",
    "bitwise_not", "left_shift", "right_shift", "nn.relu", "nn.relu6", "nn.selu", "nn.sigmoid",
    "nn.log_sigmoid", "nn.silu", "nn.softplus", "nn.softsign", "nn.hard_swish", "nn.hard_tanh",
    "nn.mish",
)
# fmt: on
for _name in ELEMENTWISE:
    elementwise(_name)


@case("cast")
def _cast(draw: Draw, _: str) -> Case:
    x = one(draw, DTYPES, wild=True)
    return Case((x,), {"dtype": draw(st.sampled_from(DTYPES)).name})


@case("clip")
def _clip(draw: Draw, _: str) -> Case:
    bound = st.one_of(st.none(), st.integers(0, 5))
    return Case((one(draw, NUMBERS, wild=True),), {"min": draw(bound), "max": draw(bound)})


@case("nn.leaky_relu", "nn.elu", "nn.celu", "nn.thresholded_relu")
def _alpha(draw: Draw, _: str) -> Case:
    x = one(draw, FLOATS, wild=True)
    return Case((x,), {"alpha": draw(st.sampled_from([1.0, 0.5, 0.01, 2.0]))})


@case("nn.gelu")
def _gelu(draw: Draw, _: str) -> Case:
    x = one(draw, FLOATS, finite=True)
    return Case((x,), {"approximate": draw(st.sampled_from(["none", "tanh"]))})


@case("nn.hard_sigmoid")
def _hard_sigmoid(draw: Draw, _: str) -> Case:
    return Case((one(draw, FLOATS, wild=True),), {"alpha": 0.25, "beta": 0.5})


@case("nn.dropout")
def _dropout(draw: Draw, _: str) -> Case:
    return Case((one(draw, FLOATS, wild=True),), {"rate": 0.25})


@case("nn.prelu", "nn.bias_add")
def _channel(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1))
    dtype = draw(st.sampled_from(FLOATS))
    at = axis_in(draw, len(shape))
    args = draw(array(dtype, shape)), draw(array(dtype, (shape[at],)))
    return Case(args, {"axis": at})


# --- reductions ----------------------------------------------------------------------------------


@case("sum", "prod", "mean", "max", "min", "logsumexp", "all", "any", "var", "std")
def _reduction(draw: Draw, name: str) -> Case:
    whole = {"sum": NUMBERS, "prod": NUMBERS, "max": NUMBERS, "min": NUMBERS}.get(name, FLOATS)
    dtypes = (bool_,) if name in ("all", "any") else whole
    extreme = name in ("max", "min", "logsumexp")
    shape = draw(shapes(side=1 if extreme else 0))
    x = one(draw, dtypes, shape, wild=name in ("max", "min"), finite=name == "prod")
    attrs = {"axis": some_axes(draw, len(shape)), "keepdims": draw(st.booleans())}
    if name in ("var", "std"):
        attrs["ddof"] = draw(st.integers(0, 2))
    return Case((x,), attrs)


@case("cumsum", "cumprod")
def _running(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1, 3, side=1))
    flags = {name: draw(st.booleans()) for name in ("exclusive", "reverse")}
    x = one(draw, NUMBERS, shape, finite=True)
    return Case((x,), {"axis": axis_in(draw, len(shape)), **flags})


@case("argmax", "argmin")
def _position(draw: Draw, _: str) -> Case:
    shape = draw(shapes(0, 3, side=1))
    at = axis_in(draw, len(shape)) if shape and draw(st.booleans()) else None
    flags = {name: draw(st.booleans()) for name in ("keepdims", "last")}
    return Case((one(draw, NUMBERS, shape, wild=True),), {"axis": at, **flags})


# --- shapes --------------------------------------------------------------------------------------


@case("reshape")
def _reshape(draw: Draw, _: str) -> Case:
    shape = draw(shapes())
    left, wanted = math.prod(shape), list[int]()
    while left > 1:
        part = draw(st.sampled_from([n for n in range(2, left + 1) if left % n == 0]))
        wanted.append(part)
        left //= part
    wanted += [1] * draw(st.integers(0, 2)) + ([0] if left == 0 else [])
    wanted = list(draw(st.permutations(wanted)))
    if wanted and 0 not in wanted and draw(st.booleans()):
        wanted[draw(st.integers(0, len(wanted) - 1))] = -1
    return Case((one(draw, DTYPES, shape),), {"shape": tuple(wanted)})


@case("ravel")
def _ravel(draw: Draw, _: str) -> Case:
    return Case((one(draw, DTYPES),), {})


@case("nn.flatten")
def _flatten(draw: Draw, _: str) -> Case:
    shape = draw(shapes())
    at = draw(st.integers(-len(shape), len(shape)))
    return Case((one(draw, DTYPES, shape),), {"axis": at})


@case("transpose")
def _transpose(draw: Draw, _: str) -> Case:
    shape = draw(shapes())
    order = tuple(draw(st.permutations(range(len(shape)))))
    axes = draw(st.sampled_from([None, order]))
    return Case((one(draw, DTYPES, shape),), {"axes": axes})


@case("swapaxes")
def _swapaxes(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1))
    pair = [axis_in(draw, len(shape)) for _ in range(2)]
    return Case((one(draw, DTYPES, shape),), {"axis1": pair[0], "axis2": pair[1]})


@case("moveaxis")
def _moveaxis(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1))
    rank = len(shape)
    count = draw(st.integers(0, rank))
    source, target = (tuple(draw(st.permutations(range(rank)))[:count]) for _ in range(2))
    return Case((one(draw, DTYPES, shape),), {"source": source, "destination": target})


@case("squeeze")
def _squeeze(draw: Draw, _: str) -> Case:
    shape = draw(shapes())
    ones = [at for at, size in enumerate(shape) if size == 1]
    chosen = tuple(draw(st.lists(st.sampled_from(ones), unique=True))) if ones else ()
    axis = draw(st.sampled_from([None, chosen]))
    return Case((one(draw, DTYPES, shape),), {"axis": axis})


@case("expand_dims")
def _expand_dims(draw: Draw, _: str) -> Case:
    shape = draw(shapes(0, 3))
    rank = len(shape) + draw(st.integers(1, 2))
    new = draw(st.permutations(range(rank)))[: rank - len(shape)]
    return Case((one(draw, DTYPES, shape),), {"axis": tuple(new)})


@case("broadcast_to")
def _broadcast_to(draw: Draw, _: str) -> Case:
    found = draw(
        hnp.mutually_broadcastable_shapes(num_shapes=1, max_dims=3, min_side=0, max_side=3)
    )
    (shape,) = found.input_shapes
    tail = tuple(draw(st.integers(0, 3)) if size == 1 else size for size in shape)
    lead = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    return Case((one(draw, DTYPES, shape),), {"shape": (*lead, *tail)})


@case("tile")
def _tile(draw: Draw, _: str) -> Case:
    reps = tuple(draw(st.lists(st.integers(0, 3), max_size=4)))
    return Case((one(draw, DTYPES, draw(shapes(0, 3))),), {"reps": reps})


@case("repeat")
def _repeat(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1))
    attrs = {"repeats": draw(st.integers(0, 3)), "axis": axis_in(draw, len(shape))}
    return Case((one(draw, DTYPES, shape),), attrs)


@case("flip")
def _flip(draw: Draw, _: str) -> Case:
    shape = draw(shapes())
    return Case((one(draw, DTYPES, shape),), {"axis": some_axes(draw, len(shape))})


@case("roll")
def _roll(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1))
    axes = tuple(axis_in(draw, len(shape)) for _ in range(draw(st.integers(1, 2))))
    shift = tuple(draw(st.integers(-5, 5)) for _ in axes)
    return Case((one(draw, DTYPES, shape),), {"shift": shift, "axis": axes})


@case("concat", "stack")
def _joined(draw: Draw, name: str) -> Case:
    shape = list(draw(shapes(1 if name == "concat" else 0, 3)))
    dtype = draw(st.sampled_from(DTYPES))
    rank = len(shape) + (name == "stack")
    at = axis_in(draw, rank)
    args = []
    for _ in range(draw(st.integers(1, 4))):
        if name == "concat":
            shape[at] = draw(st.integers(0, 3))
        args.append(draw(array(dtype, shape)))
    return Case(tuple(args), {"axis": at})


@case("split")
def _split(draw: Draw, _: str) -> Case:
    shape = list(draw(shapes(1)))
    at = axis_in(draw, len(shape))
    if draw(st.booleans()):
        parts: Any = draw(st.integers(1, 3))
        shape[at] *= parts
    else:
        parts = tuple(sorted(draw(st.lists(st.integers(0, 5), max_size=3))))
    return Case((one(draw, DTYPES, shape),), {"indices_or_sections": parts, "axis": at})


@case("slice")
def _slice(draw: Draw, _: str) -> Case:
    shape = draw(shapes())
    count = draw(st.integers(0, len(shape)))
    axes = tuple(draw(st.permutations(range(len(shape))))[:count])
    end = st.one_of(st.none(), st.integers(-6, 6))
    starts, stops = (tuple(draw(end) for _ in axes) for _ in range(2))
    steps = tuple(draw(st.sampled_from([1, 2, 3, -1, -2])) for _ in axes)
    attrs = {"starts": starts, "stops": stops, "steps": steps, "axes": axes}
    return Case((one(draw, DTYPES, shape),), attrs)


@case("diagonal")
def _diagonal(draw: Draw, _: str) -> Case:
    shape = draw(shapes(2))
    first, second = draw(st.permutations(range(len(shape))))[:2]
    attrs = {"offset": draw(st.integers(-3, 3)), "axis1": first, "axis2": second}
    return Case((one(draw, DTYPES, shape),), attrs)


@case("tril", "triu")
def _triangle(draw: Draw, _: str) -> Case:
    return Case((one(draw, DTYPES, draw(shapes(2))),), {"k": draw(st.integers(-3, 3))})


@case("pad")
def _pad(draw: Draw, _: str) -> Case:
    mode = draw(st.sampled_from(["constant", "edge", "reflect", "symmetric", "wrap"]))
    shape = draw(shapes(0, 3, side=0 if mode == "constant" else 1))
    width = tuple((draw(st.integers(0, 5)), draw(st.integers(0, 5))) for _ in shape)
    attrs: dict[str, Any] = {"pad_width": width, "mode": mode}
    if mode == "constant":
        attrs["constant_values"] = draw(st.integers(0, 1))
    return Case((one(draw, DTYPES, shape),), attrs)


@case("nn.depth_to_space", "nn.space_to_depth")
def _pixels(draw: Draw, name: str) -> Case:
    n, c, h, w = (draw(st.integers(0, 2)) for _ in range(4))
    b = draw(st.integers(1, 3))
    if name == "nn.depth_to_space":
        attrs = {"block": b, "column_row_depth": draw(st.booleans())}
        return Case((one(draw, DTYPES, (n, c * b * b, h, w)),), attrs)
    return Case((one(draw, DTYPES, (n, c, h * b, w * b)),), {"block": b})


@case("nn.upsample")
def _upsample(draw: Draw, _: str) -> Case:
    return Case((one(draw, DTYPES, draw(shapes(3))),), {"scale": draw(st.integers(1, 3))})


# --- indices -------------------------------------------------------------------------------------


@case("where")
def _where(draw: Draw, _: str) -> Case:
    dtype = draw(st.sampled_from(DTYPES))
    found = draw(
        hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, min_side=0, max_side=3)
    )
    a, b, c = found.input_shapes
    chosen = draw(array(bool_, a))
    return Case((chosen, draw(array(dtype, b, wild=True)), draw(array(dtype, c, wild=True))), {})


def indices(draw: Draw, size: int, shape: Sequence[int], mode: str = "raise") -> Array:
    """Indices of an axis, within bounds unless the mode settles it."""
    dtype = draw(st.sampled_from(INTEGERS))
    low, high = (-size, size - 1) if mode == "raise" else (-9, 9)
    low = 0 if dtype.kind == "uint" else low
    assume(low <= high or 0 in shape)
    numbers = st.integers(low, max(low, high))
    return np.asarray(
        draw(hnp.arrays(np.int64, tuple(shape), elements=numbers)).astype(dtype.numpy)
    )


@case("take", "take_along_axis")
def _take(draw: Draw, name: str) -> Case:
    shape = list(draw(shapes(1, 3, side=1)))
    at = axis_in(draw, len(shape))
    mode = draw(st.sampled_from(["raise", "clip", "wrap"]))
    x = one(draw, DTYPES, shape)
    if name == "take":
        wanted: Any = draw(shapes(0, 2))
    else:
        wanted = list(shape)
        wanted[at] = draw(st.integers(0, 3))
    chosen = indices(draw, shape[at], wanted, mode)
    return Case((x, chosen), {"axis": at, "mode": mode})


@case("gather_nd")
def _gather_nd(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1, 4, side=1))
    batch = draw(st.integers(0, min(2, len(shape) - 1)))
    depth = draw(st.integers(1, len(shape) - batch))
    outer = (*shape[:batch], *draw(shapes(0, 2)))
    columns = [indices(draw, shape[batch + d], outer).astype(np.int64) for d in range(depth)]
    return Case((one(draw, DTYPES, shape), np.stack(columns, -1)), {"batch_dims": batch})


@case("one_hot")
def _one_hot(draw: Draw, _: str) -> Case:
    shape = draw(shapes(0, 2))
    attrs = {
        "depth": draw(st.integers(0, 4)),
        "axis": axis_in(draw, len(shape) + 1),
        "dtype": draw(st.sampled_from(DTYPES)).name,
        "on": draw(st.integers(0, 1)),
        "off": draw(st.integers(0, 1)),
    }
    return Case((indices(draw, 4, shape, "wrap"),), attrs)


# --- creation ------------------------------------------------------------------------------------


@case("full", "zeros", "ones", "iota")
def _created(draw: Draw, name: str) -> Case:
    shape = draw(shapes(1 if name == "iota" else 0))
    dtypes = NUMBERS if name == "iota" else DTYPES
    attrs: dict[str, Any] = {"shape": shape, "dtype": draw(st.sampled_from(dtypes)).name}
    if name == "full":
        attrs["value"] = draw(st.integers(0, 1))
    if name == "iota":
        attrs["axis"] = axis_in(draw, len(shape))
    return Case((), attrs)


@case("full_like", "zeros_like", "ones_like", "iota_like")
def _created_like(draw: Draw, name: str) -> Case:
    shape = draw(shapes(1 if name == "iota_like" else 0))
    attrs: dict[str, Any] = {"dtype": draw(st.sampled_from(NUMBERS)).name}
    if name == "full_like":
        attrs["value"] = draw(st.integers(0, 1))
    if name == "iota_like":
        attrs["axis"] = axis_in(draw, len(shape))
    return Case((one(draw, DTYPES, shape),), attrs)


@case("arange")
def _arange(draw: Draw, _: str) -> Case:
    start, stop = (draw(st.integers(0, 9)) for _ in range(2))
    step = draw(st.sampled_from([1, 2, 3]))
    dtype = draw(st.sampled_from(NUMBERS)).name
    return Case((), {"start": start, "stop": stop, "step": step, "dtype": dtype})


@case("eye")
def _eye(draw: Draw, _: str) -> Case:
    n, m = draw(st.integers(0, 4)), draw(st.one_of(st.none(), st.integers(0, 4)))
    dtype = draw(st.sampled_from(DTYPES)).name
    return Case((), {"n": n, "m": m, "k": draw(st.integers(-3, 3)), "dtype": dtype})


@case("size")
def _size(draw: Draw, _: str) -> Case:
    shape = draw(shapes())
    return Case((one(draw, DTYPES, shape),), {"axis": some_axes(draw, len(shape))})


@case("shape_of")
def _shape_of(draw: Draw, _: str) -> Case:
    return Case((one(draw, DTYPES),), {})
