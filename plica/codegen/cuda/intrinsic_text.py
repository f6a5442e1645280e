"""CUDA C++ functions behind intrinsics: matrix tiles and asynchronous copies.

>>> print(text({"p_copies_begun"}))
__device__ __forceinline__ void p_copies_begun() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
<BLANKLINE>
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from plica.codegen.cuda import tma as bulk, warp_register as register, wgmma as group
from plica.codegen.emit.prelude import with_called

_HEAD: Final = "__device__ __forceinline__"

_SQUARES: Final = (
    *[(kind, "float", "unsigned short", "unsigned short", 8, "") for kind in group.KINDS],
    *[
        (f"{left}_{right}", "int", one, two, 16, "(const unsigned short*)")
        for left, one in group.CHARS.items()
        for right, two in group.CHARS.items()
    ],
)
"""Warp products: their names, C++ types of sums and operands, and contiguous terms."""

# Note [3xTF32]
# Tensor cores multiply TF32: the first 11 bits of an f32 significand.  Each operand is split into a
# head of 11 bits and a tail of 13, of which the first 11 are kept; a product is the sum of three,
# without that of both tails, with a relative error of 2 ** -20.  Tensor cores also truncate sums
# instead of rounding them, an error of 3e-5 after thousands of terms: so eight terms are summed
# there and the result is added as f32, unless there are few terms.  The tail of an infinite number
# is nan, and so is the sum.


def _loaded(  # noqa: PLR0917  # a row of the table of products
    kind: str, sum_: str, a: str, b: str, e: int, cast: str
) -> str:
    """The beginning of a product of squares: all that a thread has of both sides."""
    return f"""\
template <int HIGH, int WIDE, bool AT, bool BT, int AI, int AHALF, int AK, int BJ, int BK>
{_HEAD} void p_mma_{kind}({sum_}* c, const {a}* a, const {b}* b) {{
  const int lane = threadIdx.x, row = lane % 8 * {e}, second = lane / 8 % 2, third = lane / 16;
  unsigned int fa[HIGH][4], fb[WIDE][2];
#pragma unroll
  for (int i = 0; i < HIGH; ++i)
    p_load_squares<AT>(fa[i], {cast}(a + (i * AI + second * AHALF + third * AK + row)));
#pragma unroll
  for (int j = 0; j < WIDE; j += 2)
    p_load_squares<BT>(fb[j], {cast}(b + (j * BJ + second * BK + third * BJ + row)));"""


ANYWHERE: Final = f"""\
{_HEAD} uint4 p_from_anywhere(const void* from, int bytes) {{
  const int far = (int)((unsigned long long)from % 16);
  const uint4* at = (const uint4*)((const char*)from - far);
  uint4 a = {{0, 0, 0, 0}}, b = {{0, 0, 0, 0}};
  if (bytes > 0) a = at[0];
  if (far + bytes > 16 && far > 0) b = at[1];
  unsigned int w[8] = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
#pragma unroll
  for (int n = 0; n < 6; ++n) w[n] = far & 8 ? w[n + 2] : w[n];
#pragma unroll
  for (int n = 0; n < 5; ++n) w[n] = far & 4 ? w[n + 1] : w[n];
#pragma unroll
  for (int n = 0; n < 4; ++n)
    w[n] = (unsigned int)(((unsigned long long)w[n + 1] << 32 | w[n]) >> far % 4 * 8);
  if (bytes < 16)
#pragma unroll
    for (int n = 0; n < 4; ++n) {{
      const int left = bytes - 4 * n;
      w[n] = left >= 4 ? w[n] : left > 0 ? w[n] & ((1u << 8 * left) - 1) : 0;
    }}
  return uint4{{w[0], w[1], w[2], w[3]}};
}}
"""
"""16 bytes from any place, of which but the first this many are, and zeros after them.

Memory is read in aligned 16-byte words, each of which contains a requested element: so no word is
in an unmapped page or outside of an allocation of whole words (`CudaMemory`)."""

_TEXTS: Final[dict[str, str]] = {
    "p_copy_async": f"""\
{_HEAD} void p_copy_async(void* to, const void* from) {{
  unsigned int at = (unsigned int)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(from) : "memory");
}}
""",
    "p_copy_async_or_zero": f"""\
{_HEAD} void p_copy_async_or_zero(void* to, const void* from, bool inside) {{
  unsigned int at = (unsigned int)__cvta_generic_to_shared(to), size = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(at), "l"(from), "r"(size) : "memory");
}}
""",
    "p_copies_begun": f"""\
{_HEAD} void p_copies_begun() {{
  asm volatile("cp.async.commit_group;" ::: "memory");
}}
""",
    "p_copies_done": f"""\
template <int N>
{_HEAD} void p_copies_done() {{
  asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
}}
""",
    "p_from_anywhere": ANYWHERE,
    **register.PAIRS,
    **register.POWER,
    **register.RESTORED,
    # See Note [3xTF32].
    "p_in_parts": f"""\
template <int N>
{_HEAD} void p_in_parts(unsigned int* a, unsigned int* rest) {{
#pragma unroll
  for (int n = 0; n < N; ++n) {{
    const unsigned int whole = a[n];
    a[n] = whole & 0xffffe000u;
    rest[n] = __float_as_uint(__uint_as_float(whole) - __uint_as_float(a[n]));
  }}
}}
""",
    "p_load_squares": f"""\
