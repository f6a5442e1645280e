"""CUDA C++ on a processor: a test's stand-in for a GPU.

The text is compiled by the C++ compiler of the machine, with the words of CUDA defined for it.
Threads of a block are fibres: each runs until it waits for others, then the next does; blocks run
one after another.  What is inline assembly for a GPU is written out again in C++.

A kernel must give the same whatever runs first, so each launch is done twice, and what it wrote is
compared: `FORWARD`, the first thread and block first, copies and products under way done when they
are waited for; `BACKWARD`, the last first, all of that done when it is begun.  What threads share
and what they have for themselves is filled with numbers that are none before it is written.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from plica.codegen.cuda.fold import KernelCode
from plica.runtime.cuda.tile import TileMap

COMPILER = shutil.which("c++") or shutil.which("g++")
FORWARD, BACKWARD = 0, 1
Bytes: TypeAlias = np.ndarray[Any, Any]  # Any: of any shape and dtype

_WORDS = """
#include <cmath>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>
#include <algorithm>
#include <ucontext.h>
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
struct Copy { void* to; const void* from; };
// Tiles under way: each is fetched when the thread that began it waits: nobody has it sooner.
struct Fetch { void* to; const unsigned long long* map; unsigned long long* counted; int at[5]; };
// A thread: where it is, and what it has under way.  Products are in groups.
struct Fibre {
  jmp_buf here; ucontext_t first; bool begun = false, done = true;
  dim thread; int warp, lane;
  std::vector<Copy> copies; std::vector<std::vector<Copy>> under_way;
  std::vector<std::function<void()>> multiplied;
  std::vector<std::vector<std::function<void()>>> multiplying;
  std::vector<Fetch> fetching;
};
static dim blockIdx;
static Fibre* self;
#define threadIdx (self->thread)
static jmp_buf turn_taker;
static long long progress;
static bool eager;
static void pass() { if (!_setjmp(self->here)) _longjmp(turn_taker, 1); }
struct Gate {
  int size, come = 0; long long opened = 0;
  void arrive_and_wait() {
    long long now = opened;
    ++progress;
    if (++come == size) { come = 0; ++opened; return; }
    while (opened == now) pass();
  }
};
static Gate block_gate;
static void __syncthreads() { block_gate.arrive_and_wait(); }
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
static void begin(Copy of) {
  if (eager) std::memcpy(of.to, of.from, 16);
  else self->copies.push_back(of);
}
static void copy_first() {
  for (Copy each : self->under_way.front()) std::memcpy(each.to, each.from, 16);
  self->under_way.erase(self->under_way.begin());
}
static float from_bfloat(unsigned short a) { return __int_as_float((unsigned int)a << 16); }
static unsigned short to_bfloat(float a) {  // to the nearest, to even where there are two
  unsigned int r; std::memcpy(&r, &a, 4);
  return a != a ? 0x7fff : (r + 0x7fff + (r >> 16 & 1)) >> 16;
}
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
  ++*of.counted;
  ++progress;
}
static void begin(const Fetch& of) { if (eager) fetch(of); else self->fetching.push_back(of); }
struct Warp { Gate all; const unsigned short* from[32]; unsigned int held[32][6]; };
static Warp warps[32];
template <typename T> static T __shfl_xor_sync(unsigned int, T value, int mask) {
  Warp& warp = warps[self->warp];
  std::memcpy(&warp.held[self->lane][0], &value, sizeof value);
  warp.all.arrive_and_wait();
  std::memcpy(&value, &warp.held[self->lane ^ mask][0], sizeof value);
  warp.all.arrive_and_wait();
  return value;
}
template <typename A> static A given(void* of) {
  if constexpr (std::is_reference_v<A>) return *(std::remove_reference_t<A>*)of;
  else return (A)of;
}
// Fibres are made once; each does the work of a thread after another.
static std::vector<Fibre*> fibres;
static std::function<void()> work;
static void live() { for (;;) { work(); self->done = true; ++progress; pass(); } }
static Fibre* fibre(int number) {
  while ((int)fibres.size() <= number) {
    Fibre* made = new Fibre;
    getcontext(&made->first);
    made->first.uc_stack.ss_sp = std::malloc(made->first.uc_stack.ss_size = 1 << 17);
    makecontext(&made->first, live, 0);
    fibres.push_back(made);
  }
  return fibres[number];
}
static void resume(Fibre* of) {
  self = of;
  if (_setjmp(turn_taker)) return;
  if (of->begun) _longjmp(of->here, 1);
  of->begun = true;
  setcontext(&of->first);
}
// All threads of a block; what is left over waits for others who do not come.
static int run_block(dim size, bool backward) {
  int count = size.x * size.y * size.z, left = count;
  std::memset(shared_memory, 0xff, sizeof shared_memory);
  block_gate = {count};
  for (int n = 0; n * 32 < count; ++n) warps[n].all = {min(32, count - n * 32)};
  for (int n = 0; n < count; ++n) {
    Fibre& of = *fibre(n);
    of.thread = {n % size.x, n / size.x % size.y, n / size.x / size.y};
    of.warp = n / 32, of.lane = n % 32, of.done = false;
    of.copies.clear(), of.under_way.clear(), of.fetching.clear();
    of.multiplied.clear(), of.multiplying.clear();
  }
  for (long long before = -1; left && before != progress;) {
    before = progress;
    left = 0;
    for (int n = 0; n < count; ++n) {
      Fibre* of = fibres[backward ? count - 1 - n : n];
      if (!of->done) { resume(of); left += !of->done; }
    }
  }
  if (left) fibres.clear();
  return left;
}
"""

# What the threads of a warp hold of squares of 8 x 8 elements is as the PTX manual has it.
_WARP = """
template <bool T> void p_load_squares(unsigned int* r, const unsigned short* from) {
  Warp& warp = warps[self->warp];
  int lane = self->lane, g = lane / 4, t = lane % 4;
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
  Warp& warp = warps[self->warp];
  int lane = self->lane, g = lane / 4, t = lane % 4;
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
  int warp = self->warp % 4, g = self->lane / 4, t = self->lane % 4;
  auto product = [=] {
    for (int half = 0; half < 2; ++half) for (int j = 0; j < width / 8; ++j)
      for (int pair = 0; pair < 2; ++pair) for (int k = 0; k < 16; ++k)
        c[half * width / 4 + j * 2 + pair] +=
            held<AT>(a, 16 * warp + 8 * half + g, k, F) * held<BT>(b, 8 * j + 2 * t + pair, k, F);
  };
  if (eager) product();
  else self->multiplied.push_back(product);
}
// The left side is what the threads of a row hold: they show it to one another when they begin.
template <float (*F)(unsigned short)>
void multiply_held(float* c, const unsigned int* a, unsigned long long b, int width) {
  Warp& warp = warps[self->warp];
  int g = self->lane / 4, t = self->lane % 4;
  for (int n = 0; n < 4; ++n) warp.held[self->lane][n] = a[n];
  warp.all.arrive_and_wait();
  std::vector<float> left(32);
  for (int half = 0; half < 2; ++half) for (int k = 0; k < 16; ++k)
    left[half * 16 + k] =
        F(warp.held[g * 4 + k % 8 / 2][half + k / 8 * 2] >> k % 2 * 16 & 0xffff);
  warp.all.arrive_and_wait();
  auto product = [=] {
    for (int half = 0; half < 2; ++half) for (int j = 0; j < width / 8; ++j)
      for (int pair = 0; pair < 2; ++pair) for (int k = 0; k < 16; ++k)
        c[half * width / 4 + j * 2 + pair] +=
            left[half * 16 + k] * held<true>(b, 8 * j + 2 * t + pair, k, F);
  };
  if (eager) product();
  else self->multiplied.push_back(product);
}
"""

_BODIES = {
    "p_copy_async": "begin(Copy{to, from});",
    "p_copy_async_or_zero": "begin(Copy{to, inside ? from : (const void*)nothing});",
    "p_copies_begun": "self->under_way.push_back(self->copies); self->copies.clear();",
    "p_copies_done": "while (self->under_way.size() > N) copy_first();",
    "p_tiles_ready": """
  if (threadIdx.x + threadIdx.y == 0) std::memset(counted, 0, 8 * many);
  __syncthreads();
