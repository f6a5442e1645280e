"""Rows whose results are as long as values say: what is not zero, what differs, what is repeated.

They are made as long as they can become, with how many there are beside them, and cut to that
number, which is measured when the program runs.
"""

from __future__ import annotations

from typing import Final

from plica.frontend.chosen_place import flat_places_of, places_of
from plica.frontend.measured import amount, prefix
from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.word import Row, casted
from plica.frontend.word import dtype, like, shape
from plica.ir.graph.expression import Expr, Project, const
from plica.ir.op.comparison import less
from plica.ir.op.create import full, iota
from plica.ir.op.elementwise import add, maximum, subtract
from plica.ir.op.index import take, where
from plica.ir.op.order import searchsorted, unique
from plica.ir.op.put import scatter_elements
from plica.ir.op.reduction import cumsum, max_, sum_
from plica.ir.op.repeat import broadcast_to
from plica.ir.op.shape import reshape
from plica.ir.type.dim import known, product
from plica.ir.type.dtype import i64


def _nonzero(node: TorchNode) -> Expr:
    return places_of(node, node.x())


def _masked_select(node: TorchNode) -> Expr:
    x, mask = node.x(), node.x("mask")
    whole = shape(add(casted(mask, dtype(x)), x)) if shape(x) != shape(mask) else shape(x)
    x, mask = broadcast_to(x, whole), broadcast_to(mask, whole)
    flat = (product(whole),)
    return take(reshape(x, flat), flat_places_of(node, mask), axis=0)


def _masked_scatter(node: TorchNode) -> Expr:
    """The places of a mask, in order, take the first elements of a source."""
    x, source = node.x(), node.x("source")
    mask = broadcast_to(node.x("mask"), shape(x))
    flat = (product(shape(x)),)
    chosen = reshape(mask, flat)
    before = subtract(cumsum(casted(chosen, i64), axis=0), const(1, i64))
    # Where nothing is chosen the first element is read, and not used; what is chosen must be there.
    at = where(chosen, before, like(0, before))
    if known(product(shape(source))) == 0:
        return x
    found = take(reshape(source, (product(shape(source)),)), at, axis=0)
    return where(mask, reshape(found, shape(x)), x)


def _unique(node: TorchNode) -> list[Expr | None]:
    """Elements that differ, in order; which each is and how often are there where asked for."""
    x = node.x()
    node.flag("sorted")  # torch sorts in any case
    inverse, counts = node.flag("return_inverse"), node.flag("return_counts")
    found = unique(x, sorted=True)
    size = node.measured(Project(found, 4))
    return [
        prefix(Project(found, 0), size),
        reshape(Project(found, 2), shape(x)) if inverse else None,
        prefix(Project(found, 3), size) if counts else None,
    ]


def _repeat_interleave(node: TorchNode) -> Expr:
    """Which element each place of the result is: the first whose repetitions reach beyond it."""
    times = casted(node.x("repeats"), i64)
    node.has("output_size")
    ends = cumsum(times, axis=0)
    size = node.measured(sum_(times, axis=(0,)))
    return searchsorted(ends, iota(shape=(size,), dtype=i64), side="right")


def _bincount(node: TorchNode) -> Expr:
    """How often each number is there, or the weights of each together."""
    x, weights, least = node.x(), node.maybe("weights"), node.integer("minlength")
    places = casted(x, i64)
    longest: Expr = const(least, i64)
    if known(shape(x)[0]) != 0:
        longest = maximum(longest, add(max_(places, axis=(0,)), const(1, i64)))
    size = node.measured(longest)
    of = node.dtype()
    given = full(shape=shape(x), value=1, dtype=of) if weights is None else casted(weights, of)
    # A place below 0 would count from the end.
    inside = where(less(places, like(0, places)), amount(size), places)
    return scatter_elements(full(shape=(size,), value=0, dtype=of), inside, given, axis=0,
                            reduction="add")  # fmt: skip


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "nonzero.default":          _nonzero,
    "masked_select.default":    _masked_select,
    "masked_scatter.default":   _masked_scatter,
    "_unique2.default":         _unique,
    "repeat_interleave.Tensor": _repeat_interleave,
    "bincount.default":         _bincount,
}
# fmt: on
