"""Choosing cheaply: programs make hundreds of choices, and a new strategy for each is slow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

C = TypeVar("C")


@cache
def between(low: int, high: int) -> SearchStrategy[int]:
    """Integers of a small range; the lowest is the simplest."""
    return st.integers(low, high)


def pick(draw: DrawFn, options: Sequence[C]) -> C:
    """One of several; the first is the simplest."""
    return options[draw(between(0, len(options) - 1))] if len(options) > 1 else options[0]