""",
    "p_tile_expected": "",
    "p_tile_copy_2": "begin(Fetch{to, map->words, counted, {a, b}});",
    "p_tile_copy_3": "begin(Fetch{to, map->words, counted, {a, b, c}});",
    "p_tile_copy_4": "begin(Fetch{to, map->words, counted, {a, b, c, d}});",
    "p_tile_awaited": """
  if (!self->fetching.empty() && self->fetching.front().counted == counted) {
    fetch(self->fetching.front());
    self->fetching.erase(self->fetching.begin());
  }
  while (*(volatile unsigned long long*)counted % 2 == turn) pass();
""",
    "p_products_done": """
  while (self->multiplying.size() > N) {
    for (auto& each : self->multiplying.front()) each();
    self->multiplying.erase(self->multiplying.begin());
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
    **{
        f"p_multiply_held_{kind}_{width}": f"multiply_held<from_{word}>(c, a, b, {width});"
        for kind, word in (("f16", "half"), ("bf16", "bfloat"))
        for width in (64, 128, 192, 256)
    },
}
"""What is inline assembly, in C++."""

_EXTREME = {
    "min": "a != a || b != b ? a + b : a == b ? (signbit(a) ? a : b) : a < b ? a : b",
    "max": "a != a || b != b ? a + b : a == b ? (signbit(a) ? b : a) : a > b ? a : b",
}


