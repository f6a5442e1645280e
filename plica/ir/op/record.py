"""Records: how the operators of this package are made, each in a few lines.

A *primitive* operator has a rule for its type and a body: the element of the result as a scalar
term.  The shape is said once, by the rule; the body receives it.  A *composite* operator is a term
over other operators, built for arguments of known types.

Scalar laws and loads stay visible to every derivation (kind, shape function, numpy meaning, loops),
so a record here defines the operator completely.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias, TypedDict, Unpack

from plica.core import CompilerBug
from plica.ir.graph.expression import Const, Expr, const
from plica.ir.graph.operator import Attribute, Flat, Gradient, Mismatch, Operator, Values, register
from plica.ir.graph.weight_array import ColumnwiseArray
from plica.ir.loop.scalar import Buffer, Cast, Lit, Scalar, dtype_of, index
from plica.ir.loop.tensor import Compute, compute
from plica.ir.op.cotangent import unbroadcast
from plica.ir.op.relation import ANY, Rule, Shape, broadcast, fitting, wide
from plica.ir.type import DType, TensorType, TupleType, known
from plica.ir.type.local_type import local_type
from plica.runtime.late import late

# Any: the result type is a TensorType for one output, a TupleType for several.
Body: TypeAlias = Callable[..., "Compute | tuple[Compute, ...]"]  # (attrs, result type, *buffers)
Build: TypeAlias = Callable[..., Expr]  # (attrs, *typed expressions)
# ([attrs,] cotangent, result, *arguments) -> the cotangents of the arguments in the result's shape
Derivative: TypeAlias = Callable[..., "Expr | tuple[Expr | None, ...] | None"]


class Named(TypedDict, total=False):
    """How else an operator is known, as fields of `Operator`."""

    onnx: tuple[str, ...]
    aliases: tuple[str, ...]
    reference: Callable[..., Any]


class Described(Named, total=False):
    """Optional fields of a record, as in `Operator`."""

    attributes: tuple[Attribute, ...]
    like: tuple[int, ...] | None
    gradient: Gradient | None
    columns: Callable[..., ColumnwiseArray]
    pointwise: bool


def primitive(
    name: str,
    inputs: tuple[str, ...],
    rule: Rule,
    body: Body,
    doc: str,
    *,
    admits: Collection[DType] = ANY,
    **said: Unpack[Described],
) -> Operator:
    """Register an operator given by a tensor expression."""
    relation = fitting(name, inputs, rule, admits, said.get("like"))

    def definition(attrs: Values, *buffers: Buffer) -> Compute | tuple[Compute, ...]:
        result = relation(attrs, *(TensorType(buffer.shape, buffer.dtype) for buffer in buffers))
        if isinstance(result, Mismatch):
            raise CompilerBug(f"{name} is defined for ill-typed arguments: {result.message}")
        return body(attrs, result, *buffers)

    return register(Operator(name, inputs, relation, compute=definition, doc=doc, **said))


def composite(
    name: str,
    inputs: tuple[str, ...],
    rule: Rule,
    build: Build,
    doc: str,
    *,
    admits: Collection[DType] = ANY,
    **said: Unpack[Described],
) -> Operator:
    """Register an operator given by a term over other operators."""
    relation = fitting(name, inputs, rule, admits, said.get("like"))
    return register(Operator(name, inputs, relation, decompose=build, doc=doc, **said))


def pointwise(
    name: str,
    inputs: tuple[str, ...],
    value: Callable[..., Scalar],
    doc: str,
    *,
    result: DType | None = None,
    fits: Callable[..., None] | None = None,
    attributes: tuple[Attribute, ...] = (),
    admits: Collection[DType] = ANY,
    slope: Derivative | Flat | None = None,
    **named: Unpack[Named],
) -> Operator:
    """Register an operator whose element depends on the elements at the same place.

    `value` takes one scalar per input, after the attributes if there are any; `fits` refuses
    arguments that broadcasting would accept. `slope` is the gradient before summation over
    broadcast axes.
    """

    def rule(attrs: Values, *types: TensorType) -> TensorType:
        first = types[0]
        if fits is not None:
            fits(attrs, *types)
        shape = broadcast(name, (tensor_type.shape for tensor_type in types))
        if shape == first.shape and result in (None, first.dtype):
            return first
        return TensorType(shape, first.dtype if result is None else result)

    def body(attrs: Values, out: TensorType, *buffers: Buffer) -> Compute:
        def element(*axes: Scalar) -> Scalar:
            loads = [read(buffer, axes, out.shape) for buffer in buffers]
            return value(attrs, *loads) if attributes else value(*loads)

        return compute(buffers, out.shape, element)

    gradient = None if slope is None else sloping(slope, bool(attributes))
    return primitive(
        name, inputs, rule, body, doc,
        attributes=attributes, admits=admits, gradient=gradient, pointwise=True, **named,
    )  # fmt: skip


def sloping(slope: Derivative | Flat, attributes: bool) -> Gradient:
    """The gradient of an elementwise operator, from its slope."""
    if isinstance(slope, Flat):
        return slope

    def pullback(attrs: Values, cotangent: Expr, result: Expr, *args: Expr) -> list[Expr | None]:
        given = (attrs, cotangent, result, *args) if attributes else (cotangent, result, *args)
        found = slope(*given)
        parts = found if isinstance(found, tuple) else (found,)
        return [
            None if part is None else unbroadcast(part, tensor_of(result), tensor_of(arg))
            for part, arg in zip(parts, args, strict=True)
        ]

    return pullback


def widened(value: Callable[..., Scalar]) -> Callable[..., Scalar]:
    """The same function, computed in f32 for 16-bit floats and rounded once at the end."""

    def rounded(*args: Any) -> Scalar:
        dtype = dtype_of(args[-1])
        inner = [as_dtype(arg, wide(dtype)) if isinstance(arg, Scalar) else arg for arg in args]
        return as_dtype(value(*inner), dtype)

    return rounded


def read(buffer: Buffer, axes: Sequence[Scalar], shape: Shape) -> Scalar:
    """The element that broadcasting `buffer` to `shape` has at `axes`."""
    skip = len(axes) - len(buffer.shape)
    return buffer[
        tuple(
            [
                index(0) if known(size) == 1 and known(whole) != 1 else axis
                for size, axis, whole in zip(buffer.shape, axes[skip:], shape[skip:], strict=True)
            ]
        )
    ]


def as_dtype(value: Scalar, dtype: DType) -> Scalar:
    """A scalar in a dtype; no cast where it has it already."""
    if dtype_of(value) is dtype:
        return value
    return Lit(value.value, dtype) if isinstance(value, Lit) else Cast(value, dtype)


def plus(a: Scalar, b: Scalar | int) -> Scalar:
    """A sum of index terms without additions of zero."""
    if isinstance(b, Lit):
        b = int(b.value)
    if isinstance(b, int):
        if isinstance(a, Lit):
            return index(int(a.value) + b)
        return a if b == 0 else (a + b if b > 0 else a - (-b))
    return b if known(a) == 0 else a + b


def times(a: Scalar, b: Scalar | int) -> Scalar:
    """A product of index terms without multiplications by one or zero."""
    if isinstance(b, Lit):
        b = int(b.value)
    if isinstance(b, int):
        if isinstance(a, Lit):
            return index(int(a.value) * b)
        return a if b == 1 else (index(0) if b == 0 else a * b)
    return times(b, a) if isinstance(a, Lit) else a * b


def tensor_of(value: Expr) -> TensorType:
    """The type of a typed tensor expression."""
    found = local_type(value)
    if found is None:  # a literal takes its dtype from its neighbours: that is inference
        found = late("plica.ir.type.infer:type_of")(value)
    if not isinstance(found, TensorType):
        raise CompilerBug(f"A decomposition takes the shape of a {type(found).__name__}.")
    return found


def scalar(value: bool | int | float, dtype: DType) -> Const:
    """A constant of rank 0."""
    return const(value, dtype)


def tuple_of(items: Sequence[TensorType]) -> TupleType:
    """The type of several results."""
    return TupleType(tuple(items))
