"""Rows whose results are as long as values say: what is not zero, differs or repeats."""

from __future__ import annotations

from typing import Final

from plica.frontend.measured import flat_places_of, places_of, prefix
from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.word import Row, casted
from plica.frontend.word import dtype, like, shape
from plica.ir.graph.expression import Expr, Project, const
from plica.ir.op.namespace import op
from plica.ir.type import i64, normal_dim, product


def _masked_select(node: TorchNode) -> Expr:
    x, mask = node.x(), node.x("mask")
    whole = shape(casted(mask, dtype(x)) + x) if shape(x) != shape(mask) else shape(x)
    x, mask = op.broadcast_to(x, whole), op.broadcast_to(mask, whole)
    flat = (product(whole),)
    return op.take(op.reshape(x, flat), flat_places_of(node, mask), axis=0)


def _masked_scatter(node: TorchNode) -> Expr:
    """The places of a mask, in order, take the first elements of a source."""
    x, source = node.x(), node.x("source")
    mask = op.broadcast_to(node.x("mask"), shape(x))
    flat = (product(shape(x)),)
    chosen = op.reshape(mask, flat)
    if node.measures:  # so that what is refused is named
        count = node.measured(op.sum(casted(chosen, i64), axis=(0,)))
        left = normal_dim(product(shape(source)) - count)
        source = op.match_shape(source, shape(source), least=(left,))
    expr = take_in_turn(op.reshape(source, (product(shape(source)),)), chosen)
    return op.where(mask, op.reshape(expr, shape(x)), x)


def take_in_turn(rows: Expr, chosen: Expr) -> Expr:
    """For the places of a mask of rank 1, in order, the first rows; zeros for all other places.

    There must be as many rows as places that are chosen.
    """
    count = op.cumsum(casted(chosen, i64), axis=0)
    nothing = op.full(shape=(1, *shape(rows)[1:]), value=0, dtype=dtype(rows))
    return op.take(
        op.concat((nothing, rows), axis=0), op.where(chosen, count, like(0, count)), axis=0
    )


def _unique(node: TorchNode) -> list[Expr | None]:
    """Distinct elements, sorted; inverse and counts on request."""
    x = node.x()
    node.flag("sorted")  # torch sorts in any case
    inverse, counts = node.flag("return_inverse"), node.flag("return_counts")
    expr = op.unique(x, sorted=True)
    size = node.measured(Project(expr, 4))
    return [
        prefix(Project(expr, 0), size),
        op.reshape(Project(expr, 2), shape(x)) if inverse else None,
        prefix(Project(expr, 3), size) if counts else None,
    ]


def _repeat_interleave(node: TorchNode) -> Expr:
    """Which element each place of the result is: the first whose repetitions reach beyond it."""
    times = casted(node.x("repeats"), i64)
    node.has("output_size")
    ends = op.cumsum(times, axis=0)
    # A count below 0 is refused, as any size below 0 is.
    below = op.any(times < like(0, times), axis=(0,))
    size = node.measured(op.where(below, const(-1, i64), op.sum(times, axis=(0,))))
    return op.searchsorted(ends, op.iota(shape=(size,), dtype=i64), side="right")


def _bincount(node: TorchNode) -> Expr:
    """The number of occurrences of each integer, or their total weights."""
    x, weights, least = node.x(), node.maybe("weights"), node.integer("minlength")
    places = casted(x, i64)
    before = op.full(shape=(1,), value=least - 1, dtype=i64)  # there may be no numbers
    greatest = op.max(op.concat((before, places), axis=0), axis=(0,))
    # A number below 0 is refused, as any size below 0 is.
    below = op.any(places < like(0, places), axis=(0,))
    size = node.measured(op.where(below, const(-1, i64), greatest + const(1, i64)))
    of = node.dtype()
    given = op.full(shape=shape(x), value=1, dtype=of) if weights is None else casted(weights, of)
    return op.scatter_elements(op.full(shape=(size,), value=0, dtype=of), places, given, axis=0,
                            reduction="add")  # fmt: skip


def _histc(node: TorchNode) -> Expr:
    """The number of elements in each of equal intervals; equal bounds select the elements'
    range."""
    x, bins = op.reshape(node.x(), (product(shape(node.x())),)), node.integer("bins")
    least: Expr = like(node.number("min"), x)
    greatest: Expr = like(node.number("max"), x)
    if node.number("min") == node.number("max"):
        if not all(node.known_sizes(x)):
            node.unsupported("The bounds of no elements are not known.", "min and max", "0 and 0")
        least, greatest = op.min(x, axis=(0,)), op.max(x, axis=(0,))
        is_point, one = op.equal(least, greatest), like(1, least)
        least, greatest = (
            op.where(is_point, least - one, least),
            op.where(is_point, greatest + one, greatest),
        )
    inside = op.logical_and(x >= least, x <= greatest)
    shifted = op.where(inside, x, least) - least
    scaled = shifted * like(bins, x) / (greatest - least)
    place = casted(scaled, i64)
    place = op.where(inside, op.minimum(place, like(bins - 1, place)), like(bins, place))
    counts = op.full(shape=(bins + 1,), value=0, dtype=node.dtype())  # the last is of those outside
    ones = op.full(shape=shape(x), value=1, dtype=node.dtype())
    expr = op.scatter_elements(counts, place, ones, axis=0, reduction="add")
    return op.slice(expr, (0,), (bins,), None, (0,))


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "nonzero.default":          lambda node: places_of(node, node.x()),
    "masked_select.default":    _masked_select,
    "masked_scatter.default":   _masked_scatter,
    "_unique2.default":         _unique,
    "repeat_interleave.Tensor": _repeat_interleave,
    "bincount.default":         _bincount,
    "histc.default":            _histc,
}
# fmt: on
