"""Scattering: what gathers do, backwards.  Values are added up at the places that indices name.

They are the adjoints of `take` and `take_along_axis`: <g, take(x)> = <scatter_sum(g), x>.  Several
values at one place are summed; a place that no index names has 0.  Which of the indices that name a
place comes last is told by `last_index`.

>>> from plica.ir.type.term import tensor
>>> _, attrs = scatter_sum.bind((1.0, 0), {"size": 5})
>>> found = scatter_sum.relation(dict(attrs), tensor((3, 2), "f32"), tensor((3,), "i64"))
>>> [size.value for size in found.shape]
[5, 2]
"""

from __future__ import annotations

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Values
from plica.ir.loop.scalar import Buffer, Eq, Lit, Lt, Scalar, Select
from plica.ir.loop.tensor import Compute, compute, reduce
from plica.ir.op.attribute import AXIS, attribute, axis, dims, size
from plica.ir.op.cotangent import word
from plica.ir.op.index import MODE, integers, place
from plica.ir.op.pad import guarded
from plica.ir.op.record import as_dtype, primitive
from plica.ir.op.relation import NUMBER, axis_of, rank_is, refuse, same, wide
from plica.ir.type.dim import same_dim
from plica.ir.type.dtype import i64
from plica.ir.type.term import TensorType

take, take_along_axis = word("take"), word("take_along_axis")


def _scatter_axis(attrs: Values, x: TensorType, indices: TensorType) -> int:
    inner = len(x.shape) - len(indices.shape)
    return axis_of("scatter_sum", attrs["axis"], inner + 1)


def _scatter_rule(attrs: Values, x: TensorType, indices: TensorType) -> TensorType:
    integers("scatter_sum", indices)
    rank = len(indices.shape)
    if rank > len(x.shape):
        message = "scatter_sum takes values with the axes of the indices among theirs."
        refuse("shape-conflict", message, f"rank {rank} or more", str(x))
    at = _scatter_axis(attrs, x, indices)
    for mine, other in zip(x.shape[at : at + rank], indices.shape, strict=True):
        same("scatter_sum", "the values and the indices", mine, other)
    return TensorType((*x.shape[:at], attrs["size"], *x.shape[at + rank :]), x.dtype)


def _scatter_body(attrs: Values, out: TensorType, x: Buffer, indices: Buffer) -> Compute:
    rank, inner = len(indices.shape), wide(x.dtype)
    at = axis_of("scatter_sum", attrs["axis"], len(out.shape))

    def element(*i: Scalar) -> Scalar:
        def term(*k: Scalar) -> Scalar:
            here = Eq(place(indices[k], attrs["size"], attrs["mode"]), i[at])
            value = as_dtype(x[(*i[:at], *k, *i[at + 1 :])], inner)
            return Select(here, value, Lit(0, inner))

        return as_dtype(reduce("sum", indices.shape, term) if rank else term(), x.dtype)

    return compute((x, indices), out.shape, element)


def _scatter_pullback(attrs: Values, d: Expr, y: Expr, x: Expr, indices: Expr) -> list[Expr | None]:
    return [take(d, indices, axis=attrs["axis"], mode=attrs["mode"]), None]


scatter_sum = primitive(
    "scatter_sum",
    ("x", "indices"),
    _scatter_rule,
    _scatter_body,
    "Zeros of some size along an axis, with the slices of x added where the indices say.",
    attributes=(attribute("size", size), attribute("axis", axis, 0), MODE),
    admits=NUMBER,
    like=(0,),
    gradient=_scatter_pullback,
)


def _along_rule(attrs: Values, x: TensorType, indices: TensorType) -> TensorType:
    name = "scatter_sum_along_axis"
    integers(name, indices)
    axis_of(name, attrs["axis"], len(x.shape))
    shape = attrs["shape"]
    if len(x.shape) != len(shape) or len(indices.shape) != len(shape):
        message = f"{name} takes values, indices and a shape of one rank."
        refuse("shape-conflict", message, f"rank {len(shape)}", str(x))
    for mine, other in zip(x.shape, indices.shape, strict=True):
        same(name, "the values and the indices", mine, other)
    return TensorType(shape, x.dtype)


def _along_body(attrs: Values, out: TensorType, x: Buffer, indices: Buffer) -> Compute:
    at, inner = axis_of("scatter_sum_along_axis", attrs["axis"], len(out.shape)), wide(x.dtype)
    shorter = [
        other
        for other, (mine, whole) in enumerate(zip(x.shape, out.shape, strict=True))
        if other != at and not same_dim(mine, whole)
    ]

    def element(*i: Scalar) -> Scalar:
        def term(k: Scalar) -> Scalar:
            source = (*i[:at], k, *i[at + 1 :])
            here = Eq(place(indices[source], out.shape[at], attrs["mode"]), i[at])
            found = Select(here, as_dtype(x[source], inner), Lit(0, inner))
            return guarded(
                [Lt(i[other], x.shape[other]) for other in shorter], found, Lit(0, inner)
            )

        return as_dtype(reduce("sum", (x.shape[at],), term), x.dtype)

    return compute((x, indices), out.shape, element)


def _along_pullback(attrs: Values, d: Expr, y: Expr, x: Expr, indices: Expr) -> list[Expr | None]:
    return [take_along_axis(d, indices, axis=attrs["axis"], mode=attrs["mode"]), None]


scatter_sum_along_axis = primitive(
    "scatter_sum_along_axis",
    ("x", "indices"),
    _along_rule,
    _along_body,
    "Zeros of some shape, with each element of x added at its place but for that axis.",
    attributes=(attribute("shape", dims), AXIS, MODE),
    admits=NUMBER,
    like=(0,),
    gradient=_along_pullback,
)


def _last_rule(attrs: Values, indices: TensorType) -> TensorType:
    integers("last_index", indices)
    rank_is("last_index", "the indices", indices, 1)
    return TensorType((attrs["size"],), i64)


def _last_body(attrs: Values, out: TensorType, indices: Buffer) -> Compute:
    none = Lit(i64.bounds[0], i64)

    def element(i: Scalar) -> Scalar:
        def term(k: Scalar) -> Scalar:
            return Select(Eq(place(indices[k], attrs["size"], attrs["mode"]), i), k, none)

        return reduce("max", indices.shape, term)

    return compute((indices,), out.shape, element)


last_index = primitive(
    "last_index",
    ("indices",),
    _last_rule,
    _last_body,
    "For each place the number of the last index that names it; the least i64 where none does.",
    attributes=(attribute("size", size), MODE),
)
