"""Rows of gathers, scatters and sorts, by places in the flattened operand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any, Final

from attrs import evolve

from plica.core import ill_formed
from plica.frontend.stablehlo.node import HloNode, sizes
from plica.frontend.stablehlo.row.elementwise import total_order
from plica.frontend.stablehlo.row.reduction import Rows
from plica.frontend.stablehlo.row.shape import spread
from plica.frontend.stablehlo.scalar_body import ScalarBody, scalar_body
from plica.frontend.word import dtype, like, rank, to
from plica.ir.graph.expression import Expr, const
from plica.ir.op.namespace import op
from plica.ir.type.dtype import bool_, i64

MAX_RANK: Final = 64

MAX_PAIRS: Final = 1 << 24
"""Comparators that are not known compare each pair: no more of them than this."""


class _Places:
    """The dimension numbers of a gather or a scatter, which mirror one another."""

    def __init__(self, node: HloNode, numbers: Any, gathers: bool) -> None:
        given = evolve(node, op=evolve(node.op, attributes=numbers))

        def read(name: str) -> list[int]:
            found = given.numbers(name)
            if any(not 0 <= each < MAX_RANK for each in found) or len({*found}) < len(found):
                node.unsupported(f"{name} is a list of axes.", found=str(found))
            return found

        self.window = read("offset_dims" if gathers else "update_window_dims")
        self.gone = read("collapsed_slice_dims" if gathers else "inserted_window_dims")
        self.mapped = read("start_index_map" if gathers else "scatter_dims_to_operand_dims")
        self.batch = read("operand_batching_dims" if gathers else "input_batching_dims")
        self.batch_of = read(
            "start_indices_batching_dims" if gathers else "scatter_indices_batching_dims"
        )
        self.vector = given.number("index_vector_dim")
        x, indices = (rank(operand) for operand in node.operands[:2])
        axes = (*self.gone, *self.mapped, *self.batch)
        whole = x - len(self.gone) - len(self.batch)
        if max(axes, default=-1) >= x or len(self.batch) != len(self.batch_of):
            node.unsupported(
                "The dimension numbers do not fit the operand.", f"axes of {x}", str(axes)
            )
        if whole != len(self.window) or not {*self.batch_of} <= {*range(indices)} - {self.vector}:
            node.unsupported("The dimension numbers do not fit.", f"{whole} axes", str(self.window))

    def at(
        self, x: Expr, indices: Expr, shape: Sequence[int], box: Sequence[int], clamps: bool
    ) -> tuple[Expr, Expr | None]:
        """For each place of a shape, where it is in the flattened operand, and whether that is
        inside; of a gather all are moved there."""
        whole = sizes(x)
        strides = [prod(whole[axis + 1 :]) for axis in range(len(whole))]
        indices = to(indices, i64)
        vector = self.vector
        if max(self.window, default=-1) >= len(shape):
            raise ill_formed(f"A tensor of rank {len(shape)} has no axes {self.window}.")
        scattered = [axis for axis in range(len(shape)) if axis not in self.window]
        batches = [axis for axis in range(rank(indices)) if axis != vector]
        place: Expr = const(0, i64)
        inside: Expr | None = None
        for number, axis in enumerate(self.mapped):
            part = indices
            if vector < rank(indices):
                part = op.take(indices, const(number, i64), axis=vector)
            last = whole[axis] - box[axis]
            if clamps:
                part = op.minimum(op.maximum(part, like(0, part)), like(last, part))
            else:
                good = op.logical_and(part >= like(0, part), part <= like(last, part))
                inside = good if inside is None else op.logical_and(inside, good)
            place = place + part * like(strides[axis], part)
        for axis, of in zip(self.batch, self.batch_of, strict=True):
            at = batches.index(of)
            size = sizes(indices)[of]
            form = tuple([size if b == at else 1 for b in range(len(batches))])
            place = place + op.iota(shape=form, axis=at, dtype=i64) * const(strides[axis], i64)
        count = tuple([shape[axis] for axis in scattered])
        whole_place = spread(op.broadcast_to(place, count), shape, scattered)
        if inside is not None:
            inside = spread(op.broadcast_to(inside, count), shape, scattered)
        offsets = [a for a in range(len(whole)) if a not in (*self.gone, *self.batch)]
        for axis, into in zip(offsets, self.window, strict=True):
            form = tuple([shape[into] if a == into else 1 for a in range(len(shape))])
            if shape[into] > 1:
                steps = op.iota(shape=form, axis=into, dtype=i64)
                whole_place = whole_place + steps * const(strides[axis], i64)
        return whole_place, inside


def _numbers(node: HloNode, *names: str) -> Any:
    found = node.attribute(*names)
    if not isinstance(found, dict):
        node.unsupported("The dimension numbers are missing.", names[0], str(found))
    return found


def _gather(node: HloNode) -> Expr:
    x, indices = node.operands[:2]
    box = node.numbers("slice_sizes") or [int(e) for e in node.constant(2)]
    of = _Places(node, _numbers(node, "dimension_numbers"), True)
    if not prod(node.shape()):
        return op.full(shape=node.shape(), value=0, dtype=dtype(x))
    places, _ = of.at(x, indices, node.shape(), box, True)
    return op.take(op.reshape(x, (prod(sizes(x)),)), places, axis=0, mode="clip")


_JOINS: Final = {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min"}


def _scatter(node: HloNode) -> list[Expr]:
    count = len(node.operands) // 2
    inputs, indices = node.operands[:count], node.operands[count]
    updates = node.operands[count + 1 :]
    body = scalar_body(node)
    how = "replace" if _replaces(body, count) else _JOINS.get(body.monoid or "", "")
    if not how:
        node.unsupported("The body is not known.", "add, multiply, maximum, minimum, or the update",
                     str(body.results[0]))  # fmt: skip
    of = _Places(node, _numbers(node, "scatter_dimension_numbers"), False)
    shape = sizes(updates[0])
    box = [1] * rank(inputs[0])
    offsets = [a for a in range(rank(inputs[0])) if a not in (*of.gone, *of.batch)]
    for axis, into in zip(offsets, of.window, strict=True):
        box[axis] = shape[into]
    if not prod(shape):
        return list(inputs)
    places, inside = of.at(inputs[0], indices, shape, box, False)
    if not of.mapped:
        inside = op.broadcast_to(const(True, bool_), shape)
    assert inside is not None
    out = []
    for x, update in zip(inputs, updates, strict=True):
        size = prod(sizes(x))
        flat = op.reshape(op.where(inside, places, like(size, places)), (prod(shape),))
        row = op.pad(op.reshape(x, (size,)), pad_width=((0, 1),), constant_values=0)
        if dtype(x) is bool_ and how != "replace":
            node.unsupported("Bools are replaced only.")
        row = op.scatter_elements(row, flat, op.reshape(update, (prod(shape),)), axis=0,
                                  reduction=how)  # fmt: skip
        out.append(op.reshape(op.slice(row, (0,), (size,)), sizes(x)))
    return out


def _replaces(body: ScalarBody, count: int) -> bool:
    return body.results == body.arguments[count:]


# --- sorts ----------------------------------------------------------------------------------------


def _sort(node: HloNode) -> list[Expr]:
    axis = node.number("dimension", default=-1) % max(1, rank(node.x))
    if sizes(node.x)[axis] < 2:
        return list(node.operands)
    order = _order(node, scalar_body(node), axis)
    return [op.take_along_axis(operand, order, axis=axis) for operand in node.operands]


def _order(node: HloNode, body: ScalarBody, axis: int) -> Expr:
    """The stable sorting permutation."""
    keys = _keys(body)
    if keys is not None:
        order: Expr | None = None
        for at, descending in reversed(keys):
            key = node.operands[at]
            if order is not None:
                key = op.take_along_axis(key, order, axis=axis)
            mine = op.argsort(key, axis=axis, descending=descending)
            order = mine if order is None else op.take_along_axis(order, mine, axis=axis)
        assert order is not None
        return order
    size = sizes(node.x)[axis]
    if prod(sizes(node.x)) * size > MAX_PAIRS:
        node.unsupported("The comparator is not known, and there are too many elements.",
                     "a comparison of keys", str(body.results[0]))  # fmt: skip
    return _by_pairs(node, body, axis)


def _by_pairs(node: HloNode, body: ScalarBody, axis: int) -> Expr:
    """The rank of an element is the number of its predecessors."""
    last = [op.moveaxis(x, source=axis, destination=-1) for x in node.operands]
    rows = [op.expand_dims(x, axis=(-1,)) for x in last]
    columns = [op.expand_dims(x, axis=(-2,)) for x in last]
    (before,) = body.on(*[expr for pair in zip(columns, rows, strict=True) for expr in pair])
    (after,) = body.on(*[expr for pair in zip(rows, columns, strict=True) for expr in pair])
    size = sizes(last[0])[-1]
    earlier = op.iota(shape=(1, size), axis=1, dtype=i64) < op.iota(shape=(size, 1), dtype=i64)
    tie = op.logical_and(op.logical_not(op.logical_or(before, after)), earlier)
    place = op.sum(to(op.logical_or(before, tie), i64), axis=(-1,))
    return op.moveaxis(op.argsort(place, axis=-1), source=-1, destination=axis)


def _keys(body: ScalarBody) -> list[tuple[int, bool]] | None:
    """The operands that a comparator compares, the first first, and whether each descends."""
    pairs = list(zip(body.arguments[::2], body.arguments[1::2], strict=True))
    for count, way, form in product(range(1, len(pairs) + 1), ("less", "greater"), _FORMS):
        meant: Expr | None = None
        for sides in reversed(pairs[:count]):
            x, y = [form(side) if dtype(side).is_float else side for side in sides]
            first = getattr(op, way)(x, y)
            if meant is not None:
                first = op.logical_or(first, op.logical_and(op.equal(x, y), meant))
            meant = first
        if body.results == (meant,):
            return [(at, way == "greater") for at in range(count)]
    return None


def _same(x: Expr) -> Expr:
    return x


def _canonical(x: Expr) -> Expr:
    """As JAX compares floats: both zeros are one, and so are all nans."""
    zero = const(0.0, dtype(x))
    nan = const(float("nan"), dtype(x))
    whole = op.where(op.equal(x, zero), zero, x)
    return total_order(op.where(op.not_equal(x, x), nan, whole))


_FORMS: Final = (_same, _canonical)


def _top(node: HloNode) -> list[Expr]:
    k = node.number("k")
    x = node.x
    order = op.argsort(x, axis=rank(x) - 1, descending=True)
    places = op.slice(order, (0,) * rank(x), (*sizes(x)[:-1], k))
    return [op.take_along_axis(x, places, axis=rank(x) - 1), to(places, node.dtype(1))]


TABLE: Final[dict[str, Rows]] = {
    "gather": _gather, "dynamic_gather": _gather, "scatter": _scatter, "sort": _sort,
    "chlo.top_k": _top,
}  # fmt: skip
