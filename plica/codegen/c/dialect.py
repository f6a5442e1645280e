"""The dialect C99: how dtypes, literals, operators and helpers are written.

Dtypes that C has not (f16 …) are computed in one that it has, as everywhere.  Nothing is called but
functions of `math.h`, and only the helpers that are used are written out.

>>> C99.literal(0.1, f32), C99.literal(float("-inf"), f32), C99.literal(-1, i64)
('0.1f', '-INFINITY', '-1LL')
>>> print(helpers({"p_fmod_i32"}))
static inline int p_fmod_i32(int a, int b) {
  return b == 0 || ((int)(-1) < (int)(0) && b == (int)(-1)) ? (int)(0) : (int)(a % b);
}
<BLANKLINE>
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import partial
from itertools import product
from math import isnan
from typing import Final

from attrs import evolve

from plica.codegen.c import byte_dot
from plica.codegen.emit.clike_operator import CLIKE
from plica.codegen.emit.coded import Words, conversions
from plica.codegen.emit.dialect import decimal
from plica.codegen.emit.prelude import HELPERS, extreme, instance, with_called
from plica.ir.type import DTYPES, DType, f32, f64, i64

__all__ = ["C99", "HEAD", "f32", "helpers", "i64"]

HEAD: Final = "#include <math.h>\n#include <stdbool.h>\n"

_STATIC: Final = "static inline"

_CODED: Final = tuple(dtype for dtype in DTYPES if dtype.is_coded)
"""Dtypes that C has not: their values are of another, and packed where they are stored."""

_WORDS: Final = Words(_STATIC, "p_bits", "p_number")

_RESERVED_WORDS: Final = """
    auto bool break case char const continue default do double else enum extern false float for goto
    if inline int long register restrict return short signed sizeof static struct switch true
    typedef union unsigned void volatile while table work failed signbit NAN INFINITY main
    abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1
    fabs fdim floor fma fmax fmin fmod frexp gamma hypot ilogb j0 j1 jn ldexp lgamma llrint llround
    log log10 log1p log2 logb lrint lround modf nan nearbyint nextafter pow remainder remquo rint
    round scalb scalbln scalbn significand sin sinh sqrt tan tanh tgamma trunc y0 y1 yn
    isnan isinf isfinite isnormal drem finite exp10 pow10 sincos
"""

_RESERVED: Final = frozenset(
    word + end for word in _RESERVED_WORDS.split() for end in ("", "f", "l")
)
"""Words of the language, and names that `math.h` declares: those of other floats end otherwise."""

_BITS: Final = f"""\
{_STATIC} unsigned int p_bits(float a) {{
  union {{ float number; unsigned int bits; }} both;
  both.number = a;
  return both.bits;
}}
{_STATIC} float p_number(unsigned int a) {{
  union {{ float number; unsigned int bits; }} both;
  both.bits = a;
  return both.number;
}}
"""

_FIXED: Final[dict[str, str]] = {
    byte_dot.HELPER: byte_dot.TEXT,
    "p_bits": _BITS,
    **{name: text for of in _CODED for name, text in conversions(of, _WORDS).items()},
    **{
        f"p_{word}_{name}": f"{_STATIC} {extreme(word, CLIKE.registers[name])}"
        for word in ("min", "max")
        for name in ("f32", "f64")
    },
    "p_copy": f"""\
{_STATIC} void p_copy(void *to, const void *from, unsigned long long count) {{
  unsigned char *a = (unsigned char *)to;
  const unsigned char *b = (const unsigned char *)from;
  for (unsigned long long i = 0; i < count; ++i) a[i] = b[i];
}}
""",
}


def _type(name: str) -> str:
    """The type of a value, by the name of its dtype."""
    return CLIKE.registers[next(dtype for dtype in DTYPES if dtype.name == name).computed.name]


_TEXTS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "_".join([name, *chosen]): (name, dict(zip(types, map(_type, chosen), strict=True)))
    for name, (types, _) in HELPERS.items()
    for chosen in product([str(dtype) for dtype in DTYPES], repeat=len(types))
}
"""The helpers that are functions of types: which it is, and the types."""


def helpers(used: Iterable[str]) -> str:
    """The helpers of these names, and what they call, in a fixed order."""
    parts = [with_called(_FIXED, used)]
    for name in sorted(set(used).difference(_FIXED)):
        helper, types = _TEXTS[name]
        parts.append(f"{_STATIC} {instance(helper, name, types)}")
    return "".join(parts)


def _special(bits: int, of: DType) -> str:
    if of is f64:
        (value,) = struct.unpack("<d", struct.pack("<Q", bits))
    else:
        (value,) = struct.unpack("<f", struct.pack("<I", bits))
    return "NAN" if isnan(value) else "INFINITY" if value > 0 else "-INFINITY"


C99: Final = evolve(
    CLIKE,
    name="c",
    real=partial(decimal, special=_special),
    reserved=_RESERVED,
    allocation="{type} {name}[{count}] = {{0}};",
    failure="failed = true;",
)
