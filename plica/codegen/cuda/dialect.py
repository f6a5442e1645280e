"""The dialect CUDA C++: how dtypes, literals and names are written.

    dtype    in a register    in memory
    bool     bool             unsigned char
    i8       signed char      signed char          i16 short, i32 int, i64 long long; u8 … likewise
    f16      float            unsigned short       computed in f32 and rounded, as all narrow floats
    f32      float            float

>>> literal = CUDA.literal
>>> literal(0.1, f32), literal(float("-inf"), f32), literal(-1, i64)
('0.1f', '__int_as_float(0xff800000)', '-1LL')
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from attrs import evolve

from plica.codegen.emit.clike_operator import CLIKE
from plica.codegen.emit.dialect import decimal
from plica.ir.type import DType, f32, f64, i64

__all__ = ["CUDA", "MAX_VECTOR_BYTES", "f32", "i64"]

MAX_VECTOR_BYTES: Final = 16  # bytes that one instruction can read or write

_WORDS: Final = """
    alignas alignof and asm auto bitand bitor blockDim blockIdx bool break case catch char class
    compl concept const const_cast constexpr continue decltype default delete do double
    dynamic_cast else enum explicit export extern false float for friend goto gridDim if inline
    int long mutable namespace new noexcept not nullptr operator or private protected public
    register reinterpret_cast requires return short signed sizeof static static_cast struct switch
    template this thread threadIdx throw true try typedef typeid typename union unsigned using
    virtual void volatile wchar_t warpSize while xor min max abs fabs fmod sqrt floor ceil rint
    trunc copysign pow exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asinh acosh
    atanh asin acos atan atan2 erf signbit shared_memory
"""

_RESERVED: Final = frozenset(_WORDS.split())
"""Words of the language, and names of functions that are called."""


def _special(bits: int, of: DType) -> str:
    return f"__longlong_as_double({bits:#018x}LL)" if of is f64 else f"__int_as_float({bits:#010x})"


def _conversion(kind: str, value: str) -> str:
    """A value as one of a type, whose name may be several words."""
    return f"({kind})({value})" if " " in kind else f"{kind}({value})"


def _template(helper: str, dtypes: Sequence[DType], types: Sequence[str]) -> tuple[str, str]:
    """A helper that is a template of its types."""
    return helper, f"{helper}<{', '.join(types)}>" if types else helper


CUDA: Final = evolve(
    CLIKE,
    name="cuda",
    real=partial(decimal, special=_special),
    reserved=_RESERVED,
    products={"f32": "__fmul_rn({}, {})", "f64": "__dmul_rn({}, {})"},
    helper=_template,
    conversion=_conversion,
    extremes=dict.fromkeys(("i32", "i64", "u32", "u64"), "{word}({0}, {1})"),
    allocation=f"alignas({MAX_VECTOR_BYTES}) {{type}} {{name}}[{{count}}];",
    unroll="#pragma unroll",
    barrier="__syncthreads();",
)
