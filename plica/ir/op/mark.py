"""Marks: values that mean what their argument means, and are treated apart.

`stop_gradient(x)` is x without a gradient. `after(x, y)` is x, but is not computed before y: its
users are not merged with users of x, so values can be recomputed instead of kept
(`plica.checkpoint`). `on_device` and `device_copy` state where a value resides and that it is
copied there; `plica.rewrite.device_placement` reads the marks and inserts the copies.

>>> from plica.ir.type.term import tensor
>>> x = tensor((2, 3), "f32")
>>> stop_gradient.relation({}, x) is x, after.relation({}, x, tensor((), "f64")) is x
(True, True)
>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> on_device(Var(Name("x"), None), "gpu").attrs
(('device', 'gpu'),)
"""

from __future__ import annotations

from plica.ir.graph.operator import FLAT, Operator
from plica.ir.loop.tensor import compute
from plica.ir.op.attribute import attribute, text
from plica.ir.op.record import pointwise, primitive

stop_gradient = pointwise(
    "stop_gradient", ("x",), lambda x: x, "x, treated as a constant by gradients.", slope=FLAT
)
after = primitive(
    "after", ("x", "y"), lambda attrs, x, y: x,
    lambda attrs, out, x, y: compute((x, y), out.shape, lambda *i: x[i]),
    "x, evaluated after y.", like=(0,),
    gradient=lambda attrs, d, z, x, y: [d, None],
)  # fmt: skip
on_device = pointwise(
    "on_device", ("x",), lambda attrs, x: x, "x, computed on a device.",
    attributes=(attribute("device", text),), slope=lambda attrs, d, y, x: d,
)  # fmt: skip
device_copy: Operator = pointwise(
    "device_copy", ("x",), lambda attrs, x: x, "Copy x from one device to another.",
    attributes=(attribute("source", text), attribute("target", text)),
    slope=lambda attrs, d, y, x: device_copy(d, attrs["target"], attrs["source"]),
)  # fmt: skip
