"""The table: one row for each ONNX operator, a function from a node to terms.

>>> sorted(TABLE)[:3]
['Abs', 'Acos', 'Acosh']
"""

from __future__ import annotations

from typing import Final

from plica.frontend.onnx.row import (
    control,
    create,
    detect,
    elementwise,
    index,
    linear,
    norm,
    quantise,
    recurrent,
    reduction,
    resize,
    sample,
    shape,
    signal,
    window,
)
from plica.frontend.onnx.row.word import Row

TABLE: Final[dict[str, Row]] = {
    **elementwise.TABLE,
    **reduction.TABLE,
    **shape.TABLE,
    **index.TABLE,
    **create.TABLE,
    **linear.TABLE,
    **window.TABLE,
    **norm.TABLE,
    **resize.TABLE,
    **quantise.TABLE,
    **recurrent.TABLE,
    **control.TABLE,
    **signal.TABLE,
    **sample.TABLE,
    **detect.TABLE,
}
