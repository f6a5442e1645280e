"""Inversion: the image shape of an index map, its inverse, and the padding.

>>> from plica.ir.loop.index_map import index_map
>>> from plica.ir.loop.scalar import index
>>> tiles = index_map(lambda i: (i // 4, i % 4))
>>> [each.value for each in image_shape(tiles, (index(10),))]
[3, 4]
>>> back = inverse(tiles, (index(10),))
>>> back.exact, [simplify(each) for each in back.map.apply((index(2), index(1)))]
(False, [Lit(9, DType('i64'))])

An inverse maps every index in the image back to its origin. If the image is not the whole box
`image_shape`, `padding` is the condition for indices outside the image.
"""

from __future__ import annotations

import math

import numpy as np
from attrs import frozen

from plica.analysis.index.certificate import MAX_POINTS
from plica.analysis.index.context import EMPTY, FALSE, Context
from plica.analysis.index.digit import Digits, reach
from plica.analysis.index.iteration import IterationMap, iteration_map
from plica.analysis.index.simplify import simplify
from plica.core import Name, Term, fresh
from plica.ir.loop.index_map import IndexMap
from plica.ir.loop.scalar import Eq, Le, Lit, Lt, Not, Or, Scalar, ScalarVar, index
from plica.ir.loop.tensor import Compute
from plica.ir.type import i64, known
from plica.runtime.late import late

evaluate = late("plica.ir.interpret.evaluate:evaluate")


@frozen(eq=False)
class Inverse:
    """The inverse of a map on a shape; `padding` is a condition on the variables of `map`."""

    map: IndexMap
    padding: Scalar

    @property
    def exact(self) -> bool:
        """Whether nothing in the image's box is padding."""
        return self.padding is FALSE


def image_shape(of: IndexMap, shape: tuple[Scalar, ...]) -> tuple[Scalar, ...] | None:
    """A shape that contains the image, as small as can be shown; None if unknown."""
    digits = Digits(dict(zip(of.vars, shape, strict=True)))
    found = []
    for result in of.results:
        parts = digits.sum_of(result)
        last = None if parts is None else reach(parts)
        if last is None:
            return None
        found.append(simplify(last + 1, EMPTY))
    return tuple(found)


def inverse(of: IndexMap, shape: tuple[Scalar, ...]) -> Inverse | None:
    """The inverse on indices within a shape, or None if the map is not shown to be invertible."""
    if (image := image_shape(of, shape)) is None:
        return None
    whole = _map(of, shape, image)
    variables = _names(of)
    if (point := whole.inverse(variables)) is None:
        return None
    context = EMPTY.loops(zip(variables, image, strict=True))
    back = IndexMap(variables, tuple([simplify(point[var], context) for var in of.vars]))
    padding = FALSE if whole.surjective else _padding(of, shape, back, context)
    return Inverse(back, padding)


def is_bijective(of: IndexMap, shape: tuple[Scalar, ...]) -> bool:
    """Whether a map is a bijection from a shape to the whole box `image_shape`."""
    image = image_shape(of, shape)
    return image is not None and _map(of, shape, image).bijective


def are_apart(of: IndexMap, shape: tuple[Scalar, ...]) -> bool | None:
    """Whether the map is injective on a shape, by enumeration.

    None if a size is unknown, or there are too many points.

    >>> from plica.ir.loop.index_map import index_map
    >>> box = (index(3), index(5))
    >>> [are_apart(index_map(lambda i, j: (i + n * j,)), box) for n in (3, 1)]
    [True, False]
    """
    sizes = [known(dim) for dim in shape]
    count = math.prod([size for size in sizes if size is not None])
    if None in sizes or count > MAX_POINTS:
        return None
    if not of.results or count == 0:
        return count <= 1
    places = [evaluate(Compute((), of.vars, shape, result), []) for result in of.results]
    rows = np.stack([place.reshape(-1) for place in places], axis=1)
    return len(np.unique(rows, axis=0)) == count


def _map(of: IndexMap, shape: tuple[Scalar, ...], image: tuple[Scalar, ...]) -> IterationMap:
    return iteration_map(zip(of.vars, shape, strict=True), of.results, image)


def _padding(of: IndexMap, shape: tuple[Scalar, ...], back: IndexMap, context: Context) -> Scalar:
    """Where going back leaves the shape, or does not lead here again."""
    conditions: list[Scalar] = []
    for source, size in zip(back.results, shape, strict=True):
        conditions += [Lt(source, index(0)), Le(size, source)]
    for var, again in zip(back.vars, of.apply(back.results), strict=True):
        conditions.append(Not(Eq(var, again)))
    scalar: Scalar = FALSE
    for term in conditions:
        condition = simplify(term, context)
        if isinstance(condition, Lit) and not condition.value:
            continue
        scalar = condition if scalar is FALSE else Or(scalar, condition)
    return simplify(scalar, context)


def _names(of: IndexMap) -> tuple[ScalarVar, ...]:
    """A variable for each result: the one it is, where it is one, or a new one."""
    used: set[Name] = {var.name for var in of.vars}
    taken: set[Term] = set()
    found: list[ScalarVar] = []
    for result in of.results:
        if isinstance(result, ScalarVar) and result in of.vars and result not in taken:
            taken.add(result)
            found.append(result)
            continue
        name = fresh(Name("p"), used)
        used.add(name)
        found.append(ScalarVar(name, i64))
    return tuple(found)
