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
from pathlib import Path
from typing import Any

import numpy as np

from plica.codegen.cuda.fold import Code

COMPILER = shutil.which("c++") or shutil.which("g++")

_WORDS = """
#include <barrier>
#include <cmath>
#include <cstring>
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
static double __longlong_as_double(long long a) { double r; std::memcpy(&r, &a, 8); return r; }
alignas(16) unsigned char shared_memory[1 << 20];
"""

_EXTREME = {
    "min": "a != a || b != b ? a + b : a == b ? (signbit(a) ? a : b) : a < b ? a : b",
    "max": "a != a || b != b ? a + b : a == b ? (signbit(a) ? b : a) : a > b ? a : b",
}


def run(code: Code, arrays: list[np.ndarray[Any, Any]]) -> None:
    """Run all launches of a kernel over its buffers, in place."""
    assert COMPILER is not None
    text = code.text.replace("extern __shared__ __align__(16) unsigned char shared_memory[];", "")
    text = text.replace("#pragma unroll", "")
    for word, body in _EXTREME.items():
        pattern = rf"(float p_{word}_f32\(float a, float b\) {{)[^}}]*}}"
        text = re.sub(pattern, rf"\1 return {body}; }}", text)
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "k.cpp", Path(folder) / "k.so"
        source.write_text(_WORDS + text + "\n".join(map(_runner, code.launches)))
        flags = ["-std=c++20", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-pthread"]
        subprocess.run([COMPILER, *flags, "-o", library, source], check=True)
        loaded = ctypes.CDLL(str(library))
        scratch = [np.full(size, 0xFF, np.uint8) for size in code.scratch]
        addresses = [each.ctypes.data for each in (*arrays, *scratch)]
        for each in code.launches:
            function = getattr(loaded, f"run_{each.function}")
            function((ctypes.c_void_p * len(addresses))(*addresses))


def _runner(launch: Any) -> str:  # Any: a launch of the code
    (gx, gy, gz), (bx, by, bz) = launch.grid, launch.block
    return f"""
template <typename... A> static void call_{launch.function}(void (*f)(A...), void* const* p) {{
  [&]<std::size_t... N>(std::index_sequence<N...>) {{ f((A)p[N]...); }}(
      std::index_sequence_for<A...>());
}}
extern "C" void run_{launch.function}(void** p) {{
  for (int z = 0; z < {gz}; ++z) for (int y = 0; y < {gy}; ++y) for (int x = 0; x < {gx}; ++x) {{
    std::barrier<> all({bx * by * bz});
    waiting = &all;
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
