"""Verdicts on extensions: what a check can say of one record of a package.

>>> print(ExtensionVerdict("plica.passes", "acme-tidy", "untested", "it changed no program"))
plica.passes  acme-tidy: untested, it changed no program
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from attrs import asdict, frozen

Word: TypeAlias = Literal["proved", "tested", "untested", "refuted", "broken"]


@frozen
class ExtensionVerdict:
    """A record of a group, what is known of it and why; a smallest example where it is wrong."""

    group: str
    name: str
    word: Word
    why: str = ""
    example: str = ""

    @property
    def good(self) -> bool:
        """Whether something speaks for it and nothing against it."""
        return self.word in ("proved", "tested")

    def to_data(self) -> dict[str, Any]:
        return {**asdict(self), "good": self.good}

    def __str__(self) -> str:
        return f"{self.group}  {self.name}: {self.word}" + (f", {self.why}" if self.why else "")
