"""measure: candidates built, checked and timed where they can do no harm."""

from plica.search.measure.job import Job, Work, job_of
from plica.search.measure.local import LocalMeasurer, Measurer
from plica.search.measure.outcome import Limits, Measured, Outcome
from plica.search.measure.tournament import clearly_less, ranked

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
