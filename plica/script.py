"""The words of Plica's Python syntax, for scripts to import.

In a script they are read, not run; here they also have a meaning at run time, so that types can be
made by hand and editors know the names.

>>> str(Fn[(Tensor[("n", 4), f32],), Tensor[("2*n",), f32]])
'Fn[(Tensor[("n", 4), f32],), Tensor[("2*n",), f32]]'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import attrs

from plica.core import Name, ScriptError
from plica.ir.graph.expression import const
from plica.ir.loop.scalar import Scalar
from plica.ir.text.word import KERNEL_WORDS
from plica.ir.type.dim import DimLike, dim as to_dim, dim_var, normal_dim
from plica.ir.type.dim_text import read_dim
from plica.ir.type.dtype import (
    DType,
    bf16,
    bool_,
    f4e2m1fn,
    f8e4m3fn,
    f8e4m3fnuz,
    f8e5m2,
    f8e5m2fnuz,
    f16,
    f32,
    f64,
    i2,
    i4,
    i8,
    i16,
    i32,
    i64,
    u2,
    u4,
    u8,
    u16,
    u32,
    u64,
)
from plica.ir.type.term import FuncType, TensorType, Type, TypeVar
from plica.runtime.error import Diagnostic, Place

__all__ = [
    "Buffer", "Fn", "Tensor", "absurd", "archived", "bf16", "bool_", "const", "data", "dim",
    "f4e2m1fn", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f16", "f32", "f64", "forall",
    "i2", "i4", "i8", "i16", "i32", "i64", "measure", "partial", "u2", "u4", "u8", "u16",
    "u32", "u64",
]  # fmt: skip


def dim(text: str) -> Scalar:
    """A symbolic dim such as `dim("2*n+1")`."""
    if isinstance(found := read_dim(text, dim_var), str):
        place = Place(node=text)
        raise ScriptError(Diagnostic("unsupported-syntax", f"{text!r} is no dim: {found}.", place))
    return normal_dim(found)


class _Tensor:
    """`Tensor[("n", 4), f32]`: the type of a tensor; strings are symbolic dims."""

    __name__ = "Tensor"

    def __getitem__(self, given: tuple[tuple[DimLike | str, ...], DType]) -> TensorType:
        shape, dtype = given
        return TensorType(
            tuple([dim(size) if isinstance(size, str) else to_dim(size) for size in shape]), dtype
        )


@attrs.frozen
class forall:  # a word of the syntax
    """`forall("A B", dims="n")`: the parameters of a polymorphic function type."""

    types: str = ""
    dims: str = ""


class _Fn:
    """`Fn[(A, B), R]`: the type of a function; `Fn[..., forall("A", dims="n")]` binds."""

    __name__ = "Fn"

    def __getitem__(self, given: tuple[object, ...]) -> FuncType:
        params, ret, *rest = given
        bound = rest[0] if rest else forall()
        if not isinstance(params, tuple) or not isinstance(bound, forall) or len(rest) > 1:
            raise TypeError("A function type is written Fn[(A, B), R].")
        types = tuple([TypeVar(Name(name)) for name in bound.types.split()])
        dims = tuple([dim_var(name) for name in bound.dims.split()])
        return FuncType(dims, types, tuple(map(_as_type, params)), _as_type(ret))


Tensor: Final = _Tensor()
Fn: Final = _Fn()


def _as_type(given: object) -> Type:
    """A type; a dtype is the type of its scalars."""
    if isinstance(given, DType):
        return TensorType((), given)
    return given  # type: ignore[return-value]  # terms check what they are made of


def _only_in_scripts(word: str) -> ScriptError:
    message = f"{word}(...) has a meaning inside scripts only."
    return ScriptError(Diagnostic("unsupported-syntax", message, Place(node=word)))


def partial(value: object) -> object:
    """`match partial(t):` need not cover every value."""
    raise _only_in_scripts("partial")


def measure(dim: str, value: object) -> None:
    """`measure("n", k)`: from here on the dim n, which the function binds, is the number k."""
    raise _only_in_scripts("measure")


def absurd(value: object) -> object:
    """The match on a value of a type that has none."""
    raise _only_in_scripts("absurd")


def data(content: str, shape: tuple[int, ...], dtype: DType) -> object:
    """A constant as bytes in base 85, as the printer writes it."""
    raise _only_in_scripts("data")


def archived(key: str, shape: tuple[int, ...], dtype: DType) -> object:
    """A constant stored separately from the text, as the printer writes it."""
    raise _only_in_scripts("archived")


class _Buffer:
    """`Buffer[("n", 4), f32, "shared"]`: the type of a kernel's buffer."""

    __name__ = "Buffer"

    def __getitem__(self, given: tuple[object, ...]) -> tuple[object, ...]:
        return given


Buffer: Final = _Buffer()


class _KernelWord:
    """A word that kernels are written with."""

    def __init__(self, word: str) -> None:
        self.__name__ = word

    def __call__(self, /, *args: object, **named: object) -> NoReturn:
        raise _only_in_scripts(self.__name__)

    def __repr__(self) -> str:
        return f"<plica word {self.__name__}>"


if not TYPE_CHECKING:
    # Loops, blocks, intrinsics …: they have a meaning in kernels only.
    globals().update({word: _KernelWord(word) for word in KERNEL_WORDS - {"Buffer"}})
