"""The kernel of a resampling: how much each place counts, by its distance and the edges.

>>> ResizeKernel("cubic").cubic
-0.75
"""

from __future__ import annotations

import attrs


@attrs.frozen
class ResizeKernel:
    """How much each place of the input counts, by its distance."""

    mode: str
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    antialias: bool = False
    exclude: bool = False
