"""Reductions: axes folded away by an associative operation.

Sums and products keep the dtype of their argument: integers wrap around, 16-bit floats are summed
in f32 and rounded once, and products of these and of f32 are made in f64 and rounded once.  A long
sum of floats is made in runs (`plica.ir.loop.summation`).  Over an empty axis a sum is 0, a product
1, `all` true and `any` false; a maximum or minimum over an axis known to be empty is refused.

>>> from plica.ir.type.term import tensor
>>> str(sum_.relation({"axis": (0,), "keepdims": False}, tensor((2, 3), "f32")).shape[0].value)
'3'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Unpack

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Operator, Through, Values
from plica.ir.loop.scalar import Buffer, Combiner, Scalar, index
from plica.ir.loop.tensor import Compute, compute, prefix, reduce
from plica.ir.op import elementwise as ew, relation as rel
from plica.ir.op.attribute import AXES, KEEPDIMS, attribute, axis, flag, integer, optional
from plica.ir.op.comparison import equal, logical_or
from plica.ir.op.cotangent import broadcast_to, spread_back
from plica.ir.op.create import iota, iota_like, size
from plica.ir.op.index import MAX_I32_PLACES, where
from plica.ir.op.record import Described, as_dtype, composite, plus, primitive, scalar, tensor_of
from plica.ir.op.shape import reshape, transpose
from plica.ir.type import DType, TensorType, f32, f64, i32, i64, known, product


def reduced(shape: rel.Shape, axes: Collection[int], keepdims: bool) -> rel.Shape:
    """A shape without the axes, or with ones in their place."""
    if keepdims:
        return tuple(index(1) if at in axes else size for at, size in enumerate(shape))
    return tuple(size for at, size in enumerate(shape) if at not in axes)


def _rule(name: str, result: DType | None = None, nonempty: bool = False) -> rel.Rule:
    def rule(attrs: Values, x: TensorType) -> TensorType:
        axes = rel.axes_of(name, attrs["axis"], len(x.shape))
        if nonempty:
            _not_empty(name, x, axes)
        shape = reduced(x.shape, axes, attrs["keepdims"])
        return TensorType(shape, x.dtype if result is None else result)

    return rule


def _not_empty(name: str, x: TensorType, axes: Collection[int]) -> None:
    if any(known(x.shape[at]) == 0 for at in axes):
        rel.refuse(
            "shape-conflict",
            f"{name} over an empty axis has no value.",
            "axes of size 1 or more",
            str(x),
        )
    for at in axes:
        rel.need(plus(x.shape[at], -1))


def folded(
    x: Buffer, combiner: Combiner, axes: Collection[int], keepdims: bool, out: rel.Shape
) -> Compute:
    """The tensor expression that folds the axes of `x`."""
    inner = rel.wide(x.dtype) if combiner in ("sum", "prod") else x.dtype
    if combiner == "prod" and inner is f32:
        inner = f64  # a product is off by as much as all its factors are
    extents = [x.shape[at] for at in axes]

    def element(*outer: Scalar) -> Scalar:
        def load(*folding: Scalar) -> Scalar:
            kept, gone = iter(outer), iter(folding)
            at = []
            for number in range(len(x.shape)):
                if number in axes:
                    at.append(next(gone))
                    if keepdims:
                        next(kept)
                else:
                    at.append(next(kept))
            return as_dtype(x[tuple(at)], inner)

        total = reduce(combiner, extents, load, runs="row") if axes else load()
        return as_dtype(total, x.dtype)

    return compute((x,), out, element)


def _reduction(
    name: str,
    combiner: Combiner,
    doc: str,
    admits: Collection[DType],
    *,
    nonempty: bool = False,
    **said: Unpack[Described],
) -> Operator:
    def body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
        axes = rel.axes_of(name, attrs["axis"], len(x.shape))
        return folded(x, combiner, axes, attrs["keepdims"], out.shape)

    said["attributes"] = (AXES, KEEPDIMS)
    return primitive(name, ("x",), _rule(name, None, nonempty), body, doc, admits=admits, **said)


def _sum_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    shape = tensor_of(x).shape
    return [spread_back(d, shape, rel.axes_of("sum", attrs["axis"], len(shape)))]


def _extreme_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    """The extreme elements share the cotangent equally."""
    of = tensor_of(x)
    axes = rel.axes_of("max", attrs["axis"], len(of.shape))
    kept = reduced(of.shape, axes, True)
    hit = ew.cast(equal(x, reshape(y, kept)), of.dtype)
    return [hit * (reshape(d, kept) / sum_(hit, axis=axes, keepdims=True))]


def _prod_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    """The product of the others, which is right where some are zero."""
    shape = tensor_of(x).shape
    if not (axes := rel.axes_of("prod", attrs["axis"], len(shape))):
        return [d]
    rest = [at for at in range(len(shape)) if at not in axes]
    order = (*rest, *axes)
    kept = tuple(shape[at] for at in rest)
    rows = reshape(transpose(x, order), (*kept, product(shape[at] for at in axes)))
    before, after = (cumprod(rows, len(rest), True, turned) for turned in (False, True))
    others = before * after * reshape(d, (*kept, index(1)))
    back = reshape(others, tuple(shape[at] for at in order))
    return [transpose(back, tuple(order.index(at) for at in range(len(order))))]


sum_ = _reduction(
    "sum", "sum", "The sum over axes, in the dtype of x.", rel.NUMBER, onnx=("ReduceSum",),
    gradient=_sum_pullback,
)  # fmt: skip
prod = _reduction(
    "prod", "prod", "The product over axes, in the dtype of x.", rel.NUMBER, onnx=("ReduceProd",),
    gradient=_prod_pullback,
)  # fmt: skip
max_ = _reduction(
    "max", "max", "Maximum over axes; nan propagates.", rel.NUMBER, nonempty=True,
    onnx=("ReduceMax",), aliases=("amax",), gradient=_extreme_pullback,
)  # fmt: skip
min_ = _reduction(
    "min", "min", "Minimum over axes; nan propagates.", rel.NUMBER, nonempty=True,
    onnx=("ReduceMin",), aliases=("amin",), gradient=_extreme_pullback,
)  # fmt: skip
supremum = _reduction(
    "supremum", "max", "Maximum over axes; of an empty axis the smallest value of the dtype.",
    rel.NUMBER, gradient=_extreme_pullback,
)  # fmt: skip
infimum = _reduction(
    "infimum", "min", "Minimum over axes; of an empty axis the largest value of the dtype.",
    rel.NUMBER, gradient=_extreme_pullback,
)  # fmt: skip
all_ = _reduction("all", "all", "Logical AND over axes.", rel.BOOL)
any_ = _reduction("any", "any", "Logical OR over axes.", rel.BOOL)

# --- running totals ------------------------------------------------------------------------------


def _running(name: str, combiner: Combiner, doc: str, **said: Unpack[Described]) -> Operator:
    def rule(attrs: Values, x: TensorType) -> TensorType:
        rel.axis_of(name, attrs["axis"], len(x.shape))
        return x

    def body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
        at = rel.axis_of(name, attrs["axis"], len(x.shape))
        inner = rel.wide(x.dtype)

        def element(*i: Scalar) -> Scalar:
            fold = prefix(
                combiner, x.shape[at], i[at],
                lambda k: as_dtype(x[(*i[:at], k, *i[at + 1 :])], inner),
                exclusive=bool(attrs.get("exclusive")), reverse=bool(attrs["reverse"]),
            )  # fmt: skip
            return as_dtype(fold, x.dtype)

        return compute((x,), out.shape, element)

    # The extreme of an empty axis is undefined.
    words = ("exclusive", "reverse") if combiner in ("sum", "prod") else ("reverse",)
    ways = (attribute(word, flag, False) for word in words)
    said["attributes"] = (attribute("axis", axis), *ways)
    return primitive(name, ("x",), rule, body, doc, admits=rel.NUMBER, **said)


def _cumsum_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    """The suffix sum: each element contributes to all later prefix sums."""
    return [cumsum(d, attrs["axis"], attrs["exclusive"], not attrs["reverse"])]


def _in_square(name: str, fold: Operator, neutral: Callable[[DType], float]) -> Through:
    """A running fold as folds over rows of a square matrix, with neutral elements outside the
    prefix."""

    def square(attrs: Values, x: Expr) -> Expr:
        shape, of = tensor_of(x).shape, tensor_of(x).dtype
        at = rel.axis_of(name, attrs["axis"], len(shape))
        square_ = (*shape[: at + 1], *shape[at:])
        rows, columns = (iota(square_, axis=at + n) for n in (0, 1))
        first, last = (rows, columns) if attrs["reverse"] else (columns, rows)
        counts = first < last if attrs.get("exclusive") else first <= last
        repeated = broadcast_to(reshape(x, (*shape[:at], index(1), *shape[at:])), square_)
        return fold(where(counts, repeated, scalar(neutral(of), of)), axis=(at + 1,))

    return Through(square)


cumsum = _running(
    "cumsum", "sum", "Cumulative sum along an axis.", onnx=("CumSum",), gradient=_cumsum_pullback
)
cumprod = _running(
    "cumprod",
    "prod",
    "Cumulative product along an axis.",
    gradient=_in_square("cumprod", prod, lambda of: 1),
)
cummax = _running(
    "cummax", "max", "Cumulative maximum along an axis; nan propagates.",
    gradient=_in_square("cummax", max_, lambda of: -math.inf),
)  # fmt: skip
cummin = _running(
    "cummin", "min", "Cumulative minimum along an axis; nan propagates.",
    gradient=_in_square("cummin", min_, lambda of: math.inf),
)  # fmt: skip

# --- statistics ----------------------------------------------------------------------------------


def widen(x: Expr) -> Expr:
    """16-bit floats as f32."""
    dtype = tensor_of(x).dtype
    return x if rel.wide(dtype) is dtype else ew.cast(x, f32)


def narrow(x: Expr, dtype: DType) -> Expr:
    """Back to the dtype things came in."""
    return x if tensor_of(x).dtype is dtype else ew.cast(x, dtype)


def count(x: Expr, axes: tuple[int, ...], dtype: DType) -> Expr:
    """How many elements lie along the axes: a number where it is known."""
    whole = known(product(tensor_of(x).shape[at] for at in axes))
    return ew.cast(size(x, axis=axes), dtype) if whole is None else scalar(whole, dtype)


def average(x: Expr, axes: tuple[int, ...], keepdims: bool, less_by: int = 0) -> Expr:
    """The sum over axes divided by the count, less a correction."""
    dtype = tensor_of(x).dtype
    number = count(x, axes, dtype)
    if less_by:
        number = ew.maximum(ew.subtract(number, scalar(less_by, dtype)), scalar(0, dtype))
    return ew.divide(sum_(x, axis=axes, keepdims=keepdims), number)


def spread(x: Expr, axes: tuple[int, ...], keepdims: bool, ddof: int = 0) -> Expr:
    """The mean square distance from the mean."""
    away = ew.subtract(x, average(x, axes, True))
    return average(ew.square(away), axes, keepdims, ddof)


def _statistic(
    name: str,
    build: Callable[[Values, Expr, tuple[int, ...]], Expr],
    doc: str,
    *,
    ddof: bool = False,
    **said: Unpack[Described],
) -> Operator:
    def decomposed(attrs: Values, x: Expr) -> Expr:
        of = tensor_of(x)
        axes = rel.axes_of(name, attrs["axis"], len(of.shape))
        return narrow(build(attrs, widen(x), axes), of.dtype)

    said["attributes"] = (AXES, KEEPDIMS, *((attribute("ddof", integer, 0),) if ddof else ()))
    return composite(name, ("x",), _rule(name), decomposed, doc, admits=rel.FLOAT, **said)


def _log_sum_exp(attrs: Values, x: Expr, axes: tuple[int, ...]) -> Expr:
    sure = all(known(tensor_of(x).shape[at]) for at in axes)
    top = (max_ if sure else supremum)(x, axis=axes, keepdims=True)
    top = where(ew.isfinite(top), top, scalar(0, tensor_of(x).dtype))  # inf - inf would be nan
    total = ew.log(sum_(ew.exp(ew.subtract(x, top)), axis=axes, keepdims=attrs["keepdims"]))
    kept = reduced(tensor_of(x).shape, axes, attrs["keepdims"])
    return ew.add(total, reshape(top, kept))


def _mean_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    of = tensor_of(x)
    axes = rel.axes_of("mean", attrs["axis"], len(of.shape))
    whole = known(product(of.shape[at] for at in axes))
    expr = ew.divide(d, count(x, axes, of.dtype)) if not whole else ew.multiply(d, 1 / whole)
    return [spread_back(expr, of.shape, axes)]


def _log_sum_exp_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    shape = tensor_of(x).shape
    axes = rel.axes_of("logsumexp", attrs["axis"], len(shape))
    kept = reduced(shape, axes, True)
    return [reshape(d, kept) * ew.exp(x - reshape(y, kept))]


mean = _statistic(
    "mean", lambda attrs, x, axes: average(x, axes, attrs["keepdims"]),
    "Mean of floats over axes; nan for an empty axis.", onnx=("ReduceMean",),
    gradient=_mean_pullback,
)  # fmt: skip
var = _statistic(
    "var", lambda attrs, x, axes: spread(x, axes, attrs["keepdims"], attrs["ddof"]),
    "The variance over axes; ddof is subtracted from the count.", ddof=True,
)  # fmt: skip
std = _statistic(
    "std", lambda attrs, x, axes: ew.sqrt(spread(x, axes, attrs["keepdims"], attrs["ddof"])),
    "The standard deviation over axes; ddof is subtracted from the count.", ddof=True,
)  # fmt: skip
logsumexp = _statistic(
    "logsumexp", _log_sum_exp,
    "log(sum(exp(x))) over axes without overflow; minus infinity for an empty axis.",
    onnx=("ReduceLogSumExp",), gradient=_log_sum_exp_pullback,
)  # fmt: skip


# --- where the extreme is ------------------------------------------------------------------------


def _position(name: str, extreme: Operator, doc: str, onnx: str) -> Operator:
    def rule(attrs: Values, x: TensorType) -> TensorType:
        rank = len(x.shape)
        axes = (
            tuple(range(rank))
            if attrs["axis"] is None
            else (rel.axis_of(name, attrs["axis"], rank),)
        )
        _not_empty(name, x, axes)
        return TensorType(reduced(x.shape, axes, attrs["keepdims"]), i64)

    def build(attrs: Values, x: Expr) -> Expr:
        of = tensor_of(x)
        if (at := attrs["axis"]) is None:
            flat = reshape(x, (product(of.shape),))
            shape = reduced(of.shape, range(len(of.shape)), attrs["keepdims"])
            return reshape(along(flat, 0, attrs["last"], False), shape)
        return along(x, rel.axis_of(name, at, len(of.shape)), attrs["last"], attrs["keepdims"])

    def along(x: Expr, at: int, last: bool, keepdims: bool) -> Expr:
        top = extreme(x, axis=(at,), keepdims=True)
        hit = equal(x, top)
        if tensor_of(x).dtype.is_float:
            hit = logical_or(hit, ew.isnan(x))  # the extreme is nan where any element is
        length = known(tensor_of(x).shape[at])
        # A vector holds twice as many narrow indices.
        of = i32 if length is not None and length <= MAX_I32_PLACES else i64
        places = iota_like(x, axis=at, dtype=of)
        behind = of.bounds[1] if length is None else length  # no mask that machines have words for
        nowhere = scalar(-1 if last else behind, of)
        pick = max_ if last else min_
        return ew.cast(pick(where(hit, places, nowhere), axis=(at,), keepdims=keepdims), dtype=i64)

    given = (attribute("axis", optional(axis), None), KEEPDIMS, attribute("last", flag, False))
    return composite(
        name, ("x",), rule, build, doc, attributes=given, admits=rel.NUMBER, onnx=(onnx,)
    )


argmax = _position(
    "argmax",
    max_,
    "The index of the first (or last) maximum along an axis; nan counts as greatest.",
    "ArgMax",
)
argmin = _position(
    "argmin", min_,
    "The index of the first (or last) minimum along an axis; nan counts as least.", "ArgMin",
)  # fmt: skip
