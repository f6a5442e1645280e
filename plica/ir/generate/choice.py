"""Choosing cheaply: programs make hundreds of choices, and a new strategy for each is slow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from plica.core import Name

C = TypeVar("C")


@cache
def between(low: int, high: int) -> SearchStrategy[int]:
    """Integers of a small range; the lowest is the simplest."""
    return st.integers(low, high)


def pick(draw: DrawFn, options: Sequence[C]) -> C:
    """One of several; the first is the simplest."""
    return options[draw(between(0, len(options) - 1))] if len(options) > 1 else options[0]


PLAIN: Final = ("x", "y", "z", "a", "f", "n", "acc")
ODD: Final = ("x_1", "lambda", "_0", "conv/w:0", "", "f32", "op", "main", "match", "é")
"""Hints that collide with words, with other names once printed, or are no identifiers at all."""


def hints(odd: bool = True) -> st.SearchStrategy[str]:
    """A name as a person would choose it."""
    plain = st.sampled_from(PLAIN)
    return st.one_of(plain, plain, plain, st.sampled_from(ODD)) if odd else plain


def names(odd: bool = True) -> st.SearchStrategy[Name]:
    """Names; a few hints and indices, so that namesakes are common."""
    return st.builds(Name, hints(odd), st.integers(0, 2))
