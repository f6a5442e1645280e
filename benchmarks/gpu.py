"""Kernels on a GPU beside torch (cuBLAS, cuDNN), in one run; every result is checked first.

    python benchmarks/gpu.py [f32 f16 conv depthwise softmax layer_norm gelu transpose sum]
                             [--sizes 2048,4096,8192] [--tune N] [--json FILE]

Square matrix products of f32 (TF32 off) and of f16 summed in f32; the convolutions of ResNet-18
(C2–C12) and the depthwise ones of MobileNet (D1–D9), f32, batch 1; softmax, layer norm, sums of
rows and transposes of 8192 x 8192, and gelu(x * 1.5 + 0.25) of 2^28 elements, f32.  Inputs are
fresh, outputs are poisoned, results are compared with float64.  Times are medians of CUDA events:
of launches for products, of a CUDA graph on both sides for layers, each run queued behind a kernel
that keeps the device busy while it is launched (`device_time.py`).  `ratio` is torch's time over
ours.

Products are made as they are without tuning; with --tune N schedules are searched for those of f32
with a given number of trials, and of f16 all tiles are tried, and each is told.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import plica
from benchmarks.device_time import (
    UNTIMED,
    Timer,
    in_turns,
    keep_busy,
    of_executable,
    of_graph,
    of_launches,
)
from plica.codegen.cuda.fold import KernelCode, fold
from plica.codegen.cuda.target import GpuTarget, parse_gpu
from plica.codegen.cuda.toolchain import compiled
from plica.codegen.lower.passes import lower
from plica.core.name import Name
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Apply, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.loop.scalar import Cast, Scalar
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, stages
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.text.script import from_text
from plica.ir.type.dtype import DType, f16, f32
from plica.ir.type.term import tensor
from plica.runtime.cuda.driver import CudaDevice, CudaMemory, device
from plica.runtime.cuda.program import CudaExecutable
from plica.runtime.error import PlicaError
from plica.schedule.default.gpu import candidates
from plica.schedule.default.gpu.form import tiled
from plica.schedule.default.gpu.operand import operands
from plica.schedule.default.gpu.product_form import GROUPS
from plica.schedule.default.gpu.template import tensor_core_schedule
from plica.schedule.default.gpu.tensor_core import Warps
from plica.schedule.form import Facts

Array = np.ndarray[Any, Any]

RUNS = 20

# fmt: off
CONV = {  # height and width, channels, outputs, window, stride
    "C2":  (56,  64,  64, 3, 1), "C3":  (56,  64,  64, 1, 1), "C4":  (56,  64, 128, 3, 2),
    "C5":  (56,  64, 128, 1, 2), "C6":  (28, 128, 128, 3, 1), "C7":  (28, 128, 256, 3, 2),
    "C8":  (28, 128, 256, 1, 2), "C9":  (14, 256, 256, 3, 1), "C10": (14, 256, 512, 3, 2),
    "C11": (14, 256, 512, 1, 2), "C12": ( 7, 512, 512, 3, 1),
}
DEPTHWISE = {  # height and width, channels, stride; windows of 3
    "D1": (112,  32, 1), "D2": (112,  64, 2), "D3": (56, 128, 1), "D4": (56, 128, 2),
    "D5": ( 28, 256, 1), "D6": ( 28, 256, 2), "D7": (14, 512, 1), "D8": (14, 512, 2),
    "D9": (  7, 1024, 1),
}
WARPS = (
    *GROUPS, Warps(2, 1, 1, 32, 4, 2, together=True), Warps(1, 2, 2, 16, 4, 2, together=True),
    Warps(2, 2, 4, 8, 2, 1), Warps(2, 2, 4, 8, 2, 2), Warps(2, 2, 4, 8, 2, 3),
    Warps(2, 2, 4, 8, 4, 1), Warps(2, 2, 4, 8, 4, 2), Warps(2, 4, 4, 8, 2, 2),
    Warps(2, 4, 4, 8, 2, 3), Warps(2, 4, 4, 8, 4, 1), Warps(2, 4, 4, 8, 4, 2),
    Warps(4, 2, 4, 8, 2, 3), Warps(2, 4, 4, 4, 2, 3), Warps(2, 2, 4, 4, 4, 2),
)
# fmt: on


@dataclass(frozen=True)
class Row:
    """A line of the table: seconds of both sides, operations, and the error against float64."""

    kind: str
    name: str
    how: str
    seconds: float
    torch: float
    operations: int
    error: float
    bytes: int = 0
    """What is read and written at least, where that and not the work is what takes time."""

    @property
    def ratio(self) -> float:
        return self.torch / self.seconds

    def __str__(self) -> str:
        amount, unit = (self.bytes, "TB/s") if self.bytes else (self.operations, "TF")
        ours, theirs = (amount / each / 1e12 for each in (self.seconds, self.torch))
        return (
            f"{self.kind:9} {self.name:5} {self.seconds * 1e3:9.4f} ms {ours:7.2f} {unit} | torch "
            f"{self.torch * 1e3:9.4f} ms {theirs:7.2f} {unit} | {self.ratio:5.2f}x | "
            f"error {self.error:.1e}  {self.how}"
        )


# --- time -----------------------------------------------------------------------------------------


def seconds_of(timer: Timer) -> float:
    """Median seconds on the device."""
    return in_turns({"": timer}, 1, RUNS)[""].median


# --- matrix products ------------------------------------------------------------------------------


def square(n: int, dtype: DType) -> Stages:
    """A matrix product, summed in f32."""
    x, w = buffer("x", (n, n), dtype), buffer("w", (n, n), dtype)

    def wide(of: Scalar) -> Scalar:
        return of if dtype is f32 else Cast(of, f32)

    held = stage(
        "held", (n, n), lambda i, j: reduce("sum", (n,), lambda k: wide(x[i, k]) * wide(w[k, j]))
    )
    if dtype is f32:
        return stages((x, w), (held,))
    return stages((x, w), (held, stage("out", (n, n), lambda i, j: Cast(held[i, j], dtype))))


def untuned(n: int, of: DType) -> KernelCode:
    facts = Facts((False, False), (), reassociates)
    found = next(candidates(square(n, of), facts, here().gpu))
    return fold(lower(found.kernel, "gpu"), "g")


def here() -> GpuTarget:
    """What code is made for."""
    found = parse_gpu("cuda", lambda: device().architecture)
    assert found is not None
    return found


def on_tensor_cores(n: int, warps: Warps) -> KernelCode:
    found = operands(square(n, f16))
    assert found is not None
    made = tensor_core_schedule(tiled(found, warps.layout((True, False))), here().gpu, (warps,))
    assert made is not None
    return fold(lower(made[1], "gpu"), "g")


def to_device(gpu: CudaDevice, array: Array) -> CudaMemory:
    memory = gpu.reserve(array.nbytes)
    stream = gpu.stream()
    stream.to_device(memory.address, array.ctypes.data, array.nbytes)
    stream.wait()
    return memory


def timed(gpu: CudaDevice, code: KernelCode, memories: list[CudaMemory]) -> tuple[float, str]:
    """Median seconds of all launches of a kernel, and what they use."""
    cubin = compiled(code.text, here().architecture)
    module = gpu.load(cubin.code)
    stream = gpu.stream()
    addresses = [each.address for each in memories]
    functions = [(module.function(e.function, e.shared), e) for e in code.launches]
    times = []
    for _ in range(UNTIMED + RUNS):
        keep_busy(stream.handle)
        first = stream.mark()
        for function, each in functions:
            stream.launch(function, each.grid, each.block, each.shared, addresses, each.maps)
        last = stream.mark()
        stream.wait()
        times.append(last.since(first))
    uses = ", ".join(
        [f"{use.registers} registers, {use.spilled} spilled" for _, use in cubin.usage]
    )
    return statistics.median(times[UNTIMED:]), uses


def searched(n: int, trials: int, a: Array, b: Array) -> tuple[str, float, Array]:
    """The schedule that was found, its median seconds, and its result."""
    x, y = (Var(Name(name), tensor((n, n), "f32")) for name in "xy")
    main = Var(Name("main"), None)
    model = module({main: Function((), (), (x, y), None, Apply("matmul", (x, y)))}, main)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "tune.db")
        found = plica.tune(model, "cuda", trials, path, progress=False)
        exe = plica.compile(model, "cuda", database=path, cache=False)
    assert isinstance(exe, CudaExecutable)
    worked = [each for each in found.courses[0].observations if each.cost is not None]
    for each in sorted(worked, key=lambda each: each.cost or 0.0)[:5]:
        name = found.courses[0].subject.space.sketches[each.point.sketch].name
        print(f"    {1e3 * (each.cost or 0.0):.4f} ms {name}", flush=True)
    print(f"    {found.trials} trials, failed: {found.courses[0].errors}", flush=True)
    how = exe.tuning.splitlines()[1].split(" as ")[-1]
    return how, seconds_of(of_executable(exe, a, b)), exe(a, b)


def products(gpu: CudaDevice, sizes: list[int], dtype: DType, tune: int) -> Iterator[Row]:
    import torch

    kind = np.float32 if dtype is f32 else np.float16
    ways: list[tuple[str, Callable[[int], KernelCode]]] = [("untuned", lambda n: untuned(n, dtype))]
    if dtype is f16:
        ways += [(str(t), lambda n, t=t: on_tensor_cores(n, t)) for t in WARPS if tune]  # type: ignore[misc]  # likewise
    for n in sizes:
        random = np.random.default_rng(n)
        a, b = (random.standard_normal((n, n), np.float32).astype(kind) for _ in range(2))
        given = [to_device(gpu, a), to_device(gpu, b)]
        ta, tb = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
        theirs = seconds_of(of_launches(lambda ta=ta, tb=tb: ta @ tb))  # type: ignore[misc]  # likewise
        rows = random.integers(0, n, 64)
        exact = a[rows].astype(np.float64) @ b.astype(np.float64)
        for how, make in ways:
            try:
                code = make(n)
            except PlicaError as problem:
                print(f"{dtype} {n} {how}: {problem}")
                continue
            got = np.empty((n, n), kind)
            out = gpu.reserve(got.nbytes)
            scratch = [gpu.reserve(size) for size in code.scratch]
            stream = gpu.stream()
            stream.fill(out.address, 0xFF, got.nbytes)
            stream.wait()
            seconds, uses = timed(gpu, code, [*given, out, *scratch])
            stream.to_host(got.ctypes.data, out.address, got.nbytes)
            stream.wait()
            error = float(np.abs(got[rows] - exact).max() / np.abs(exact).max())
            yield Row(f"gemm {dtype}", str(n), f"{how} ({uses})", seconds, theirs, 2 * n**3, error)
        if tune and dtype is f32:
            how, seconds, got = searched(n, tune, a, b)
            theirs = seconds_of(of_launches(lambda ta=ta, tb=tb: ta @ tb))  # type: ignore[misc]  # likewise
            error = float(np.abs(got[rows] - exact).max() / np.abs(exact).max())
            yield Row("gemm f32", str(n), f"tuned {how}", seconds, theirs, 2 * n**3, error)


# --- layers ---------------------------------------------------------------------------------------


def sides(size: int, window: int, stride: int) -> tuple[int, int]:
    """Padding that gives ceil(size / stride) results."""
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


def layer(x: Array, w: Array, groups: int, around: tuple[int, int], stride: int) -> Module:
    given = Var(Name("x"), tensor(x.shape, "f32"))
    attrs = (
        ("dilation", 1),
        ("groups", groups),
        ("padding", (around, around)),
        ("strides", stride),
    )
    main = Var(Name("main"), None)
    body = Apply("nn.conv", (given, const(w)), attrs)
    return module({main: Function((), (), (given,), None, body)}, main)


def convolutions(names: list[str]) -> Iterator[Row]:
    import torch

    for name in names:
        if name in CONV:
            size, channels, outputs, window, stride = CONV[name]
            groups, kind = 1, "conv"
        else:
            size, channels, stride = DEPTHWISE[name]
            outputs, groups, window, kind = channels, channels, 3, "depthwise"
        random = np.random.default_rng(size + channels)
        x, fresh = (random.standard_normal((1, channels, size, size), np.float32) for _ in range(2))
        w = random.standard_normal((outputs, channels // groups, window, window), np.float32)
        w /= math.sqrt(w[0].size)
        around = sides(size, window, stride)
        exe = plica.compile(layer(x, w, groups, around, stride), target="cuda")
        assert isinstance(exe, CudaExecutable)
        ours = seconds_of(of_executable(exe, x))
        got = exe(fresh)  # what an earlier call left behind would be told
        # torch pads alike on both sides: where that is not so, the image is padded beforehand.
        even = around[0] == around[1]
        tx, tw = torch.from_numpy(x).cuda(), torch.from_numpy(w).cuda()
        padded = tx if even else torch.nn.functional.pad(tx, (*around, *around))
        pad = around[0] if even else 0

        def call(tx: Any = padded, tw: Any = tw, pad: Any = pad, by: Any = (stride, groups)) -> Any:
            return torch.nn.functional.conv2d(tx, tw, None, by[0], pad, 1, by[1])

        theirs = seconds_of(of_graph(call))
        wide = torch.nn.functional.pad(torch.from_numpy(fresh).double(), (*around, *around))
        exact = torch.nn.functional.conv2d(
            wide, torch.from_numpy(w).double(), None, stride, 0, 1, groups
        ).numpy()
        error = float(np.abs(got - exact).max() / np.abs(exact).max())
        yield Row(kind, name, "untuned", ours, theirs, 2 * exact.size * w[0].size, error)


# --- memory ---------------------------------------------------------------------------------------

STREAMED = {
    "softmax":    ((8192, 8192), "nn.softmax(x, axis=-1)", (8192, 8192)),
    "layer_norm": ((8192, 8192), "nn.layer_norm(x, g, b)", (8192, 8192)),
    "gelu":       ((1 << 15, 1 << 13), "nn.gelu(x * 1.5 + 0.25)", (1 << 15, 1 << 13)),
    "transpose":  ((8192, 8192), "transpose(x, (1, 0))", (8192, 8192)),
    "sum":        ((8192, 8192), "sum(x, axis=(-1,))", (8192,)),
}  # fmt: skip
"""The shape of x, an expression, and the shape of what it gives."""

SCRIPT = """
from plica.script import Tensor, f32
from plica.op import nn, sum, transpose
import plica

