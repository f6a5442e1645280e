"""Sizes as text: sums, products and quotients of dims, and their values.

    n * 768          (n + 255) // 256          min(n, m) + 1

>>> number_of("(n + 255) // 256 * max(m, 1)", {"n": 257, "m": 3})
6
>>> names_of("n * m + 1") == {"n", "m"}
True
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

MAX_LETTERS: Final = 1 << 16  # characters of a text, at most


class NoSize(ValueError):
    """A text that is no size, or has no value."""


def number_of(text: str, sizes: Mapping[str, int]) -> int:
    """The value of a text; raises `NoSize` if it has none."""
    try:
        return _number(_parsed(text), sizes)
    except (KeyError, ZeroDivisionError) as problem:
        raise NoSize(text) from problem


def number_or_none(text: str, sizes: Mapping[str, int]) -> int | None:
    """The value of a text, or None if it has none."""
    try:
        return number_of(text, sizes)
    except NoSize:
        return None


def names_of(text: str) -> frozenset[str]:
    """The dims that a text names; raises `NoSize` where it is no size."""
    found = [each.id for each in ast.walk(_parsed(text)) if isinstance(each, ast.Name)]
    return frozenset(found) - {"min", "max"}


@lru_cache(maxsize=4096)
def _parsed(text: str) -> ast.expr:
    if len(text) > MAX_LETTERS:
        raise NoSize(text[:80])
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise NoSize(text[:80]) from problem


def _number(of: ast.expr, sizes: Mapping[str, int]) -> int:
    """Recursive: texts are a few words long, and the parser bounds how deep they are."""
    match of:
        case ast.Constant(bool()):
            pass
        case ast.Constant(int(value)):
            return value
        case ast.Name(name):
            return sizes[name]
        case ast.UnaryOp(ast.USub(), inner):
            return -_number(inner, sizes)
        case ast.BoolOp(ast.Or(), parts):
            return any(_number(part, sizes) for part in parts)
        case ast.BinOp(left, kind, right) | ast.Compare(left, [kind], [right]):
            return _RELATIONS[type(kind)](_number(left, sizes), _number(right, sizes))
        case ast.Call(ast.Name("min" | "max" as name), [left, right], []):
            return (min if name == "min" else max)(_number(left, sizes), _number(right, sizes))
    raise KeyError(ast.dump(of))


_RELATIONS: Final[dict[type, Callable[[int, int], int]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
