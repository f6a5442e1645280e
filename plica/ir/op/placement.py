"""Placement: values marked with the device they belong on, and copies between devices.

Both mean what their argument means; `plica.rewrite.device` reads the marks and writes the copies.

>>> from plica.core.name import Name
>>> from plica.ir.graph import Var
>>> x = Var(Name("x"), None)
>>> on_device(x, "gpu").attrs
(('device', 'gpu'),)
"""

from __future__ import annotations

from plica.ir.op.attribute import attribute, text
from plica.ir.op.record import pointwise
from plica.ir.operator import Operator

on_device = pointwise(
    "on_device",
    ("x",),
    lambda attrs, x: x,
    "x itself, to be computed on a device.",
    attributes=(attribute("device", text),),
    slope=lambda attrs, d, y, x: d,
)
device_copy: Operator = pointwise(
    "device_copy",
    ("x",),
    lambda attrs, x: x,
    "x itself, brought from one device to another.",
    attributes=(attribute("source", text), attribute("target", text)),
    slope=lambda attrs, d, y, x: device_copy(d, attrs["target"], attrs["source"]),
)
