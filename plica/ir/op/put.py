"""Putting values at places: a tensor with some of its elements replaced, or combined with others.

Several values for one place are combined by the reduction; where it is `replace` the last counts,
in row-major order of the indices.  An index counts from the end where it is negative, and one
outside its axis is an error.

>>> from plica.ir.type.term import tensor
>>> x, i = tensor((5, 2), "f32"), tensor((3, 1), "i64")
>>> how = {"reduction": "add"}
>>> scatter_nd.relation(how, x, i, tensor((3, 2), "f32")) is x
True
"""

from __future__ import annotations

import math
from typing import Final

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Mismatch, Values
from plica.ir.loop.scalar import Scalar
from plica.ir.op import attribute as attributes, index, relation as rel
from plica.ir.op.comparison import equal, greater_equal, less, logical_and
from plica.ir.op.create import eye, full, iota, iota_like
from plica.ir.op.cut import slice_, unslice
from plica.ir.op.elementwise import add, maximum, minimum, multiply, subtract
from plica.ir.op.order import ONE, ZERO, argsort, searchsorted
from plica.ir.op.pad import pad
from plica.ir.op.record import composite, scalar, tensor_of
from plica.ir.op.reduction import max_, min_, narrow, prod, sum_, widen
from plica.ir.op.repeat import broadcast_to
from plica.ir.op.scatter import REDUCTION, combines
from plica.ir.op.shape import expand_dims, reshape, transpose
from plica.ir.type import DType, TensorType, bool_, i64, known, normal_dim, product, same_dim

MAX_PAIRS: Final = 1 << 22
"""Places times candidates that are compared directly; more are brought into order first."""

COMBINE: Final = {
    "add": (sum_, add, 0.0),
    "mul": (prod, multiply, 1.0),
    "max": (max_, maximum, -math.inf),
    "min": (min_, minimum, math.inf),
}


def _neutral(kind: str, dtype: DType) -> Expr:
    value = COMBINE[kind][2]
    if math.isinf(value) and not dtype.is_float:
        return scalar(dtype.bounds[0 if value < 0 else 1], dtype)
    return scalar(value if dtype.is_float else int(value), dtype)


def _is_large(*sizes: rel.Shape) -> bool:
    count = known(product(size for shape in sizes for size in shape))
    return count is not None and count > MAX_PAIRS


def _among(x: Expr, kind: str, hit: Expr, updates: Expr) -> Expr:
    """`x` with updates: `hit` and `updates` have one axis more, the candidates, in front."""
    if kind == "replace":
        last = max_(index.where(hit, iota_like(hit, axis=0), scalar(-1, i64)), axis=(0,))
        chosen = expand_dims(maximum(last, ZERO), (0,))
        expr = reshape(index.take_along_axis(updates, chosen, axis=0), tensor_of(last).shape)
        return index.where(greater_equal(last, ZERO), expr, x)
    fold, join, _ = COMBINE[kind]
    return join(x, fold(index.where(hit, updates, _neutral(kind, tensor_of(x).dtype)), axis=(0,)))


def _rows_among(table: Expr, rows: Expr, updates: Expr) -> Expr:
    """A table (places, width) with rows (count,) written: the last writer is determined once per
    row, not once per element."""
    places = expand_dims(iota((tensor_of(table).shape[0],)), (0,))
    hit = equal(expand_dims(rows, (1,)), places)
    last = max_(index.where(hit, iota_like(hit, axis=0), scalar(-1, i64)), axis=(0,))
    expr = index.take(updates, maximum(last, ZERO), mode="clip")
    return index.where(expand_dims(greater_equal(last, ZERO), (1,)), expr, table)


