"""Syntax of MLIR as far as StableHLO needs it: operations, regions, functions and types.

    MlirFunction ::= MlirFunction(name, MlirRegion, results)
    MlirRegion   ::= MlirRegion(arguments, operations)
    MlirOp       ::= MlirOp(name, operands, results, attributes, regions, types, line)
    MlirType     ::= MlirType(text, shape, element)

Values are names: `%0`, or `%0#1` for the second result of an operation.

>>> MlirType("tensor<2x?xf32>", (2, None), "f32").rank
2

Tokens of MLIR's text, with the line that each is in.

>>> [each.text for each in tokens("%0 = stablehlo.abs %x : tensor<2xf32>")]
['%0', '=', 'stablehlo.abs', '%x', ':', 'tensor<2xf32>', '']
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, NoReturn

from attrs import field, frozen

from plica.core.diagnostic import Malformed
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


_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*)
  | (?P<value>%[\w$.-]+(?:\#\d+)?)
  | (?P<symbol>@(?:"[^"\n]*"|[\w$.-]+))
  | (?P<block>\^[\w$.-]+)
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<arrow>->)
  | (?P<dense>dense(?:_resource)?<)
  | (?P<type>(?:tensor|tuple|memref|complex|!?[\w.]+\.?token|!quant[\w.]*|![\w.]+)<|![\w.]+)
  | (?P<number>-?(?:0x[0-9A-Fa-f]+|(?:\d+\.\d*|\d+)(?:[eE][-+]?\d+)?))
  | (?P<word>\#?[A-Za-z_][\w.$]*)
  | (?P<mark>[-=:,(){}\[\]<>*?+/|])
    """,
    re.VERBOSE,
)


class MlirToken(NamedTuple):
    """What kind of token, its text, and the line it is in."""

    kind: str
    text: str
    line: int


def tokens(text: str) -> list[MlirToken]:
    """The tokens of a text; dense constants and types with brackets are one token each."""
    out: list[MlirToken] = []
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            malformed("A character has no meaning in MLIR.", line, found=repr(text[at]))
        kind, end = str(match.lastgroup), match.end()
        if (kind in {"dense", "type"}) and text[end - 1] == "<":
            end = _closing(text, end, line)
        if kind != "space":
            out.append(MlirToken(kind, text[at:end], line))
        line += text.count("\n", at, end)
        at = end
    out.append(MlirToken("end", "", line))
    return out


_BRACKET: Final = re.compile(r'->|[<>]|"')


def _closing(text: str, at: int, line: int) -> int:
    """Where the bracket is closed that is open at a place."""
    depth = 1
    while depth:
        if (match := _BRACKET.search(text, at)) is None:
            malformed("A bracket is not closed.", line, ">")
        at = match.end()
        if match[0] == '"':
            at = text.find('"', at) + 1
            if not at:
                malformed("A string is not closed.", line, '"')
        depth += {"<": 1, ">": -1}.get(match[0], 0)
    return at


def malformed(
    message: str, line: int, expected: str | None = None, found: str | None = None
) -> NoReturn:
    """Refuse a text that is no MLIR, at a line."""
    raise Malformed.of("bad-model", message, Place(line=line), expected, found)
