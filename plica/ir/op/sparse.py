"""Sparse tensors: given by their elements and where those stand, made dense or multiplied with.

>>> from plica.ir.type.term import tensor
>>> x, data, at = tensor((2, 8), "f32"), tensor((5,), "f32"), tensor((5,), "i64")
>>> [size.value for size in sparse_dense.relation({}, x, data, at, tensor((4,), "i64")).shape]
[2, 3]
"""

from __future__ import annotations

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Values
from plica.ir.op.attribute import attribute, dims, number
from plica.ir.op.create import full, iota_like, zeros
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import cast, multiply
from plica.ir.op.index import integers as index_dtype, take
from plica.ir.op.order import searchsorted
from plica.ir.op.put import scatter_nd
from plica.ir.op.record import composite, tensor_of
from plica.ir.op.reduction import narrow, widen
from plica.ir.op.relation import NUMBER, literal, rank_is, refuse, same
from plica.ir.op.shape import expand_dims, transpose
from plica.ir.type import TensorType, i64, known, normal_dim


def _sparse_rule(attrs: Values, indices: TensorType, values: TensorType) -> TensorType:
    index_dtype("sparse_to_dense", indices)
    rank_is("sparse_to_dense", "the indices", indices, 2)
    rank_is("sparse_to_dense", "the values", values, 1)
    same("sparse_to_dense", "indices and values", indices.shape[0], values.shape[0])
    if known(indices.shape[1]) != len(attrs["shape"]):
        message = "sparse_to_dense takes a row (a place along each axis) for each value."
        refuse("shape-conflict", message, f"rows of {len(attrs['shape'])}", str(indices))
    literal("sparse_to_dense", attrs["default"], values.dtype)
    return TensorType(attrs["shape"], values.dtype)


sparse_to_dense = composite(
    "sparse_to_dense", ("indices", "values"), _sparse_rule,
    lambda attrs, indices, values: scatter_nd(
        full(attrs["shape"], attrs["default"], tensor_of(values).dtype), indices, values
    ),
    "A dense tensor from a default value and elements at index rows.",
    attributes=(attribute("shape", dims), attribute("default", number, 0)), like=(1,),
)  # fmt: skip


def _rows_rule(attrs: Values, x: TensorType, *given: TensorType) -> TensorType:
    name = "nn.sparse_dense"
    data, indices, starts = given
    rank_is(name, "x", x, 2)
    for what, tensor_type in (("the data", data), ("the indices", indices), ("the starts", starts)):
        rank_is(name, what, tensor_type, 1)
    for tensor_type in (indices, starts):
        index_dtype(name, tensor_type)
    same(name, "data and indices", data.shape[0], indices.shape[0])
    if known(starts.shape[0]) == 0:
        message = f"{name} takes the start of each row, and the end of the last."
        refuse("shape-conflict", message, "1 or more", str(starts))
    return TensorType((x.shape[0], normal_dim(starts.shape[0] - 1)), x.dtype)


def _rows(attrs: Values, x: Expr, data: Expr, indices: Expr, starts: Expr) -> Expr:
    of, out = tensor_of(x), _rows_rule(attrs, *map(tensor_of, (x, data, indices, starts)))
    ends = slice_(cast(starts, i64), (1,), (None,))
    rows = searchsorted(ends, iota_like(indices), side="right")
    products = multiply(take(transpose(widen(x), (1, 0)), indices), expand_dims(widen(data), (1,)))
    nothing = zeros(out.shape[::-1], tensor_of(products).dtype)
    expr = scatter_nd(nothing, expand_dims(rows, (1,)), products, reduction="add")
    return narrow(transpose(expr, (1, 0)), of.dtype)


sparse_dense = composite(
    "nn.sparse_dense", ("x", "data", "indices", "starts"), _rows_rule, _rows,
    "x @ weight.T with a CSR weight: elements, columns, row starts.",
    admits=NUMBER, like=(0, 1),
)  # fmt: skip
