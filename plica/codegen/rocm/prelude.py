"""Prelude of HIP: what kernels for threads call, in words that AMD's compiler knows.

Kernels are those of CUDA C++; the functions that are assembly of NVIDIA's there are plain C++ here.

>>> print(helpers({"p_copies_done"}), end="")
template <int N>
__device__ __forceinline__ void p_copies_done() {}
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from plica.codegen.cuda.code import KernelCode
from plica.codegen.cuda.intrinsic_text import ANYWHERE
from plica.codegen.cuda.warp_register import LANES, TEXTS
from plica.codegen.emit.coded import Words, conversions
from plica.codegen.emit.prelude import HELPERS, extreme, template, with_called
from plica.core import CompilerBug
from plica.ir.type import DTYPES

INCLUDE: Final = "#include <hip/hip_runtime.h>\n"

ROUNDED: Final = "#pragma clang fp contract(off)\n"  # products are rounded by themselves
_HEAD: Final = "__device__ __forceinline__"

_PRODUCTS: Final = "".join([
    f"""\
{_HEAD} {kind} p_product_{kind}({kind} a, {kind} b) {{
#pragma clang fp contract(off)
  return a * b;
}}
#define {word} p_product_{kind}
"""
    for kind, word in (("float", "__fmul_rn"), ("double", "__dmul_rn"))
])  # fmt: skip
"""HIP's own functions of these names may be fused with a sum."""

_TEXTS: Final[dict[str, str]] = {
    **{
        f"p_{word}_{name}": f"{_HEAD} {extreme(word, kind)}"
        for word in ("min", "max")
        for name, kind in (("f32", "float"), ("f64", "double"))
    },
    **{name: template(name, _HEAD) for name in HELPERS},
    **{name: text for of in DTYPES if of.is_coded
       for name, text in conversions(of, Words(_HEAD)).items()},
    "p_copy_async": f"""\
{_HEAD} void p_copy_async(void* to, const void* from) {{ *(uint4*)to = *(const uint4*)from; }}
""",
    "p_copy_async_or_zero": f"""\
{_HEAD} void p_copy_async_or_zero(void* to, const void* from, bool inside) {{
  *(uint4*)to = inside ? *(const uint4*)from : uint4{{0, 0, 0, 0}};
}}
""",
    "p_from_anywhere": ANYWHERE,
    "p_copies_begun": f"{_HEAD} void p_copies_begun() {{}}\n",
    "p_copies_done": f"template <int N>\n{_HEAD} void p_copies_done() {{}}\n",
    **{name: text.replace("__shfl_xor_sync(mask, b, away)", "__shfl_xor(b, away, 32)")
       for name, text in LANES.items()},
    "p_quads_turned": TEXTS["p_quads_turned"]
    .replace("__shfl_xor_sync(0xffffffffu, ", "__shfl_xor(").replace(", far);", ", far, 32);"),
}  # fmt: skip


def helpers(used: Iterable[str]) -> str:
    """The functions of these names, and what they call, in a fixed order."""
    if lacking := set(used).difference(_TEXTS):
        raise CompilerBug(f"HIP has no words for {', '.join(sorted(lacking))}.")
    return with_called(_TEXTS, used)


def joined(of: Sequence[KernelCode], fused: bool) -> str:
    """The text of several kernels, with what they call once; `fused` lets sums take products."""
    used = frozenset[str]().union(*[kernel_code.helpers for kernel_code in of])
    head = INCLUDE if fused else INCLUDE + ROUNDED
    return "\n".join([head + _PRODUCTS + helpers(used), *[code.functions for code in of]])
