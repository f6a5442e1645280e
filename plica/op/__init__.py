"""The operators by name: `op.add(x, y)`, `op.nn.relu(x)`, `op.acme.square(x)`.

Each name is a record of the registry, callable to build a term; aliases give the same record.  The
operators of a library stand under the name of its entry point in `plica.operators`.

>>> from plica import op
>>> op.subtract is op.sub, op.nn.conv.name
(True, 'nn.conv')
>>> op.nn.sofmax
Traceback (most recent call last):
...
AttributeError: There is no operator nn.sofmax. Did you mean 'softmax'?
"""

from __future__ import annotations

from plica.core import did_you_mean
from plica.ir.op import Operator, aliases, find, names, namespaces
from plica.ir.op.namespace import OperatorNamespace
from plica.op import nn

__all__ = ["nn"]


def __getattr__(name: str) -> Operator:
    """The record of that name, or the operators of a library."""
    operator = None if name.startswith("_") else find(name)
    if operator is None and not name.startswith("_") and name in namespaces():
        return OperatorNamespace(name)  # type: ignore[return-value]  # what is called is an operator
    if operator is None:
        hint = did_you_mean(name, (*__dir__(), *(each for each in aliases() if "." not in each)))
        raise AttributeError(" ".join(filter(None, (f"There is no operator {name}.", hint))))
    return operator


def __dir__() -> list[str]:
    """Every name outside of `nn` and of libraries, whose own names are there; no aliases."""
    return sorted(["nn", *namespaces(), *(name for name in names() if "." not in name)])
