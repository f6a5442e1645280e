"""Linear algebra: sums of products.

Products of 16-bit floats are summed in f32 and rounded once; integers wrap around in their dtype.

>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.type.term import tensor
>>> n = dim_var("n")
>>> found = matmul.relation({}, tensor((n, 3), "f32"), tensor((3, 5), "f32"))
>>> found.shape[0] is n, found.shape[1].value
(True, 5)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Mismatch, Values
from plica.ir.loop.scalar import Buffer, Mul, Runs, Scalar, index
from plica.ir.loop.tensor import Compute, compute, reduce
from plica.ir.op import relation as rel
from plica.ir.op.attribute import attribute, flag, text
from plica.ir.op.cotangent import broadcast_to, equal, reshape, transpose, unbroadcast, where, word
from plica.ir.op.record import as_dtype, primitive, read, tensor_of
from plica.ir.type import TensorType, product, same_dim

iota = word("iota")


def sum_of_products(
    buffers: Sequence[Buffer],
    shape: rel.Shape,
    extents: Sequence[Scalar],
    factors: Callable[[Sequence[Scalar], Sequence[Scalar]], Sequence[Scalar]],
) -> Compute:
    """Σ over a box of the product of factors, given the axes of the result and of the box."""
    dtype = buffers[0].dtype

    def element(*outer: Scalar) -> Scalar:
        def term(*inner: Scalar) -> Scalar:
            whole: Scalar | None = None
            for scalar in factors(outer, inner):
                factor = as_dtype(scalar, rel.wide(dtype))
                whole = factor if whole is None else Mul(whole, factor)
            assert whole is not None
            return whole

        runs: Runs = "box" if shape else "row"
        total = reduce("sum", extents, term, runs=runs) if extents else term()
        return as_dtype(total, dtype)

    return compute(buffers, shape, element)


# --- matmul --------------------------------------------------------------------------------------


def _matmul_rule(attrs: Values, x: TensorType, y: TensorType) -> TensorType:
    rel.rank_at_least("matmul", x, 1)
    rel.rank_at_least("matmul", y, 1)
    rel.same("matmul", "the inner dims", x.shape[-1], y.shape[max(-2, -len(y.shape))])
    batch = rel.broadcast("matmul", (x.shape[:-2], y.shape[:-2]))
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


def _batched(
    of: Buffer, batch: Sequence[Scalar], whole: rel.Shape, inner: Sequence[Scalar]
) -> Scalar:
    """The element at the batch axes, which broadcast, and at the inner ones."""
    shape = (*whole, *of.shape[len(of.shape) - len(inner) :])
    skip = len(shape) - len(of.shape)
    return read(of, (*batch, *inner)[skip:], shape[skip:])


def _matmul_pullback(attrs: Values, d: Expr, z: Expr, x: Expr, y: Expr) -> list[Expr | None]:
    """Vectors are matrices of one row or column while this is done."""
    left, right, whole = tensor_of(x), tensor_of(y), tensor_of(z)
    row, column = len(left.shape) == 1, len(right.shape) == 1
    of_x = TensorType((index(1), *left.shape) if row else left.shape, left.dtype)
    of_y = TensorType((*right.shape, index(1)) if column else right.shape, right.dtype)
    batch = whole.shape[: len(whole.shape) - (not row) - (not column)]
    inner = of_x.shape[-1]
    rows, columns = of_x.shape[-2], of_y.shape[-1]
    d, x, y = (
        reshape(value, shape) if plain else value
        for value, shape, plain in (
            (d, (*batch, rows, columns), row or column),
            (x, of_x.shape, row),
            (y, of_y.shape, column),
        )
    )
    by_x = matmul(d, _across(y, of_y))
    if len(of_y.shape) == 2 and len(of_x.shape) > 2:  # one matrix for all: one product, no sum
        many = product((*of_x.shape[:-1],))
        flat = reshape(x, (many, inner)), reshape(d, (many, columns))
        by_y = matmul(transpose(flat[0], (1, 0)), flat[1])
    else:
        of_product = TensorType((*batch, inner, columns), right.dtype)
        by_y = unbroadcast(matmul(_across(x, of_x), d), of_product, of_y)
    by_x = unbroadcast(by_x, TensorType((*batch, rows, inner), left.dtype), of_x)
    return [
        reshape(by_x, left.shape) if row else by_x,
        reshape(by_y, right.shape) if column else by_y,
    ]


def _across(x: Expr, of: TensorType) -> Expr:
    """With the last two axes exchanged."""
    rank = len(of.shape)
    return transpose(x, (*range(rank - 2), rank - 1, rank - 2))


matmul = primitive(
    "matmul", ("x", "y"), _matmul_rule, _matmul_body,
    "Matrix product of the last two axes; the others broadcast, as in numpy.",
    admits=rel.NUMBER, onnx=("MatMul",), gradient=_matmul_pullback,
)  # fmt: skip

# --- dense layers --------------------------------------------------------------------------------


def _dense_rule(attrs: Values, x: TensorType, weight: TensorType) -> TensorType:
    rel.rank_at_least("nn.dense", x, 1)
    rel.rank_is("nn.dense", "the weight (out, in)", weight, 2)
    rel.same("nn.dense", "the inputs and the weight's columns", x.shape[-1], weight.shape[1])
    return TensorType((*x.shape[:-1], weight.shape[0]), x.dtype)


def _dense_pullback(attrs: Values, d: Expr, y: Expr, x: Expr, weight: Expr) -> list[Expr | None]:
    of, out = tensor_of(x), tensor_of(y)
    rows = product(of.shape[:-1])
    by_row = reshape(d, (rows, out.shape[-1])), reshape(x, (rows, of.shape[-1]))
    if len(of.shape) == 2:
        by_row = d, x
    return [matmul(d, weight), matmul(transpose(by_row[0], (1, 0)), by_row[1])]


dense = primitive(
    "nn.dense", ("x", "weight"), _dense_rule,
    lambda attrs, out, x, weight: sum_of_products(
        (x, weight),
        out.shape,
        x.shape[-1:],
        lambda i, k: (x[(*i[:-1], *k)], weight[(i[-1], *k)]),
    ),
    "x @ weight.T, with the weight as (out, in).", admits=rel.NUMBER, aliases=("nn.linear",),
    gradient=_dense_pullback,
)  # fmt: skip


def _stored_shape(shape: rel.Shape, transposed: bool) -> rel.Shape:
    return (*shape[:-2], shape[-1], shape[-2]) if transposed else shape


def _batch_rule(attrs: Values, x: TensorType, y: TensorType) -> TensorType:
    rel.rank_is("nn.batch_matmul", "the left side", x, 3)
    rel.rank_is("nn.batch_matmul", "the right side", y, 3)
    left, right = (
        _stored_shape(x.shape, attrs["transpose_x"]),
        _stored_shape(y.shape, attrs["transpose_y"]),
    )
    rel.same("nn.batch_matmul", "the inner dims", left[-1], right[-2])
    batch = rel.broadcast("nn.batch_matmul", (left[:1], right[:1]))
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


def _batch_pullback(attrs: Values, d: Expr, z: Expr, x: Expr, y: Expr) -> list[Expr | None]:
    turned_x, turned_y = attrs["transpose_x"], attrs["transpose_y"]
    whole = tensor_of(z).shape[0]
    if turned_x:
        by_x = batch_matmul(y, d, turned_y, True)
    else:
        by_x = batch_matmul(d, y, False, not turned_y)
    if turned_y:
        by_y = batch_matmul(d, x, True, turned_x)
    else:
        by_y = batch_matmul(x, d, not turned_x, False)
    return [
        unbroadcast(
            part,
            TensorType((whole, *tensor_of(arg).shape[1:]), tensor_of(arg).dtype),
            tensor_of(arg),
        )
        for part, arg in ((by_x, x), (by_y, y))
    ]


batch_matmul = primitive(
    "nn.batch_matmul", ("x", "y"), _batch_rule, _batch_body,
    "Batched matrix product of (batch, m, k) and (batch, k, n), with optional transposes.",
    attributes=(attribute("transpose_x", flag, False), attribute("transpose_y", flag, False)),
    admits=rel.NUMBER, gradient=_batch_pullback,
)  # fmt: skip

# --- einsum --------------------------------------------------------------------------------------


def einsum_letters(equation: str, given: int) -> tuple[list[str], str] | Mismatch:
    """The letters of each argument and of the result, or what is wrong with the equation."""
    equation = equation.replace(" ", "")
    left, arrow, result = equation.partition("->")
    parts = left.split(",")
    if not arrow:
        result = "".join(c for c in sorted(set(left) - {","}) if left.count(c) == 1)

    def wrong(message: str, expected: str, found: str) -> Mismatch:
        return Mismatch("bad-attribute", f"Equation {equation!r}: {message}", expected, found)

    if len(parts) != given:
        message = "it has one group of letters for each argument, with commas between."
        return wrong(message, f"{given} groups", str(len(parts)))
    if strange := [c for c in ("".join(parts) + result) if not c.isalpha()]:
        return wrong("axes are letters.", "letters, commas and one ->", repr(strange[0]))
    if unknown := [c for c in result if c not in left]:
        message = "a letter after -> is in no argument."
        return wrong(message, f"letters of {left}", repr(unknown[0]))
    if len(set(result)) < len(result):
        return wrong("a letter occurs twice after ->.", "different letters", repr(result))
    return parts, result


def _letters(attrs: Values, given: int) -> tuple[list[str], str]:
    if isinstance(found := einsum_letters(attrs["equation"], given), Mismatch):
        raise rel.Unfit(found)
    return found


def _einsum_sizes(attrs: Values, shapes: Sequence[rel.Shape]) -> dict[str, Scalar]:
    parts, _ = _letters(attrs, len(shapes))
    sizes: dict[str, Scalar] = {}
    for part, shape in zip(parts, shapes, strict=True):
        if len(part) != len(shape):
            message = f"einsum: the letters {part!r} are not one for each axis of the argument."
            rel.refuse("shape-conflict", message, f"{len(part)} axes", rel.shown(shape))
        for letter, size in zip(part, shape, strict=True):
            if not same_dim(sizes.setdefault(letter, size), size):
                message = f"einsum: the axes {letter!r} must agree."
                rel.refuse(
                    "shape-conflict", message, rel.shown((sizes[letter],)), rel.shown((size,))
                )
    return sizes


def _einsum_rule(attrs: Values, *given: TensorType) -> TensorType:
    sizes = _einsum_sizes(attrs, [tensor_type.shape for tensor_type in given])
    _, result = _letters(attrs, len(given))
    return TensorType(tuple(sizes[letter] for letter in result), given[0].dtype)


def _einsum_body(attrs: Values, out: TensorType, *given: Buffer) -> Compute:
    sizes = _einsum_sizes(attrs, [buffer.shape for buffer in given])
    parts, result = _letters(attrs, len(given))
    summed = [letter for letter in sizes if letter not in result]

    def factors(i: Sequence[Scalar], k: Sequence[Scalar]) -> Sequence[Scalar]:
        at = dict(zip((*result, *summed), (*i, *k), strict=True))
        return [
            of[tuple(at[letter] for letter in part)] for of, part in zip(given, parts, strict=True)
        ]

    return sum_of_products(given, out.shape, [sizes[letter] for letter in summed], factors)


def _einsum_pullback(attrs: Values, d: Expr, y: Expr, *given: Expr) -> list[Expr | None]:
    """Of one argument: the sum of products of all the others and the cotangent."""
    parts, result = _letters(attrs, len(given))
    sizes = _einsum_sizes(attrs, [tensor_of(expr).shape for expr in given])
    exprs: list[Expr | None] = []
    for at, part in enumerate(parts):
        own = "".join(dict.fromkeys(part))
        rest = [(each, given[n]) for n, each in enumerate(parts) if n != at]
        met = {letter for letters, _ in ((result, d), *rest) for letter in letters}
        kept = "".join(letter for letter in own if letter in met)
        equation = ",".join((result, *[letters for letters, _ in rest]))
        value = einsum((d, *[expr for _, expr in rest]), f"{equation}->{kept}")
        if kept != own:  # what the argument alone was summed over
            shape = tuple(sizes[letter] if letter in kept else index(1) for letter in own)
            value = reshape(value, shape)
            value = broadcast_to(value, tuple(sizes[letter] for letter in own))
        exprs.append(_on_diagonals(value, own, part, sizes))
    return exprs


def _on_diagonals(value: Expr, own: str, part: str, sizes: dict[str, Scalar]) -> Expr:
    """A tensor with one axis a letter as one with repeated letters: zeros off the diagonals."""
    if own == part:
        return value
    whole = tuple(sizes[letter] for letter in part)
    first = [part.index(letter) for letter in own]
    ones = tuple(whole[at] if at in first else index(1) for at in range(len(part)))
    value = broadcast_to(reshape(value, ones), whole)
    for at, letter in enumerate(part):
        if part.index(letter) != at:
            same_place = equal(iota(whole, axis=part.index(letter)), iota(whole, axis=at))
            value = where(same_place, value, 0)
    return value


einsum = primitive(
    "einsum", ("*values",), _einsum_rule, _einsum_body,
    'A sum of products in index notation: "ij,jk->ik".',
    attributes=(attribute("equation", text),), admits=rel.NUMBER, onnx=("Einsum",),
    gradient=_einsum_pullback,
)  # fmt: skip
