"""Values: numbers, arrays and constants of every dtype, the awkward ones included."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.core import Term, free_vars
from plica.ir.graph.expression import Const
from plica.ir.graph.module import Module
from plica.ir.type import TensorType, TupleType, Type, evaluate
from plica.ir.type.dtype import COMPUTED, DTYPES, DType, bool_

Array: TypeAlias = np.ndarray[Any, Any]


FLOATS: Final = (
    0.0, 1.0, -1.0, 0.5, -0.0, 2.0, -3.25, 0.1, 1e-3, 100.0, 1e30, -1e30, 1e-40,
    math.inf, -math.inf, math.nan,
)  # fmt: skip


def dtypes() -> st.SearchStrategy[DType]:
    """Every dtype that arithmetic is done in; f32 is the simplest."""
    return st.sampled_from(sorted(COMPUTED, key=lambda each: (each.name != "f32", each.name)))


def every_dtype() -> st.SearchStrategy[DType]:
    """Every dtype, those that only keep numbers included; f32 is the simplest."""
    return st.sampled_from(sorted(DTYPES, key=lambda each: (each.name != "f32", each.name)))


def floats(finite: bool = False) -> st.SearchStrategy[float]:
    """Floats around the places where things go wrong."""
    special = [x for x in FLOATS if not finite or math.isfinite(x)]
    exact = st.integers(-64, 64).map(lambda n: n / 8)
    return st.one_of(st.sampled_from(special), exact)


def integers(dtype: DType) -> st.SearchStrategy[int]:
    """Integers of a dtype: small ones, and both ends."""
    low, high = dtype.bounds
    small = st.integers(max(low, -9), min(high, 9))
    return st.one_of(small, small, st.sampled_from((0, 1, low, high, high // 2)))


def numbers(dtype: DType, finite: bool = False) -> st.SearchStrategy[bool | int | float]:
    """A Python number that is a value of the dtype (floats are rounded to it)."""
    if dtype is bool_:
        return st.booleans()
    if dtype.is_float:
        return (
            floats(finite)
            .map(lambda x: _rounded(x, dtype))
            .filter(lambda x: not finite or math.isfinite(x))
        )
    return integers(dtype)


def arrays(dtype: DType, shape: tuple[int, ...], finite: bool = False) -> st.SearchStrategy[Array]:
    """Arrays of a dtype and shape; few distinct values when they are large."""
    count = math.prod(shape)
    few = st.lists(numbers(dtype, finite), min_size=min(count, 1), max_size=min(count, 8))
    return few.map(lambda values: _array(values, dtype, shape))


def constants(dtype: DType, shape: tuple[int, ...]) -> st.SearchStrategy[Const]:
    """Constants; at times with arbitrary bits, so that nans have payloads."""
    plain = arrays(dtype, shape).map(lambda each: Const(dtype, shape, each.tobytes()))
    size = math.prod(shape) * dtype.bytes
    if not dtype.is_float or size == 0 or size > 64:
        return plain
    bits = st.binary(min_size=size, max_size=size).map(lambda raw: Const(dtype, shape, raw))
    return st.one_of(plain, plain, plain, bits)


def small_shapes() -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes with the sizes that matter: 0, 1 and a few others."""
    return st.lists(st.sampled_from((2, 3, 1, 4, 0)), max_size=3).map(tuple)


def _rounded(value: float, dtype: DType) -> float:
    with np.errstate(over="ignore"):
        return float(np.asarray(value, np.float64).astype(dtype.numpy))


def _array(values: list[Any], dtype: DType, shape: tuple[int, ...]) -> Array:
    """The values laid out over the shape, over and over."""
    flat = np.zeros(math.prod(shape), dtype.numpy)
    if values:
        flat[:] = np.resize(np.asarray(values, dtype.numpy), flat.shape)
    return flat.reshape(shape)


@st.composite
def inputs_for(draw: DrawFn, module: Module, finite: bool = False) -> tuple[Any, ...]:
    """A value for each parameter of main: arrays, or tuples of them.

    Symbolic dims get sizes from 0 to 4; floats include nan and the infinities unless `finite`.
    """
    function = module.main_function()
    sizes: dict[Term, int] = {dim: draw(st.sampled_from((2, 3, 1, 4, 0))) for dim in function.dims}
    return tuple(draw(values_of(var.type, sizes, finite)) for var in function.params)


@st.composite
def values_of(
    draw: DrawFn, type: Type | None, sizes: Mapping[Term, int], finite: bool = False
) -> Any:
    """A value of a tensor or tuple type at the given sizes of its dims."""
    match type:
        case TensorType(shape, dtype):
            known = [evaluate(each, sizes) for each in shape]
            assert None not in known, f"{free_vars(type)} are not all given"
            return draw(arrays(dtype, tuple(int(each or 0) for each in known), finite))
        case TupleType(items):
            return tuple(draw(values_of(item, sizes, finite)) for item in items)
        case _:
            raise AssertionError(f"main takes tensors and tuples of them, found {type!r}")
