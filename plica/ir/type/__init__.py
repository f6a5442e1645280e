"""type: dtypes, dims, types, and their inference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "DTYPES",
    "DType",
    "DataName",
    "DataType",
    "FuncType",
    "Polynomial",
    "Sizes",
    "TensorType",
    "TupleType",
    "Type",
    "TypeVar",
    "bf16",
    "bool_",
    "dim",
    "dim_var",
    "dtype",
    "evaluate",
    "f16",
    "f32",
    "f64",
    "from_polynomial",
    "greater",
    "i8",
    "i16",
    "i32",
    "i64",
    "infer",
    "infer_expr",
    "is_size",
    "known",
    "lesser",
    "normal_dim",
    "polynomial",
    "product",
    "quotient",
    "same_dim",
    "same_type",
    "shape_of",
    "solve",
    "static_shape",
    "tensor",
    "type_of",
    "u8",
]

if TYPE_CHECKING:
    from plica.ir.type.dim import (
        Polynomial,
        dim,
        dim_var,
        evaluate,
        from_polynomial,
        greater,
        is_size,
        known,
        lesser,
        normal_dim,
        polynomial,
        product,
        quotient,
        same_dim,
    )
    from plica.ir.type.dtype import (
        DTYPES,
        DType,
        bf16,
        bool_,
        dtype,
        f16,
        f32,
        f64,
        i8,
        i16,
        i32,
        i64,
        u8,
    )
    from plica.ir.type.infer import infer, infer_expr, type_of
    from plica.ir.type.size import Sizes, shape_of, solve
    from plica.ir.type.term import (
        DataName,
        DataType,
        FuncType,
        TensorType,
        TupleType,
        Type,
        TypeVar,
        static_shape,
        tensor,
    )
    from plica.ir.type.unify import same_type
else:
    lazily(__name__)
