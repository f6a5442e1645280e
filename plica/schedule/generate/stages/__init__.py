"""Random stages of every kind that forms look for: for tests, and for `plica fuzz form`."""

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = ["GPU_KINDS", "KINDS", "ON_SMALL", "StagesCase", "numbers", "shape_of"]

if TYPE_CHECKING:
    from plica.schedule.generate.stages.case import StagesCase, numbers, shape_of
    from plica.schedule.generate.stages.kind import GPU_KINDS, KINDS, ON_SMALL
else:
    lazily(__name__)
