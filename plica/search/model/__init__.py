"""Models of cost: which candidates are fast, as learned from those that were measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "Analytical", "Blended", "Model", "Quality", "SummedTime", "held_out", "loaded",
    "pairwise_accuracy", "quality", "recall",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.search.model.baseline import Analytical
    from plica.search.model.blended import Blended
    from plica.search.model.model import (
        Model,
        Quality,
        held_out,
        pairwise_accuracy,
        quality,
        recall,
    )
    from plica.search.model.shipped import loaded
    from plica.search.model.summed_time import SummedTime
else:
    lazily(__name__)
