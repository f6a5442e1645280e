"""Saved models: reading back what `saved` gave, of any kind.

>>> from plica.search.model.baseline import Chance
>>> loaded(Chance(3).saved())
Chance(seed=3)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plica.core.diagnostic import did_you_mean
from plica.search.model.baseline import Analytical, Chance
from plica.search.model.boosted import PackSum
from plica.search.model.file import File, malformed, read, written
from plica.search.model.model import Model
from plica.search.model.perceptron import Perceptron
from plica.search.model.ranked import Ranked
from plica.search.model.transfer import Transferred

# fmt: off
KINDS: Final[dict[str, Callable[[File], Model]]] = {
    PackSum.kind:    PackSum.from_file,
    Ranked.kind:     Ranked.from_file,
    Perceptron.kind: Perceptron.from_file,
    Chance.kind:     Chance.from_file,
    Analytical.kind: Analytical.from_file,
}
# fmt: on
"""What reads each kind."""


def loaded(data: bytes) -> Model:
    """The model that was saved as these bytes; raises `Malformed`."""
    file = read(data)
    if file.kind == Transferred.kind:
        return _pair(file)
    return _single(file)


def both(old: Model, new: Model, seen: int) -> bytes:
    """A model that stands on another, as data."""
    first, second = old.saved(), new.saved()
    return written(Transferred.kind, {"seen": seen, "first": len(first)}, {}, first + second)


def _pair(file: File) -> Transferred:
    seen, first = file.fields.get("seen"), file.fields.get("first")
    if type(seen) is not int or type(first) is not int or not 0 <= first <= len(file.blob):
        raise malformed("A model that stands on another is incomplete.", "seen, first", "others")
    parts = [read(file.blob[:first]), read(file.blob[first:])]
    old, new = (_single(each) for each in parts)
    return Transferred(old, new, max(0, seen))


def _single(file: File) -> Model:
    if file.kind not in KINDS:
        hint = did_you_mean(file.kind, tuple(KINDS)) or ""
        expected = f"one of {', '.join(KINDS)}"
        raise malformed("There is no such kind of model.", expected, f"{file.kind!r} {hint}")
    return KINDS[file.kind](file)
