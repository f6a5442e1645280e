"""Dims in text: `"2*n+1"`.

>>> from plica.ir.type.dim import dim_var
>>> n = dim_var("n")
>>> read_dim("2*n+1", dim_var) is 2 * n + 1
True
>>> read_dim("n**2", dim_var)
'a dim has only + - * // % min max'
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from plica.core import OutOfRange
from plica.ir.loop.scalar import Add, FloorDiv, FloorMod, Lit, Max, Min, Mul, Scalar, Sub
from plica.ir.type import i64, normal_dim

TERMS: Final = 4096
"""A dim that multiplies out to more terms is refused: the time to do so may be anything."""
MAX_CHARACTERS: Final = 1000

_SIGNS: Final[dict[type[ast.operator], type[Scalar]]] = {
    ast.Add: Add, ast.Sub: Sub, ast.Mult: Mul, ast.FloorDiv: FloorDiv, ast.Mod: FloorMod,
}  # fmt: skip
_CALLS: Final[dict[str, type[Scalar]]] = {"min": Min, "max": Max}


def read_dim(text: str, name: Callable[[str], Scalar | None]) -> Scalar | str:
    """The index term of a text, or what is wrong with it.

    `name` returns the meaning of a name, or None if it has none.
    """
    if len(text) > MAX_CHARACTERS:
        return f"it has more than {MAX_CHARACTERS} characters"
    if text.isidentifier():
        scalar = name(text)
        return f"no dim is called {text!r}" if scalar is None else scalar
    if (tree := _parsed(text)) is None:
        return "it is not an arithmetic expression"
    done: list[tuple[Scalar, int]] = []  # a term, and of how many it is the sum
    work: list[Any] = [tree]  # Any: parts of the tree, and classes that build terms
    while work:
        match work.pop():
            case ast.Constant(value) if type(value) is int:
                if value >= 2**63:
                    return f"{value} is too big for an i64"
                done.append((Lit(value, i64), 1))
            case ast.Name(identifier):
                if (scalar := name(identifier)) is None:
                    return f"no dim is called {identifier!r}"
                done.append((scalar, 1))
            case ast.UnaryOp(ast.USub(), ast.Constant(value)) if type(value) is int:
                if value > 2**63:
                    return f"-{value} is too small for an i64"
                done.append((Lit(-value, i64), 1))
            case ast.UnaryOp(ast.USub(), value):
                work += [Sub, value, ast.Constant(0)]
            case ast.BinOp(left, sign, right) if type(sign) in _SIGNS:
                work += [_SIGNS[type(sign)], right, left]
            case ast.Call(ast.Name(word), [left, right], []) if word in _CALLS:
                work += [_CALLS[word], right, left]
            case ast.AST():
                return "a dim has only + - * // % min max"
            case build:
                (b, many), (a, more) = done.pop(), done.pop()
                size = more * many if build is Mul else more + many
                if size > TERMS:
                    return f"it multiplies out to more than {TERMS} terms"
                if build in (FloorDiv, FloorMod) and b is Lit(0, i64):
                    return "it divides by zero"
                done.append((build(a, b), size))
    try:
        normal_dim(done[0][0])  # as a type will have it
    except OutOfRange:
        return "it has a number that is too big for an i64"
    return done[0][0]


@lru_cache(4096)
def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the parser's own refusals
        return None
