"""Rows of linear algebra."""

from __future__ import annotations

import math
from functools import reduce
from typing import Final

import numpy as np

from plica.frontend.elimination import LARGEST, pivots
from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.reduction import order_norm
from plica.frontend.torch.row.word import Row, casted, constant, opmath, root_of_sum
from plica.frontend.word import like, rank, shape
from plica.ir.graph.expression import Apply, Expr, const
from plica.ir.op.namespace import op
from plica.ir.type import DType, i32, i64, known, type_of


def product(x: Expr, y: Expr) -> Expr:
    """The product of matrices; one with a transposed weight is a dense layer."""
    inner = _transposed(y)
    return op.matmul(x, y) if inner is None else op.nn.dense(x, inner)


def _transposed(y: Expr) -> Expr | None:
    """The matrix that y is the transpose of."""
    if isinstance(y, Apply) and y.op == "transpose" and rank(y) == 2:
        return y.args[0] if dict(y.attrs)["axes"] == (1, 0) else None
    return None


def _int_mm(node: TorchNode) -> Expr:
    """Products of bytes, summed in i32."""
    return product(*[_widened(expr) for expr in (node.x(), node.x("mat2"))])


def _widened(of: Expr) -> Expr:
    """Bytes as i32, under the transpose that a weight has."""
    inner = _transposed(of)
    return casted(of, i32) if inner is None else op.transpose(casted(inner, i32), axes=(1, 0))


def _grouped(x_name: str, weight_name: str) -> Row:
    """Rows times the matrix of their group; `offs` says where each group of rows ends.

    Few rows gather their matrices; many rows are multiplied with every matrix, and the right
    results selected. Rows after the last group are zero.
    """

    def row(node: TorchNode) -> Expr:
        x, weight = node.x(x_name), node.x(weight_name)
        if rank(x) != 2 or rank(weight) != 3 or not node.has("offs"):
            node.unsupported(f"{node.kind} is supported for groups of rows, with a matrix each.")
        (groups,) = node.known_sizes(weight, (0,))
        rows = op.iota(shape=(shape(x)[0],), dtype=i64)
        group = op.searchsorted(casted(node.x("offs"), i64), rows, side="right")
        total = op.full(shape=node.shape(), value=0, dtype=node.dtype())
        if (count := known(shape(x)[0])) is not None and count <= groups:
            own = op.take(weight, op.minimum(group, like(groups - 1, group)), axis=0)
            expr = op.squeeze(op.nn.batch_matmul(op.expand_dims(x, (1,)), own), axis=(1,))
            return op.where(op.expand_dims(group < like(groups, group), (1,)), expr, total)
        for at in range(groups):
            inside = op.expand_dims(op.equal(group, like(at, group)), (1,))
            total = op.where(inside, op.matmul(x, op.take(weight, const(at, i64), axis=0)), total)
        return total

    return row


def _matmul(node: TorchNode) -> Expr:
    x, y = node.x(), node.x("other")
    if rank(x) == 1 and rank(y) == 1:
        return op.sum(x * y, axis=(0,))
    return product(x, y)


def _linear(node: TorchNode) -> Expr:
    x, bias = op.nn.dense(node.x("input"), node.x("weight")), node.maybe("bias")
    return x if bias is None else x + bias


def _added(left: str, right: str) -> Row:
    """`beta * self + alpha * (left @ right)`, rounded once."""

    def row(node: TorchNode) -> Expr:
        of = node.dtype()
        inner = opmath(of)
        alpha, beta = node.number("alpha"), node.number("beta")
        plain = alpha == 1 and beta == 1
        x, a, b = node.x(), node.x(left), node.x(right)
        if not plain or inner is not of:
            x = casted(x, inner)
            whole = op.matmul(casted(a, inner), casted(b, inner))
        else:
            whole = product(a, b)
        whole = _times(node, whole, alpha, inner)
        if beta == 0:
            return casted(whole, of)
        return casted(_times(node, x, beta, inner) + whole, of)

    return row


def _times(node: TorchNode, x: Expr, factor: bool | int | float, of: DType) -> Expr:
    return x if factor == 1 else x * constant(node, factor, of)


