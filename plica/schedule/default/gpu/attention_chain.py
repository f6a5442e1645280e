"""A chain of two products with a fold that rescales between them: its axes and what it reads.

Reads the stages built by `plica.schedule.online_softmax`: which axes are batches, rows, keys and
columns, the elements of each operand, and which keys a row attends to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from attrs import frozen

from plica.analysis.index.context import conjuncts
from plica.core import Term, free_vars, substitute
from plica.ir.loop import Each, Names, Stages, loads, scalar as sc
from plica.ir.loop.stage import Fold
from plica.ir.type import DType, f32, i64, known, polynomial
from plica.schedule.default.gpu.narrow_read import NARROW
from plica.schedule.online_softmax import RESCALING

LEAST: Final = sc.Lit(-math.inf, f32)  # the score of a key that is not there


@frozen(eq=False)
class Chain:
    """The roles of axes and terms of a product, a fold and what follows it."""

    of: Stages
    fold: Fold
    out: Each
    sizes: Mapping[sc.ScalarVar, int]
    batch: tuple[sc.ScalarVar, ...]
    row: sc.ScalarVar
    key: sc.ScalarVar
    column: sc.ScalarVar
    depth: sc.ScalarVar
    left: sc.Scalar  # an element of the queries, narrow, over batch, row and depth
    right: sc.Scalar  # an element of the keys, over batch, key and depth
    values: sc.Scalar  # an element of the values, over batch, key and column
    held: sc.Buffer  # the products of queries and keys, which the scores read
    score: sc.Scalar
    places: Mapping[Term, sc.Scalar]  # axes of the fold in terms of batch, row and column

    @property
    def dtype(self) -> DType:
        return sc.dtype_of(self.left)

    def size(self, *axes: sc.ScalarVar) -> int:
        """The number of elements along some axes."""
        return math.prod([self.sizes[axis] for axis in axes])


@frozen(eq=False)
class RescaledProduct:
    """A product, a fold that rescales, what follows it, and the sizes of all axes."""

    held: sc.Buffer
    fold: Fold
    out: Each
    depth: sc.ScalarVar
    sides: tuple[sc.Scalar, sc.Scalar]  # the factors, over the axes of the fold and depth
    sizes: dict[sc.ScalarVar, int]

    @property
    def key(self) -> sc.ScalarVar:
        return self.fold.terms[0]


def rescaled_product(of: Stages, names: Names) -> RescaledProduct | None:
    """The parts of online softmax stages, or None for others, and for open or empty ones."""
    if len(of.stages) != 3:
        return None
    held, fold, out = of.stages
    if not isinstance(held, Each) or not isinstance(fold, Fold) or not isinstance(out, Each):
        return None
    product = held.value
    if fold.combine is not RESCALING or len(fold.terms) != 1 or not isinstance(product, sc.Reduce):
        return None
    if product.combiner != "sum" or len(product.axes) != 1 or not isinstance(product.body, sc.Mul):
        return None
    reads = {load for load in loads(fold.values[0]) if load.buffer is held.out}
    if len(reads) != 1:
        return None
    (read,) = reads
    depth = names.var("d")  # the same name may stand for a term of each sum
    places: dict[Term, Term] = dict(zip(held.axes, read.indices, strict=True))
    places[product.axes[0]] = depth
    sides = substitute(product.body.left, places), substitute(product.body.right, places)
    sizes = {axis: known(size) for axis, size in zip(fold.axes, fold.results[0].shape, strict=True)}
    sizes |= {fold.terms[0]: known(fold.extents[0]), depth: known(product.extents[0])}
    numbers = {axis: size for axis, size in sizes.items() if size}
    if len(numbers) != len(sizes):
        return None
    return RescaledProduct(held.out, fold, out, depth, sides, numbers)


def chain_of(of: Stages) -> Chain | None:
    """The roles in online softmax stages, or None if tensor cores cannot compute them."""
    product = rescaled_product(of, Names(of))
    if product is None or product.fold.values[1] is not sc.Lit(1.0, f32):
        return None
    fold, out, key, numbers = product.fold, product.out, product.key, product.sizes
    sides, values = [narrow(side) for side in product.sides], narrow(fold.values[2])
    if values is None or None in sides:
        return None
    pair = [side for side in sides if side is not None]
    right = [scalar for scalar in pair if key in free_vars(scalar)]
    left = [scalar for scalar in pair if key not in free_vars(scalar)]
    if len(right) != 1 or len({sc.dtype_of(scalar) for scalar in (*pair, values)}) != 1:
        return None
    if key not in free_vars(values):
        return None
    score = fold.values[0]
    inside = free_vars(score) | free_vars(left[0]) | free_vars(right[0])
    columns = [axis for axis in fold.axes if axis not in inside and numbers[axis] > 1]
    rows = [
        axis
        for axis in fold.axes
        if axis in free_vars(left[0])
        and axis not in free_vars(right[0])
        and axis not in free_vars(values)
    ]
    if len(columns) != 1 or not rows:
        return None
    row = max(rows, key=lambda axis: (numbers[axis], fold.axes.index(axis)))
    batch = tuple([axis for axis in fold.axes if axis not in (row, columns[0])])
    places: dict[Term, sc.Scalar] = {axis: axis for axis in fold.axes}
    return Chain(of, fold, out, numbers, batch, row, key, columns[0], product.depth, left[0],
                 right[0], values, product.held, score, places)  # fmt: skip


@lru_cache(maxsize=64)
def seen_keys(of: Chain) -> tuple[int | None, int | None]:
    """How far before and after its own number a row sees keys, where the scores say so.

    A score that is minus infinity has no weight: a slice of such need not be looked at.
    """
    below: int | None = None
    above: int | None = None
    score = of.score
    while isinstance(score, sc.Select) and score.orelse is LEAST:
        for said in conjuncts(score.condition):
            if not isinstance(said, sc.Le | sc.Lt) or sc.dtype_of(said.left) is not i64:
                continue
            terms = dict(polynomial(said.right - said.left).values())
            constant = terms.pop((), 0) - isinstance(said, sc.Lt)
            if terms == {(of.row,): 1, (of.key,): -1}:
                above = constant if above is None else min(above, constant)
            elif terms == {(of.row,): -1, (of.key,): 1}:
                below = -constant if below is None else max(below, -constant)
        score = score.then
    return below, above


def narrow(of: Term) -> sc.Scalar | None:
    """The load behind an f32 value that tensor cores multiply in its storage type; itself, if it is
    f32."""
    if isinstance(of, sc.Cast) and of.dtype is f32 and sc.dtype_of(of.value) in NARROW:
        return of.value
    return of if isinstance(of, sc.Scalar) and sc.dtype_of(of) is f32 else None
