"""Prelude: small device functions that generated code may call, in CUDA C++.

They give operations the meaning `plica.ir.scalar` states where the operator of the language has
another, or none.  Only those that are used are written out; no header is needed.

>>> print(text({"p_min_f32"}))
__device__ __forceinline__ float p_min_f32(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
<BLANKLINE>
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from plica.codegen.emit.coded import Words, conversions
from plica.ir.dtype import DTYPES, bf16, f16

_HEAD: Final = "__device__ __forceinline__"


def _extreme(word: str) -> str:
    return f"""\
{_HEAD} float p_{word}_f32(float a, float b) {{
  float r;
  asm("{word}.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}}
"""


def _extreme_double(word: str) -> str:
    better = "<" if word == "min" else ">"
    keeps = "signbit(a)" if word == "min" else "!signbit(a)"
    return f"""\
{_HEAD} double p_{word}_f64(double a, double b) {{
  if (a != a || b != b) return a + b;
  if (a == b) return {keeps} ? a : b;
  return a {better} b ? a : b;
}}
"""


def _narrow(name: str, convert: str, back: str) -> dict[str, str]:
    return {
        f"p_pack_{name}": f"""\
{_HEAD} unsigned short p_pack_{name}(float a) {{
  unsigned short r;
  asm("{convert} %0, %1;" : "=h"(r) : "f"(a));
  return r;
}}
""",
        f"p_unpack_{name}": back,
        f"p_round_{name}": f"""\
{_HEAD} float p_round_{name}(float a) {{
  return p_unpack_{name}(p_pack_{name}(a));
}}
""",
    }


_OTHERS: Final = tuple(each for each in DTYPES if each.is_coded and each not in (f16, bf16))
"""Dtypes that the machine does not convert by itself."""

_TEXTS: Final[dict[str, str]] = {
    "p_min_f32": _extreme("min"),
    "p_max_f32": _extreme("max"),
    "p_min_f64": _extreme_double("min"),
    "p_max_f64": _extreme_double("max"),
    **_narrow(
        "f16",
        "cvt.rn.f16.f32",
        f"""\
{_HEAD} float p_unpack_f16(unsigned short a) {{
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(a));
  return r;
}}
""",
    ),
    **_narrow(
        "bf16",
        "cvt.rn.bf16.f32",
        f"""\
{_HEAD} float p_unpack_bf16(unsigned short a) {{
  return __int_as_float((int)((unsigned int)a << 16));
}}
""",
    ),
    "p_floordiv": f"""\
template <typename T>
{_HEAD} T p_floordiv(T a, T b) {{
  if (b == 0) return 0;
  if (T(-1) < T(0) && b == T(-1)) return T(0ULL - (unsigned long long)a);
  T q = a / b;
  return q * b != a && ((a < 0) != (b < 0)) ? q - 1 : q;
}}
""",
    "p_floormod": f"""\
template <typename T>
{_HEAD} T p_floormod(T a, T b) {{
  if (b == 0 || (T(-1) < T(0) && b == T(-1))) return 0;
  T r = a % b;
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}}
""",
    "p_fmod": f"""\
template <typename T>
{_HEAD} T p_fmod(T a, T b) {{
  return b == 0 || (T(-1) < T(0) && b == T(-1)) ? T(0) : T(a % b);
}}
""",
    "p_floormod_float": f"""\
template <typename T>
{_HEAD} T p_floormod_float(T a, T b) {{
  T r = fmod(a, b);
  if (r == 0) return copysign(T(0), b);
  return (r < 0) != (b < 0) ? r + b : r;
}}
""",
    "p_floordiv_float": f"""\
template <typename T>
{_HEAD} T p_floordiv_float(T a, T b) {{
  if (b == 0) return a / b;
  T r = fmod(a, b);
  T q = (a - r) / b;
  if (r != 0 && (r < 0) != (b < 0)) q -= T(1);
  if (q == 0) return copysign(T(0), a / b);
  T f = floor(q);
  return q - f > T(0.5) ? f + T(1) : f;
}}
""",
    "p_add": f"""\
template <typename T>
{_HEAD} T p_add(T a, T b) {{ return T((unsigned long long)a + (unsigned long long)b); }}
""",
    "p_sub": f"""\
template <typename T>
{_HEAD} T p_sub(T a, T b) {{ return T((unsigned long long)a - (unsigned long long)b); }}
""",
    "p_mul": f"""\
template <typename T>
{_HEAD} T p_mul(T a, T b) {{ return T((unsigned long long)a * (unsigned long long)b); }}
""",
    "p_power": f"""\
template <typename T>
{_HEAD} T p_power(T a, T b) {{
  if (b < 0) return 0;
  unsigned long long r = 1, x = (unsigned long long)a;
  for (unsigned long long n = (unsigned long long)b; n; n >>= 1, x *= x)
    if (n & 1) r *= x;
  return T(r);
}}
""",
    "p_shl": f"""\
template <typename T>
{_HEAD} T p_shl(T a, T b) {{
  unsigned long long n = (unsigned long long)b;
  return n < 8 * sizeof(T) ? T((unsigned long long)a << n) : T(0);
}}
""",
    "p_shr": f"""\
template <typename T>
{_HEAD} T p_shr(T a, T b) {{
  unsigned long long n = (unsigned long long)b, most = 8 * sizeof(T);
  if (T(-1) < T(0)) return n < most ? T(a >> n) : T(a < 0 ? -1 : 0);
  return n < most ? T(a >> n) : T(0);
}}
""",
    "p_cast": f"""\
template <typename T, typename F>
{_HEAD} T p_cast(F a, F low, F high, T least, T greatest) {{
  if (a != a) return 0;
  return a <= low ? least : a >= high ? greatest : T(a);
}}
""",
    "p_sign": f"""\
template <typename T>
{_HEAD} T p_sign(T a) {{ return a > T(0) ? T(1) : a < T(0) ? T(-1) : a != a ? a : T(0); }}
""",
    "p_abs": f"""\
template <typename T>
{_HEAD} T p_abs(T a) {{ return a < 0 ? T(0ULL - (unsigned long long)a) : a; }}
""",
    **{name: each for of in _OTHERS for name, each in conversions(of, Words(_HEAD)).items()},
}

_NEEDS: Final = {
    f"p_round_{each}": (f"p_pack_{each}", f"p_unpack_{each}") for each in DTYPES if each.is_coded
}


def text(used: Iterable[str]) -> str:
    """The functions of these names, and what they call, in a fixed order."""
    wanted = set(used)
    for name in list(wanted):
        wanted |= set(_NEEDS.get(name, ()))
    return "".join([each for name, each in _TEXTS.items() if name in wanted])