def _trilinear(node: TorchNode) -> Expr:
    """The product of three tensors, with unit axes inserted, summed over axes: two products, each
    summed over axes that later operands lack."""
    given = [node.x(name) for name in ("i1", "i2", "i3")]
    put = [node.integers(name) for name in ("expand1", "expand2", "expand3")]
    node.has("unroll_dim")  # how torch goes about it
    whole = rank(given[0]) + len(put[0])
    summed = {integer % whole for integer in node.integers("sumdim")}
    names = "abcdefghijklmnopqrstuvwxyz"[:whole]
    parts = [
        "".join(names[at] for at in range(whole) if at not in {axis % whole for axis in axes})
        for axes in put
    ]
    both = [name for at, name in enumerate(names)
            if name in parts[0] + parts[1] and (at not in summed or name in parts[2])]  # fmt: skip
    first = op.einsum((given[0], given[1]), f"{parts[0]},{parts[1]}->{''.join(both)}")
    left = "".join(name for at, name in enumerate(names) if at not in summed)
    return op.einsum((first, given[2]), f"{''.join(both)},{parts[2]}->{left}")


def _pivots(node: TorchNode) -> list[Expr]:
    x = node.x("A")
    size = known(shape(x)[-1])
    if size is None or not 0 < size <= LARGEST:
        message = f"{node.kind} takes small matrices of known size."
        node.unsupported(message, f"of 1 to {LARGEST}", str(type_of(x)))
    return [op.reshape(pivot, shape(x)[:-2]) for pivot in pivots(x, size)]


def _log_det(node: TorchNode) -> list[Expr | None]:
    """The sign of a determinant, and the logarithm of its absolute value."""
    exprs = _pivots(node)
    size = reduce(op.add, [op.log(op.absolute(expr)) for expr in exprs])
    return [reduce(op.multiply, [op.sign(expr) for expr in exprs]), size, None, None]


# --- distances -----------------------------------------------------------------------------------


def _cdist(node: TorchNode) -> Expr:
    a, b, p = node.x("x1"), node.x("x2"), float(node.number("p"))
    node.has("compute_mode")
    apart = op.expand_dims(a, axis=(rank(a) - 1,)) - op.expand_dims(b, axis=(rank(b) - 2,))
    return _distance(node, apart, p)


def _pdist(node: TorchNode) -> Expr:
    x, p = node.x(), float(node.number("p"))
    first, second = np.triu_indices(node.known_sizes(x)[0], 1)
    rows = [op.take(x, const(array.astype(np.int64)), axis=0) for array in (first, second)]
    return _distance(node, op.subtract(*rows), p)


def _distance(node: TorchNode, difference: Expr, p: float) -> Expr:
    apart = op.absolute(difference)
    last = (rank(apart) - 1,)
    if p == math.inf:
        return op.max(apart, axis=last)
    if p == 1.0:
        return op.sum(apart, axis=last)
    if p == 2.0:
        return root_of_sum(op.sum(apart * apart, axis=last), op.sqrt)
    if p == 0.0:
        node.unsupported("Distances of order 0 are not supported.", "above 0", "0")
    return order_norm(apart, p, last)


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "mm.default":             lambda node: product(node.x(), node.x("mat2")),
    "_int_mm.default":        _int_mm,
    "bmm.default":            lambda node: op.nn.batch_matmul(node.x(), node.x("mat2")),
    "_grouped_mm.default":    _grouped("self", "mat2"),
    "transformers.grouped_mm_fallback.default": _grouped("input", "weight"),
    "matmul.default":         _matmul,
    "linear.default":         _linear,
    "addmm.default":          _added("mat1", "mat2"),
    "addmv.default":          _added("mat", "vec"),
    "_trilinear.default":     _trilinear,
    "_linalg_det.default":     lambda node: [reduce(op.multiply, _pivots(node)), None, None],
    "_linalg_slogdet.default": _log_det,
    "_cdist_forward.default": _cdist,
    "_pdist_forward.default": _pdist,
}
# fmt: on
