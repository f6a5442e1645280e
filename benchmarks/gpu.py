"""Kernels on a GPU beside torch, in one run; every result is checked first.

    python benchmarks/gpu.py --sizes 1024,2048,4096
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from plica.codegen.cuda.fold import Code, fold
from plica.codegen.cuda.toolchain import compiled
from plica.codegen.lower.passes import lower
from plica.ir.loop import Kernel
from plica.ir.dtype import f32
from plica.ir.tensor import buffer, compute, reduce
from plica.runtime.error import PlicaError
from plica.runtime.cuda.driver import Device, Memory, device
from plica.schedule.default.contraction import Work, contraction
from plica.schedule.default.gpu.form import product_form
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.product import Tile, product
from plica.schedule.default.gpu.shape import stages
from plica.schedule.default.gpu.spread import spread
from plica.schedule.do import Body, do, run
from plica.schedule.replay import begin

def tiled(n: int, tile: Tile) -> Kernel:
    """A square matrix product in tiles."""
    x, w = buffer("x", (n, n), f32), buffer("w", (n, n), f32)
    of = compute(
        (x, w), (n, n), lambda i, j: reduce("sum", (n,), lambda k: w[i, k] * x[k, j])
    )
    found = contraction(Work(of))
    assert found is not None
    form = product_form(found, tile, 1)

    every = stages(begin(form.kernel).kernel)
    assert every is not None

    @do
    def whole() -> Body:
        yield spread(every[-1], (), Gpu())
        yield product(tile, form.labels, form.along)

    return lower(run(whole(), form.kernel, 0, {})[1].kernel, "gpu")


TILES = (
    Tile(128, 128, 16, 8, 16, ahead=True), Tile(128, 128, 16, 16, 16, ahead=True),
    Tile(128, 256, 16, 16, 16, ahead=True), Tile(256, 128, 16, 16, 16, ahead=True),
    Tile(64, 128, 16, 8, 16, ahead=True), Tile(128, 64, 16, 8, 16, ahead=True),
    Tile(128, 128, 32, 8, 16, ahead=True),
)


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
        for tile in TILES:
            begin = time.perf_counter()
            try:
                code = fold(tiled(n, tile), "g")
            except PlicaError as error:
                print(f"  gemm {n} {tile}: {error}")
                continue
            made = time.perf_counter() - begin
            out = gpu.reserve(4 * n * n)
            scratch = [gpu.reserve(size) for size in code.scratch]
            gpu.stream().fill(out.address, 0xFF, 4 * n * n)
            seconds = timed(gpu, code, [db, da, out, *scratch])
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
