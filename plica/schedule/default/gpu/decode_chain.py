"""Decode attention: a fold that rescales, of few rows and many keys, and the roles of its axes.

Stages that `plica.schedule.online_softmax` made are read here.  An axis that neither keys nor
values depend on counts rows: those of one lot read the same keys.  Grouped queries do so, too:

    k[h // 4, key, d]   -->   k[g, key, d]  with  h = g * 4 + r, where r counts rows

Sides are whatever is read as f32: narrow floats, f32, integers with a scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from attrs import frozen

from plica.core import Term, free_vars, map_bottom_up, post_order, substitute
from plica.ir.loop import Each, Names, Stages, loads, scalar as sc
from plica.ir.loop.stage import Fold
from plica.ir.type import f32, known
from plica.schedule.default.gpu.attention_chain import rescaled_product
from plica.schedule.default.gpu.machine import vector_lanes
from plica.schedule.default.gpu.split_reduction import is_along

OCTET: Final = 8  # elements that are read at once, at most


@frozen(eq=False)
class DecodeChain:
    """Axes and terms of a fold whose keys are read once for all rows of a lot."""

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

    def size(self, *axes: sc.ScalarVar) -> int:
        """The number of elements along some axes."""
        return prod(self.sizes[axis] for axis in axes)

    def digits(self, of: sc.Scalar, axes: tuple[sc.ScalarVar, ...]) -> dict[Term, Term]:
        """Axes of which a number is the place."""
        found: dict[Term, Term] = {}
        for number, axis in enumerate(reversed(axes)):
            first = number == len(axes) - 1
            found[axis] = of if first else of % self.size(axis)
            of = of // self.size(axis)
        return found

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


def decode_chain(of: Stages) -> DecodeChain | None:
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
    chain = DecodeChain(of, fold, out, numbers, tuple(lots), tuple(rows), key, column, depth,
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