template <bool T>
{_HEAD} void p_load_squares(unsigned int* r, const unsigned short* from) {{
  unsigned int at = (unsigned int)__cvta_generic_to_shared(from);
  if (T)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{%0, %1, %2, %3}}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%0, %1, %2, %3}}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}}
""",
    **{
        f"p_multiply_squares_{kind}": f"""\
{_HEAD} void p_multiply_squares_{kind}(float& w, float& x, float& y, float& z,
                                       const unsigned int* a, const unsigned int* b) {{
  asm("mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 "
      "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
      : "+f"(w), "+f"(x), "+f"(y), "+f"(z)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}}
"""
        for kind in group.KINDS
    },
    **{
        f"p_multiply_squares_{left}_{right}": f"""\
{_HEAD} void p_multiply_squares_{left}_{right}(int& w, int& x, int& y, int& z,
                                       const unsigned int* a, const unsigned int* b) {{
  asm("mma.sync.aligned.m16n8k32.row.col.s32.{group.SIGNS[left]}.{group.SIGNS[right]}.s32 "
      "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
      : "+r"(w), "+r"(x), "+r"(y), "+r"(z)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}}
"""
        for left in group.SIGNS
        for right in group.SIGNS
    },
    "p_multiply_squares_tf32": f"""\
{_HEAD} void p_multiply_squares_tf32(float& w, float& x, float& y, float& z,
                                        const unsigned int* a, const unsigned int* b) {{
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
      : "+f"(w), "+f"(x), "+f"(y), "+f"(z)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}}
""",
    # The number of squares in progress at once: each takes three dependent instructions.
    "p_multiply_parts": f"""\
template <int HIGH, int WIDE, bool FEW>
{_HEAD} void p_multiply_parts(float* c, unsigned int (*a)[4], unsigned int (*b)[2]) {{
  const int SOME = HIGH > 2 ? 1 : WIDE < 8 / HIGH ? WIDE : 8 / HIGH;
  unsigned int ra[HIGH][4];
#pragma unroll
  for (int i = 0; i < HIGH; ++i) p_in_parts<4>(a[i], ra[i]);
#pragma unroll
  for (int k = 0; k < WIDE; k += SOME) {{
    unsigned int rb[SOME][2];
    float sums[HIGH][SOME][4];
#pragma unroll
    for (int j = 0; j < SOME && k + j < WIDE; ++j) {{
      p_in_parts<2>(b[k + j], rb[j]);
#pragma unroll
      for (int i = 0; i < HIGH; ++i)
#pragma unroll
        for (int r = 0; r < 4; ++r)
          sums[i][j][r] = FEW ? c[((2 * i + r / 2) * WIDE + k + j) * 2 + r % 2] : 0.0f;
    }}
#pragma unroll
    for (int n = 0; n < 3; ++n)
#pragma unroll
      for (int j = 0; j < SOME && k + j < WIDE; ++j)
#pragma unroll
        for (int i = 0; i < HIGH; ++i) {{
          float* s = sums[i][j];
          p_multiply_squares_tf32(s[0], s[1], s[2], s[3], n == 0 ? ra[i] : a[i],
                                  n == 1 ? rb[j] : b[k + j]);
        }}
#pragma unroll
    for (int j = 0; j < SOME && k + j < WIDE; ++j)
#pragma unroll
      for (int i = 0; i < HIGH; ++i)
#pragma unroll
        for (int r = 0; r < 4; ++r) {{
          float& sum = c[((2 * i + r / 2) * WIDE + k + j) * 2 + r % 2];
          sum = FEW ? sums[i][j][r] : sum + sums[i][j][r];
        }}
  }}
}}
""",
    # Squares of 8 x 8 elements, or 8 x 16 bytes: of `a` rows, rows + 8, then the same of the next
    # terms; of `b` terms, the next ones, then the same of the next 8 columns.
    **{
        f"p_mma_{kind}": f"""\
{_loaded(kind, sum_, a, b, e, cast)}
#pragma unroll
  for (int i = 0; i < HIGH; ++i)
#pragma unroll
    for (int j = 0; j < WIDE; ++j) {{
      {sum_}* upper = c + (2 * i * WIDE + j) * 2;
      {sum_}* lower = upper + 2 * WIDE;
      p_multiply_squares_{kind}(upper[0], upper[1], lower[0], lower[1], fa[i], fb[j]);
    }}
}}
"""
        for kind, sum_, a, b, e, cast in _SQUARES
    },
    "p_mma_f32": f"""\
{_loaded("f32", "float", "float", "float", 4, "(const unsigned short*)")}
  p_multiply_parts<HIGH, WIDE, false>(c, fa, fb);
}}
""",
    "p_mma_few_f32": f"""\
{_loaded("few_f32", "float", "float", "float", 4, "(const unsigned short*)")}
  p_multiply_parts<HIGH, WIDE, true>(c, fa, fb);
}}
""",
}

_ALL: Final = {**_TEXTS, **register.TEXTS, **register.LANES, **bulk.TEXTS, **group.TEXTS}


def text(used: Iterable[str]) -> str:
    """The functions of these names, and what they call, in a fixed order."""
    return with_called(_ALL, used)
