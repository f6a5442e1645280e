"""Marks for differentiation: values that mean what their argument means, and are treated apart.

`stop_gradient(x)` is x, and nothing flows back through it.  `after(x, y)` is x too, but cannot be
computed before y is there: what is computed from it is not shared with what is computed from x, so
it is how values are computed again instead of being kept (`plica.checkpoint`).

>>> from plica.ir.type import tensor
>>> x = tensor((2, 3), "f32")
>>> stop_gradient.relation({}, x) is x, after.relation({}, x, tensor((), "f64")) is x
(True, True)
"""

from __future__ import annotations

from plica.ir.op.record import pointwise, primitive
from plica.ir.operator import FLAT
from plica.ir.tensor import compute

stop_gradient = pointwise(
    "stop_gradient",
    ("x",),
    lambda x: x,
    "x itself, as if it were a constant where derivatives are taken.",
    slope=FLAT,
)
after = primitive(
    "after",
    ("x", "y"),
    lambda attrs, x, y: x,
    lambda attrs, out, x, y: compute((x, y), out.shape, lambda *i: x[i]),
    "x itself, computed only when y is there.",
    like=(0,),
    gradient=lambda attrs, d, z, x, y: [d, None],
)
