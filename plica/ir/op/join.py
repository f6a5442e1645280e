"""Joining and cutting: concatenation, splits, slices and padding.

>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.type.term import tensor
>>> n, m = dim_var("n"), dim_var("m")
>>> found = concat.relation({"axis": 0}, tensor((n, 4), "f32"), tensor((m, 4), "f32"))
>>> same_dim(found.shape[0], n + m)
True
"""

from __future__ import annotations

from itertools import pairwise

from plica.ir.graph.expression import Expr, Project, Tuple
from plica.ir.graph.operator import Values
from plica.ir.loop.scalar import Buffer, Eq, Lt, Scalar, Select, index
from plica.ir.loop.tensor import Compute, compute
from plica.ir.op import relation as rel
from plica.ir.op.attribute import attribute, axis, dims, positive
from plica.ir.op.cotangent import reshape, slice_
from plica.ir.op.record import plus, primitive, tensor_of, times, tuple_of
from plica.ir.type.dim import greater, known, lesser, normal_dim, quotient, same_dim
from plica.ir.type.term import TensorType, TupleType

# --- putting together ----------------------------------------------------------------------------


def _concat_rule(attrs: Values, *given: TensorType) -> TensorType:
    first = given[0]
    rank = len(first.shape)
    at = rel.axis_of("concat", attrs["axis"], rank)
    whole = first.shape[at]
    for each in given[1:]:
        if len(each.shape) != rank:
            rel.refuse("shape-conflict", "concat takes tensors of one rank.", str(first), str(each))
        for other in range(rank):
            if other != at:
                rel.same("concat", f"axis {other}", first.shape[other], each.shape[other])
        whole = whole + each.shape[at]
    return TensorType((*first.shape[:at], whole, *first.shape[at + 1 :]), first.dtype)


def _concat_body(attrs: Values, out: TensorType, *given: Buffer) -> Compute:
    at = rel.axis_of("concat", attrs["axis"], len(out.shape))
    starts: list[Scalar] = [index(0)]
    for buffer in given:
        starts.append(normal_dim(starts[-1] + buffer.shape[at]))

    def element(*i: Scalar) -> Scalar:
        chosen: Scalar | None = None
        for buffer, start, stop in reversed(list(zip(given, starts, starts[1:], strict=False))):
            inside = i[at] if known(start) == 0 else i[at] - start
            load = buffer[(*i[:at], inside, *i[at + 1 :])]
            chosen = load if chosen is None else Select(Lt(i[at], stop), load, chosen)
        assert chosen is not None
        return chosen

    return compute(given, out.shape, element)


def _concat_pullback(attrs: Values, d: Expr, y: Expr, *given: Expr) -> list[Expr | None]:
    at = rel.axis_of("concat", attrs["axis"], len(tensor_of(y).shape))
    parts: list[Expr | None] = []
    start: Scalar = index(0)
    for expr in given:
        stop = normal_dim(start + tensor_of(expr).shape[at])
        parts.append(slice_(d, (start,), (stop,), axes=(at,)))
        start = stop
    return parts


concat = primitive(
    "concat", ("*values",), _concat_rule, _concat_body,
    "Concatenate tensors along an axis.", attributes=(attribute("axis", axis, 0),),
    onnx=("Concat",), aliases=("concatenate",), gradient=_concat_pullback,
)  # fmt: skip


def _stack_rule(attrs: Values, *given: TensorType) -> TensorType:
    first = given[0]
    at = rel.axis_of("stack", attrs["axis"], len(first.shape) + 1)
    for each in given[1:]:
        if len(each.shape) != len(first.shape) or not all(map(same_dim, each.shape, first.shape)):
            rel.refuse("shape-conflict", "stack takes tensors of one shape.", str(first), str(each))
    return TensorType((*first.shape[:at], index(len(given)), *first.shape[at:]), first.dtype)


def _stack_body(attrs: Values, out: TensorType, *given: Buffer) -> Compute:
    at = rel.axis_of("stack", attrs["axis"], len(out.shape))

    def element(*i: Scalar) -> Scalar:
        inside = (*i[:at], *i[at + 1 :])
        chosen = given[-1][inside]
        for number_, buffer in reversed(list(enumerate(given[:-1]))):
            chosen = Select(Eq(i[at], index(number_)), buffer[inside], chosen)
        return chosen

    return compute(given, out.shape, element)


def _stack_pullback(attrs: Values, d: Expr, y: Expr, *given: Expr) -> list[Expr | None]:
    at = rel.axis_of("stack", attrs["axis"], len(tensor_of(y).shape))
    return [
        reshape(slice_(d, (number_,), (number_ + 1,), axes=(at,)), tensor_of(expr).shape)
        for number_, expr in enumerate(given)
    ]


stack = primitive(
    "stack", ("*values",), _stack_rule, _stack_body, "Stack tensors of one shape along a new axis.",
    attributes=(attribute("axis", axis, 0),), gradient=_stack_pullback,
)  # fmt: skip

# --- cutting apart -------------------------------------------------------------------------------


def _cuts(attrs: Values, shape: rel.Shape) -> tuple[int, list[Scalar]]:
    """The axis, and where the parts begin and the last one ends."""
    at = rel.axis_of("split", attrs["axis"], len(shape))
    whole, given = shape[at], attrs["indices_or_sections"]
    if isinstance(given, int):
        if (part := quotient(whole, index(given))) is None:
            message = "split makes parts of one size."
            rel.refuse("shape-conflict", message, f"a multiple of {given}", rel.shown((whole,)))
        return at, [normal_dim(times(part, number_)) for number_ in range(given + 1)]
    for before, after in pairwise(map(known, given)):
        if before is not None and after is not None and before > after:
            message = "split cuts before ascending indices."
            rel.refuse("shape-conflict", message, "ascending indices", rel.shown(given))
    inner = [lesser(cut, whole) for cut in given]
    return at, [index(0), *inner, whole]


def _nonnegative(value: Scalar) -> Scalar:
    return greater(value, index(0)) if known(value) is not None else value


def _split_rule(attrs: Values, x: TensorType) -> TupleType:
    at, cuts = _cuts(attrs, x.shape)
    return tuple_of(
        [
            TensorType(
                (*x.shape[:at], _nonnegative(normal_dim(stop - start)), *x.shape[at + 1 :]), x.dtype
            )
            for start, stop in pairwise(cuts)
        ]
    )


def _split_body(attrs: Values, out: TupleType, x: Buffer) -> tuple[Compute, ...]:
    at, cuts = _cuts(attrs, x.shape)

    def part(start: Scalar, of: TensorType) -> Compute:
        return compute((x,), of.shape, lambda *i: x[(*i[:at], plus(i[at], start), *i[at + 1 :])])

    return tuple(
        part(start, of)
        for start, of in zip(cuts, out.items, strict=False)
        if isinstance(of, TensorType)
    )


def _sections(value: object) -> object:
    return dims(value) if isinstance(value, list | tuple) else positive(value)


def _split_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    at, cuts = _cuts(attrs, tensor_of(x).shape)
    parts = [d.items[n] if isinstance(d, Tuple) else Project(d, n) for n in range(len(cuts) - 1)]
    return [concat(parts, axis=at)]


split = primitive(
    "split", ("x",), _split_rule, _split_body,
    "Split x into equal parts along an axis, or at ascending indices.",
    attributes=(attribute("indices_or_sections", _sections), attribute("axis", axis, 0)),
    onnx=("Split",), gradient=_split_pullback,
)  # fmt: skip
