"""Syntax of MLIR as far as StableHLO needs it: operations, regions, functions and types.

    MlirFunction ::= MlirFunction(name, MlirRegion, results)
    MlirRegion   ::= MlirRegion(arguments, operations)
    MlirOp       ::= MlirOp(name, operands, results, attributes, regions, types, line)
    MlirType     ::= MlirType(text, shape, element)

Values are names: `%0`, or `%0#1` for the second result of an operation.

>>> MlirType("tensor<2x?xf32>", (2, None), "f32").rank
2
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from attrs import field, frozen

from plica.runtime.error import Place, UnsupportedError

# Any: an attribute is a number, a word, a list, an array, a type, or a mapping of such.
Attributes = Mapping[str, Any]


@frozen
class MlirType:
    """A type as written; for tensors, its sizes (None: unknown) and its element type."""

    text: str
    shape: tuple[int | None, ...] = ()
    element: str = ""

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)


@frozen
class MlirRegion:
    """A block: its arguments, and operations of which the last returns."""

    arguments: tuple[tuple[str, MlirType], ...]
    operations: tuple[MlirOp, ...]


@frozen
class MlirOp:
    """An operation; `types` are those of its results."""

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    attributes: Attributes
    regions: tuple[MlirRegion, ...]
    types: tuple[MlirType, ...]
    line: int

    def refused(
        self, message: str, expected: str | None = None, found: str | None = None,
        hint: str | None = None,
    ) -> NoReturn:  # fmt: skip
        """Refuse it at its line."""
        place = Place(line=self.line, node=self.name)
        raise UnsupportedError.of("unsupported", message, place, expected, found, hint)


@frozen
class MlirFunction:
    """A function by name."""

    name: str
    region: MlirRegion
    results: tuple[MlirType, ...]


@frozen
class MlirModule:
    """Functions by name, and the attributes of the module."""

    functions: Mapping[str, MlirFunction]
    attributes: Attributes = field(factory=dict)
