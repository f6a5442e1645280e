"""The operators of neural networks by name: `nn.relu(x)`, `nn.conv(x, weight, padding=1)`.

>>> from plica.op import nn
>>> nn.conv2d is nn.conv, "softmax" in dir(nn)
(True, True)
"""

from __future__ import annotations

from plica.ir.op import Operator
from plica.ir.op.namespace import OperatorNamespace


def __getattr__(name: str) -> Operator:
    """The record of that name."""
    return getattr(OperatorNamespace("nn"), name)  # type: ignore[no-any-return]  # it is one


def __dir__() -> list[str]:
    """Every name in `nn`, aliases left out."""
    return dir(OperatorNamespace("nn"))
