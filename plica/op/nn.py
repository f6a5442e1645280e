"""The operators of neural networks by name: `nn.relu(x)`, `nn.conv(x, weight, padding=1)`.

>>> from plica.op import nn
>>> nn.conv2d is nn.conv, "softmax" in dir(nn)
(True, True)
"""

from __future__ import annotations

from plica.core.diagnostic import did_you_mean
from plica.ir.op import Operator, aliases, find, names


def __getattr__(name: str) -> Operator:
    """The record of that name."""
    found = None if name.startswith("_") else find(f"nn.{name}")
    if found is None:
        near = [each.removeprefix("nn.") for each in aliases() if each.startswith("nn.")]
        hint = did_you_mean(name, (*__dir__(), *near))
        raise AttributeError(" ".join(filter(None, (f"There is no operator nn.{name}.", hint))))
    return found


def __dir__() -> list[str]:
    """Every name in `nn`, aliases left out."""
    return [name.removeprefix("nn.") for name in names() if name.startswith("nn.")]
