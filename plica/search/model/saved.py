"""Saved models: reading back what `saved` gave, of any kind.

>>> from plica.search.model.baseline import Chance
>>> loaded(Chance(3).saved())
Chance(seed=3)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plica.core import did_you_mean
from plica.search.model.baseline import Analytical, Chance
from plica.search.model.blended import Blended
from plica.search.model.file import File, malformed, read
from plica.search.model.model import Model
from plica.search.model.perceptron import Perceptron
from plica.search.model.ranked import Ranked
from plica.search.model.summed_time import SummedTime

# fmt: off
KINDS: Final[dict[str, Callable[[File], Model]]] = {
    SummedTime.kind: SummedTime.from_file,
    Blended.kind:    Blended.from_file,
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
    if file.kind not in KINDS:
        hint = did_you_mean(file.kind, tuple(KINDS)) or ""
        expected = f"one of {', '.join(KINDS)}"
        raise malformed("There is no such kind of model.", expected, f"{file.kind!r} {hint}")
    return KINDS[file.kind](file)
