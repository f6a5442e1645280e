"""Cases: for each operator a strategy for arrays and attributes that it takes.

Values are *wild* (extremes, subnormals, infinities, nan, both zeros) where an operator works
element by element, and *tame* (small numbers, sometimes infinities and nan) where it sums many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import ml_dtypes
import numpy as np

from plica.ir.op import Mismatch, Operator, find
from plica.ir.op.elementwise import DECODED
from plica.ir.type.dtype import COMPUTED, DTYPES, DType, bool_, f32, f64
from plica.ir.type.term import tensor

Array = np.ndarray[Any, Any]
Draw = Any  # hypothesis's own draw function


class Case(NamedTuple):
    """Arguments of an operator."""

    args: tuple[Array, ...]
    attrs: Mapping[str, Any]


FLOATS: Final = tuple(each for each in COMPUTED if each.is_float)
INTEGERS: Final = tuple(each for each in COMPUTED if each.is_integer)
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
    info: Any = np.finfo(np.float32) if dtype.name == "bf16" else ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]  # it has no types
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


@case("bits_as")
def _bits_as(draw: Draw, _: str) -> Case:
    x = one(draw, [each for each in DTYPES if each.is_integer and each.bits >= 8], wild=True)
    return Case((x,), {"dtype": draw(st.sampled_from(DECODED)).name})


@case("bits_of")
def _bits_of(draw: Draw, _: str) -> Case:
    return Case((one(draw, (f32, f64), wild=True),), {})


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


EXTREMES = ("max", "min", "supremum", "infimum")


@case("sum", "prod", "mean", *EXTREMES, "logsumexp", "all", "any", "var", "std")
def _reduction(draw: Draw, name: str) -> Case:
    whole = NUMBERS if name in (*EXTREMES, "sum", "prod") else FLOATS
    dtypes = (bool_,) if name in ("all", "any") else whole
    extreme = name in ("max", "min")
    shape = draw(shapes(side=1 if extreme else 0))
    x = one(draw, dtypes, shape, wild=name in EXTREMES, finite=name == "prod")
    attrs = {"axis": some_axes(draw, len(shape)), "keepdims": draw(st.booleans())}
    if name in ("var", "std"):
        attrs["ddof"] = draw(st.integers(0, 2))
    return Case((x,), attrs)


@case("cumsum", "cumprod", "cummax", "cummin")
def _running(draw: Draw, name: str) -> Case:
    shape = draw(shapes(1, 3, side=1))
    words = ("reverse",) if name in ("cummax", "cummin") else ("exclusive", "reverse")
    flags = {word: draw(st.booleans()) for word in words}
    x = one(draw, NUMBERS, shape, finite=True)
    return Case((x,), {"axis": axis_in(draw, len(shape)), **flags})


@case("argmax", "argmin")
def _position(draw: Draw, _: str) -> Case:
    shape = draw(shapes(0, 3, side=1))
    at = axis_in(draw, len(shape)) if shape and draw(st.booleans()) else None
    flags = {name: draw(st.booleans()) for name in ("keepdims", "last")}
    return Case((one(draw, NUMBERS, shape, wild=True),), {"axis": at, **flags})
