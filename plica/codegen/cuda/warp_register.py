"""Registers of a warp: memory whose first axis is the number of a thread, and who reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import Final

from plica.analysis.statement import refused
from plica.codegen.cuda.address import valued
from plica.codegen.emit.expression import Expressions
from plica.core import Term, map_bottom_up
from plica.ir.loop.intrinsic import find_intrinsic
from plica.ir.loop.memory_scope import WARP, scope
from plica.ir.loop.scalar import Buffer, Load, Scalar, ScalarVar
from plica.ir.loop.statement import Alloc, For, Invoke, Region, Stmt, Store, statements
from plica.ir.type import known

_HEAD: Final = "__device__ __forceinline__"

LANE: Final = "threadIdx.x"  # the threads of a warp
BLOCK: Final = 1024  # threads of a block, at most
QUADS: Final = 4  # threads of a warp that share a row
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

RESTORED: Final = {
    **{
        f"p_{word}_pair_f16": f"""\
{_HEAD} unsigned int p_{word}_pair_f16(unsigned int a, unsigned int b) {{
  unsigned int r;
  asm("{word}.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}}
"""
        for word in ("sub", "mul")
    },
    # Numbers become the low bits of floats that start as 1024 or 2 ** 23: integers, so exact. Those
    # in higher bits of a byte stay in place, with a correspondingly smaller power of two.
    "p_restored_f16": f"""\
template <int BITS>
{_HEAD} void p_restored_f16(unsigned short* c, const int* a, const unsigned char* z,
                            const unsigned short* s) {{
  const unsigned int word = a[0], mask = (1u << BITS) - 1, scale = s[0] | (unsigned int)s[0] << 16;
  const unsigned int zero = 0x64006400u + (z[0] | (unsigned int)z[0] << 16);
#pragma unroll
  for (int i = 0; i < 16 / BITS; ++i) {{
    const unsigned int at = BITS * i % 8, one = (25 - at) << 10, kept = mask << at;
    const unsigned int less = 0x6000 | (512 - (1024 >> at)) << 1;
    const unsigned int v = (word >> (BITS * i - at) & (kept | kept << 16)) | one | one << 16;
    const unsigned int none = at ? p_sub_pair_f16(zero, less | less << 16) : zero;
    ((unsigned int*)c)[i] = p_mul_pair_f16(p_sub_pair_f16(v, none), scale);
  }}
}}
""",
    "p_fma_pair_bf16": f"""\
{_HEAD} unsigned int p_fma_pair_bf16(unsigned int a, unsigned int b, unsigned int c) {{
  unsigned int r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}}
""",
    # The same of 128, whose floats have room for 7 bits; a difference of such numbers is exact.
    "p_restored_bf16": f"""\
template <int BITS>
{_HEAD} void p_restored_bf16(unsigned short* c, const int* a, const unsigned char* z,
                             const unsigned short* s) {{
  const int PAIRS = 16 / BITS;
  const unsigned int word = a[0], mask = (1u << BITS) - 1;
  if (BITS < 8) {{
    const unsigned int scale = s[0] | (unsigned int)s[0] << 16, one = 0x3f803f80u;
    const unsigned int zero = p_pack_pair_bf16(-(float)z[0], -(float)z[0]);
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) {{
      unsigned int v = (word >> (BITS * i) & (mask | mask << 16)) | 0x43004300u;
      v = p_fma_pair_bf16(p_fma_pair_bf16(v, one, 0xc300c300u), one, zero);
      ((unsigned int*)c)[i] = p_fma_pair_bf16(v, scale, 0x80008000u);
    }}
    return;
  }}
  const float scale = __int_as_float((int)((unsigned int)s[0] << 16)), zero = 8388608.0f + z[0];
#pragma unroll
  for (int i = 0; i < PAIRS; ++i) {{
    const float one = __int_as_float((int)((word >> (BITS * i) & mask) | 0x4b000000u));
    const float two = __int_as_float((int)((word >> (BITS * i + 16) & mask) | 0x4b000000u));
    ((unsigned int*)c)[i] = p_pack_pair_bf16((one - zero) * scale, (two - zero) * scale);
  }}
}}
""",
}
"""Numbers of few bits, several of a word at once."""

TEXTS: Final = {
    # Four threads of a row exchange their elements by shuffles, in two rounds.
    "p_quads_turned": f"""\
{_HEAD} void p_quads_turned(unsigned int* w) {{
#pragma unroll
  for (int far = 2; far > 0; far /= 2)
#pragma unroll
    for (int n = 0; n < 2; ++n) {{
      const int i = far == 2 ? n : 2 * n;
      const bool upper = threadIdx.x & far;
      const unsigned int got = __shfl_xor_sync(0xffffffffu, upper ? w[i] : w[i + far], far);
      if (upper) w[i] = got;
      else w[i + far] = got;
    }}
}}
""",
    **{
        f"p_quad_mma_{kind}": f"""\
template <int HIGH>
{_HEAD} void p_quad_mma_{kind}(float* c, const unsigned short* a, const unsigned short* b) {{
  const unsigned int* rows = (const unsigned int*)a;
  const unsigned int* columns = (const unsigned int*)b;
#pragma unroll
  for (int e = 0; e < HIGH / 2; e += 2) {{
    const unsigned int fa[4] = {{rows[e], rows[HIGH / 2 + e], rows[e + 1], rows[HIGH / 2 + e + 1]}};
    const unsigned int fb[2] = {{columns[e], columns[e + 1]}};
    p_multiply_squares_{kind}(c[0], c[1], c[2], c[3], fa, fb);
  }}
}}
"""
        for kind in KINDS
    },
    **{
        f"p_quad_mix_{kind}": f"""\
template <int HIGH>
{_HEAD} void p_quad_mix_{kind}(float* c, const unsigned short* a, const unsigned short* b) {{
  const unsigned int* rows = (const unsigned int*)a;
  const unsigned int* columns = (const unsigned int*)b;
#pragma unroll
  for (int i = 0; i < 4; ++i) {{
    const unsigned int one = rows[i], two = rows[4 + i], three = rows[8 + i], four = rows[12 + i];
    const unsigned int fa[4] = {{(one & 0xffffu) | two << 16, one >> 16 | (two & 0xffff0000u),
                                (three & 0xffffu) | four << 16,
                                three >> 16 | (four & 0xffff0000u)}};
    float* sums = c + 4 * i;
    p_multiply_squares_{kind}(sums[0], sums[1], sums[2], sums[3], fa, columns);
  }}
}}
"""
        for kind in KINDS
    },
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
    # A thread has two neighbouring terms of its rows: these are the terms t and t + 4 of tensor
    # cores, so that those of `b` lie in this order.
    "p_warp_mma_f32": f"""\
template <int HIGH, int WIDE, int AI, int AHALF, int AH, int BJ, int BK>
{_HEAD} void p_warp_mma_f32(float* c, const float* a, const float* b) {{
  const int at = threadIdx.x % 4 * 8 + threadIdx.x / 4;
  unsigned int fa[HIGH][4], fb[WIDE][2];
#pragma unroll
  for (int i = 0; i < HIGH; ++i)
#pragma unroll
    for (int r = 0; r < 4; ++r) fa[i][r] = __float_as_uint(a[i * AI + r % 2 * AHALF + r / 2 * AH]);
#pragma unroll
  for (int j = 0; j < WIDE; ++j)
#pragma unroll
    for (int k = 0; k < 2; ++k) fb[j][k] = __float_as_uint(b[j * BJ + k * BK + at]);
  p_multiply_parts<HIGH, WIDE, false>(c, fa, fb);
}}
""",
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
      a[n] = p_power(fmaf(a[n], k[r], -b[r]));
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
    """Two values combined by an operation; NaN is propagated for floats."""
    text = _WORDS[word].format(left, right)
    return f"p_{word}_{dtype}{text[3:]}" if word in ("max", "min") and dtype[0] == "f" else text


LANES: Final = {
    f"p_lanes_{word}_{dtype}": f"""\
template <int LANES, int COUNT>
{_HEAD} void p_lanes_{word}_{dtype}({kind}* c, const {kind}* a) {{
  const unsigned int all = LANES == 32 ? 0xffffffffu : (1u << LANES % 32) - 1;
  const unsigned int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned int mask = all << thread % 32 / LANES * LANES;
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
"""Shuffles: each round combines a thread's value with that of a lane at half the distance."""


def in_registers(nest: Stmt) -> Stmt:
    """A launch with memory of warps as registers of each thread; itself where it has none."""
    held = [
        statement.buffer
        for statement in statements(nest)
        if isinstance(statement, Alloc) and scope(statement.buffer.scope).reach == "warp"
    ]
    if not held:
        return nest
    loops = [statement for statement in statements(nest) if isinstance(statement, For)]
    threads = {loop.var: loop for loop in loops if loop.kind.startswith("threadIdx")}
    lanes = {thread.var for thread in threads.values() if thread.kind == LANE}
    of_columns = _of_columns(nest)
    own = {each: Buffer(each.name, each.shape[1:], each.dtype, "local") for each in held}
    checked: dict[tuple[Scalar, tuple[int, ...]], bool] = {}

    def mine(of: Buffer, place: Scalar, number: Callable[[int], int]) -> None:
        if any(_numbers(place, lane) == [number(each) for each in range(WARP)] for lane in lanes):
            return
        key = place, tuple([number(each) for each in range(WARP)])
        if key not in checked:
            checked[key] = _is_number_of_all(place, [*threads.values()], number)
        if checked[key]:
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
                if node in of_columns:
                    mine(buffer, starts[0], lambda n: n % QUADS * many)
                elif known(starts[0]) != 0 or many != known(buffer.shape[0]):
                    mine(buffer, starts[0], lambda n: n // many * many)
                return Region(own[buffer], starts[1:], extents[1:])
            case Alloc(buffer, body) if buffer in own:
                return Alloc(own[buffer], body)
            case _:
                return node

    return map_bottom_up(change, nest)


def _of_columns(nest: Stmt) -> frozenset[Region]:
    """What intrinsics read of the threads of their columns, not of those of their rows."""
    regions: set[Region] = set()
    for statement in statements(nest):
        told = find_intrinsic(statement.name) if isinstance(statement, Invoke) else None
        if isinstance(statement, Invoke) and told is not None and "columns" in dict(told.hints):
            operand = statement.operands[int(str(dict(told.hints)["columns"]))]
            assert isinstance(operand, Region)
            regions.add(operand)
    return frozenset(regions)


def _is_number_of_all(place: Scalar, threads: Sequence[For], number: Callable[[int], int]) -> bool:
    """Whether a place is that of a thread in its warp where a block has threads along all axes."""
    sizes = {thread.kind: known(thread.extent) or 0 for thread in threads}
    count = prod(sizes.values())
    if any(known(loop.extent) != sizes[loop.kind] for loop in threads) or not 0 < count <= BLOCK:
        return False
    found = [place]
    for kind in sorted(sizes, reverse=True):  # the last axis first: the first changes fastest
        own = [thread.var for thread in threads if thread.kind == kind]
        found = [reduce(lambda of, var, at=at: valued(of, var, at), own, each)  # type: ignore[misc]  # a bound number
                 for each in found for at in range(sizes[kind])]  # fmt: skip
    return [known(scalar) for scalar in found] == [number(at % WARP) for at in range(count)]


def _numbers(place: Scalar, lane: ScalarVar) -> list[int | None]:
    return [known(valued(place, lane, each)) for each in range(WARP)]


def rows(call: Invoke, values: Expressions, word: str, lanes: int) -> str:
    """The call that joins what four threads hold of each row, or what some lanes hold."""
    *others, a, c = [operand for operand in call.operands if isinstance(operand, Region)]
    count, whole = (_count(region) for region in (c, a))
    numbers = [count] if word == "row_sum" else [count, whole // count]
    dtype = c.buffer.dtype
    if word.endswith(("max", "min")) and dtype.is_float:
        values.help(f"p_{word[-3:]}_{dtype.name}")
    if lanes:
        numbers, word = [lanes, count], f"{word}_{dtype.name}"
    function = values.help(f"p_{word}")
    which = ", ".join(map(str, numbers))
    given = ", ".join([values.buffers[region.buffer] for region in (c, a, *others)])
    return f"{function}<{which}>({given});"


def restored(call: Invoke, values: Expressions, bits: int) -> str:
    """The call that unpacks the numbers of a word."""
    a, z, s, c = [operand for operand in call.operands if isinstance(operand, Region)]
    function = values.help(f"p_restored_{c.buffer.dtype.name}")
    given = ", ".join([f"&{values.place(region.buffer, region.starts)}" for region in (c, a, z, s)])
    return f"{function}<{bits}>({given});"


def quads(call: Invoke, values: Expressions, word: str) -> str:
    """The call that multiplies what threads of rows hold by what those of columns do."""
    a, b, c = [operand for operand in call.operands if isinstance(operand, Region)]
    if not all(map(_is_together, (a, b, c))) or scope(c.buffer.scope).reach != "thread":
        raise refused("Terms of a quad are not whole.", call.name, "all of them", "a part")
    count = prod(known(extent) or 0 for extent in b.extents)
    function = values.help(f"p_{word}_{a.buffer.dtype.name}")
    given = ", ".join([f"&{values.place(region.buffer, region.starts)}" for region in (c, a, b)])
    return f"{function}<{count}>({given});"


def _is_together(of: Region) -> bool:
    """Whether the elements of a region are neighbours: whole axes behind the first that is cut."""
    sizes = [*zip(of.extents, of.buffer.shape, strict=True)]
    while sizes and known(sizes[-1][0]) == known(sizes[-1][1]):
        sizes.pop()
    return all(known(extent) == 1 for extent, _ in sizes[:-1])


def _count(of: Region) -> int:
    """How many elements a region has, which is all of its buffer."""
    found = 1
    for extent, size in zip(of.extents, of.buffer.shape, strict=True):
        if known(extent) != known(size):
            raise refused("Rows of a warp are not whole.", of.buffer.name, "all of them", "a part")
        found *= known(size) or 0
    return found
