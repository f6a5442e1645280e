"""Kernels on a GPU beside torch, in one run; every result is checked first.

    python benchmarks/gpu.py --sizes 1024,2048,4096
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time

import numpy as np

from plica.codegen.cuda.fold import Code, fold
from plica.codegen.cuda.toolchain import compiled
from plica.codegen.lower.passes import lower
from plica.ir.loop import Kernel
from plica.ir.script import from_text
from plica.runtime.cuda.driver import Device, Memory, device
from plica.schedule import trace_of
from plica.schedule.default.gpu.product import Tile, product
from plica.schedule.replay import scheduled

GEMM = """
from plica.script import Buffer, block, f32, grid, init
import plica

@plica.kernel
def matmul(A: Buffer[({n}, {n}), f32], B: Buffer[({n}, {n}), f32], C: Buffer[({n}, {n}), f32]):
    for i, j, k in grid({n}, {n}, {n}):
        with block("C", spatial=(i, j), reduce=(k,)):
            with init():
                C[i, j] = 0.0
            C[i, j] += A[i, k] * B[k, j]
"""


def to_device(gpu: Device, array: np.ndarray) -> Memory:  # type: ignore[type-arg]
    memory = gpu.reserve(array.nbytes)
    stream = gpu.stream()
    stream.to_device(memory.address, array.ctypes.data, array.nbytes)
    stream.wait()
    return memory


def timed(gpu: Device, code: Code, memories: list[Memory], runs: int = 20) -> float:
    """Median seconds of all launches of a kernel."""
    cubin = compiled(code.text, gpu.architecture)
    print("    ", [(name, use.registers, use.spilled) for name, use in cubin.usage])
    module = gpu.load(cubin.code)
    stream = gpu.stream()
    addresses = [each.address for each in memories]
    functions = [(module.function(e.function, e.shared), e) for e in code.launches]
    times = []
    for _ in range(runs + 3):
        begin = stream.mark()
        for function, each in functions:
            stream.launch(function, each.grid, each.block, each.shared, addresses)
        end = stream.mark()
        stream.wait()
        times.append(end.since(begin))
    return statistics.median(times[3:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="1024,2048,4096")
    options = parser.parse_args()
    gpu = device()
    print(gpu.name, gpu.architecture)
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    for n in map(int, options.sizes.split(",")):
        kernel = from_text(GEMM.format(n=n)).values[0]
        assert isinstance(kernel, Kernel)
        random = np.random.default_rng(n)
        a, b = (random.standard_normal((n, n), dtype=np.float32) for _ in range(2))
        da, db = to_device(gpu, a), to_device(gpu, b)
        ta, tb = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
        for _ in range(3):
            tc = ta @ tb
        torch.cuda.synchronize()
        marks = []
        for _ in range(20):
            s, e = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            s.record()
            tc = ta @ tb
            e.record()
            torch.cuda.synchronize()
            marks.append(s.elapsed_time(e) / 1e3)
        peer = statistics.median(marks)
        for tile in (Tile(), Tile(128, 256), Tile(256, 128)):
            begin = time.perf_counter()
            code = fold(lower(scheduled(trace_of(product("C", tile), kernel), kernel), "gpu"), "g")
            made = time.perf_counter() - begin
            out = gpu.reserve(4 * n * n)
            gpu.stream().fill(out.address, 0xFF, 4 * n * n)
            seconds = timed(gpu, code, [da, db, out])
            got = np.empty((n, n), np.float32)
            stream = gpu.stream()
            stream.to_host(got.ctypes.data, out.address, got.nbytes)
            stream.wait()
            rows = random.integers(0, n, 16)
            exact = a[rows].astype(np.float64) @ b.astype(np.float64)
            error = np.abs(got[rows] - exact).max() / np.abs(exact).max()
            rate, theirs = (2 * n**3 / each / 1e12 for each in (seconds, peer))
            print(f"  gemm {n} {tile}: {rate:.1f} TF ({made:.1f} s to make), cuBLAS {theirs:.1f} TF, "
                  f"{rate / theirs:.2f}x, error {error:.1e}", flush=True)


if __name__ == "__main__":
    main()
    ctypes.pythonapi  # noqa: B018
