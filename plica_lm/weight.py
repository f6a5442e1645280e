"""Weights of a checkpoint: an array of numbers, or the bytes of a block format."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from attrs import frozen

from plica.ir.type import DType
from plica_lm.format import BlockFormat

Format: TypeAlias = DType | BlockFormat


@frozen(eq=False)
class Weight:
    """A named weight of some shape.

    `data` has that shape and dtype; of a block format its last axis is bytes (u8), those of a row.
    It may be mapped from a file: nothing is copied.
    """

    name: str
    shape: tuple[int, ...]
    format: Format
    data: np.ndarray[Any, Any]