def run(code: KernelCode, arrays: list[Bytes]) -> None:
    """Run all launches of a kernel over its buffers, in place."""
    functions = loaded(code.text, code.launches)
    scratch: list[Bytes] = [np.full(size, 0xFF, np.uint8) for size in code.scratch]
    memory = [*arrays, *scratch]
    addresses = [each.ctypes.data for each in memory]
    for each in code.launches:
        maps = [_map(one, addresses[one.argument]) for one in each.maps]
        given = [*addresses, *[ctypes.addressof(one) for one in maps]]
        launch(functions, each.function, given, memory)


def launch(
    functions: ctypes.CDLL, name: str, given: Sequence[int | None], memory: Sequence[Bytes]
) -> None:
    """Run one function in both orders over memory that it may read and write: the same is there."""
    function = getattr(functions, f"run_{name}")
    before = [each.copy() for each in memory]
    after: list[list[Bytes]] = []
    for order in (FORWARD, BACKWARD):
        for each, old in zip(memory, before, strict=True):
            each[...] = old
        left = function((ctypes.c_void_p * len(given))(*given), order)
        assert left == 0, f"{left} threads of {name} wait for others who do not come"
        after.append([each.copy() for each in memory])
    for one, two in zip(*after, strict=True):
        same = one.view(np.uint8) == two.view(np.uint8) if one.ndim else one == two
        assert np.all(same), f"what {name} gives depends on the order of threads: they race"


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
    begun = "self->multiplying.push_back(self->multiplied); self->multiplied.clear();"
    text = re.sub(r'asm volatile\("wgmma.commit[^;]*;" ::: "memory"\);', begun, text)
    text = text.replace("const __grid_constant__ p_tile ", "const p_tile& ")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "k.cpp", Path(folder) / "k.so"
        source.write_text(_WORDS + _GROUP + text + "\n".join(map(_runner, launches)))
        flags = ["-std=c++20", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-U_FORTIFY_SOURCE"]
        flags.append("-ftrivial-auto-var-init=pattern")
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
extern "C" int run_{launch.function}(void** p, int order) {{
  eager = order == {BACKWARD};
  work = [=] {{ call_{launch.function}(&::{launch.function}, p); }};
  for (int n = 0, count = {gx * gy * gz}; n < count; ++n) {{
    int at = order == {BACKWARD} ? count - 1 - n : n;
    blockIdx = {{at % {gx}, at / {gx} % {gy}, at / {gx * gy}}};
    if (int left = run_block({{{bx}, {by}, {bz}}}, order == {BACKWARD})) return left;
  }}
  return 0;
}}
"""
