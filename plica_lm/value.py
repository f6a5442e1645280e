"""Values from outside: their types and ranges as tables, checked by one function.

>>> check("top_p", 0.5, number(0, 1, above=True))
>>> check("limit", 1.5, integer(1))
Traceback (most recent call last):
plica.runtime.error.InputError: limit has the wrong type. [input-value]
  expected: an integer of at least 1
  found: 1.5 of type float
  suggestion: Set limit to an integer of at least 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from attrs import frozen

from plica_lm.refusal import refusal

MAX_INTEGER: Final = (1 << 63) - 1


@frozen
class Value:
    """The allowed values: types, description, and predicate. A bool is no integer."""

    types: tuple[type, ...]
    words: str
    holds: Callable[[Any], bool] = lambda value: True  # Any: of these types


def integer(least: int, most: int = MAX_INTEGER) -> Value:
    words = f"at least {least}" if most == MAX_INTEGER else f"{least} to {most}"
    words = f"an integer of {words}" if most == MAX_INTEGER else f"an integer from {words}"
    return Value((int, np.integer), words, lambda value: least <= value <= most)


def number(least: float, most: float = math.inf, above: bool = False) -> Value:
    """A finite number; `above` excludes the least."""
    words = f"a number {'above' if above else 'of at least'} {least:g}"
    words += "" if most == math.inf else f" and at most {most:g}"

    def holds(value: Any) -> bool:
        return bool(
            (least < value if above else least <= value) and value <= most and value < math.inf
        )

    return Value((int, float, np.integer, np.floating), words, holds)


def is_unicode(text: str) -> bool:
    """Whether a string has no lone surrogates, so that it can be encoded."""
    return not any("\ud800" <= each <= "\udfff" for each in text)


FLAG: Final = Value((bool,), "true or false")
TEXT: Final = Value((str,), "text without lone surrogates", is_unicode)
TOKEN: Final = integer(0)


def items(of: Value, words: str) -> Value:
    """One value, or a list of such."""

    def holds(value: Any) -> bool:
        return all(is_a(each, of) for each in (value if isinstance(value, list) else [value]))

    return Value((*of.types, list), words, holds)


def is_a(value: object, of: Value) -> bool:
    """Whether a value has one of the types and is in the range."""
    return _typed(value, of) and of.holds(value)


def _typed(value: object, of: Value) -> bool:
    return isinstance(value, of.types) and (not isinstance(value, bool) or bool in of.types)


def check(
    name: str, value: object, of: Value, code: str = "input-value", at: str | None = None
) -> None:
    """Refuse a value of another type, or out of range."""
    if is_a(value, of):
        return
    typed = _typed(value, of)
    found = repr(value) if typed else f"{value!r} of type {type(value).__name__}"
    wrong = "is out of range" if isinstance(value, int | float) else "is not valid"
    message = f"{name} {wrong if typed else 'has the wrong type'}."
    raise refusal(code, message, of.words, found, f"Set {name} to {of.words}.", None, at)
