"""Arguments for the main function of a module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.core import Term, free_vars
from plica.ir.generate.value import arrays
from plica.ir.graph.module import Module
from plica.ir.type import TensorType, TupleType, Type, evaluate


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
