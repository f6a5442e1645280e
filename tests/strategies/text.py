"""Texts of any characters."""

from __future__ import annotations

from typing import Final

from hypothesis import settings, strategies as st

SOME: Final = (
    "aZ_09 .,:;-+*/\\'\"`#@$%&|<>=()[]{}\n\r\t\0\x1b\x7f\x85"
    "é\u0301ßΩ\u200b\u2028\u202e中\ufeff\U0001f600"
)
"""Letters, quotes, brackets, ends of lines, controls, marks that combine or turn, wide ones."""


def texts(max_size: int) -> st.SearchStrategy[str]:
    """Few characters, but of every kind: to list all of Unicode takes seconds in each process.

    Runs with more examples draw from all of them.
    """
    if settings.get_current_profile_name() == "ci":
        return st.text(SOME, max_size=max_size)
    return st.text(max_size=max_size)
