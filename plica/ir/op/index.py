"""Indexing by values: which elements are read depends on other elements.

Negative indices count from the end. An index out of bounds is undefined by default
(`mode="raise"`): evaluation fails with `index-out-of-bounds`; `clip` takes the nearest element and
`wrap` counts modulo the size.

>>> from plica.ir.type.term import tensor
>>> found = take.relation({"axis": 0, "mode": "raise"}, tensor((5, 2), "f32"), tensor((3,), "i64"))
>>> [size.value for size in found.shape]
[3, 2]
"""

from __future__ import annotations

from typing import Final

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Through, Values
from plica.ir.loop import scalar as sc
from plica.ir.loop.tensor import Compute, compute
from plica.ir.op import relation as rel
from plica.ir.op.attribute import AXIS, attribute, axis, choice, dtype, natural, number, size
from plica.ir.op.cotangent import reshape, unbroadcast, word, zeros
from plica.ir.op.record import as_dtype, primitive, read, scalar, tensor_of
from plica.ir.type import TensorType, f32, i32, i64, known, normal_dim, product

MAX_I32_PLACES: Final = 1 << 31  # axes up to this length are indexed by i32
MODE = attribute("mode", choice("raise", "clip", "wrap"), "raise")


def integers(name: str, of: TensorType) -> None:
    """Requires integer indices."""
    if not of.dtype.is_integer:
        message = f"{name} takes integers as indices."
        rel.refuse("dtype-conflict", message, "an integer type", str(of.dtype))


def place(value: sc.Scalar, extent: sc.Scalar, mode: str) -> sc.Scalar:
    """An index as it was given, brought into an axis as the mode says."""
    at = as_dtype(value, i64)
    if mode == "wrap":
        return sc.FloorMod(at, extent)
    if mode == "clip":
        size = known(extent)
        if sc.dtype_of(value) is i32 and size is not None and size <= MAX_I32_PLACES:
            # A vector holds twice as many i32.
            return as_dtype(sc.Max(sc.Lit(0, i32), sc.Min(value, sc.Lit(size - 1, i32))), i64)
        return sc.Max(sc.index(0), sc.Min(at, extent - 1))
    return sc.Select(sc.Lt(at, sc.index(0)), at + extent, at)


scatter_sum, scatter_sum_along_axis = word("scatter_sum"), word("scatter_sum_along_axis")
iota, cast, slice_, size_of = word("iota"), word("cast"), word("slice"), word("size")

# --- choosing ------------------------------------------------------------------------------------


