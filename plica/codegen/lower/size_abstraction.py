"""Sizes as parameters: what is read has sizes of its own, whatever these are made of.

Deep in a network the height of an image is `((h + 1) // 2 + 1) // 2`, and every address would
compute that anew.  A kernel is told such a size instead, as it is told dims; so layers that differ
in nothing else are one kernel.

    x[n, c, (h + 1) // 2]  -->  y[n, c, ((h + 1) // 2 + 1) // 2]
    x[n, c, s]             -->  y[n, c, (s + 1) // 2]                   s is (h + 1) // 2

A size that is made of another stays made of it, and none is told apart from dims that a kernel asks
for anyhow: what is known of places comes from how sizes depend on one another.

>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer
>>> half = (dim_var("h") + 1) // 2
>>> x = buffer("x", (half,), f32)
>>> twice = stages((x,), (stage("y", (half,), lambda i: x[i] + x[i]),))
>>> found = abstracted(twice)
>>> print(found.stages, "where", {str(var.name): term is half for var, term in found.given.items()})
y[i < size] = x[i] + x[i] where {'size': True}
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from attrs import frozen

from plica.core import Term, free_vars, map_top_down, post_order
from plica.ir.loop.scalar import Scalar, ScalarVar
from plica.ir.loop.stages import Names, Stages, stages
from plica.ir.type import is_size, polynomial


@frozen(eq=False)
class AbstractedSizes:
    """Stages over sizes that are told, and what these are."""

    stages: Stages
    given: Mapping[ScalarVar, Scalar]


@lru_cache(maxsize=256)
def abstracted(of: Stages) -> AbstractedSizes:
    """The stages over as few sizes as they need."""
    if not of.dims:
        return AbstractedSizes(of, {})
    atoms: dict[Scalar, None] = {}
    for each in of.inputs:
        for size in each.shape:
            for factors, _ in polynomial(size).values():
                atoms |= {a: None for a in factors if not isinstance(a, ScalarVar) and is_size(a)}
    inner = [a for a in atoms if not any(b is not a and b in atoms for b in post_order(a))]
    while inner:
        names = Names(of)
        by: dict[Term, ScalarVar] = {each: names.var("size") for each in inner}

        def told(node: Term, by: Mapping[Term, ScalarVar] = by) -> Term:
            return by.get(node, node)

        mapped = map_top_down(told, of)
        found = stages(mapped.inputs, mapped.stages, mapped.outputs)
        left = set(found.dims)
        apart = [each for each in inner if left.isdisjoint(free_vars(each))]
        if len(apart) == len(inner):
            return AbstractedSizes(found, {by[each]: each for each in inner})
        inner = apart
    return AbstractedSizes(of, {})
