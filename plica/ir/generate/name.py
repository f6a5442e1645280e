"""Names as people give them: short, often the same, sometimes none that a language would accept."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from plica.core import Name

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
