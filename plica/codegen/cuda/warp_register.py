"""Registers of a warp: memory whose first axis is the number of a thread, and who reads it.

A thread writes and reads its own registers by plain statements; those of the other three threads of
a row, or of all threads of a warp or of a part of it, are read by intrinsics
(`plica.schedule.default.gpu.warp_meaning`), which shuffle them or hand them to tensor cores.
Anything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plica.analysis.statement import refused
from plica.codegen.cuda.address import valued
from plica.codegen.emit.expression import Expressions
from plica.core.fold import map_bottom_up
from plica.core.term import Term
from plica.ir.loop.memory_scope import WARP, scope
from plica.ir.loop.scalar import Buffer, Load, Scalar, ScalarVar
from plica.ir.loop.statement import Alloc, For, Invoke, Region, Stmt, Store, statements
from plica.ir.type.dim import known

_HEAD: Final = "__device__ __forceinline__"

LANE: Final = "threadIdx.x"
"""The threads of a warp."""

QUADS: Final = 4
"""Threads of a warp that share a row."""

KINDS: Final = ("f16", "bf16")

PAIRS: Final = {
    f"p_pack_pair_{kind}": f"""\
{_HEAD} unsigned int p_pack_pair_{kind}(float a, float b) {{
  unsigned int r;
  asm("cvt.rn.{kind}x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
  return r;
}}
"""
    for kind in KINDS
}

POWER: Final = {
    "p_power": f"""\
{_HEAD} float p_power(float a) {{
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
  return r;
}}
"""
}

TEXTS: Final = {
    **{
        f"p_warp_mma_{kind}": f"""\
template <int HIGH, int WIDE, int AI, int AHALF, int AH, int BJ, int BK>
{_HEAD} void p_warp_mma_{kind}(float* c, const float* a, const unsigned short* b) {{
  const int lane = threadIdx.x, row = lane % 8 * 8, second = lane / 8 % 2, third = lane / 16;
  unsigned int fa[HIGH][4], fb[WIDE][2];
#pragma unroll
  for (int i = 0; i < HIGH; ++i)
#pragma unroll
    for (int r = 0; r < 4; ++r) {{
      const float* at = a + (i * AI + r % 2 * AHALF + r / 2 * AH);
      fa[i][r] = p_pack_pair_{kind}(at[0], at[1]);
    }}
#pragma unroll
  for (int j = 0; j < WIDE; j += 2)
    p_load_squares<true>(fb[j], b + (j * BJ + second * BK + third * BJ + row));
#pragma unroll
  for (int i = 0; i < HIGH; ++i)
#pragma unroll
    for (int j = 0; j < WIDE; ++j) {{
      float* upper = c + (2 * i * WIDE + j) * 2;
      float* lower = upper + 2 * WIDE;
      p_multiply_squares_{kind}(upper[0], upper[1], lower[0], lower[1], fa[i], fb[j]);
    }}
}}
"""
        for kind in KINDS
    },
    "p_row_max": f"""\
template <int ROWS, int COUNT>
{_HEAD} void p_row_max(float* c, const float* a) {{
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {{
    float most = a[r * COUNT];
#pragma unroll
    for (int n = 1; n < COUNT; ++n) most = p_max_f32(most, a[r * COUNT + n]);
    most = p_max_f32(most, __shfl_xor_sync(0xffffffff, most, 1));
    most = p_max_f32(most, __shfl_xor_sync(0xffffffff, most, 2));
    c[r] = p_max_f32(c[r], most);
  }}
}}
""",
    "p_row_power": f"""\
template <int ROWS, int COUNT>
{_HEAD} void p_row_power(float* c, float* a, const float* b, const float* k) {{
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
#pragma unroll
    for (int n = r * COUNT; n < (r + 1) * COUNT; ++n) {{
      a[n] = p_power(fmaf(a[n], k[0], -b[r]));
      c[r] += a[n];
    }}
}}
""",
    "p_row_sum": f"""\
template <int ROWS>
{_HEAD} void p_row_sum(float* c, const float* a) {{
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {{
    float sum = a[r] + __shfl_xor_sync(0xffffffff, a[r], 1);
    c[r] += sum + __shfl_xor_sync(0xffffffff, sum, 2);
  }}
}}
""",
}

_TYPES: Final = {"f32": "float", "f64": "double", "i32": "int", "i64": "long long"}
_WORDS: Final = {
    "sum": "{0} + {1}",
    "prod": "{0} * {1}",
    "max": "max({0}, {1})",
    "min": "min({0}, {1})",
}


def _joined(word: str, dtype: str, left: str, right: str) -> str:
    """Two values of a dtype joined; a nan among floats stays one."""
    text = _WORDS[word].format(left, right)
    return f"p_{word}_{dtype}{text[3:]}" if word in ("max", "min") and dtype[0] == "f" else text


LANES: Final = {
    f"p_lanes_{word}_{dtype}": f"""\
template <int LANES, int COUNT>
{_HEAD} void p_lanes_{word}_{dtype}({kind}* c, const {kind}* a) {{
  const unsigned int all = LANES == 32 ? 0xffffffffu : (1u << LANES % 32) - 1;
  const unsigned int mask = all << threadIdx.x % 32 / LANES * LANES;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {{
    {kind} b = a[i];
#pragma unroll
    for (int away = LANES / 2; away > 0; away /= 2) {{
      const {kind} other = __shfl_xor_sync(mask, b, away);
      b = {_joined(word, dtype, "b", "other")};
    }}
    c[i] = {_joined(word, dtype, "c[i]", "b")};
  }}
}}
"""
    for dtype, kind in _TYPES.items()
    for word in _WORDS
}
"""Shuffles: each round joins what a thread has with what another, half as far away, has."""

NEEDS: Final = {
    f"p_warp_mma_{kind}": (f"p_pack_pair_{kind}", "p_load_squares", f"p_multiply_squares_{kind}")
    for kind in KINDS
} | {"p_row_power": ("p_power",)}


def in_registers(nest: Stmt) -> Stmt:
    """A launch with memory of warps as registers of each thread; itself where it has none."""
    held = [
        each.buffer
        for each in statements(nest)
        if isinstance(each, Alloc) and scope(each.buffer.scope).reach == "warp"
    ]
    if not held:
        return nest
    lanes = {each.var for each in statements(nest) if isinstance(each, For) and each.kind == LANE}
    own = {each: Buffer(each.name, each.shape[1:], each.dtype, "local") for each in held}

    def mine(of: Buffer, place: Scalar, number: Callable[[int], int]) -> None:
        if any(_numbers(place, lane) == [number(each) for each in range(WARP)] for lane in lanes):
            return
        message = f"Registers of a warp, {of.name}, are used by a thread that does not hold them."
        raise refused(message, of.name, "the number of the thread, or of the first of some",
                      str(place))  # fmt: skip

    def change(node: Term) -> Term:
        match node:
            case Load(buffer, indices) if buffer in own:
                mine(buffer, indices[0], lambda n: n)
                return Load(own[buffer], indices[1:])
            case Store(buffer, indices, value) if buffer in own:
                mine(buffer, indices[0], lambda n: n)
                return Store(own[buffer], indices[1:], value)
            case Region(buffer, starts, extents) if buffer in own:
                many = known(extents[0]) or 1
                if known(starts[0]) != 0 or many != known(buffer.shape[0]):
                    mine(buffer, starts[0], lambda n: n // many * many)
                return Region(own[buffer], starts[1:], extents[1:])
            case Alloc(buffer, body) if buffer in own:
                return Alloc(own[buffer], body)
            case _:
                return node

    return map_bottom_up(change, nest)


def _numbers(place: Scalar, lane: ScalarVar) -> list[int | None]:
    return [known(valued(place, lane, each)) for each in range(WARP)]


def rows(call: Invoke, values: Expressions, word: str, lanes: int) -> str:
    """The call that joins what four threads hold of each row, or what some lanes hold."""
    *others, a, c = [each for each in call.operands if isinstance(each, Region)]
    count, whole = (_count(each) for each in (c, a))
    numbers = [count] if word == "row_sum" else [count, whole // count]
    dtype = c.buffer.dtype
    if word.endswith(("max", "min")) and dtype.is_float:
        values.help(f"p_{word[-3:]}_{dtype.name}")
    if lanes:
        numbers, word = [lanes, count], f"{word}_{dtype.name}"
    function = values.help(f"p_{word}")
    which = ", ".join(map(str, numbers))
    given = ", ".join([values.buffers[each.buffer] for each in (c, a, *others)])
    return f"{function}<{which}>({given});"


def _count(of: Region) -> int:
    """How many elements a region has, which is all of its buffer."""
    found = 1
    for extent, size in zip(of.extents, of.buffer.shape, strict=True):
        if known(extent) != known(size):
            raise refused("Rows of a warp are not whole.", of.buffer.name, "all of them", "a part")
        found *= known(size) or 0
    return found
