"""Prelude: small device functions that generated code may call, in CUDA C++.

They give operations the meaning `plica.ir.loop.scalar` states where the operator of the language
has
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
from plica.codegen.emit.prelude import HELPERS, extreme, template, with_called
from plica.ir.type import DTYPES, bf16, f16

_HEAD: Final = "__device__ __forceinline__"


def _extreme(word: str) -> str:
    return f"""\
{_HEAD} float p_{word}_f32(float a, float b) {{
  float r;
  asm("{word}.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
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


_OTHERS: Final = tuple(dtype for dtype in DTYPES if dtype.is_coded and dtype not in (f16, bf16))
"""Dtypes that the machine does not convert by itself."""

_TEXTS: Final[dict[str, str]] = {
    "p_min_f32": _extreme("min"),
    "p_max_f32": _extreme("max"),
    "p_min_f64": f"{_HEAD} {extreme('min', 'double')}",
    "p_max_f64": f"{_HEAD} {extreme('max', 'double')}",
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
    **{name: template(name, _HEAD) for name in HELPERS},
    **{name: each for of in _OTHERS for name, each in conversions(of, Words(_HEAD)).items()},
}


def text(used: Iterable[str]) -> str:
    """The functions of these names, and what they call, in a fixed order."""
    return with_called(_TEXTS, used)
