"""Helpers of C-like targets: functions that give operators the meaning `plica.ir.loop.scalar`
states.

Each is a function of some types, `T` the first of them, in which `T(x)` is a cast: a target that
has templates writes it as one, another puts each type in its place.

>>> print(instance("p_abs", "p_abs_i32", {"T": "int"}))
int p_abs_i32(int a) { return a < 0 ? (int)(0ULL - (unsigned long long)a) : a; }
<BLANKLINE>
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

HELPERS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "p_floordiv": (("T",), """\
T p_floordiv(T a, T b) {
  if (b == 0) return 0;
  if (T(-1) < T(0) && b == T(-1)) return T(0ULL - (unsigned long long)a);
  T q = a / b;
  return q * b != a && ((a < 0) != (b < 0)) ? q - 1 : q;
}
"""),
    "p_floormod": (("T",), """\
T p_floormod(T a, T b) {
  if (b == 0 || (T(-1) < T(0) && b == T(-1))) return 0;
  T r = a % b;
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}
"""),
    "p_fmod": (("T",), """\
T p_fmod(T a, T b) {
  return b == 0 || (T(-1) < T(0) && b == T(-1)) ? T(0) : T(a % b);
}
"""),
    "p_truncdiv": (("T",), """\
T p_truncdiv(T a, T b) {
  if (b == 0) return 0;
  return T(-1) < T(0) && b == T(-1) ? T(0ULL - (unsigned long long)a) : T(a / b);
}
"""),
    "p_floormod_float": (("T",), """\
T p_floormod_float(T a, T b) {
  T r = fmod(a, b);
  if (r == 0) return copysign(T(0), b);
  return (r < 0) != (b < 0) ? r + b : r;
}
"""),
    "p_floordiv_float": (("T",), """\
T p_floordiv_float(T a, T b) {
  if (b == 0) return a / b;
  T r = fmod(a, b);
  T q = (a - r) / b;
  if (r != 0 && (r < 0) != (b < 0)) q -= T(1);
  if (q == 0) return copysign(T(0), a / b);
  T f = floor(q);
  return q - f > T(0.5) ? f + T(1) : f;
}
"""),
    "p_add": (("T",), """\
T p_add(T a, T b) { return T((unsigned long long)a + (unsigned long long)b); }
"""),
    "p_sub": (("T",), """\
T p_sub(T a, T b) { return T((unsigned long long)a - (unsigned long long)b); }
"""),
    "p_mul": (("T",), """\
T p_mul(T a, T b) { return T((unsigned long long)a * (unsigned long long)b); }
"""),
    "p_power": (("T",), """\
T p_power(T a, T b) {
  if (b < 0) return 0;
  unsigned long long r = 1, x = (unsigned long long)a;
  for (unsigned long long n = (unsigned long long)b; n; n >>= 1, x *= x)
    if (n & 1) r *= x;
  return T(r);
}
"""),
    "p_shl": (("T",), """\
T p_shl(T a, T b) {
  unsigned long long n = (unsigned long long)b;
  return n < 8 * sizeof(T) ? T((unsigned long long)a << n) : T(0);
}
"""),
    "p_shr": (("T",), """\
T p_shr(T a, T b) {
  unsigned long long n = (unsigned long long)b, most = 8 * sizeof(T);
  if (T(-1) < T(0)) return n < most ? T(a >> n) : T(a < 0 ? -1 : 0);
  return n < most ? T(a >> n) : T(0);
}
"""),
    "p_cast": (("T", "F"), """\
T p_cast(F a, F low, F high, T least, T greatest) {
  if (a != a) return 0;
  return a <= low ? least : a >= high ? greatest : T(a);
}
"""),
    "p_sign": (("T",), """\
T p_sign(T a) { return a > T(0) ? T(1) : a < T(0) ? T(-1) : a == T(0) ? T(0) : a; }
"""),
    "p_abs": (("T",), """\
T p_abs(T a) { return a < 0 ? T(0ULL - (unsigned long long)a) : a; }
"""),
}  # fmt: skip
"""The types of a helper, and its text: it has the name it is found by."""


def extreme(word: str, of: str) -> str:
    """IEEE 754's minimum or maximum of two floats of a type, by comparisons."""
    better = "<" if word == "min" else ">"
    keeps = "signbit(a)" if word == "min" else "!signbit(a)"
    name = f"p_{word}_{'f64' if of == 'double' else 'f32'}"
    return f"""\
{of} {name}({of} a, {of} b) {{
  if (a != a || b != b) return a + b;
  if (a == b) return {keeps} ? a : b;
  return a {better} b ? a : b;
}}
"""


def template(name: str, head: str) -> str:
    """A helper as a template of its types."""
    types, text = HELPERS[name]
    return f"template <{', '.join(f'typename {each}' for each in types)}>\n{head} {text}"


def instance(name: str, called: str, types: Mapping[str, str]) -> str:
    """A helper for some types, under another name."""
    _, text = HELPERS[name]
    text = re.sub(rf"\b{name}\b", called, text)
    for variable, kind in types.items():
        text = re.sub(rf"\b{variable}\(", f"({kind})(", text)
        text = re.sub(rf"\b{variable}\b", kind, text)
    return text