def _in_order(table: Expr, kind: str, rows: Expr, updates: Expr) -> Expr:
    """A table (places, width) with rows (count,) changed, by way of the order of the rows."""
    order = argsort(rows)
    rows, values = (index.take(expr, order, mode="clip") for expr in (rows, updates))
    places = iota((tensor_of(table).shape[0],))
    start, stop = (searchsorted(rows, places, side=side) for side in ("left", "right"))
    last = maximum(subtract(stop, ONE), ZERO)
    touched = expand_dims(less(start, stop), (1,))
    if kind == "replace":
        return index.where(touched, index.take(values, last, mode="clip"), table)
    join, count = COMBINE[kind][1], known(tensor_of(rows).shape[0])
    assert count is not None  # it is large
    values, whole = widen(values), widen(table)
    number_ = iota_like(rows)
    for step in (1 << bit for bit in range((count - 1).bit_length())):
        back = subtract(number_, scalar(step, i64))
        shared = equal(index.take(rows, back, mode="clip"), rows)
        shared = expand_dims(logical_and(shared, greater_equal(back, ZERO)), (1,))
        values = index.where(shared, join(index.take(values, back, mode="clip"), values), values)
    combined = join(whole, index.take(values, last, mode="clip"))
    return narrow(index.where(touched, combined, whole), tensor_of(table).dtype)


# --- along an axis -------------------------------------------------------------------------------


def _elements_rule(
    attrs: Values, x: TensorType, indices: TensorType, updates: TensorType
) -> TensorType:
    name = "scatter_elements"
    index.integers(name, indices)
    combines(name, attrs["reduction"], x)
    at = rel.axis_of(name, attrs["axis"], len(x.shape))
    rel.rank_is(name, "the indices", indices, len(x.shape))
    rel.rank_is(name, "the updates", updates, len(x.shape))
    for other, (mine, theirs) in enumerate(zip(indices.shape, updates.shape, strict=True)):
        rel.same(name, "the indices and the updates", mine, theirs)
        if other != at and not _not_longer(mine, x.shape[other]):
            message = f"{name}: the indices are longer than x along axis {other}."
            rel.refuse("shape-conflict", message, str(x), str(indices))
    return x


def _not_longer(part: Scalar, whole: Scalar) -> bool:
    few, many = known(part), known(whole)
    return same_dim(part, whole) if few is None or many is None else few <= many


def _elements(attrs: Values, x: Expr, indices: Expr, updates: Expr) -> Expr:
    kind, shape, given = attrs["reduction"], tensor_of(x).shape, tensor_of(indices).shape
    at = rel.axis_of("scatter_elements", attrs["axis"], len(shape))
    if known(product(given)) == 0:
        return x
    # Gathering from the row numbers refuses indices out of bounds, and counts negative ones from
    # the end.
    indices = index.take(iota((shape[at],)), indices)
    if _is_large(shape, given[at : at + 1]):
        return _flat(kind, x, (indices, updates), at)
    # Where the indices are shorter than x along other axes, nothing is meant for the rest.
    widths = tuple(
        (0, 0) if other == at or same_dim(a, b) else (0, (known(a) or 0) - (known(b) or 0))
        for other, (a, b) in enumerate(zip(shape, given, strict=True))
    )
    if any(width != (0, 0) for width in widths):
        nothing = 0.0 if tensor_of(x).dtype.is_float else tensor_of(x).dtype is not bool_ and 0
        indices = pad(indices, widths, constant_values=-1)
        updates = pad(updates, widths, constant_values=nothing)
    # Candidates in front: (k, …, 1, …) against the places along the axis.
    order = (at, *(other for other in range(len(shape)) if other != at))
    indices, updates = (expand_dims(transpose(e, order), (at + 1,)) for e in (indices, updates))
    form = tuple(shape[at] if other == at + 1 else 1 for other in range(len(shape) + 1))
    places = reshape(iota((shape[at],)), form)
    whole = (given[at], *shape)
    hit = broadcast_to(equal(indices, places), whole)
    return _among(x, kind, hit, broadcast_to(updates, whole))


def _flat(kind: str, x: Expr, candidates: tuple[Expr, Expr], at: int) -> Expr:
    """The same with all axes as one."""
    indices, updates = candidates
    of = tensor_of(x)
    linear: Expr = ZERO
    for other in range(len(of.shape)):
        here = indices if other == at else iota_like(indices, axis=other)
        linear = add(multiply(linear, index.length(x, other)), here)
    count = product(tensor_of(indices).shape)
    table = reshape(x, (product(of.shape), 1))
    expr = _in_order(table, kind, reshape(linear, (count,)), reshape(updates, (count, 1)))
    return reshape(expr, of.shape)


