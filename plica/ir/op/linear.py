"""Linear algebra: sums of products.

Products of 16-bit floats are summed in f32 and rounded once; integers wrap around in their dtype.

>>> from plica.ir.dim import dim_var
>>> from plica.ir.type import tensor
>>> n = dim_var("n")
>>> found = matmul.relation({}, tensor((n, 3), "f32"), tensor((3, 5), "f32"))
>>> found.shape[0] is n, found.shape[1].value
(True, 5)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plica.ir.dim import same_dim
from plica.ir.op.attribute import attribute, flag, text
from plica.ir.op.record import as_dtype, primitive, read
from plica.ir.op.relation import (
    NUMBER,
    Shape,
    broadcast,
    rank_at_least,
    rank_is,
    refuse,
    same,
    shown,
    wide,
)
from plica.ir.operator import Values
from plica.ir.scalar import Buffer, Mul, Scalar
from plica.ir.tensor import Compute, compute, reduce
from plica.ir.type import TensorType


def sum_of_products(
    buffers: Sequence[Buffer],
    shape: Shape,
    extents: Sequence[Scalar],
    factors: Callable[[Sequence[Scalar], Sequence[Scalar]], Sequence[Scalar]],
) -> Compute:
    """Σ over a box of the product of factors, given the axes of the result and of the box."""
    dtype = buffers[0].dtype

    def element(*outer: Scalar) -> Scalar:
        def term(*inner: Scalar) -> Scalar:
            whole: Scalar | None = None
            for each in factors(outer, inner):
                factor = as_dtype(each, wide(dtype))
                whole = factor if whole is None else Mul(whole, factor)
            assert whole is not None
            return whole

        return as_dtype(reduce("sum", extents, term) if extents else term(), dtype)

    return compute(buffers, shape, element)


# --- matmul --------------------------------------------------------------------------------------


def _matmul_rule(attrs: Values, x: TensorType, y: TensorType) -> TensorType:
    rank_at_least("matmul", x, 1)
    rank_at_least("matmul", y, 1)
    same("matmul", "the inner dims", x.shape[-1], y.shape[max(-2, -len(y.shape))])
    batch = broadcast("matmul", (x.shape[:-2], y.shape[:-2]))
    rows = x.shape[-2:-1]
    columns = y.shape[-1:] if len(y.shape) > 1 else ()
    return TensorType((*batch, *rows, *columns), x.dtype)


def _matmul_body(attrs: Values, out: TensorType, x: Buffer, y: Buffer) -> Compute:
    rows, columns = int(len(x.shape) > 1), int(len(y.shape) > 1)
    batch = len(out.shape) - rows - columns

    def factors(i: Sequence[Scalar], k: Sequence[Scalar]) -> Sequence[Scalar]:
        left, right = i[batch : batch + rows], i[len(i) - columns :] if columns else ()
        whole = out.shape[:batch]
        return (
            _batched(x, i[:batch], whole, (*left, *k)),
            _batched(y, i[:batch], whole, (*k, *right)),
        )

    return sum_of_products((x, y), out.shape, x.shape[-1:], factors)


def _batched(of: Buffer, batch: Sequence[Scalar], whole: Shape, inner: Sequence[Scalar]) -> Scalar:
    """The element at the batch axes, which broadcast, and at the inner ones."""
    shape = (*whole, *of.shape[len(of.shape) - len(inner) :])
    skip = len(shape) - len(of.shape)
    return read(of, (*batch, *inner)[skip:], shape[skip:])


matmul = primitive(
    "matmul",
    ("x", "y"),
    _matmul_rule,
    _matmul_body,
    "The product of matrices, of the last two axes; the others broadcast, as in numpy.",
    admits=NUMBER,
    onnx=("MatMul",),
)

# --- dense layers --------------------------------------------------------------------------------


def _dense_rule(attrs: Values, x: TensorType, weight: TensorType) -> TensorType:
    rank_at_least("nn.dense", x, 1)
    rank_is("nn.dense", "the weight (out, in)", weight, 2)
    same("nn.dense", "the inputs and the weight's columns", x.shape[-1], weight.shape[1])
    return TensorType((*x.shape[:-1], weight.shape[0]), x.dtype)


dense = primitive(
    "nn.dense",
    ("x", "weight"),
    _dense_rule,
    lambda attrs, out, x, weight: sum_of_products(
        (x, weight),
        out.shape,
        x.shape[-1:],
        lambda i, k: (x[(*i[:-1], *k)], weight[(i[-1], *k)]),
    ),
    "x @ weight.T, with the weight as (out, in).",
    admits=NUMBER,
    aliases=("nn.linear",),
)


def _turned(shape: Shape, transposed: bool) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2]) if transposed else shape


def _batch_rule(attrs: Values, x: TensorType, y: TensorType) -> TensorType:
    rank_is("nn.batch_matmul", "the left side", x, 3)
    rank_is("nn.batch_matmul", "the right side", y, 3)
    left, right = _turned(x.shape, attrs["transpose_x"]), _turned(y.shape, attrs["transpose_y"])
    same("nn.batch_matmul", "the inner dims", left[-1], right[-2])
    batch = broadcast("nn.batch_matmul", (left[:1], right[:1]))
    return TensorType((*batch, left[-2], right[-1]), x.dtype)


def _batch_body(attrs: Values, out: TensorType, x: Buffer, y: Buffer) -> Compute:
    def factors(i: Sequence[Scalar], k: Sequence[Scalar]) -> Sequence[Scalar]:
        batch, row, column = i
        left, right = (row, *k), (*k, column)
        left = left[::-1] if attrs["transpose_x"] else left
        right = right[::-1] if attrs["transpose_y"] else right
        return (
            _batched(x, (batch,), out.shape[:1], left),
            _batched(y, (batch,), out.shape[:1], right),
        )

    inner = x.shape[1] if attrs["transpose_x"] else x.shape[2]
    return sum_of_products((x, y), out.shape, (inner,), factors)


batch_matmul = primitive(
    "nn.batch_matmul",
    ("x", "y"),
    _batch_rule,
    _batch_body,
    "Products of matrices (batch, m, k) and (batch, k, n), each side transposed if asked.",
    attributes=(attribute("transpose_x", flag, False), attribute("transpose_y", flag, False)),
    admits=NUMBER,
)

# --- einsum --------------------------------------------------------------------------------------


def _letters(attrs: Values, given: int) -> tuple[list[str], str]:
    """The letters of each argument and of the result."""
    equation = attrs["equation"].replace(" ", "")
    left, arrow, result = equation.partition("->")
    parts = left.split(",")
    if not arrow:
        result = "".join(c for c in sorted(set(left) - {","}) if left.count(c) == 1)
    allowed = all(each.isalpha() or not each for each in (*parts, result))
    known_letters = set(result) <= set(left) and len(set(result)) == len(result)
    if not allowed or not known_letters or len(parts) != given:
        refuse(
            "bad-attribute",
            "einsum takes one group of letters for each argument, and letters of those after ->.",
            f"{given} groups",
            equation,
        )
    return parts, result


def _einsum_sizes(attrs: Values, shapes: Sequence[Shape]) -> dict[str, Scalar]:
    parts, _ = _letters(attrs, len(shapes))
    sizes: dict[str, Scalar] = {}
    for part, shape in zip(parts, shapes, strict=True):
        if len(part) != len(shape):
            message = "einsum takes one letter for each axis."
            refuse("shape-conflict", message, repr(part), shown(shape))
        for letter, size in zip(part, shape, strict=True):
            if not same_dim(sizes.setdefault(letter, size), size):
                message = f"einsum: the axes {letter!r} must agree."
                refuse("shape-conflict", message, shown((sizes[letter],)), shown((size,)))
    return sizes


def _einsum_rule(attrs: Values, *given: TensorType) -> TensorType:
    sizes = _einsum_sizes(attrs, [each.shape for each in given])
    _, result = _letters(attrs, len(given))
    return TensorType(tuple(sizes[letter] for letter in result), given[0].dtype)


def _einsum_body(attrs: Values, out: TensorType, *given: Buffer) -> Compute:
    sizes = _einsum_sizes(attrs, [each.shape for each in given])
    parts, result = _letters(attrs, len(given))
    summed = [letter for letter in sizes if letter not in result]

    def factors(i: Sequence[Scalar], k: Sequence[Scalar]) -> Sequence[Scalar]:
        at = dict(zip((*result, *summed), (*i, *k), strict=True))
        return [
            of[tuple(at[letter] for letter in part)] for of, part in zip(given, parts, strict=True)
        ]

    return sum_of_products(given, out.shape, [sizes[letter] for letter in summed], factors)


einsum = primitive(
    "einsum",
    ("*values",),
    _einsum_rule,
    _einsum_body,
    'A sum of products written with letters: "ij,jk->ik".',
    attributes=(attribute("equation", text),),
    admits=NUMBER,
    onnx=("Einsum",),
)