@plica.function
def main(x: Tensor[{given}, f32]{more}) -> Tensor[{result}, f32]:
    return {expression}
"""


def in_torch(kind: str, x: Any, g: Any, b: Any) -> Any:
    """The same in torch, in the precision of what it is given."""
    import torch
    from torch.nn import functional as of

    match kind:
        case "softmax":
            return torch.softmax(x, -1)
        case "layer_norm":
            return of.layer_norm(x, (x.shape[-1],), g, b, 1e-5)
        case "gelu":
            return of.gelu(x * 1.5 + 0.25)
        case "transpose":
            return x.T.contiguous()
        case _:
            return x.sum(-1)


def streamed(kind: str) -> Iterator[Row]:
    """Work that reads its input once and writes its result once, beside torch."""
    import torch

    shape, expression, result = STREAMED[kind]
    vectors = ", ".join(f"{n}: Tensor[({shape[1]},), f32]" for n in "gb")
    more = f", {vectors}" if kind == "layer_norm" else ""
    exe = plica.compile(
        from_text(SCRIPT.format(given=shape, result=result, more=more, expression=expression)),
        target="cuda",
    )
    assert isinstance(exe, CudaExecutable)
    random = np.random.default_rng(shape[0])
    given = [random.standard_normal(shape, np.float32)]
    given += [random.standard_normal(shape[1], np.float32) for _ in "gb" if more]
    ours = seconds_of(of_executable(exe, *given))
    fresh = [random.standard_normal(each.shape, np.float32) for each in given]
    got = exe(*fresh)  # what an earlier call left behind would be told
    rows = random.integers(0, shape[0], 64)
    whole = kind == "transpose"
    exact = in_torch(kind, *[
        torch.from_numpy(each if whole or n else each[rows]).double()
        for n, each in enumerate((*fresh, np.zeros(1), np.zeros(1))[:3])
    ]).numpy()  # fmt: skip
    error = float(np.abs((got if whole else got[rows]) - exact).max() / np.abs(exact).max())
    del got, exact, fresh
    tensors = [torch.from_numpy(each).cuda() for each in given]
    x: Any
    x, g, b = (*tensors, None, None)[:3]
    eager = seconds_of(of_launches(lambda: in_torch(kind, x, g, b)))
    how, theirs, size = "beside torch eager", eager, 4 * (math.prod(shape) + math.prod(result))
    if kind == "gelu":
        there = torch.empty_like(x)
        copied = seconds_of(of_launches(lambda: there.copy_(x)))
        how = f"eager {eager * 1e3:.3f} ms, a copy {size / copied / 1e12:.2f} TB/s"
        if importlib.util.find_spec("triton") is not None:
            made = torch.compile(lambda x: in_torch(kind, x, None, None))
            theirs, how = seconds_of(of_launches(lambda: made(x))), f"beside torch.compile; {how}"
        else:
            theirs, how = copied, f"no triton for torch.compile: beside torch's copy; {how}"
    yield Row(kind, "", how, ours, theirs, 0, error, size)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=["f32", "f16", "conv", "depthwise"])
    parser.add_argument("--sizes", default="2048,4096,8192")
    parser.add_argument("--tune", type=int, default=0, metavar="N")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    gpu = device()
    print(gpu.name, gpu.architecture)
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    sizes = [int(each) for each in options.sizes.split(",")]
    parts: dict[str, Callable[[], Iterator[Row]]] = {
        "f32": lambda: products(gpu, sizes, f32, options.tune),
        "f16": lambda: products(gpu, sizes, f16, options.tune),
        "conv": lambda: convolutions([*CONV]),
        "depthwise": lambda: convolutions([*DEPTHWISE]),
        **{kind: partial(streamed, kind) for kind in STREAMED},
    }
    rows: list[Row] = []
    for kind in options.kinds:
        mine = []
        for row in parts[kind]():
            print(row, flush=True)
            mine.append(row)
            wrong = row.error > (2e-3 if kind == "f16" else 1e-5)
            if wrong or not math.isfinite(row.error):
                print(f"    WRONG: {row.kind} {row.name}", flush=True)
        rows += mine
        if kind in ("conv", "depthwise"):
            mean = statistics.geometric_mean([row.ratio for row in mine])
            print(f"{kind}: geometric mean {mean:.2f}x", flush=True)
    if options.json:
        told = [{**asdict(row), "ratio": row.ratio} for row in rows]
        options.json.write_text(json.dumps({"device": gpu.name, "rows": told}, indent=1))


if __name__ == "__main__":
    main()
