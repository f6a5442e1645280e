"""Tokens of MLIR's text, with the line that each is in.

>>> [each.text for each in tokens("%0 = stablehlo.abs %x : tensor<2xf32>")]
['%0', '=', 'stablehlo.abs', '%x', ':', 'tensor<2xf32>', '']
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, NoReturn

from plica.core.diagnostic import Malformed
from plica.runtime.error import Place

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
