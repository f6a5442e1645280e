"""A hand-written micro-kernel beside the peak of the machine.

    python benchmarks/gemm.py [--runs N] [--depth K]

The peak is what independent multiply-adds reach with everything in registers, measured in turns
with the kernels.  A kernel multiplies panels that fit the caches into a tile of accumulators: `m`
rows unrolled, `n` columns vectorized, the sum over k unrolled by 4, in the loop language as a
schedule would leave it.  Each figure is the best of its runs; `share` is the part of the peak.
"""

from __future__ import annotations

import argparse
import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter, perf_counter_ns
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from plica.codegen.llvm import toolchain
from plica.codegen.llvm.fold import fold
from plica.codegen.llvm.region import ENTRY
from plica.codegen.memory_plan import workspace_plan
from plica.codegen.program import Launch, Program, Slot
from plica.codegen.target import Target
from plica.core.name import Name
from plica.ir.loop.scalar import Buffer, Lit, Scalar, index
from plica.ir.loop.statement import Alloc, For, Kernel, Stmt, Store, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dim import known
from plica.ir.type.dtype import f32

Array = np.ndarray[Any, Any]
TURNS = 1 << 15


@dataclass(frozen=True)
class Contender:
    """Something to time: what calls it, its floating-point operations, and how it came about."""

    name: str
    call: Callable[[], Any]
    operations: int
    fold: float = 0.0
    build: float = 0.0


