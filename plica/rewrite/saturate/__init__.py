"""Equality saturation over the same rules: keep every form, then take the cheapest.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> from plica.rewrite import holes, rule
>>> from plica.ir.contract import reassociates
>>> x, y, z = holes("x y z")
>>> matrices = lambda found: all(len(found.shape(each)) == 2 for each in (x, y, z))
>>> rules = [rule("regroup", (x @ y) @ z, x @ (y @ z), when=matrices, float=reassociates)]
>>> a, b, v = (Var(Name(n), tensor(s, "f32")) for n, s in zip("abv", ((64, 2), (2, 64), (64, 1))))
>>> best, derivation = saturate((a @ b) @ v, rules)
>>> best is a @ (b @ v), [step.rule.name for step in derivation.steps]
(True, ['regroup'])
>>> saturate(a @ (b @ v), rules)[1].steps  # greedy or not: what is best stays
()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "Cost", "OrderDependence", "Saturation", "SaturationLimits", "elements", "order_dependent",
    "saturate", "saturation", "total",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.rewrite.saturate.cost import Cost, elements, total
    from plica.rewrite.saturate.limit import SaturationLimits
    from plica.rewrite.saturate.order import OrderDependence, order_dependent
    from plica.rewrite.saturate.run import Saturation, saturate, saturation
else:
    lazily(__name__)
