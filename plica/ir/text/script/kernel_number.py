"""Numbers in the text of kernels: literals take the dtype of the adjacent operand.

Alone a number is i64, f32 or bool.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, TypeAlias

import attrs

from plica.core import IllFormed
from plica.ir.loop import scalar as sc
from plica.ir.text.script.kernel_scope import KernelScope
from plica.ir.text.script.origin import Node, Origin, Problems, SourceReader
from plica.ir.text.script.scope import Word, meaning
from plica.ir.text.word import TAKEN_IN_KERNELS
from plica.ir.type import DType, bool_, f32, i64


@attrs.frozen
class Bare:
    """A number whose dtype is not known yet."""

    value: bool | int | float


Value: TypeAlias = "sc.Scalar | Bare | None"  # None: it was wrong, and that is noted
Build: TypeAlias = "Callable[[list[Value]], Value | type[ScopeOnly]]"
Work: TypeAlias = "ast.expr | tuple[Build, int]"


class ScopeOnly:
    """The result of a step that only changes the scope."""


class NumberReader(SourceReader):
    """Assigns dtypes to terms; records errors and continues."""

    def __init__(self, scope: KernelScope, origin: Origin, problems: Problems) -> None:
        self.scope = scope
        self.origin = origin
        self.problems = problems

    def word(self, node: ast.expr) -> str | None:
        """The keyword of a name, or None if it means something else."""
        if isinstance(node, ast.Name) and node.id in TAKEN_IN_KERNELS:
            return None if self.scope.find(node.id) is not None else node.id
        found = meaning(node, self.scope)
        return found.path if isinstance(found, Word) else None

    def settle(self, node: Node, value: Value, like: DType | None = None) -> sc.Scalar | None:
        """A value as a term: a bare number gets a dtype."""
        return self.number(node, value.value, like) if isinstance(value, Bare) else value

    def number(self, node: Node, value: bool | int | float, like: DType | None) -> sc.Scalar | None:
        """A number of a dtype, of its natural one where none is given."""
        dtype = _natural([value]) if like is None else like
        fits = isinstance(value, bool) == (dtype is bool_)
        fits &= dtype.is_float or not isinstance(value, float)
        if fits:
            try:
                return sc.Lit(value, dtype)
            except IllFormed:  # outside the dtype: said below, with its place
                pass
        hint = f"Write {dtype}(...) of a value." if dtype is not bool_ else "Compare it."
        message = f"{value!r} is no value of {dtype}."
        self.error(node, "bad-constant", message, expected=f"a value of {dtype}", suggestion=hint)
        return None

    def agree(self, node: ast.expr, values: list[Value]) -> list[sc.Scalar] | None:
        """Operands of one dtype: that of those which are no bare numbers."""
        if any(value is None for value in values):
            return None
        known = [sc.dtype_of(value) for value in values if isinstance(value, sc.Scalar)]
        bare = [value.value for value in values if isinstance(value, Bare)]
        dtype = known[0] if known else _natural(bare)
        if (other := next((each for each in known if each is not dtype), None)) is not None:
            message = "The two sides have different element types."
            self.error(
                node, "dtype-conflict", message, expected=str(dtype), found=str(other),
                suggestion=f"Write {dtype}(...) or {other}(...) of one side.",
            )  # fmt: skip
            return None
        settled = [self.settle(node, value, dtype) for value in values]
        return None if None in settled else settled  # type: ignore[return-value]  # as just seen

    def pair(self, node: ast.expr, kind: type[Any], left: Value, right: Value) -> sc.Scalar | None:
        """An operation on two sides of one dtype."""
        if (sides := self.agree(node, [left, right])) is None:
            return None
        dtype = sc.dtype_of(sides[0])
        if kind is sc.Div and not dtype.is_float:
            message = "The division / is for floats."
            self.error(
                node, "dtype-conflict", message, expected="a float", found=str(dtype),
                suggestion="Use // for integers.",
            )  # fmt: skip
            return None
        return kind(*sides)  # type: ignore[no-any-return]  # a scalar's class

    def as_index(self, node: ast.expr, value: Value) -> sc.Scalar | None:
        """A value that is an integer."""
        scalar = self.settle(node, value, i64)
        if scalar is None or sc.dtype_of(scalar).is_integer:
            return scalar
        message = "An index, an extent or a size is an integer."
        hint = f"Write i64({self.origin.excerpt(node)})."
        shown = str(sc.dtype_of(scalar))
        self.error(node, "dtype-conflict", message, expected="i64", found=shown, suggestion=hint)
        return None

    def as_bool(self, node: ast.expr, found: sc.Scalar | None) -> sc.Scalar | None:
        if found is None or sc.dtype_of(found) is bool_:
            return found
        message, shown = "A condition is a bool.", str(sc.dtype_of(found))
        hint = f"Write {self.origin.excerpt(node)} != 0."
        self.error(node, "dtype-conflict", message, expected="bool", found=shown, suggestion=hint)
        return None


def _natural(values: list[bool | int | float]) -> DType:
    """The dtype of numbers that nothing else gives one."""
    if any(isinstance(value, float) for value in values):
        return f32
    return bool_ if all(isinstance(value, bool) for value in values) else i64