def _where_rule(attrs: Values, condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
    if condition.dtype.kind != "bool":
        rel.refuse(
            "dtype-conflict",
            "where takes a condition of bools.",
            "bool",
            str(condition.dtype),
            "Compare first: op.not_equal(x, 0).",
        )
    return TensorType(rel.broadcast("where", (condition.shape, x.shape, y.shape)), x.dtype)


def _where_body(attrs: Values, out: TensorType, *given: sc.Buffer) -> Compute:
    return compute(
        given, out.shape, lambda *i: sc.Select(*[read(buffer, i, out.shape) for buffer in given])
    )


def _where_pullback(attrs: Values, d: Expr, y: Expr, *args: Expr) -> list[Expr | None]:
    condition, left, right = args
    whole = tensor_of(y)
    parts = where(condition, d, 0), where(condition, 0, d)
    sides = zip(parts, (left, right), strict=True)
    return [None, *(unbroadcast(part, whole, tensor_of(side)) for part, side in sides)]


where = primitive(
    "where", ("condition", "x", "y"), _where_rule, _where_body,
    "x where the condition holds, else y.", like=(1, 2),
    onnx=("Where",), gradient=_where_pullback,
)  # fmt: skip

# --- gathering -----------------------------------------------------------------------------------


def _take_rule(attrs: Values, x: TensorType, indices: TensorType) -> TensorType:
    integers("take", indices)
    at = rel.axis_of("take", attrs["axis"], len(x.shape))
    return TensorType((*x.shape[:at], *indices.shape, *x.shape[at + 1 :]), x.dtype)


def _take_body(attrs: Values, out: TensorType, x: sc.Buffer, indices: sc.Buffer) -> Compute:
    at, rank = rel.axis_of("take", attrs["axis"], len(x.shape)), len(indices.shape)

    def element(*i: sc.Scalar) -> sc.Scalar:
        chosen = place(indices[i[at : at + rank]], x.shape[at], attrs["mode"])
        return x[(*i[:at], chosen, *i[at + rank :])]

    return compute((x, indices), out.shape, element)


def _take_pullback(attrs: Values, d: Expr, y: Expr, x: Expr, indices: Expr) -> list[Expr | None]:
    shape = tensor_of(x).shape
    at = rel.axis_of("take", attrs["axis"], len(shape))
    return [scatter_sum(d, indices, size=shape[at], axis=at, mode=attrs["mode"]), None]


take = primitive(
    "take", ("x", "indices"), _take_rule, _take_body,
    "Gather slices of x along an axis.",
    attributes=(attribute("axis", axis, 0), MODE), like=(0,), onnx=("Gather",),
    gradient=_take_pullback,
)  # fmt: skip


def _along_rule(attrs: Values, x: TensorType, indices: TensorType) -> TensorType:
    integers("take_along_axis", indices)
    rank = len(x.shape)
    at = rel.axis_of("take_along_axis", attrs["axis"], rank)
    if len(indices.shape) != rank:
        message = "take_along_axis takes indices of the rank of x."
        rel.refuse("shape-conflict", message, f"rank {rank}", str(indices))
    for other in range(rank):
        if other != at and known(indices.shape[other]) is None:
            rel.same("take_along_axis", f"axis {other}", x.shape[other], indices.shape[other])
        elif other != at:
            _not_longer(other, x, indices)
    return TensorType(indices.shape, x.dtype)


def _not_longer(other: int, x: TensorType, indices: TensorType) -> None:
    wanted, there = known(indices.shape[other]), known(x.shape[other])
    if wanted is not None and (there is None or wanted > there):
        message = f"take_along_axis: the indices are longer than x along axis {other}."
        rel.refuse("shape-conflict", message, str(x), str(indices))


def _along_body(attrs: Values, out: TensorType, x: sc.Buffer, indices: sc.Buffer) -> Compute:
    at = rel.axis_of("take_along_axis", attrs["axis"], len(x.shape))

    def element(*i: sc.Scalar) -> sc.Scalar:
        chosen = place(indices[i], x.shape[at], attrs["mode"])
        return x[(*i[:at], chosen, *i[at + 1 :])]

    return compute((x, indices), out.shape, element)


def _along_pullback(attrs: Values, d: Expr, y: Expr, x: Expr, indices: Expr) -> list[Expr | None]:
    shape = tensor_of(x).shape
    at = rel.axis_of("take_along_axis", attrs["axis"], len(shape))
    return [scatter_sum_along_axis(d, indices, shape=shape, axis=at, mode=attrs["mode"]), None]


take_along_axis = primitive(
    "take_along_axis", ("x", "indices"), _along_rule, _along_body,
    "Gather elements of x along an axis, one per index.",
    attributes=(AXIS, MODE), like=(0,), onnx=("GatherElements",),
    aliases=("gather", "gather_elements"), gradient=_along_pullback,
)  # fmt: skip


def _nd_rule(attrs: Values, x: TensorType, indices: TensorType) -> TensorType:
    integers("gather_nd", indices)
    rel.rank_at_least("gather_nd", indices, 1)
    batch, depth = attrs["batch_dims"], known(indices.shape[-1])
    if depth is None or batch >= len(indices.shape) or batch + depth > len(x.shape):
        rel.refuse(
            "shape-conflict",
            "gather_nd takes indices whose last axis names leading axes of x.",
            f"a last axis of {max(0, len(x.shape) - batch)} or less after {batch} batch axes",
            str(indices),
        )
    for at in range(batch):
        rel.same("gather_nd", f"batch axis {at}", x.shape[at], indices.shape[at])
    return TensorType((*indices.shape[:-1], *x.shape[batch + depth :]), x.dtype)


def _nd_body(attrs: Values, out: TensorType, x: sc.Buffer, indices: sc.Buffer) -> Compute:
    batch, depth = attrs["batch_dims"], known(indices.shape[-1]) or 0
    outer = len(indices.shape) - 1

    def element(*i: sc.Scalar) -> sc.Scalar:
        chosen = [
            place(indices[(*i[:outer], sc.index(d))], x.shape[batch + d], "raise")
            for d in range(depth)
        ]
        return x[(*i[:batch], *chosen, *i[outer:])]

    return compute((x, indices), out.shape, element)


def _nd_by_take(attrs: Values, x: Expr, indices: Expr) -> Expr:
    """The same places, counted through the leading axes of x as one."""
    of, which = tensor_of(x), tensor_of(indices)
    batch, depth = attrs["batch_dims"], known(which.shape[-1]) or 0
    outer = which.shape[:-1]
    flat: Expr = zeros(outer, i64)
    for at in range(batch):
        flat = flat * extent(x, at) + iota(outer, axis=at)
    for d in range(depth):
        part = slice_(indices, (d,), (d + 1,), axes=(len(outer),))
        at_ = cast(reshape(part, outer), i64)
        size_ = extent(x, batch + d)
        flat = flat * size_ + where(at_ < 0, at_ + size_, at_)
    leading = normal_dim(product(of.shape[: batch + depth]))
    return take(reshape(x, (leading, *of.shape[batch + depth :])), flat)


def extent(x: Expr, at: int) -> Expr | int:
    """The size of an axis, as a number where it is known."""
    found = known(tensor_of(x).shape[at])
    return size_of(x, axis=(at,)) if found is None else found


def length(x: Expr, at: int) -> Expr:
    """The size of an axis as an i64."""
    found = extent(x, at)
    return scalar(found, i64) if isinstance(found, int) else found


gather_nd = primitive(
    "gather_nd", ("x", "indices"), _nd_rule, _nd_body,
    "Gather elements or slices of x at index tuples along the last axis of the indices.",
    attributes=(attribute("batch_dims", natural, 0),), like=(0,), onnx=("GatherND",),
    gradient=Through(_nd_by_take),
)  # fmt: skip

# --- one place in a row --------------------------------------------------------------------------


def _one_hot_rule(attrs: Values, indices: TensorType) -> TensorType:
    integers("one_hot", indices)
    at = rel.axis_of("one_hot", attrs["axis"], len(indices.shape) + 1)
    for value in (attrs["on"], attrs["off"]):
        rel.literal("one_hot", value, attrs["dtype"])
    shape = (*indices.shape[:at], attrs["depth"], *indices.shape[at:])
    return TensorType(shape, attrs["dtype"])


def _one_hot_body(attrs: Values, out: TensorType, indices: sc.Buffer) -> Compute:
    at = rel.axis_of("one_hot", attrs["axis"], len(out.shape))
    on, off = (rel.literal("one_hot", attrs[each], out.dtype) for each in ("on", "off"))

    depth = known(attrs["depth"])

    def element(*i: sc.Scalar) -> sc.Scalar:
        wanted = place(indices[(*i[:at], *i[at + 1 :])], attrs["depth"], "raise")
        if depth is None or depth >= MAX_I32_PLACES or at < len(i) - 1:
            return sc.Select(sc.Eq(wanted, i[at]), on, off)
        # One i32 index per row, which stays out of bounds if it was: a vector holds twice as many.
        near = sc.Max(sc.index(-1), sc.Min(wanted, sc.index(depth)))
        return sc.Select(sc.Eq(as_dtype(near, i32), as_dtype(i[at], i32)), on, off)

    return compute((indices,), out.shape, element)


one_hot = primitive(
    "one_hot", ("indices",), _one_hot_rule, _one_hot_body,
    "`on` at each index along a new axis, `off` elsewhere; out-of-range indices give `off` only.",
    attributes=(
        attribute("depth", size),
        attribute("axis", axis, -1),
        attribute("dtype", dtype, f32),
        attribute("on", number, 1),
        attribute("off", number, 0),
    ),
    onnx=("OneHot",),
)  # fmt: skip
