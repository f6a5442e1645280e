"""The dialect OpenCL C: how dtypes, literals, operators and helpers are written.

>>> OPENCL.literal(0.1, f32), OPENCL.literal(-1, i64), OPENCL.register(i64)
('0.1f', '-1L', 'long')
>>> print(helpers({"p_abs_i64"}), end="")
static inline long p_abs_i64(long a) { return a < 0 ? (long)(0UL - (ulong)a) : a; }
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from attrs import evolve

from plica.codegen.c.dialect import C99, helpers as plain_helpers
from plica.codegen.emit.dialect import decimal, suffixed
from plica.codegen.emit.formula_text import FormulaWords, clike_words, formula_lines
from plica.codegen.emit.lane_store import FORMULAS, LENGTHS
from plica.ir.type import DType, f32, i32, i64

__all__ = ["DOUBLES", "HEAD", "OPENCL", "f32", "helpers", "i64", "text_in_opencl"]

HEAD: Final = "#pragma OPENCL FP_CONTRACT OFF\n"
"""Products are rounded by themselves, unless a kernel says otherwise."""

DOUBLES: Final = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"

_FUNCTIONS: Final = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs
    floor fma fmod log log10 log1p log2 pow rint round sin sinh sqrt tan tanh tgamma trunc
"""
"""Functions that have one name for all floats: those of C for f32 end with an f."""

_SINGLE: Final = re.compile(rf"\b({'|'.join(_FUNCTIONS.split())})f\b")
_LONG: Final = (("unsigned long long", "ulong"), ("long long", "long"))
_BITS: Final = """\
static inline uint p_bits(float a) { return as_uint(a); }
static inline float p_number(uint a) { return as_float(a); }
"""
_UNION: Final = re.compile(r"(?sm)static inline unsigned int p_bits.*?^}\n.*?^}\n")


def text_in_opencl(text: str) -> str:
    """A text of C in words of OpenCL C.

    >>> text_in_opencl("long long n = (long long)expf(2.0f) + 1ULL;")
    'long n = (long)exp(2.0f) + 1UL;'
    """
    for old, new in _LONG:
        text = text.replace(old, new)
    text = text.replace("__builtin_popcountll(", "popcount(")
    text = _SINGLE.sub(r"\1", _UNION.sub(_BITS, text))
    return re.sub(r"\b(\w+?)(U?)LL\b", r"\1\2L", text)


def helpers(used: Iterable[str]) -> str:
    """The helpers of these names, and what they call, in a fixed order."""
    wanted = set(used)
    wide = {name: text for name, text in _VECTORS.items() if name in wanted}
    return text_in_opencl(plain_helpers(wanted - wide.keys())) + "".join(wide.values())


# Functions of OpenCL C over vectors are written as operators below: some drivers call their own out
# of line (PoCL on ARM), where an operator is an instruction.


def _multiply_add(kind: str, count: int) -> str:
    """A product and a sum in one step, where the device has it.  SPIR-V knows no permission to
    contract, only the function."""
    many, name = f"{kind}{count}", f"p_fma_{'f32' if kind == 'float' else 'f64'}_{count}"
    return f"""\
static inline {many} {name}({many} a, {many} b, {many} c) {{
#if defined(__SPIR__) || defined(__SPIRV__)
  return fma(a, b, c);
#else
#pragma OPENCL FP_CONTRACT ON
  return a * b + c;
#endif
}}
"""


def _extreme(word: str, kind: str, count: int) -> str:
    """IEEE 754's minimum or maximum of the lanes of two vectors."""
    many, signs = f"{kind}{count}", f"{'int' if kind == 'float' else 'long'}{count}"
    name = f"p_{word}_{'f32' if kind == 'float' else 'f64'}_{count}"
    better, both = ("<", "|") if word == "min" else (">", "&")
    same = f"as_{many}(as_{signs}(a) {both} as_{signs}(b))"
    return f"""\
static inline {many} {name}({many} a, {many} b) {{
  const {many} r = a {better} b ? a : b;
  return ((a != a) | (b != b)) ? a + b : (a == b ? {same} : r);
}}
"""


def _formula(name: str, count: int) -> str:
    """A formula of Plica's own for the lanes of a vector: drivers compute it lane by lane."""
    many, signs = f"float{count}", f"int{count}"
    size = f"as_{many}(as_{signs}({{0}}) & INT_MAX)"
    sign = f"as_{many}((as_{signs}({{0}}) & INT_MAX) | (as_{signs}({{1}}) & INT_MIN))"
    words = FormulaWords(
        "const {kind} {name} = {text};", {f32: many, i32: signs, None: signs},
        lambda value, of: f"({signs})({value})" if of is i32 else f"({many})({_real(value)})",
        clike_words(
            "({0} ? {1} : {2})", bits=f"as_{signs}({{0}})", real=f"as_{many}({{0}})",
            to_float=f"convert_{many}({{0}})", size=size, with_sign=sign,
            logical_shift=f"as_{signs}(as_u{signs}({{0}}) >> {{1}})",
        ),
    )  # fmt: skip
    lines, result = formula_lines(name, words)
    body = "\n  ".join([*lines, f"return {result};"])
    return f"static inline {many} p_{name}_f32_{count}({many} x) {{\n  {body}\n}}\n"


def _real(value: float) -> str:
    return decimal(value, f32, lambda bits, of: f"as_float({bits:#x}U)")


_ALIGNED: Final = "__attribute__((aligned({})))"

_VECTORS: Final[dict[str, str]] = {
    **{
        f"{kind}{count}_": f"typedef {kind}{count} {kind}{count}_ {_ALIGNED.format(size)};\n"
        for kind, size in (("float", 4), ("double", 8), ("int", 4))
        for count in LENGTHS
    },
    **{
        f"p_fma_{name}_{count}": _multiply_add(kind, count)
        for name, kind in (("f32", "float"), ("f64", "double"))
        for count in LENGTHS
    },
    **{
        f"p_{word}_{name}_{count}": _extreme(word, kind, count)
        for word in ("min", "max")
        for name, kind in (("f32", "float"), ("f64", "double"))
        for count in LENGTHS
    },
    **{f"p_{name}_f32_{count}": _formula(name, count) for name in FORMULAS for count in LENGTHS},
}


_WORDS: Final = frozenset(
    ["kernel", "global", "local", "private", "constant", "uchar", "ushort", "uint", "ulong", "half"]
)
"""Words that C has not."""


def _integer(value: int, of: DType) -> str:
    return text_in_opencl(suffixed(value, of))


OPENCL: Final = evolve(
    C99,
    name="opencl",
    registers={
        **C99.registers,
        "i8": "char", "u8": "uchar", "u16": "ushort", "u32": "uint", "i64": "long", "u64": "ulong",
    },
    elements={"bool": "uchar"},
    integer=_integer,
    reserved=C99.reserved | _WORDS,
    allocation="{type} {name}[{count}];",
    unroll="#pragma unroll",
    failure="failed[number] = 1;",
    inside="(ulong)({at}) < {count}UL",
)  # fmt: skip
