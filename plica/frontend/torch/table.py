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
    special,
    window,
)
from plica.frontend.torch.row.word import Row

TABLE: Final[dict[str, Row]] = {
    **elementwise.TABLE,
    **activation.TABLE,
    **special.TABLE,
    **reduction.TABLE,
    **shape.TABLE,
    **create.TABLE,
    **index.TABLE,
    **by_value.TABLE,
    **linear.TABLE,
    **attention.TABLE,
    **window.TABLE,
    **norm.TABLE,
    **resample.TABLE,
    **recurrent.TABLE,
}
