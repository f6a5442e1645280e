"""Differentiable operators, and calls of them."""

from __future__ import annotations

from random import Random
from typing import Final

from plica.ir.generate.draw import DrawnCall
from plica.ir.generate.table import ROWS, drawn_call
from plica.ir.graph.operator import Operator, find, names
from plica.rewrite.check.operator import call_in_f64

NOT_DERIVED: Final = frozenset({
    "argmax", "argmin", "argsort", "argwhere", "iota_like", "nn.bitserial_conv",
    "nn.bitserial_dense", "stop_gradient", "unique", "unravel_index",
})  # fmt: skip
"""Made of others and of whole numbers, or not to be differentiated on purpose, or of a size that
the numbers themselves decide."""


def differentiable() -> tuple[str, ...]:
    """The operators with a gradient, directly or through their decomposition."""
    return tuple([name for name in names() if _is_derived(name)])


def _is_derived(name: str) -> bool:
    record = find(name)
    assert record is not None
    made = record.gradient is not None or record.decompose is not None
    return bool(record.inputs) and made and name not in NOT_DERIVED


def drawn(op: Operator, random: Random, most: int = 3) -> DrawnCall | None:
    """A call of an operator, or None if none was found."""
    if op.name in ROWS:
        return drawn_call(op.name, random, most)
    found = call_in_f64(op, random.choice)
    return None if found is None else DrawnCall(op.name, *found)
