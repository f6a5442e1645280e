"""Creation: tensors that depend on shapes and attributes, not on elements.

>>> from plica.ir.type.dtype import f32
>>> full.relation({"shape": (index(2),), "value": 0.5, "dtype": f32}).shape[0].value
2
"""

from __future__ import annotations

import math
from collections.abc import Callable

from plica.ir.graph.operator import FLAT, Operator, Values
from plica.ir.loop.scalar import Add, Buffer, Eq, Lit, Mul, Scalar, Select, index
from plica.ir.loop.tensor import Compute, compute
from plica.ir.op.attribute import (
    attribute,
    axes,
    axis,
    dims,
    dtype,
    index as index_reader,
    integer,
    number,
    optional,
    size as size_reader,
)
from plica.ir.op.record import as_dtype, plus, primitive
from plica.ir.op.relation import axes_of, axis_of, literal, refuse
from plica.ir.type import DType, TensorType, bool_, f32, i64, product

_DTYPE = attribute("dtype", dtype, f32)
_SHAPE = attribute("shape", dims)


def _filled(
    name: str,
    value: Callable[[Values], bool | int | float],
    doc: str,
    given: bool = False,
    onnx: tuple[str, ...] = (),
) -> Operator:
    def rule(attrs: Values) -> TensorType:
        literal(name, value(attrs), attrs["dtype"])
        return TensorType(attrs["shape"], attrs["dtype"])

    def body(attrs: Values, out: TensorType) -> Compute:
        return compute((), out.shape, lambda *i: literal(name, value(attrs), out.dtype))

    attributes = (_SHAPE, attribute("value", number), _DTYPE) if given else (_SHAPE, _DTYPE)
    return primitive(name, (), rule, body, doc, attributes=attributes, onnx=onnx)


def _filled_like(
    name: str, value: Callable[[Values], bool | int | float], doc: str, given: bool = False
) -> Operator:
    def rule(attrs: Values, x: TensorType) -> TensorType:
        dtype_ = x.dtype if attrs["dtype"] is None else attrs["dtype"]
        literal(name, value(attrs), dtype_)
        return TensorType(x.shape, dtype_)

    def body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
        return compute((x,), out.shape, lambda *i: literal(name, value(attrs), out.dtype))

    own = attribute("dtype", optional(dtype), None)
    attributes = (attribute("value", number), own) if given else (own,)
    return primitive(name, ("x",), rule, body, doc, attributes=attributes, gradient=FLAT)


full = _filled(
    "full", lambda attrs: attrs["value"], "A tensor of one value.", given=True,
    onnx=("ConstantOfShape",),
)  # fmt: skip
zeros = _filled("zeros", lambda attrs: 0, "A tensor of zeros.")
ones = _filled("ones", lambda attrs: 1, "A tensor of ones.")
full_like = _filled_like(
    "full_like", lambda attrs: attrs["value"], "One value in the shape of x.", given=True
)
zeros_like = _filled_like("zeros_like", lambda attrs: 0, "Zeros in the shape of x.")
ones_like = _filled_like("ones_like", lambda attrs: 1, "Ones in the shape of x.")

# --- counting ------------------------------------------------------------------------------------


def _counted(name: str, value: DType, at: int, shape: tuple[Scalar, ...]) -> None:
    if value is bool_:
        refuse("bad-attribute", f"{name} counts in numbers.", "a number's dtype", "bool")
    axis_of(name, at, len(shape))


def _iota_rule(attrs: Values) -> TensorType:
    _counted("iota", attrs["dtype"], attrs["axis"], attrs["shape"])
    return TensorType(attrs["shape"], attrs["dtype"])


def _iota_like_rule(attrs: Values, x: TensorType) -> TensorType:
    _counted("iota_like", attrs["dtype"], attrs["axis"], x.shape)
    return TensorType(x.shape, attrs["dtype"])


def _iota_body(attrs: Values, out: TensorType, *x: Buffer) -> Compute:
    at = axis_of("iota", attrs["axis"], len(out.shape))
    return compute(x, out.shape, lambda *i: as_dtype(i[at], out.dtype))


