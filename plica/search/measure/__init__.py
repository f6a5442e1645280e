"""measure: candidates built, checked and timed where they can do no harm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "LocalMeasurer", "MeasureJob", "Measured", "Measurer", "Outcome", "SpaceWork", "TrialLimits",
    "clearly_less", "job_of", "ranked",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.search.measure.job import MeasureJob, SpaceWork, job_of
    from plica.search.measure.local import LocalMeasurer, Measurer
    from plica.search.measure.outcome import Measured, Outcome, TrialLimits
    from plica.search.measure.timing import ranked
    from plica.search.record.order import clearly_less
else:
    lazily(__name__)
