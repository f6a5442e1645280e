"""Operators by attribute: `op.take(x, at)`, and `op.nn.relu(x)` of the names with a dot.

>>> op.nn.relu.name, op.sub is op.subtract, op.nn
('nn.relu', True, OperatorNamespace('nn'))
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from plica.core import did_you_mean
from plica.ir.graph.operator import load_namespace
from plica.ir.op import Operator, aliases, find, names


@frozen
class OperatorNamespace:
    """The operators of a library, by attribute."""

    name: str

    def __getattr__(self, name: str) -> Operator:
        whole = f"{self.name}.{name}"
        operator = None if name.startswith("_") else find(whole)
        if operator is not None:
            return operator
        if any(each.startswith(f"{whole}.") for each in names()):
            return OperatorNamespace(whole)  # type: ignore[return-value]  # what is called is one
        if not name.startswith("_") and (elsewhere := find(name)) is not None:
            raise AttributeError(f"There is no operator {whole}. Did you mean op.{elsewhere.name}?")
        known = [each for each in (*names(), *aliases()) if each.startswith(f"{self.name}.")]
        hint = did_you_mean(name, [each.removeprefix(f"{self.name}.") for each in known])
        raise AttributeError(" ".join(filter(None, (f"There is no operator {whole}.", hint))))

    def __dir__(self) -> list[str]:
        load_namespace(self.name)
        inside = [name for name in names() if name.startswith(f"{self.name}.")]
        return [each.removeprefix(f"{self.name}.") for each in inside]

    def __repr__(self) -> str:
        return f"OperatorNamespace({self.name!r})"


class Operators:
    """The operators of Plica; a record is loaded when its name is looked up."""

    nn: Final = OperatorNamespace("nn")

    def __getattr__(self, name: str) -> Operator:
        if (operator := find(name)) is None:
            raise AttributeError(f"There is no operator {name}.")
        return operator


op: Final = Operators()
