"""Random kernels and random traces: for tests, and for `plica fuzz schedule`."""

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = ["KernelCase", "Refusal", "random_case", "random_step", "untried", "walk"]

if TYPE_CHECKING:
    from plica.schedule.generate.kernel import random_case
    from plica.schedule.generate.material import KernelCase
    from plica.schedule.generate.step import Refusal, random_step, untried, walk
else:
    lazily(__name__)