iota = primitive(
    "iota", (), _iota_rule, _iota_body, "Each element is its index along an axis.",
    attributes=(_SHAPE, attribute("axis", axis, 0), attribute("dtype", dtype, i64)),
)  # fmt: skip
iota_like = primitive(
    "iota_like", ("x",), _iota_like_rule, _iota_body,
    "In the shape of x, each element is its index along an axis.",
    attributes=(attribute("axis", axis, 0), attribute("dtype", dtype, i64)), gradient=FLAT,
)  # fmt: skip


def _arange_rule(attrs: Values) -> TensorType:
    start, stop, step, of = attrs["start"], attrs["stop"], attrs["step"], attrs["dtype"]
    if of is bool_ or not all(map(math.isfinite, (start, stop, step))) or step == 0:
        refuse(
            "bad-attribute",
            "arange counts from start to stop by a step that is not 0, in numbers.",
            "finite numbers and a step",
            f"arange({start}, {stop}, {step}, {of})",
        )
    for each in (start, step):
        literal("arange", each, of)
    return TensorType((index(max(0, math.ceil((stop - start) / step))),), of)


def _arange_body(attrs: Values, out: TensorType) -> Compute:
    start, step = Lit(attrs["start"], out.dtype), Lit(attrs["step"], out.dtype)
    return compute((), out.shape, lambda i: Add(start, Mul(as_dtype(i, out.dtype), step)))


arange = primitive(
    "arange", (), _arange_rule, _arange_body,
    "Numbers from start to stop (exclusive) by step.",
    attributes=(
        attribute("start", number),
        attribute("stop", number),
        attribute("step", number, 1),
        attribute("dtype", dtype, i64),
    ),
    onnx=("Range",),
)  # fmt: skip


def _eye_body(attrs: Values, out: TensorType) -> Compute:
    def element(i: Scalar, j: Scalar) -> Scalar:
        return Select(Eq(plus(i, attrs["k"]), j), Lit(1, out.dtype), Lit(0, out.dtype))

    return compute((), out.shape, element)


eye = primitive(
    "eye", (),
    lambda attrs: TensorType(
        (attrs["n"], attrs["n"] if attrs["m"] is None else attrs["m"]), attrs["dtype"]
    ),
    _eye_body, "Ones on the diagonal k, zeros elsewhere.",
    attributes=(
        attribute("n", size_reader),
        attribute("m", optional(size_reader), None),
        attribute("k", integer, 0),
        _DTYPE,
    ),
    onnx=("EyeLike",),
)  # fmt: skip

# --- shapes as values ----------------------------------------------------------------------------


def _size_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    chosen = axes_of("size", attrs["axis"], len(x.shape))
    whole = product(x.shape[at] for at in chosen)
    return compute((x,), (), lambda: whole)


def _size_rule(attrs: Values, x: TensorType) -> TensorType:
    axes_of("size", attrs["axis"], len(x.shape))
    return TensorType((), i64)


def _shape_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    def element(i: Scalar) -> Scalar:
        chosen: Scalar = index(0)
        for at, scalar in reversed(tuple(enumerate(x.shape))):
            chosen = scalar if at == len(x.shape) - 1 else Select(Eq(i, index(at)), scalar, chosen)
        return chosen

    return compute((x,), out.shape, element)


size = primitive(
    "size", ("x",), _size_rule, _size_body, "The number of elements of x, in all or along axes.",
    attributes=(attribute("axis", axes, None),), onnx=("Size",), aliases=("ndarray_size",),
)  # fmt: skip
shape_of = primitive(
    "shape_of", ("x",), lambda attrs, x: TensorType((index(len(x.shape)),), i64), _shape_body,
    "The shape of x as a vector.", onnx=("Shape",),
)  # fmt: skip
dim_value = primitive(
    "dim_value", (), lambda attrs: TensorType((), i64),
    lambda attrs, out: compute((), (), lambda: attrs["dim"]),
    "The value of a dim term as a number.",
    attributes=(attribute("dim", index_reader),),
)  # fmt: skip