scatter_elements = composite(
    "scatter_elements", ("x", "indices", "updates"), _elements_rule, _elements,
    "Scatter updates into x along an axis, at the given indices.",
    attributes=(attributes.attribute("axis", attributes.axis, 0), REDUCTION), like=(0, 2),
    onnx=("ScatterElements",),
)  # fmt: skip

# --- by places of several axes -------------------------------------------------------------------


def _nd_rule(attrs: Values, x: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
    index.integers("scatter_nd", indices)
    combines("scatter_nd", attrs["reduction"], x)
    rel.rank_at_least("scatter_nd", indices, 1)
    depth = known(indices.shape[-1])
    if depth is None or depth > len(x.shape):
        message = "scatter_nd takes indices whose last axis names leading axes of x."
        rel.refuse(
            "shape-conflict", message, f"a last axis of {len(x.shape)} or less", str(indices)
        )
    wanted = (*indices.shape[:-1], *x.shape[depth:])
    if len(wanted) != len(updates.shape) or not all(map(same_dim, wanted, updates.shape)):
        message = "scatter_nd takes an element or slice of x for each index."
        rel.refuse("shape-conflict", message, rel.shown(wanted), rel.shown(updates.shape))
    return x


def _nd(attrs: Values, x: Expr, indices: Expr, updates: Expr) -> Expr:
    kind, shape, given = attrs["reduction"], tensor_of(x).shape, tensor_of(indices).shape
    depth = known(given[-1]) or 0
    count, outer, inner = (product(e) for e in (given[:-1], shape[:depth], shape[depth:]))
    if known(product((count, inner))) == 0:
        return x
    # Gathering from the index numbers refuses indices out of bounds, and counts negative ones from
    # the end.
    numbers = reshape(iota((outer,)), shape[:depth])
    rows = index.gather_nd(numbers, reshape(indices, (count, given[-1])))
    table, updates = reshape(x, (outer, inner)), reshape(updates, (count, inner))
    if _is_large((count, outer) if kind == "replace" else (count, outer, inner)):
        return reshape(_in_order(table, kind, rows, updates), shape)
    if kind == "replace":
        return reshape(_rows_among(table, rows, updates), shape)
    whole = (count, outer, inner)
    places = expand_dims(iota((outer,)), (0, 2))
    hit = broadcast_to(equal(expand_dims(rows, (1, 2)), places), whole)
    expr = _among(table, kind, hit, broadcast_to(expand_dims(updates, (1,)), whole))
    return reshape(expr, shape)


scatter_nd = composite(
    "scatter_nd", ("x", "indices", "updates"), _nd_rule, _nd,
    "Scatter elements or slices into x at index tuples along the last axis of the indices.",
    attributes=(REDUCTION,), like=(0, 2), onnx=("ScatterND",),
)  # fmt: skip

# --- by slices -----------------------------------------------------------------------------------

_SLICE: Final = (
    attributes.attribute("starts", attributes.bounds),
    attributes.attribute("stops", attributes.bounds),
    attributes.attribute("steps", attributes.optional(attributes.integers), None),
    attributes.attribute("axes", attributes.axes, None),
)


def _set_rule(attrs: Values, x: TensorType, value: TensorType) -> TensorType:
    part = slice_.relation({attribute.name: attrs[attribute.name] for attribute in _SLICE}, x)
    if isinstance(part, Mismatch):
        rel.refuse(part.code, f"strided_set: {part.message}", part.expected, part.found)
    assert isinstance(part, TensorType)
    whole = rel.broadcast("strided_set", (part.shape, value.shape))
    if len(whole) != len(part.shape) or not all(map(same_dim, whole, part.shape)):
        message = "strided_set takes what broadcasts to the slice."
        rel.refuse("shape-conflict", message, rel.shown(part.shape), rel.shown(value.shape))
    return x


def _set(attrs: Values, x: Expr, value: Expr) -> Expr:
    how = {attribute.name: attrs[attribute.name] for attribute in _SLICE}
    shape, part = tensor_of(x).shape, tensor_of(slice_(x, **how)).shape
    inside = unslice(full(part, True, bool_), **how, shape=shape)
    return index.where(inside, unslice(broadcast_to(value, part), **how, shape=shape), x)


strided_set = composite(
    "strided_set", ("x", "value"), _set_rule, _set,
    "x with x[start:stop:step] along axes replaced by a broadcast value.",
    attributes=_SLICE,
)  # fmt: skip


def _dilated(attrs: Values, x: TensorType) -> TensorType:
    strides = rel.per_axis("nn.dilate", "stride", attrs["strides"], len(x.shape))
    rel.literal("nn.dilate", attrs["value"], x.dtype)
    sizes = [
        size if stride == 1 else normal_dim((size - 1) * stride + 1)
        for size, stride in zip(x.shape, strides, strict=True)
    ]
    if any(known(size) == 0 for size in x.shape):
        sizes = [size if known(old) != 0 else old for size, old in zip(sizes, x.shape, strict=True)]
    return TensorType(tuple(sizes), x.dtype)


def _dilate(attrs: Values, x: Expr) -> Expr:
    of = tensor_of(x)
    strides = rel.per_axis("nn.dilate", "stride", attrs["strides"], len(of.shape))
    ends = (None,) * len(strides)
    shape = _dilated(attrs, of).shape
    if attrs["value"] == 0 or not strides:
        return unslice(x, ends, ends, strides, shape=shape)
    return strided_set(full(shape, attrs["value"], of.dtype), x, ends, ends, strides)


dilate = composite(
    "nn.dilate", ("x",), _dilated, _dilate,
    "Insert a value between neighbours, so that they are strides apart.",
    attributes=(
        attributes.attribute("strides", attributes.per_axis(attributes.positive)),
        attributes.attribute("value", attributes.number, 0),
    ),
)  # fmt: skip


def _diagonal_rule(attrs: Values, x: TensorType, diagonal: TensorType) -> TensorType:
    name, k = "matrix_set_diag", attrs["k"]
    rel.rank_at_least(name, x, 2)
    rel.rank_is(name, "the diagonal", diagonal, len(x.shape) - 1)
    for mine, other in zip(x.shape[:-2], diagonal.shape[:-1], strict=True):
        rel.same(name, "the leading axes", mine, other)
    rows, columns, held = (known(e) for e in (*x.shape[-2:], diagonal.shape[-1]))
    if rows is None or columns is None:
        if k or not same_dim(*x.shape[-2:]) or not same_dim(x.shape[-1], diagonal.shape[-1]):
            message = f"{name} takes matrices of known size, or the main diagonal of square ones."
            rel.refuse("shape-conflict", message, None, str(x))
    elif held != max(0, min(rows + min(k, 0), columns - max(k, 0))):
        message = f"{name} takes a diagonal as long as that of the matrix."
        rel.refuse("shape-conflict", message, f"the diagonal {k} of {x}", str(diagonal))
    return x


def _set_diagonal(attrs: Values, x: Expr, diagonal: Expr) -> Expr:
    of, k = tensor_of(x), attrs["k"]
    rows, columns = of.shape[-2:]
    if known(tensor_of(diagonal).shape[-1]) == 0:
        return x
    numbers = subtract(iota((rows,)), scalar(max(-k, 0), i64))
    down = expand_dims(index.take(diagonal, numbers, axis=-1, mode="clip"), (-1,))
    return index.where(eye(rows, columns, k=k, dtype=bool_), down, x)


matrix_set_diag = composite(
    "matrix_set_diag", ("x", "diagonal"), _diagonal_rule, _set_diagonal,
    "x with the diagonal k of its last two axes replaced.",
    attributes=(attributes.attribute("k", attributes.integer, 0),),
)  # fmt: skip
