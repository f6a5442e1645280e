"""Chains of two products with a fold that rescales between them: their axes and what they read.

Reads the stages built by `plica.schedule.online_softmax`: which axes are lots, rows, keys and
columns, the elements of each operand, which keys a row attends to, and its scores as exponents of
two.  An axis that neither keys nor values depend on counts rows: those of one lot read the same
keys.  Grouped queries do so, too:

    k[h // 4, key, d]   -->   k[g, key, d]  with  h = g * 4 + r, where r counts rows

Sides are whatever is read as f32: narrow floats, f32, integers with a scale.

>>> from plica.ir.loop.tensor import buffer
>>> x = buffer("x", (4,), f32)
>>> scale, what = factored(x[0] * sc.Lit(0.5, f32))
>>> round(scale, 4), what is x[0]
(0.7213, True)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import numpy as np
from attrs import evolve, frozen

from plica.analysis.index.context import conjuncts
from plica.core import Term, free_vars, map_bottom_up, post_order, substitute
from plica.ir.loop import Each, Names, Stages, Stmt, Store, loads, scalar as sc
from plica.ir.loop.stage import Fold
from plica.ir.type import DType, f32, i64, known, polynomial
from plica.schedule.default.gpu.machine import vector_lanes
from plica.schedule.default.gpu.narrow_read import NARROW
from plica.schedule.default.gpu.row_passes import is_along
from plica.schedule.default.gpu.thread_code import digits
from plica.schedule.online_softmax import RESCALING

LEAST: Final = sc.Lit(-math.inf, f32)  # the score of a key that is not there
LARGEST: Final = float(np.finfo(np.float32).max)


@frozen(eq=False)
class Chain:
    """The roles of axes and terms of a product, a fold and what follows it."""

    of: Stages
    fold: Fold
    out: Each
    sizes: Mapping[sc.ScalarVar, int]
    lots: tuple[sc.ScalarVar, ...]
    rows: tuple[sc.ScalarVar, ...]
    key: sc.ScalarVar
    column: sc.ScalarVar
    depth: sc.ScalarVar
    left: sc.Scalar  # an element of the queries, over lots, rows and depth
    right: sc.Scalar  # an element of the keys, over lots, key and depth
    values: sc.Scalar  # an element of the values, over lots, key and column
    held: sc.Buffer  # the products of queries and keys, which the scores read
    score: sc.Scalar
    places: Mapping[Term, sc.Scalar]  # axes of the fold in terms of lots, rows and column

    @property
    def row(self) -> sc.ScalarVar:
        """The axis of rows, where there is one."""
        (row,) = self.rows
        return row

    @property
    def dtype(self) -> DType:
        return sc.dtype_of(self.left)

    def size(self, *axes: sc.ScalarVar) -> int:
        """The number of elements along some axes."""
        return math.prod([self.sizes[axis] for axis in axes])

    def digits(self, of: sc.Scalar, axes: tuple[sc.ScalarVar, ...]) -> dict[Term, Term]:
        """Axes of which a number is the place."""
        return digits(axes, self.sizes, of)

    def scored(self, score: sc.Scalar, product: sc.Scalar, at: Mapping[Term, Term]) -> sc.Scalar:
        """A score at some place, of the product there."""

        def told(node: Term) -> Term:
            return product if isinstance(node, sc.Load) and node.buffer is self.held else node

        return substitute(map_bottom_up(told, score), at)

    def stored(
        self, out: sc.Buffer, triple: tuple[sc.Scalar, ...], at: Mapping[Term, Term],
        inverse: sc.Scalar | None = None,
    ) -> Stmt:  # fmt: skip
        """The store of what follows of a triple at some place; quotients by its sum may be products
        by an inverse."""
        results = self.fold.results
        (read,) = {load.indices for load in loads(self.out.value) if load.buffer in results}
        there: dict[Term, sc.Scalar] = {axis: sc.index(0) for axis in self.out.axes}
        for axis, place in zip(self.fold.axes, read, strict=True):
            if isinstance(place, sc.ScalarVar):
                there[place] = substitute(self.places[axis], at)

        def told(node: Term) -> Term:
            if inverse is not None and isinstance(node, sc.Div) and node.right is triple[1]:
                return sc.Mul(node.left, inverse)
            if not isinstance(node, sc.Load) or node.buffer not in results:
                return node
            return triple[results.index(node.buffer)]

        value = substitute(map_bottom_up(told, self.out.value), there)
        return Store(out, tuple([there[axis] for axis in self.out.axes]), value)

    @property
    def bytes(self) -> float:
        """The bytes read of keys and values."""
        each = self.size(*self.lots, self.key)
        return each * sum(
            self.size(axis) * sum(read.buffer.dtype.bytes for read in along(side, axis))
            for side, axis in ((self.right, self.depth), (self.values, self.column))
        )


def along(of: sc.Scalar, axis: sc.ScalarVar) -> list[sc.Load]:
    """The loads of an operand along an axis."""
    return [load for load in loads(of) if axis in free_vars(load)]


def neighbours(of: sc.Scalar, axis: sc.ScalarVar, size: int) -> int:
    """How many elements of a side along an axis are read at once."""
    most = max([load.buffer.dtype.bytes for load in along(of, axis)])
    return vector_lanes(size, most)


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
    lots = tuple([axis for axis in fold.axes if axis not in (row, columns[0])])
    places: dict[Term, sc.Scalar] = {axis: axis for axis in fold.axes}
    return Chain(of, fold, out, numbers, lots, (row,), key, columns[0], product.depth, left[0],
                 right[0], values, product.held, score, places)  # fmt: skip


def decode_chain(of: Stages) -> Chain | None:
    """The roles in online softmax stages, or None if keys are not shared."""
    names = Names(of)
    product = rescaled_product(of, names)
    if product is None or any(sc.dtype_of(value) is not f32 for value in product.fold.values):
        return None
    fold, out, key, depth = product.fold, product.out, product.key, product.depth
    score, _, values = fold.values
    left, right = product.sides
    if key in free_vars(left):
        left, right = right, left
    if key in free_vars(left) or key not in free_vars(right) or sc.dtype_of(left) is not f32:
        return None
    if key not in free_vars(values):
        return None
    numbers = dict(product.sizes)
    scored = free_vars(score) | free_vars(left) | free_vars(right)
    columns = [axis for axis in fold.axes if axis not in scored and axis in free_vars(values)]
    if len(columns) != 1 or not _is_read_back(fold, out):
        return None
    column = columns[0]
    lots: list[sc.ScalarVar] = []
    rows: list[sc.ScalarVar] = []
    places: dict[Term, sc.Scalar] = {}
    for axis in fold.axes:
        places[axis] = axis
        if axis is column:
            continue
        if axis not in free_vars(right) | free_vars(values):
            rows.append(axis)
        elif (count := _shared_by(axis, (right, values), numbers[axis])) is None:
            lots.append(axis)
        else:
            lot, row = names.var("g"), names.var("r")
            numbers |= {lot: numbers[axis] // count, row: count}
            right, values = (_put(scalar, axis // count, lot) for scalar in (right, values))
            places[axis] = lot * count + row
            lots.append(lot)
            rows.append(row)
    left, score = (substitute(scalar, places) for scalar in (left, score))
    chain = Chain(of, fold, out, numbers, tuple(lots), tuple(rows), key, column, depth,
                        left, right, values, product.held, score, places)  # fmt: skip
    near = all(
        is_along(load, axis)
        for side, axis in ((right, depth), (values, column))
        for load in along(side, axis)
    )
    return chain if depth in free_vars(right) and near else None


def _put(of: sc.Scalar, old: sc.Scalar, new: sc.Scalar) -> sc.Scalar:
    return map_bottom_up(lambda node: new if node is old else node, of)


def _shared_by(axis: sc.ScalarVar, sides: tuple[sc.Scalar, ...], size: int) -> int | None:
    """How many neighbours along an axis read the same elements of all operands, or None."""
    found: set[int | None] = set()
    for node in post_order(sc.Add(*sides)):
        if axis not in node._children:
            continue
        shared = isinstance(node, sc.FloorDiv) and node.left is axis
        found.add(known(node.right) if shared and isinstance(node, sc.FloorDiv) else None)
    count = next(iter(found)) if len(found) == 1 else None
    return count if count and count > 0 and size % count == 0 else None


def _is_read_back(fold: Fold, out: Each) -> bool:
    """Whether the consumer of a fold has one element for each of its own."""
    places = {load.indices for load in loads(out.value) if load.buffer in fold.results}
    if len(places) != 1:
        return False
    (read,) = places
    axes = [each for each in read if isinstance(each, sc.ScalarVar)]
    units = [axis for axis, size in zip(out.axes, out.out.shape, strict=True) if known(size) == 1]
    fixed = [
        size for scalar, size in zip(read, fold.results[0].shape, strict=True) if scalar not in axes
    ]
    return (
        len(set(axes)) == len(axes)
        and {*axes, *units} >= {*out.axes}
        and all(known(size) == 1 for size in fixed)
    )


def rows_of(of: Chain) -> Chain | None:
    """The same fold with a single row axis, or None if tensor cores do not multiply its
    operands."""
    left, right, values = (narrow(scalar) for scalar in (of.left, of.right, of.values))
    if left is None or right is None or values is None:
        return None
    if len(kinds := {sc.dtype_of(scalar) for scalar in (left, right, values)}) != 1 or f32 in kinds:
        return None
    row = Names(of.of).var("row")
    at = of.digits(row, of.rows)
    return evolve(
        of, sizes={**of.sizes, row: of.size(*of.rows)}, rows=(row,), left=substitute(left, at),
        right=right, values=values, score=substitute(of.score, at),
        places={axis: substitute(scalar, at) for axis, scalar in of.places.items()},
    )  # fmt: skip


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


# --- scores --------------------------------------------------------------------------------------


def power(of: sc.Scalar) -> sc.Scalar:
    """A power of two, which machines have an instruction for."""
    return sc.Intrinsic("exp2", (of,))


def scale_of(most: sc.Scalar, unit: float) -> sc.Scalar:
    """The factor of a row's scores: the unit, or one if that would be infinite.

    A masked key may have the lowest finite number instead of minus infinity, and all keys of a row
    may be masked. Numbers that large are equal or further apart than any exponential can
    distinguish: which of them it is does not matter.
    """
    if unit <= 1:
        return sc.Lit(unit, f32)
    far = sc.Lt(sc.Lit(LARGEST / unit * (1 - 1e-6), f32), sc.Intrinsic("abs", (most,)))
    return sc.Select(far, sc.Lit(1.0, f32), sc.Lit(unit, f32))


def factored(of: sc.Scalar) -> tuple[float, sc.Scalar]:
    """Scores in units for powers of two: a positive factor, and the remaining term."""
    whole, unit = of, math.log2(math.e)
    conditions: list[sc.Scalar] = []
    while isinstance(of, sc.Select) and of.orelse is LEAST:
        conditions.append(of.condition)
        of = of.then
    if not isinstance(of, sc.Mul) or not isinstance(of.right, sc.Lit) or not of.right.value > 0:
        return unit, whole
    scale, of = float(of.right.value) * unit, of.left
    for condition in reversed(conditions):
        of = sc.Select(condition, of, LEAST)
    return scale, of
