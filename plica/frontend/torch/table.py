"""The table: one row for each ATen operator, a function from a node to terms.

>>> sorted(TABLE)[:2]
['__lshift__.Scalar', '__lshift__.Tensor']
"""

from __future__ import annotations

from typing import Final

from plica.frontend.torch.row import (
    activation,
    attention,
    by_value,
    create,
    elementwise,
    index,
    linear,
    norm,
    recurrent,
    reduction,
    resample,
    shape,
    window,
)
from plica.frontend.torch.row.word import Row

FILES: Final = (
    elementwise, activation, reduction, shape, create, index, by_value, linear, attention,
    window, norm, resample, recurrent,
)  # fmt: skip

TABLE: Final[dict[str, Row]] = {name: row for file in FILES for name, row in file.TABLE.items()}
