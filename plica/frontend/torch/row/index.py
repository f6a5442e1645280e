"""Rows of indexing by values: gathering, scattering, ordering.

An index outside its axis is an error in torch, and is one here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from plica.frontend.measured import amount, matched, places_of, prefix
from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.by_value import take_in_turn
from plica.frontend.torch.row.word import Row, casted, operand, opmath
from plica.frontend.torch.symbol import Size
from plica.frontend.word import dtype, like, rank, select, shape, to
from plica.ir.graph.expression import Const, Expr, Project
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.namespace import op
from plica.ir.op.relation import Shape
from plica.ir.type import i32, i64, known, normal_dim, product, same_dim

# --- gathering -----------------------------------------------------------------------------------


def _embedding(node: TorchNode) -> Expr:
    for name in ("scale_grad_by_freq", "sparse"):
        node.argument(name)  # they speak of gradients
    places, padding = node.x("indices"), node.argument("padding_idx")
    weight = node.x("weight")
    rows = op.take(weight, places, axis=0)
    if not isinstance(padding, int) or padding < 0 or isinstance(weight, Const):
        return rows  # nothing flows back to a constant
    is_padding = op.expand_dims(op.equal(places, like(padding, places)), (rank(places),))
    return op.where(is_padding, op.stop_gradient(rows), rows)


def _embedding_bag(node: TorchNode) -> list[Expr | None]:
    """Rows of a table, joined bag by bag: sums, means or the greatest of each.

    Bags are given by their starts; empty ones are 0.
    """
    for name in ("scale_grad_by_freq", "sparse"):
        node.argument(name)  # they speak of gradients
    weight, places = node.x("weight"), casted(node.x("indices"), i64)
    offsets, mode = casted(node.x("offsets"), i64), ("sum", "mean", "max")[node.integer("mode")]
    padding, factors = node.argument("padding_idx"), node.maybe("per_sample_weights")
    count = shape(offsets)[0]
    if node.flag("include_last_offset"):
        count = normal_dim(count - 1)
        offsets = op.slice(offsets, (0,), (count,), None, (0,))
    rows, number = op.take(weight, places, axis=0), op.iota_like(places)
    bag = op.searchsorted(offsets, number, side="right") - like(1, number)
    counted = op.full(shape=shape(places), value=1, dtype=i64)
    if isinstance(padding, int) and padding >= 0:
        is_padding = op.equal(places, like(padding, places))
        counted = op.where(is_padding, like(0, counted), counted)
        bag = op.where(is_padding, amount(count), bag)  # a bag of its own, behind all
    rows = rows if factors is None else rows * op.expand_dims(factors, (1,))
    whole = normal_dim(count + 1)
    least = -math.inf if mode == "max" else 0
    table = op.full(shape=(whole, *shape(weight)[1:]), value=least, dtype=dtype(weight))
    expr = op.scatter_nd(table, op.expand_dims(bag, (1,)), rows, reduction=_REDUCE_BAG[mode])
    expr = op.slice(expr, (0,), (count,), None, (0,))
    sizes = op.full(shape=(whole,), value=0, dtype=i64)
    sizes = op.scatter_nd(sizes, op.expand_dims(bag, (1,)), counted, reduction="add")
    sizes = op.expand_dims(op.slice(sizes, (0,), (count,), None, (0,)), (1,))
    if mode == "mean":
        expr = expr / casted(op.maximum(sizes, like(1, sizes)), dtype(expr))
    if mode == "max":
        expr = op.where(op.equal(sizes, like(0, sizes)), like(0, expr), expr)
    return [expr, None, None, None]


_REDUCE_BAG: Final = {"sum": "add", "mean": "add", "max": "max"}


def _index_select(node: TorchNode) -> Expr:
    x, places = node.x(), node.x("index")
    if not rank(x):
        node.integer("dim")
        return op.reshape(
            op.take(op.reshape(x, (1,)), op.reshape(places, (-1,)), axis=0), node.shape()
        )
    places = places if rank(places) else op.reshape(places, (1,))
    return op.take(x, places, axis=node.axis("dim", rank(x)))


def _gather(node: TorchNode) -> Expr:
    node.argument("sparse_grad")
    x, places = node.x(), node.x("index")
    if not rank(x) or not rank(places):
        node.integer("dim")
        flat = op.take(op.reshape(x, (-1,)), op.reshape(places, (-1,)), axis=0)
        return op.reshape(flat, node.shape())
    if 0 in node.shape():
        return op.broadcast_to(like(0, x), node.shape())
    return op.take_along_axis(x, places, axis=node.axis("dim", rank(x)))


def _chosen(node: TorchNode, name: str = "indices") -> tuple[tuple[int, ...], list[Expr]]:
    """The axes that are indexed, and the indices, which must be whole numbers."""
    given = _masks_as_places(node, node.argument(name))
    axes = tuple(at for at, expr in enumerate(given) if expr is not None)
    return axes, [casted(expr, i64) for expr in given if expr is not None]


def _masks_as_places(node: TorchNode, given: Sequence[Expr | None]) -> list[Expr | None]:
    """Indices, where each mask has become the places that it chooses, one vector for each axis."""
    exprs: list[Expr | None] = []
    for expr in given:
        if expr is None or dtype(expr).name not in ("bool", "u8"):
            exprs.append(expr)
            continue
        rows = places_of(node, expr)
        exprs += [select(rows, at, axis=1) for at in range(rank(expr))]
    return exprs


def _index(node: TorchNode) -> Expr:
    x = node.x()
    axes, indices = _chosen(node)
    if len(axes) == 1:
        return op.take(x, indices[0], axis=axes[0])
    front = not _adjacent(axes)
    wide = max(rank(each) for each in indices)
    start = 0 if front else axes[0]
    whole = _common_sizes(indices)
    places = op.stack(tuple(op.broadcast_to(each, whole) for each in indices), axis=wide)
    others = tuple(at for at in range(rank(x)) if at not in axes)
    expr = op.gather_nd(op.transpose(x, axes + others), places)
    if front or not start:
        return expr
    # The axes before the indexed ones are moved before the index axes.
    order = (*range(wide, wide + start), *range(wide), *range(wide + start, rank(expr)))
    return op.transpose(expr, order)


def _common_sizes(indices: Sequence[Expr]) -> Shape:
    """The sizes that indices are broadcast to."""
    wide = max(rank(expr) for expr in indices)
    whole: list[Scalar] = [index(1)] * wide
    for expr in indices:
        for at, size in enumerate(shape(expr), wide - rank(expr)):
            whole[at] = size if known(whole[at]) == 1 else whole[at]
    return tuple(whole)


def _adjacent(axes: tuple[int, ...]) -> bool:
    return all(b == a + 1 for a, b in pairwise(axes))


# --- scattering ----------------------------------------------------------------------------------


def _inside(places: Expr, length: Scalar) -> Expr:
    """Indices without negative ones; gathering refuses values out of bounds."""
    wrapped = op.where(places < like(0, places), amount(length), places)
    return op.take(op.iota(shape=(length,), dtype=i64), wrapped, axis=0)


def _index_put(node: TorchNode) -> Expr:
    x, values = node.x(), casted(node.x("values"), dtype(node.x()))
    kind = "add" if node.flag("accumulate") else "replace"
    given = node.argument("indices")
    if len(given) == 1 and given[0] is not None and dtype(given[0]).name == "bool":
        return _masked_put(node, x, given[0], values)
    axes, indices = _chosen(node)
    sizes = shape(x)
    start = 0 if not _adjacent(axes) else axes[0]
    whole = _common_sizes(indices)
    wide = len(whole)
    others = tuple(at for at in range(rank(x)) if at not in axes)
    before = tuple(sizes[at] for at in others[:start])
    after = tuple(sizes[at] for at in others[start:])
    places = op.stack(tuple(op.broadcast_to(each, whole) for each in indices), axis=wide)
    filled = op.broadcast_to(values, (*before, *whole, *after))
    order = (*range(start, start + wide), *range(start), *range(start + wide, rank(filled)))
    moved = op.transpose(x, axes + others)
    expr = op.scatter_nd(moved, places, op.transpose(filled, order), reduction=kind)
    return op.transpose(expr, _inverse(axes + others))


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(at) for at in range(len(order)))


def _masked_put(node: TorchNode, x: Expr, mask: Expr, values: Expr) -> Expr:
    """One value for all elements of a mask, or one each."""
    inner = shape(x)[rank(mask) :]
    wide = op.reshape(mask, (*shape(mask), *(1,) * len(inner)))
    if rank(values) <= len(inner) or known(shape(values)[0]) == 1:
        given = op.reshape(values, shape(values)[1:]) if rank(values) > len(inner) else values
    else:
        chosen = op.reshape(mask, (product(shape(mask)),))
        count = node.measured(op.sum(casted(chosen, i64), axis=(0,)))
        rows = op.broadcast_to(matched(values, (count, *shape(values)[1:])), (count, *inner))
        given = op.reshape(take_in_turn(rows, chosen), shape(x))
    if node.flag("accumulate"):
        given = op.logical_or(x, given) if dtype(x).name == "bool" else x + given
    return op.where(wide, op.broadcast_to(given, shape(x)), x)


def _scatter(kind: str, source: str) -> Row:
    def row(node: TorchNode) -> Expr:
        x, places = node.x(), casted(node.x("index"), i64)
        given = operand(node, source, dtype(x))
        return _scattered(node, kind, x, places, given)

    return row


def _scattered(node: TorchNode, kind: str, x: Expr, places: Expr, given: Expr) -> Expr:
    """The data with the updates."""
    if not rank(x):
        node.integer("dim")
        one, places = op.reshape(x, (1,)), op.reshape(places, (-1,))
        given = op.reshape(given, (-1,)) if rank(given) == 0 else given
        return op.reshape(_at(node, kind, one, (places, given), 0), ())
    return _at(node, kind, x, (places, given), node.axis("dim", rank(x)))


def _at(node: TorchNode, kind: str, x: Expr, source: tuple[Expr, Expr], axis: int) -> Expr:
    places, given = source
    count = shape(places)
    if any(known(scalar) == 0 for scalar in count):
        return x
    if rank(given) == 0:
        given = op.broadcast_to(given, count)
    for at, (mine, wanted) in enumerate(zip(shape(given), count, strict=True)):
        if not same_dim(mine, wanted):  # only as much of the source as there are indices
            given = prefix(given, wanted, at)
    return op.scatter_elements(x, _inside(places, shape(x)[axis]), given, axis=axis, reduction=kind)


_REDUCE: Final = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "add"}
_NEUTRAL: Final = {"sum": 0, "mean": 0, "prod": 1}


def _scatter_reduce(node: TorchNode) -> Expr:
    x, kind = node.x(), node.text("reduce")
    places, given = casted(node.x("index"), i64), node.x("src")
    if kind not in _REDUCE or dtype(x).name == "bool":
        node.unsupported(f"{node.kind} has no {kind!r} of {dtype(x)}.", ", ".join(_REDUCE))
    if rank(x) == 0:
        node.unsupported(f"{node.kind} of a tensor of rank 0 is not supported.")
    start = x
    if not node.flag("include_self"):
        start = op.broadcast_to(like(_neutral(kind, x), x), shape(x))
    expr = _scattered(node, _REDUCE[kind], start, places, given)
    of, alone = opmath(dtype(x)), not node.flag("include_self")
    if kind != "mean" and not alone:
        return expr
    ones = op.broadcast_to(like(1, to(places, i64)), shape(places))
    counts = _scattered(node, "add", op.broadcast_to(like(0, ones), shape(x)), places, ones)
    if kind == "mean":
        if not of.is_float:
            node.unsupported(f"{node.kind} of integers has no mean here.", "floats")
        below = op.maximum(counts + like(0 if alone else 1, counts), like(1, counts))
        expr = casted(casted(expr, of) / casted(below, of), dtype(x))
    return op.where(like(0, counts) < counts, expr, x) if alone else expr


def _neutral(kind: str, x: Expr) -> bool | int | float:
    if kind in _NEUTRAL:
        return _NEUTRAL[kind]
    if dtype(x).is_float:
        return -math.inf if kind == "amax" else math.inf
    return dtype(x).bounds[0 if kind == "amax" else 1]


# --- ordering ------------------------------------------------------------------------------------


def _ordered(node: TorchNode, k: Size | None, largest: bool) -> list[Expr | None]:
    x = node.x()
    axis = node.axis("dim", rank(x))
    if not rank(x):
        return [x, like(0, to(x, i64))]
    size = known(shape(x)[axis]) if k is None else k
    if not isinstance(size, int):  # how many there are is open: the first of all of them
        places = op.argsort(x, axis=axis, descending=largest)
        places = places if size is None else prefix(places, size, axis)
        return [op.take_along_axis(x, places, axis=axis), places]
    expr = op.topk(x, k=size, axis=axis, largest=largest)
    return [Project(expr, 0), Project(expr, 1)]


def _sort(node: TorchNode) -> list[Expr | None]:
    node.has("stable")  # equals keep their order in any case
    return _ordered(node, None, node.flag("descending"))


def _topk(node: TorchNode) -> list[Expr | None]:
    node.argument("sorted")
    return _ordered(node, node.size("k"), node.flag("largest"))


def _kth_value(node: TorchNode) -> list[Expr | None]:
    x, k = node.x(), node.size("k")
    axis, kept = node.axis("dim", rank(x)), node.flag("keepdim")
    if not rank(x):
        return [x, like(0, to(x, i64))]
    if isinstance(k, Scalar):  # there must be k places: the last of them is read
        first = prefix(op.argsort(x, axis=axis), k, axis)
        place = op.expand_dims(op.take(first, amount(normal_dim(k - 1)), axis=axis), axis=(axis,))
        both = [op.take_along_axis(x, place, axis=axis), place]
        return [each if kept else op.squeeze(each, (axis,)) for each in both]
    expr = op.topk(x, k=k, axis=axis, largest=False)
    last = [op.slice(Project(expr, at), (k - 1,), (k,), axes=(axis,)) for at in (0, 1)]
    return [each if kept else op.squeeze(each, (axis,)) for each in last]


def _searched(node: TorchNode, table: str, values: str) -> Expr:
    if node.has("sorter") and node.argument("sorter") is not None:
        node.unsupported(f"{node.kind} takes what is in order already.", "no sorter")
    right = node.flag("right") or (node.has("side") and node.argument("side") == "right")
    ordered, x = node.x(table), operand(node, values, dtype(node.x(table)))
    expr = op.searchsorted(ordered, x, side="right" if right else "left")
    return casted(expr, i32) if node.flag("out_int32") else expr


def _search_sorted(node: TorchNode) -> Expr:
    return _searched(node, "sorted_sequence", "self")


def _put(node: TorchNode) -> Expr:
    x, kind = node.x(), "add" if node.flag("accumulate") else "replace"
    flat, places, given = (
        op.reshape(expr, (-1,)) for expr in (x, node.x("index"), node.x("source"))
    )
    return op.reshape(op.scatter_elements(flat, places, given, reduction=kind), shape(x))


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "embedding.default":      _embedding,
    "_embedding_bag.default": _embedding_bag,
    "_embedding_bag_forward_only.default": _embedding_bag,
    "index_select.default":   _index_select,
    "gather.default":         _gather,
    "index.Tensor":           _index,
    "index_put.default":      _index_put,
    "scatter.src":            _scatter("replace", "src"),
    "scatter.value":          _scatter("replace", "value"),
    "scatter_add.default":    _scatter("add", "src"),
    "scatter_reduce.two":     _scatter_reduce,
    "sort.default":           _sort,
    "sort.stable":            _sort,
    "topk.default":           _topk,
    "kthvalue.default":       _kth_value,
    "searchsorted.Tensor":    _search_sorted,
    "searchsorted.Scalar":    _search_sorted,
    "bucketize.Tensor":       lambda node: _searched(node, "boundaries", "self"),
    "put.default":            _put,
}
# fmt: on
