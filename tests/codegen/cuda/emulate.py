"""CUDA C++ on a processor: a test's stand-in for a GPU.

The text is compiled by the C++ compiler of the machine, with the words of CUDA defined for it: each
thread of a block is a thread of the system, a barrier is a barrier, blocks run one after another.
What is inline assembly for a GPU is written out again in C++.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from plica.codegen.cuda.fold import KernelCode
from plica.runtime.cuda.tile import TileMap

COMPILER = shutil.which("c++") or shutil.which("g++")

_WORDS = """
#include <barrier>
#include <cmath>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>
#include <algorithm>
using std::min; using std::max; using std::signbit;
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __align__(n) alignas(n)
#define __shared__
#define __restrict__
struct uint2 { unsigned int x, y; };
struct alignas(16) uint4 { unsigned int x, y, z, w; };
struct dim { int x, y, z; };
thread_local dim blockIdx, threadIdx;
static std::barrier<>* waiting;
static void __syncthreads() { waiting->arrive_and_wait(); }
static float __int_as_float(unsigned int a) { float r; std::memcpy(&r, &a, 4); return r; }
static float __fmul_rn(float a, float b) { return a * b; }
static double __dmul_rn(double a, double b) { return a * b; }
static double __longlong_as_double(long long a) { double r; std::memcpy(&r, &a, 8); return r; }
static unsigned int __float_as_uint(float a) { unsigned int r; std::memcpy(&r, &a, 4); return r; }
static float __uint_as_float(unsigned int a) { return __int_as_float(a); }
static int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
alignas(1024) unsigned char shared_memory[1 << 18];
static unsigned long long __cvta_generic_to_shared(const void* at) {
  return (const unsigned char*)at - shared_memory;
}
static float from_half(unsigned short a) { _Float16 r; std::memcpy(&r, &a, 2); return (float)r; }
static unsigned short to_half(float a) {
  _Float16 h = (_Float16)a; unsigned short r; std::memcpy(&r, &h, 2); return r;
}
alignas(16) static const unsigned char nothing[16] = {};
struct Copy { void* to; const void* from; };
thread_local std::vector<Copy> begun;
thread_local std::vector<std::vector<Copy>> under_way;
static void copy_first() {
  for (Copy each : under_way.front()) std::memcpy(each.to, each.from, 16);
  under_way.erase(under_way.begin());
}
static float from_bfloat(unsigned short a) { return __int_as_float((unsigned int)a << 16); }
static unsigned short to_bfloat(float a) {  // to the nearest, to even where there are two
  unsigned int r; std::memcpy(&r, &a, 4);
  return a != a ? 0x7fff : (r + 0x7fff + (r >> 16 & 1)) >> 16;
}
// Products under way: what was begun last, and groups of it, done when they are waited for.
thread_local std::vector<std::function<void()>> multiplied;
thread_local std::vector<std::vector<std::function<void()>>> multiplying;
// Tiles under way: each is fetched when the thread that began it waits: nobody has it sooner.
struct Fetch { void* to; const unsigned long long* map; unsigned long long* counted; int at[5]; };
thread_local std::vector<Fetch> fetching;
static void fetch(const Fetch& of) {
  int rank = of.map[1], size = of.map[2], count = 1;
  for (int n = 0; n < rank; ++n) count *= of.map[3 + n];
  for (int e = 0; e < count; ++e) {
    long long from = 0;
    bool inside = true;
    for (int n = 0, rest = e; n < rank; ++n) {
      long long place = of.at[n] + rest % (int)of.map[3 + n];
      inside = inside && place < (long long)of.map[13 + n];
      from += place * (long long)of.map[8 + n];
      rest /= (int)of.map[3 + n];
    }
    long long to = e * size, row = to / 128 % 8;
    if (inside) std::memcpy((char*)of.to + (to ^ row << 4), (const char*)of.map[0] + from, size);
    else std::memset((char*)of.to + (to ^ row << 4), 0, size);
  }
}
struct Warp { std::barrier<> all{32}; const unsigned short* from[32]; unsigned int held[32][6]; };
static Warp* warps;
static float __shfl_xor_sync(unsigned int, float value, int mask) {
  Warp& warp = warps[threadIdx.y];
  std::memcpy(&warp.held[threadIdx.x][0], &value, 4);
  warp.all.arrive_and_wait();
  std::memcpy(&value, &warp.held[threadIdx.x ^ mask][0], 4);
  warp.all.arrive_and_wait();
  return value;
}
template <typename A> static A given(void* of) {
  if constexpr (std::is_reference_v<A>) return *(std::remove_reference_t<A>*)of;
  else return (A)of;
}
"""

# What the threads of a warp hold of squares of 8 x 8 elements is as the PTX manual has it.
_WARP = """
template <bool T> void p_load_squares(unsigned int* r, const unsigned short* from) {
  Warp& warp = warps[threadIdx.y];
  int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  warp.from[lane] = from;
  warp.all.arrive_and_wait();
  for (int n = 0; n < 4; ++n) {
    const unsigned short* const* row = warp.from + 8 * n;
    unsigned int low = T ? row[2 * t][g] : row[g][2 * t];
    unsigned int high = T ? row[2 * t + 1][g] : row[g][2 * t + 1];
    r[n] = low | high << 16;
  }
  warp.all.arrive_and_wait();
}
template <float (*F)(unsigned short)>
void multiply_squares(float& w, float& x, float& y, float& z, const unsigned int* a,
                        const unsigned int* b) {
  Warp& warp = warps[threadIdx.y];
  int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  for (int n = 0; n < 4; ++n) warp.held[lane][n] = a[n];
  for (int n = 0; n < 2; ++n) warp.held[lane][4 + n] = b[n];
  warp.all.arrive_and_wait();
  float* result[2][2] = {{&w, &x}, {&y, &z}};
  for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) for (int k = 0; k < 16; ++k) {
    unsigned int left = warp.held[g * 4 + k % 8 / 2][i + k / 8 * 2];
    unsigned int right = warp.held[(2 * t + j) * 4 + k % 8 / 2][4 + k / 8];
    int odd = k % 2 * 16;
    *result[i][j] += F(left >> odd & 0xffff) * F(right >> odd & 0xffff);
  }
  warp.all.arrive_and_wait();
}
static auto p_multiply_squares_f16 = multiply_squares<from_half>;
static auto p_multiply_squares_bf16 = multiply_squares<from_bfloat>;
"""

# Where descriptions of matrices say that an element is: rows of 128 bytes are swizzled; neighbours
# are terms, or with `T` rows, 64 of which are then as far from the next 64 as the first step says.
_GROUP = """
template <bool T> static float held(unsigned long long of, int row, int term, auto convert) {
  long long far = (of >> 16 & 0x3fff) << 4, near = (of >> 32 & 0x3fff) << 4;
  long long at = (of & 0x3fff) << 4;
  if (T) at += row / 64 * far + term / 8 * near + term % 8 * 128 + row % 64 * 2;
  else at += row / 8 * near + row % 8 * 128 + term * 2;
  at ^= (at >> 7 & 7) << 4;
  return convert(*(unsigned short*)(shared_memory + at));
}
template <int AT, int BT, float (*F)(unsigned short)>
void multiply(float* c, unsigned long long a, unsigned long long b, int width) {
  int warp = threadIdx.y % 4, g = threadIdx.x / 4, t = threadIdx.x % 4;
  multiplied.push_back([=] {
    for (int half = 0; half < 2; ++half) for (int j = 0; j < width / 8; ++j)
      for (int pair = 0; pair < 2; ++pair) for (int k = 0; k < 16; ++k)
        c[half * width / 4 + j * 2 + pair] +=
            held<AT>(a, 16 * warp + 8 * half + g, k, F) * held<BT>(b, 8 * j + 2 * t + pair, k, F);
  });
}
"""

_BODIES = {
    "p_copy_async": "begun.push_back({to, from});",
    "p_copy_async_or_zero": "begun.push_back({to, inside ? from : (const void*)nothing});",
    "p_copies_begun": "under_way.push_back(begun); begun.clear();",
    "p_copies_done": "while (under_way.size() > N) copy_first();",
    "p_tiles_ready": """
  if (threadIdx.x + threadIdx.y == 0) std::memset(counted, 0, 8 * many);
  __syncthreads();
