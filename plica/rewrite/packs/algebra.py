"""Algebra: identities of arithmetic that hold whatever the shapes are.

Measure: every rule but the reassociating ones removes an operator or a constant.

What is not here, and why: `x * 0 -> 0` is wrong for nan, inf and -0.0; `x - x -> 0` for nan and
inf; `x / x -> 1` for 0, nan and inf.  The integer packs may say them.
"""

from __future__ import annotations

from typing import Any, Final

from plica.ir.dtype import DTYPES
from plica.ir.op import find
from plica.rewrite.contract import reassociates, signless_zero
from plica.rewrite.make import rule
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import hole, holes

x, y, z = holes("x y z")
s: Any = hole("s", dtypes=[each for each in DTYPES if each.kind in ("int", "float")])  # signed


def _op(name: str) -> Any:
    found = find(name)
    assert found is not None, name
    return found


maximum, minimum = _op("maximum"), _op("minimum")
absolute, negative = _op("absolute"), _op("negative")
relu, logical_not = _op("nn.relu"), _op("logical_not")

# fmt: off
ALGEBRA: Final[Pack] = pack(
    "algebra",
    rule("add-zero",           x + 0,                        x,            float=signless_zero),
    rule("zero-add",           0 + x,                        x,            float=signless_zero),
    rule("zero-subtract",      0 - x,                        -x,           float=signless_zero),
    rule("subtract-zero",      x - 0,                        x),
    rule("multiply-one",       x * 1,                        x),
    rule("one-multiply",       1 * x,                        x),
    rule("divide-one",         x / 1,                        x),
    rule("power-one",          x ** 1,                       x),
    rule("negative-negative",  negative(-x),                 x),
    rule("subtract-negative",  x - (-y),                     x + y),
    rule("add-negative",       x + (-y),                     x - y),
    rule("multiply-minus-one", x * -1,                       -x),
    rule("maximum-same",       maximum(x, x),                x),
    rule("minimum-same",       minimum(x, x),                x),
    rule("absolute-absolute",  absolute(absolute(x)),        absolute(x)),
    rule("absolute-negative",  absolute(-s),                 absolute(s)),
    rule("relu-relu",          relu(relu(x)),                relu(x)),
    rule("not-not",            logical_not(logical_not(x)),  x),
    rule("mul-distribute",     x * y + x * z,                x * (y + z),  float=reassociates),
    version="1",
    doc="Identities of arithmetic.",
)
# fmt: on
