"""Random kernels and random traces: for tests, and for `plica fuzz schedule`."""

from plica.schedule.generate.kernel import random_case
from plica.schedule.generate.material import Case
from plica.schedule.generate.step import Refusal, random_step, untried, walk

__all__ = ["Case", "Refusal", "random_case", "random_step", "untried", "walk"]