""",
    "p_tile_expected": "",
    "p_tile_copy_2": "fetching.push_back({to, map->words, counted, {a, b}});",
    "p_tile_copy_3": "fetching.push_back({to, map->words, counted, {a, b, c}});",
    "p_tile_copy_4": "fetching.push_back({to, map->words, counted, {a, b, c, d}});",
    "p_tile_awaited": """
  if (!fetching.empty() && fetching.front().counted == counted) {
    fetch(fetching.front());
    fetching.erase(fetching.begin());
    std::atomic_ref<unsigned long long>(*counted)++;
  }
  std::atomic_ref<unsigned long long> done(*counted);
  while (done.load() % 2 == turn) std::this_thread::yield();
""",
    "p_products_done": """
  while (multiplying.size() > N) {
    for (auto& each : multiplying.front()) each();
    multiplying.erase(multiplying.begin());
  }
""",
    "p_products_kept": "",
    "p_unpack_f16": "return from_half(a);",
    "p_pack_f16": "return to_half(a);",
    "p_pack_bf16": "return to_bfloat(a);",
    "p_power": "return std::exp2(a);",
    "p_pack_pair_f16": "return to_half(a) | (unsigned int)to_half(b) << 16;",
    "p_pack_pair_bf16": "return to_bfloat(a) | (unsigned int)to_bfloat(b) << 16;",
    **{
        f"p_multiply_{kind}_{width}": f"multiply<AT, BT, from_{word}>(c, a, b, {width});"
        for kind, word in (("f16", "half"), ("bf16", "bfloat"))
        for width in (64, 128, 192, 256)
    },
}
"""What is inline assembly, in C++."""

_EXTREME = {
    "min": "a != a || b != b ? a + b : a == b ? (signbit(a) ? a : b) : a < b ? a : b",
    "max": "a != a || b != b ? a + b : a == b ? (signbit(a) ? b : a) : a > b ? a : b",
}


def run(code: KernelCode, arrays: list[np.ndarray[Any, Any]]) -> None:
    """Run all launches of a kernel over its buffers, in place."""
    functions = loaded(code.text, code.launches)
    scratch = [np.full(size, 0xFF, np.uint8) for size in code.scratch]
    addresses = [each.ctypes.data for each in (*arrays, *scratch)]
    for each in code.launches:
        maps = [_map(one, addresses[one.argument]) for one in each.maps]
        given = [*addresses, *[ctypes.addressof(one) for one in maps]]
        function = getattr(functions, f"run_{each.function}")
        function((ctypes.c_void_p * len(given))(*given))


def loaded(text: str, launches: Iterable[Any]) -> ctypes.CDLL:  # Any: of code, or of a program
    """Functions `run_NAME` over the addresses of what launches take."""
    assert COMPILER is not None
    text = re.sub(r"extern __shared__ __align__.*?;", "", text)
    text = text.replace("#pragma unroll", "")
    for word, body in _EXTREME.items():
        pattern = rf"(float p_{word}_f32\(float a, float b\) {{)[^}}]*}}"
        text = re.sub(pattern, rf"\1 return {body}; }}", text)
    for word, body in _BODIES.items():
        text = re.sub(
            rf"( {word}\([^)]*\) {{\n).*?\n}}\n", rf"\1{body}\n}}\n", text, flags=re.DOTALL
        )
    cut = text.find("template <bool T>\n__device__ __forceinline__ void p_load_squares")
    if cut >= 0:
        text = text[:cut] + _WARP + text[text.index("template <int HIGH", cut) :]
    text = re.sub(r'\n  asm volatile\("wgmma.fence[^;]*;" ::: "memory"\);', "", text)
    # Each invocation is a group of products: what comes after it is counted apart.
    begun = "multiplying.push_back(multiplied); multiplied.clear();"
    text = re.sub(r'asm volatile\("wgmma.commit[^;]*;" ::: "memory"\);', begun, text)
    text = text.replace("const __grid_constant__ p_tile ", "const p_tile& ")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "k.cpp", Path(folder) / "k.so"
        source.write_text(_WORDS + _GROUP + text + "\n".join(map(_runner, launches)))
        flags = ["-std=c++20", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-pthread"]
        subprocess.run([COMPILER, *flags, "-o", library, source], check=True)
        return ctypes.CDLL(str(library))


def _map(of: TileMap, address: int) -> Any:  # Any: memory that holds 18 words
    """Where a tensor is, how many axes, bytes of an element, extents of a tile, steps, sizes."""
    more = [0] * (5 - len(of.box))
    words = [address, len(of.box), of.element, *of.box, *more]
    return (ctypes.c_uint64 * 18)(*words, of.element, *of.strides, *more, *of.sizes)


def _runner(launch: Any) -> str:  # Any: a launch of the code
    (gx, gy, gz), (bx, by, bz) = launch.grid, launch.block
    return f"""
template <typename... A> static void call_{launch.function}(void (*f)(A...), void* const* p) {{
  [&]<std::size_t... N>(std::index_sequence<N...>) {{ f(given<A>(p[N])...); }}(
      std::index_sequence_for<A...>());
}}
extern "C" void run_{launch.function}(void** p) {{
  for (int z = 0; z < {gz}; ++z) for (int y = 0; y < {gy}; ++y) for (int x = 0; x < {gx}; ++x) {{
    std::barrier<> all({bx * by * bz});
    waiting = &all;
    std::vector<Warp> groups({by * bz});
    warps = groups.data();
    std::vector<std::thread> threads;
    for (int c = 0; c < {bz}; ++c) for (int b = 0; b < {by}; ++b) for (int a = 0; a < {bx}; ++a)
      threads.emplace_back([=] {{
        blockIdx = {{x, y, z}};
        threadIdx = {{a, b, c}};
        call_{launch.function}(&::{launch.function}, p);
      }});
    for (auto& each : threads) each.join();
  }}
}}
"""
