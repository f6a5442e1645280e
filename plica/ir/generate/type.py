"""Types of the graph language, every kind of them, without regard to who inhabits them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.core import Name, post_order
from plica.ir.generate.name import names
from plica.ir.generate.scalar import dims
from plica.ir.generate.value import dtypes
from plica.ir.loop.scalar import ScalarVar
from plica.ir.type.dim import dim_var
from plica.ir.type.term import DataName, DataType, FuncType, TensorType, TupleType, Type, TypeVar


@st.composite
def types(
    draw: DrawFn,
    dim_vars: Sequence[ScalarVar] = (),
    type_vars: Sequence[TypeVar] = (),
    data: Sequence[DataName] = (DataName(Name("List")),),
    depth: int = 2,
) -> Type:
    """Types over the given dims, type variables and (one-argument) data types."""
    kinds = ["tensor", "tensor"]
    if depth:
        kinds += ["tuple", "function", "data"]
    if type_vars:
        kinds.append("variable")

    def inner(dims: Sequence[ScalarVar] = (), more: Sequence[TypeVar] = ()) -> Type:
        return draw(types((*dim_vars, *dims), (*type_vars, *more), data, depth - 1))

    match draw(st.sampled_from(kinds)):
        case "tuple":
            return TupleType(tuple(inner() for _ in range(draw(st.integers(0, 3)))))
        case "data" if data:
            return DataType(draw(st.sampled_from(list(data))), (inner(),))
        case "variable":
            return draw(st.sampled_from(list(type_vars)))
        case "function":
            bound = draw(st.lists(names(odd=False), max_size=2, unique=True))
            more = tuple(TypeVar(name) for name in bound)
            own = (dim_var("p"),) if draw(st.booleans()) else ()
            params = tuple(inner(own, more) for _ in range(draw(st.integers(0, 2))))
            return FuncType(dims_in(params, own), more, params, inner(own, more))
        case _:
            shape = draw(st.lists(dims(dim_vars), max_size=3))
            return TensorType(tuple(shape), draw(dtypes()))


def dims_in(types: Sequence[Type], among: Sequence[ScalarVar]) -> tuple[ScalarVar, ...]:
    """Those of the dims that the types mention, in order of first appearance."""
    found = [node for node in post_order(*types) if isinstance(node, ScalarVar)]
    return tuple(dict.fromkeys(each for each in found if each in among))