def tiled(m: int, n: int, depth: int, tiles: int, unroll: int = 4) -> Kernel:
    """`c[t] = a[t]^T b` for tiles of m x n, each in a tile of accumulators of its own."""
    a = buffer("a", (tiles, depth, m), f32)
    b = buffer("b", (depth, n), f32)
    c = buffer("c", (tiles, m, n), f32)
    acc = Buffer(Name("acc"), (index(m), index(n)), f32, "local")
    t, outer, inner = axis("t"), axis("k0"), axis("k1")
    k = outer * unroll + inner

    def each(name: str, store: Callable[[Scalar, Scalar], Stmt]) -> Stmt:
        i, j = axis(f"i_{name}"), axis(f"j_{name}")
        return For(i, index(m), "unrolled", For(j, index(n), "vectorized", store(i, j)))

    product = each("sum", lambda i, j: Store(acc, (i, j), acc[i, j] + a[t, k, i] * b[k, j]))
    body = seq(
        each("start", lambda i, j: Store(acc, (i, j), Lit(0, f32))),
        For(
            outer, index(depth // unroll), "serial", For(inner, index(unroll), "unrolled", product)
        ),
        each("end", lambda i, j: Store(c, (t, i, j), acc[i, j])),
    )
    return Kernel((), (a, b, c), 2, For(t, index(tiles), "serial", Alloc(acc, body)))


def program_of(kernel: Kernel) -> Program:
    """A program that launches one kernel."""
    slots = []
    for number, each in enumerate(kernel.params):
        is_input = number < kernel.inputs
        shape = tuple(known(size) or 0 for size in each.shape)
        place_ = number if is_input else number - kernel.inputs
        slots.append(Slot("input" if is_input else "output", place_, shape, each.dtype))
    launch = Launch(0, tuple(range(len(slots))), "gemm")
    return Program((kernel,), ("gemm",), tuple(slots), ((launch,),), 0, ())


def peak(target: Target) -> Contender:
    """Multiply-adds that wait for nothing: as many as the registers hold, all independent."""
    lanes = target.vector_bits // 32
    count = min(16, target.vector_registers - 4)
    kind = f"<{lanes} x float>"
    lines = [f"define i64 @{ENTRY}(ptr %table) {{", "entry:"]
    lines += ["  %out = load ptr, ptr %table", f"  %x = load {kind}, ptr %out, align 4"]
    for n in range(count):  # each begins with another number: what is equal would be computed once
        lines.append(f"  %p{n} = getelementptr {kind}, ptr %out, i64 {n + 1}")
        lines.append(f"  %s{n} = load {kind}, ptr %p{n}, align 4")
    lines += ["  br label %again", "again:", "  %i = phi i64 [ 0, %entry ], [ %next, %again ]"]
    lines += [f"  %a{n} = phi {kind} [ %s{n}, %entry ], [ %b{n}, %again ]" for n in range(count)]
    step = f"call {kind} @llvm.fma.v{lanes}f32({kind} %x, {kind} %x, {kind}"
    lines += [f"  %b{n} = {step} %a{n})" for n in range(count)]
    lines += ["  %next = add i64 %i, 1", f"  %more = icmp ult i64 %next, {TURNS}"]
    lines += ["  br i1 %more, label %again, label %end", "end:"]
    lines += [f"  store {kind} %b{n}, ptr %p{n}, align 4" for n in range(count)]
    lines += ["  ret i64 0", "}"]
    room = np.zeros(lanes * (count + 1), np.float32)
    call = loaded("\n".join(lines) + "\n", target, [room])
    return Contender("peak", call, 2 * lanes * count * TURNS)


def loaded(text: str, target: Target, arrays: Sequence[Array]) -> Callable[[], Any]:
    """What runs a program on arrays."""
    native = toolchain.build(text, target)
    main = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(native.address)
    table = np.array([each.ctypes.data for each in arrays] + [0], np.uintp)
    address = table.ctypes.data

    def run(keep: Any = (native, table, arrays)) -> int:
        return main(address)  # type: ignore[no-any-return]

    return run


def aligned(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Random numbers that begin on a cache line."""
    room = np.zeros(math.prod(shape) + 16, np.float32)
    skip = -room.ctypes.data % 64 // 4
    found = room[skip : skip + math.prod(shape)].reshape(shape)
    found[...] = random.standard_normal(shape)
    return found


def contender(m: int, n: int, depth: int, target: Target) -> Contender:
    """A micro-kernel, built and checked."""
    tiles = 24
    kernel = tiled(m, n, depth, tiles)
    start = perf_counter()
    program = program_of(kernel)
    text = fold(program, workspace_plan(program), target, contract=True)
    middle = perf_counter()
    random = np.random.default_rng(0)
    shapes = [tuple(known(size) or 0 for size in each.shape) for each in kernel.params]
    a, b, c = arrays = [aligned(shape, random) for shape in shapes]
    call = loaded(text, target, arrays)
    end = perf_counter()
    call()
    np.testing.assert_allclose(c, np.einsum("tki,kj->tij", a, b), rtol=1e-3, atol=1e-3)
    operations = 2 * m * n * depth * tiles
    return Contender(f"{m} x {n}", call, operations, middle - start, end - middle)


def tiles_for(target: Target) -> list[tuple[int, int]]:
    """Tiles whose accumulators fit the vector registers, with a row of b and some elements of a."""
    lanes, registers = target.vector_bits // 32, target.vector_registers
    spare = registers // 8
    return [((registers - wide - spare) // wide, wide * lanes) for wide in (2, 3, 4)]


def contest(contenders: Sequence[Contender], runs: int) -> list[float]:
    """The best rate of each in operations a second, over rounds in which they take turns."""
    best = [math.inf] * len(contenders)
    for _ in range(runs):
        for number, each in enumerate(contenders):
            start = perf_counter_ns()
            each.call()
            best[number] = min(best[number], perf_counter_ns() - start)
    return [each.operations / time * 1e9 for each, time in zip(contenders, best, strict=True)]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Micro-kernels beside the peak.")
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--depth", type=int, default=256)
    arguments = parser.parse_args()
    target = toolchain.host()
    contenders = [peak(target)]
    contenders += [contender(m, n, arguments.depth, target) for m, n in tiles_for(target)]
    rates = contest(contenders, arguments.runs)
    table = Table(
        "tile", "GFLOP/s", "share", "fold ms", "build ms", title=f"f32 on one core, {target}"
    )
    for each, rate in zip(contenders, rates, strict=True):
        share = f"{rate / rates[0]:.1%}"
        times = (f"{each.fold * 1e3:.1f}", f"{each.build * 1e3:.1f}") if each.build else ("", "")
        table.add_row(each.name, f"{rate / 1e9:.1f}", share, *times)
    Console().print(table)


if __name__ == "__main__":
    main()
