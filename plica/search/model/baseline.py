"""The analytical model: cycles by the rules of thumb of the default schedules, from the features.

>>> packs = Packs.of([np.ones((1, WIDTH)), np.full((1, WIDTH), 9.0)])
>>> Analytical().scores(packs).argmax()
np.int64(0)
"""

from __future__ import annotations

from typing import ClassVar, Final, Self

import numpy as np
from attrs import asdict, frozen

from plica.runtime.error import Diagnostic, InputError
from plica.search.feature.featuriser import Integers
from plica.search.feature.layout import Floats
from plica.search.feature.packs import Packs
from plica.search.feature.store import NAMES, WIDTH
from plica.search.model.boosted import settings_of
from plica.search.model.file import File, written

CYCLES: Final = NAMES.index("cycles")
MEMORY: Final = NAMES.index("memory-cycles")


@frozen
class Analytical:
    """Arithmetic and waiting for memory overlap but for a part: the lesser counts for so much."""

    kind: ClassVar[str] = "analytical"
    part: float = 0.5

    def fitted(self, packs: Packs, costs: Floats, groups: Integers | None = None) -> Self:
        """Itself: it learns nothing."""
        return self

    def cycles(self, packs: Packs) -> Floats:
        """About how many cycles candidates take."""
        return packs.summed(self.of_stores(packs.rows))

    def of_stores(self, rows: Floats) -> Floats:
        """The estimated cycles of the store of each row."""
        if rows.shape[1] != WIDTH:
            message = "The analytical model reads the features of stores."
            found = f"{rows.shape[1]} columns"
            raise InputError(Diagnostic("input-shape", message, None, f"{WIDTH} columns", found))
        work, memory = 2.0 ** rows[:, CYCLES], 2.0 ** rows[:, MEMORY]
        found_cycles: Floats = np.maximum(work, memory) + self.part * np.minimum(work, memory)
        return found_cycles

    def scores(self, packs: Packs) -> Floats:
        """Less cycles are better; nothing is worse than no rows."""
        array = -np.log2(np.maximum(self.cycles(packs), 1.0))
        return np.where(packs.is_legal, array, -np.inf)

    def saved(self) -> bytes:
        """As `Model.saved` says."""
        return written(self.kind, asdict(self))

    @classmethod
    def from_file(cls, of: File) -> Self:
        """The model of a file; raises `Malformed`."""
        return cls(**settings_of(of, cls()))
