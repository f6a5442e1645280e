"""Types of the graph language.

    Type ::= TensorType(shape, dtype) | TupleType(items) | FuncType(dims, types, params, ret)
           | DataType(data, args) | TypeVar(name) | Unknown(name)

Dims are index terms in normal form. `Unknown` stands for types yet to be inferred; inferred modules
contain none.

>>> str(tensor((dim_var("n"), 4), f32))
'Tensor[("n", 4), f32]'
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from attrs import frozen

from plica.core import Name, Term, all_of
from plica.ir.loop.scalar import Scalar, ScalarVar
from plica.ir.type.dim import DimLike, dim, dim_var, known, normal_dim
from plica.ir.type.dtype import DType, dtype, f32
from plica.runtime.late import late

WRITTEN = "ir.type"  # the path that its terms are written down under

__all__ = [
    "DataName", "DataType", "FuncType", "TensorType", "TupleType", "Type", "TypeVar", "Unknown",
    "dim_var", "f32", "holds_function", "static_shape", "tensor",
]  # fmt: skip


class TypeTerm(Term):
    """Common base of types: they print in script syntax."""

    __slots__ = ()

    def __str__(self) -> str:
        return str(late("plica.ir.text.show.type:show_type")(self))  # it needs the grammar first


@frozen(eq=False)
class TensorType(TypeTerm):
    """A tensor of the given dims; rank 0 is a scalar."""

    shape: tuple[Scalar, ...]
    dtype: DType

    @staticmethod
    def normal(shape: tuple[Scalar, ...], dtype: DType) -> tuple[tuple[Scalar, ...], DType]:
        return tuple([normal_dim(size) for size in shape]), dtype


@frozen(eq=False)
class TupleType(TypeTerm):
    """A tuple; with no items the unit type."""

    items: tuple[Type, ...]


@frozen(eq=False)
class TypeVar(TypeTerm):
    """A type a polymorphic definition abstracts over."""

    variable = True
    name: Name


@frozen(eq=False)
class DataName(Term):
    """The name of an algebraic data type, bound by its module."""

    variable = True
    name: Name


@frozen(eq=False)
class DataType(TypeTerm):
    """An algebraic data type applied to its arguments."""

    data: DataName
    args: tuple[Type, ...]


@frozen(eq=False)
class FuncType(TypeTerm):
    """A function, for all dims and types it binds."""

    binds = (("dims", ("params", "ret")), ("types", ("params", "ret")))
    dims: tuple[ScalarVar, ...]
    types: tuple[TypeVar, ...]
    params: tuple[Type, ...]
    ret: Type


@frozen(eq=False)
class Unknown(TypeTerm):
    """A type that inference has yet to find."""

    name: Name


Type: TypeAlias = TensorType | TupleType | FuncType | DataType | TypeVar | Unknown


def tensor(shape: Iterable[DimLike | str], of: DType | str) -> TensorType:
    """A tensor type; a string is a symbolic dim."""
    dims = tuple(dim_var(size) if isinstance(size, str) else dim(size) for size in shape)
    return TensorType(dims, dtype(of))


def static_shape(of: TensorType) -> tuple[int, ...] | None:
    """The numeric shape, or None if a dim is symbolic."""
    sizes = [known(size) for size in of.shape]
    return None if None in sizes else tuple(size for size in sizes if size is not None)


def holds_function(of: Type | None) -> bool:
    """Whether a type is that of a function or has one in it."""
    return of is not None and bool(all_of(FuncType, of))
