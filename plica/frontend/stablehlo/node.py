"""Nodes: an operation of StableHLO with the terms of its operands, as its row sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

from attrs import frozen

from plica.frontend.stablehlo.literal import DTYPES
from plica.frontend.stablehlo.syntax import MlirOp, MlirRegion, MlirType
from plica.frontend.word import shape
from plica.ir.graph.expression import Expr
from plica.ir.type import DType, known
from plica.rewrite.closed import value_of

Inside: TypeAlias = Callable[[MlirRegion, Sequence[Any]], list[Any]]
"""The results of a region on values of its arguments."""


@frozen
class HloNode:
    """An operation, its operands, and what reads its regions."""

    op: MlirOp
    operands: tuple[Any, ...]  # terms, or pairs of them
    inside: Inside
    serial: int  # tells the variables of loops apart

    @property
    def x(self) -> Expr:
        """The first operand."""
        return self.operands[0]  # type: ignore[no-any-return]  # rows of pairs know them

    def attribute(self, *names: str, default: Any = None) -> Any:
        """The value of an attribute, by the name that either syntax gives it."""
        for name in names:
            if (found := self.op.attributes.get(name)) is not None:
                return found
        return default

    def numbers(self, *names: str, default: Sequence[int] = ()) -> list[int]:
        """A list of numbers."""
        found = self.attribute(*names, default=default)
        if hasattr(found, "tolist"):
            found = found.tolist()
        if isinstance(found, dict):
            found = []  # `array<i64>` without numbers
        if not isinstance(found, list | tuple) or not all(isinstance(e, int) for e in found):
            self.unsupported(f"{names[0]} is a list of numbers.", found=str(found))
        return list(found)

    def number(self, *names: str, default: int = 0) -> int:
        """A number."""
        found = self.attribute(*names, default=default)
        if not isinstance(found, int):
            self.unsupported(f"{names[0]} is a number.", found=str(found))
        return int(found)

    def axis(self, *names: str) -> int:
        """The number of an axis of the first operand or result."""
        found = self.number(*names)
        most = max(
            self.type().rank, *[len(shape(e)) for e in self.operands if isinstance(e, Expr)], 0
        )
        if not 0 <= found < most:
            self.unsupported(f"{names[0]} is an axis.", f"0 to {most - 1}", str(found))
        return found

    def pairs(self, count: int, *names: str) -> list[tuple[int, int]]:
        """A pair of numbers for each of some axes, zeros by default."""
        found = self.attribute(*names, default=[[0, 0]] * count)
        if hasattr(found, "tolist"):
            found = found.tolist()
        if isinstance(found, list) and len(found) == count and all(map(_is_pair, found)):
            return [(int(a), int(b)) for a, b in found]
        return self.unsupported(f"{names[0]} is pairs of numbers.", f"{count} pairs", str(found))

    def word(self, *names: str, default: str = "") -> str:
        """A keyword such as GT; in the generic syntax its kind precedes it."""
        found = self.attribute(*names, default=default)
        return str(found[-1] if isinstance(found, list) and found else found)

    def type(self, at: int = 0) -> MlirType:
        """The type of a result."""
        if at >= len(self.op.types):
            self.unsupported("The types of the results are missing.")
        return self.op.types[at]

    def shape(self, at: int = 0) -> tuple[int, ...]:
        """The sizes of a result, which must be known."""
        of = self.type(at)
        sizes = of.shape
        if None in sizes:
            hint = "Export the function for inputs whose sizes are numbers."
            self.op.refused("A size is not known.", "numbers", of.text, hint)
        return tuple([size or 0 for size in sizes])

    def dtype(self, at: int = 0) -> DType:
        """The dtype of a result."""
        return dtype_of(self.op, self.type(at))

    def constant(self, at: int) -> Any:
        """The value of an operand, which must be known."""
        given = self.operands[at] if at < len(self.operands) else None
        array = value_of(given) if isinstance(given, Expr) else None
        if array is None:
            self.unsupported(f"Operand {at} is computed.", "a constant")
        return array

    def unsupported(
        self, message: str, expected: str | None = None, found: str | None = None
    ) -> NoReturn:
        """Refuse the operation."""
        self.op.refused(f"{self.op.name}: {message}", expected, found)


def _is_pair(of: object) -> bool:
    return isinstance(of, list) and len(of) == 2 and all(isinstance(each, int) for each in of)


def dtype_of(op: MlirOp, of: MlirType) -> DType:
    """The dtype of an element type; one that Plica does not have is refused."""
    if of.element not in DTYPES:
        op.refused("Plica has no such element type.", ", ".join(DTYPES), of.text)
    return DTYPES[of.element]


def sizes(x: Expr) -> tuple[int, ...]:
    """The shape of a term, all of which is known."""
    return tuple([known(size) or 0 for size in shape(x)])
