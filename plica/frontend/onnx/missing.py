"""What is missing: the operators of the standard that are refused, and why.

>>> REASONS["StringSplit"]
'there are no strings'
"""

from __future__ import annotations

from typing import Final

from plica.runtime.error import UnsupportedError


class MissingOperators(UnsupportedError):
    """The model has operators that are refused whatever its sizes are."""


_WHY: Final[dict[str, tuple[str, ...]]] = {
    "a module draws no random numbers": (
        "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
        "RandomUniformLike",
    ),
    "there are no strings": (
        "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit",
    ),
    "a sequence has a length that is known when it is read": ("SequenceMap",),
    "it reads files of images": ("ImageDecoder",),
    "it has no definition yet": (
        "MaxRoiPool",
    ),
}  # fmt: skip

REASONS: Final = {name: why for why, names in _WHY.items() for name in names}
"""Why an operator is refused; a test holds the names to the standard's."""
