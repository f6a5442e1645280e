"""measure: candidates built, checked and timed where they can do no harm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "Job",
    "Limits",
    "LocalMeasurer",
    "Measured",
    "Measurer",
    "Outcome",
    "Work",
    "clearly_less",
    "job_of",
    "ranked",
]

if TYPE_CHECKING:
    from plica.search.measure.job import Job, Work, job_of
    from plica.search.measure.local import LocalMeasurer, Measurer
    from plica.search.measure.outcome import Limits, Measured, Outcome
    from plica.search.measure.tournament import clearly_less, ranked
else:
    lazily(__name__)
