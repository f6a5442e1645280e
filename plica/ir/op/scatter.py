"""Scattering: what gathers do, backwards.  Values are added up at the places that indices name.

They are the adjoints of `take` and `take_along_axis`: <g, take(x)> = <scatter_sum(g), x>. Values
with the same index are summed; indices that do not occur give 0. `scatter_rows` writes rows into an
existing table, or combines them with its rows; indices out of bounds are ignored.

>>> from plica.ir.type.term import tensor
>>> _, attrs = scatter_sum.bind((1.0, 0), {"size": 5})
>>> found = scatter_sum.relation(dict(attrs), tensor((3, 2), "f32"), tensor((3,), "i64"))
>>> [size.value for size in found.shape]
[5, 2]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Through, Values
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.tensor import Compute, compute, reduce
from plica.ir.op import relation as rel
from plica.ir.op.attribute import AXIS, attribute, axis, choice, dims, size
from plica.ir.op.cotangent import word
from plica.ir.op.index import MODE, integers, place
from plica.ir.op.pad import guarded
from plica.ir.op.record import as_dtype, primitive
from plica.ir.type import TensorType, same_dim

take, take_along_axis = word("take"), word("take_along_axis")
scatter_nd, expand_dims = word("scatter_nd"), word("expand_dims")

COMBINERS: Final[dict[str, sc.Combiner]] = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}
"""How values with the same index are combined, by reduction name."""

REDUCTION: Final = attribute("reduction", choice("replace", *COMBINERS), "replace")


def combines(name: str, kind: str, x: TensorType) -> None:
    """Requires numbers if values are combined."""
    if kind != "replace" and x.dtype not in rel.NUMBER:
        message = f"{name} combines numbers."
        rel.refuse("dtype-conflict", message, "an integer or floating-point type", str(x.dtype))


def _scatter_axis(attrs: Values, x: TensorType, indices: TensorType) -> int:
    inner = len(x.shape) - len(indices.shape)
    return rel.axis_of("scatter_sum", attrs["axis"], inner + 1)


def _scatter_rule(attrs: Values, x: TensorType, indices: TensorType) -> TensorType:
    integers("scatter_sum", indices)
    rank = len(indices.shape)
    if rank > len(x.shape):
        message = "scatter_sum takes values with the axes of the indices among theirs."
        rel.refuse("shape-conflict", message, f"rank {rank} or more", str(x))
    at = _scatter_axis(attrs, x, indices)
    for mine, other in zip(x.shape[at : at + rank], indices.shape, strict=True):
        rel.same("scatter_sum", "the values and the indices", mine, other)
    return TensorType((*x.shape[:at], attrs["size"], *x.shape[at + rank :]), x.dtype)


def _scatter_body(attrs: Values, out: TensorType, x: sc.Buffer, indices: sc.Buffer) -> Compute:
    rank, inner = len(indices.shape), rel.wide(x.dtype)
    at = rel.axis_of("scatter_sum", attrs["axis"], len(out.shape))

    def element(*i: sc.Scalar) -> sc.Scalar:
        def term(*k: sc.Scalar) -> sc.Scalar:
            here = sc.Eq(place(indices[k], attrs["size"], attrs["mode"]), i[at])
            value = as_dtype(x[(*i[:at], *k, *i[at + 1 :])], inner)
            return sc.Select(here, value, sc.Lit(0, inner))

        return as_dtype(reduce("sum", indices.shape, term) if rank else term(), x.dtype)

    return compute((x, indices), out.shape, element)


def _scatter_pullback(attrs: Values, d: Expr, y: Expr, x: Expr, indices: Expr) -> list[Expr | None]:
    return [take(d, indices, axis=attrs["axis"], mode=attrs["mode"]), None]


scatter_sum = primitive(
    "scatter_sum", ("x", "indices"), _scatter_rule, _scatter_body,
    "Add slices of x into zeros along an axis, at the given indices.",
    attributes=(attribute("size", size), attribute("axis", axis, 0), MODE), admits=rel.NUMBER,
    like=(0,), gradient=_scatter_pullback,
)  # fmt: skip


def _along_rule(attrs: Values, x: TensorType, indices: TensorType) -> TensorType:
    name = "scatter_sum_along_axis"
    integers(name, indices)
    rel.axis_of(name, attrs["axis"], len(x.shape))
    shape = attrs["shape"]
    if len(x.shape) != len(shape) or len(indices.shape) != len(shape):
        message = f"{name} takes values, indices and a shape of one rank."
        rel.refuse("shape-conflict", message, f"rank {len(shape)}", str(x))
    for mine, other in zip(x.shape, indices.shape, strict=True):
        rel.same(name, "the values and the indices", mine, other)
    return TensorType(shape, x.dtype)


def _along_body(attrs: Values, out: TensorType, x: sc.Buffer, indices: sc.Buffer) -> Compute:
    at, inner = (
        rel.axis_of("scatter_sum_along_axis", attrs["axis"], len(out.shape)),
        rel.wide(x.dtype),
    )
    shorter = [
        other
        for other, (mine, whole) in enumerate(zip(x.shape, out.shape, strict=True))
        if other != at and not same_dim(mine, whole)
    ]

    def element(*i: sc.Scalar) -> sc.Scalar:
        def term(k: sc.Scalar) -> sc.Scalar:
            source = (*i[:at], k, *i[at + 1 :])
            here = sc.Eq(place(indices[source], out.shape[at], attrs["mode"]), i[at])
            select = sc.Select(here, as_dtype(x[source], inner), sc.Lit(0, inner))
            return guarded(
                [sc.Lt(i[other], x.shape[other]) for other in shorter], select, sc.Lit(0, inner)
            )

        return as_dtype(reduce("sum", (x.shape[at],), term), x.dtype)

    return compute((x, indices), out.shape, element)


def _along_pullback(attrs: Values, d: Expr, y: Expr, x: Expr, indices: Expr) -> list[Expr | None]:
    return [take_along_axis(d, indices, axis=attrs["axis"], mode=attrs["mode"]), None]


scatter_sum_along_axis = primitive(
    "scatter_sum_along_axis", ("x", "indices"), _along_rule, _along_body,
    "Add elements of x into zeros of a shape, at the given indices along one axis.",
    attributes=(attribute("shape", dims), AXIS, MODE), admits=rel.NUMBER, like=(0,),
    gradient=_along_pullback,
)  # fmt: skip


# --- rows of a table ------------------------------------------------------------------------------


def _rows_rule(
    attrs: Values, x: TensorType, indices: TensorType, updates: TensorType
) -> TensorType:
    name = "scatter_rows"
    integers(name, indices)
    combines(name, attrs["reduction"], x)
    rel.rank_is(name, "the indices", indices, 1)
    rel.rank_at_least(name, x, 1)
    wanted = (*indices.shape, *x.shape[1:])
    if len(wanted) != len(updates.shape) or not all(map(same_dim, wanted, updates.shape)):
        message = f"{name} takes a row of x for each index."
        rel.refuse("shape-conflict", message, rel.shown(wanted), rel.shown(updates.shape))
    return x


def _rows_body(
    attrs: Values, out: TensorType, x: sc.Buffer, indices: sc.Buffer, updates: sc.Buffer
) -> Compute:
    kind = attrs["reduction"]
    inner = rel.wide(x.dtype) if kind in ("add", "mul") else x.dtype

    def joined(
        combiner: sc.Combiner, *i: sc.Scalar, value: Callable[[sc.Scalar], sc.Scalar]
    ) -> sc.Scalar:
        def term(k: sc.Scalar) -> sc.Scalar:
            here = sc.Eq(place(indices[k], x.shape[0], "raise"), i[0])
            start, _ = MEANING[combiner]
            return sc.Select(here, value(k), start(sc.dtype_of(value(k))))

        return reduce(combiner, indices.shape, term)

    def combined(*i: sc.Scalar) -> sc.Scalar:
        _, join = MEANING[COMBINERS[kind]]
        every = joined(COMBINERS[kind], *i, value=lambda k: as_dtype(updates[(k, *i[1:])], inner))
        return as_dtype(join(as_dtype(x[i], inner), every), x.dtype)

    def replaced(*i: sc.Scalar) -> sc.Scalar:
        last, first = joined("max", *i, value=lambda k: k), sc.index(0)
        return sc.Select(sc.Le(first, last), updates[(sc.Max(last, first), *i[1:])], x[i])

    return compute((x, indices, updates), out.shape, replaced if kind == "replace" else combined)


def _as_places(attrs: Values, x: Expr, indices: Expr, updates: Expr) -> Expr:
    return scatter_nd(x, expand_dims(indices, (1,)), updates, reduction=attrs["reduction"])


scatter_rows = primitive(
    "scatter_rows", ("x", "indices", "updates"), _rows_rule, _rows_body,
    "Scatter rows of the updates into x, or combine them, in order.",
    attributes=(REDUCTION,), like=(0, 2), gradient=Through(_as_places),
)  # fmt: skip
