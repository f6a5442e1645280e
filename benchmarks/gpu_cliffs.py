"""Cliffs on a GPU: operators and blocks that nobody named, drawn by a seed, beside torch.

    python benchmarks/gpu_cliffs.py --seed SEED [--n 60] [--first 0] [--seconds 420] [--json FILE]
                                    [--families reduction moved …]
    python benchmarks/gpu_cliffs.py --merge FILE …

Each is a small network of torch, in f32, f16 or bf16, some with weights of i8; every family is as
likely as any other, and sizes are drawn so that small ones are as likely as large ones.  Both sides
run in a CUDA graph and take turns; each run is queued behind a kernel that keeps the device busy
while it is launched (`device_time.py`), and medians are of the device's time alone.  Results on
fresh inputs are compared with torch's in float64.

The table is sorted by the ratio of device times, the slowest first; a refusal counts as 0, a wrong
number ends the command with 1.  A part stops after a given number of seconds and says where the
next begins; the files of parts are merged.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import plica
from benchmarks.device_time import in_turns, of_executable, of_graph
from benchmarks.drawn_model import Random, size, sizes
from plica.core.diagnostic import CompilerBug

ROUNDS, RUNS = 3, 10
ERROR = {"f32": 2e-4, "f16": 2e-2, "bf16": 1e-1}

Shape = tuple[int, ...]
Drawn = tuple[str, Any, list[Shape]]  # Any: a module of torch


def module(call: Callable[..., Any], *layers: Any) -> Any:
    """A network that does something with what is given, by some layers."""
    from torch import nn

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(layers)

        def forward(self, *given: Any) -> Any:
            return call(*given, *self.layers)

    return Whole()


def linear(random: Random) -> Drawn:
    from torch import nn

    rows, deep, wide = (size(random, 1, 4096) for _ in range(3))
    bend = random.choice(["relu", "gelu", "silu", "tanh"])
    layer = nn.Linear(deep, wide, bias=bool(random.integers(2)))
    what = module(lambda x, one: getattr(nn.functional, bend, nn.functional.relu)(one(x)), layer)
    return f"linear {rows}x{deep}x{wide} {bend}", what, [(rows, deep)]


def products(random: Random) -> Drawn:
    lots, m, n, k = size(random, 1, 64), *(size(random, 4, 1024) for _ in range(3))
    turned = bool(random.integers(2))
    what = module(lambda x, y: x @ (y.transpose(1, 2) if turned else y))
    right = (lots, n, k) if turned else (lots, k, n)
    return f"products {lots}x{m}x{n}x{k}{' turned' if turned else ''}", what, [(lots, m, k), right]


def convolution(random: Random) -> Drawn:
    from torch import nn

    images, side = size(random, 1, 64), size(random, 7, 112)
    deep, wide = (
        8 * size(random, 1, 48) if random.integers(4) else size(random, 1, 64) for _ in range(2)
    )
    kernel, stride = int(random.choice([1, 3, 3, 5, 7])), int(random.choice([1, 1, 2]))
    groups = deep if random.integers(5) == 0 else 1
    wide = deep if groups > 1 else wide
    layer = nn.Conv2d(deep, wide, kernel, stride, kernel // 2, groups=groups)
    name = f"conv {images}x{deep}x{side} {wide} k{kernel} s{stride} g{groups}"
    return name, module(lambda x, one: one(x).relu(), layer), [(images, deep, side, side)]


def sequence(random: Random) -> Drawn:
    from torch import nn

    lots, length = size(random, 1, 16), size(random, 32, 2048)
    deep, wide = (size(random, 8, 512) for _ in range(2))
    layer = nn.Conv1d(deep, wide, 3, 1, 1)
    name = f"conv1d {lots}x{deep}x{length} {wide}"
    return name, module(lambda x, one: one(x), layer), [(lots, deep, length)]


def attention(random: Random) -> Drawn:
    from torch import nn

    lots, heads, length = size(random, 1, 8), size(random, 1, 16), size(random, 16, 2048)
    width, causal = int(random.choice([32, 64, 64, 80, 128])), bool(random.integers(2))
    what = module(
        lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    )
    shape = (lots, heads, length, width)
    return f"attention {'x'.join(map(str, shape))}{' causal' if causal else ''}", what, [shape] * 3


def normalised(random: Random) -> Drawn:
    from torch import nn

    rows, wide = size(random, 1, 8192), size(random, 16, 8192)
    kind = random.choice(["layer", "softmax", "rms", "log_softmax"])
    functional = nn.functional
    calls: dict[str, Callable[[Any], Any]] = {
        "layer": lambda x: functional.layer_norm(x, (wide,)),
        "softmax": lambda x: x.softmax(-1),
        "rms": lambda x: x * (x * x).mean(-1, keepdim=True).add(1e-5).rsqrt(),
        "log_softmax": lambda x: x.log_softmax(-1),
    }
    return f"{kind} {rows}x{wide}", module(calls[kind]), [(rows, wide)]


def reduction(random: Random) -> Drawn:
    shape = sizes(random, int(random.integers(1, 5)), 1 << 10, 1 << 24)
    count = int(random.integers(1, len(shape) + 1))
    axes = tuple(sorted(int(each) for each in random.permutation(len(shape))[:count]))
    kind = random.choice(["sum", "amax", "mean", "amin"])
    return f"{kind} {shape} over {axes}", module(lambda x: getattr(x, kind)(axes)), [shape]


def elementwise(random: Random) -> Drawn:
    shape = sizes(random, int(random.integers(1, 5)), 1 << 10, 1 << 24)
    other = tuple(each if random.integers(2) else 1 for each in shape)
    what = module(lambda x, y: (x * y + x).sigmoid() * x)
    return f"elementwise {shape} {other}", what, [shape, other]


def moved(random: Random) -> Drawn:
    shape = sizes(random, int(random.integers(2, 5)), 1 << 10, 1 << 24)
    order = tuple(int(each) for each in random.permutation(len(shape)))
    return f"permute {shape} {order}", module(lambda x: x.permute(order).contiguous() + 1), [shape]


def pooled(random: Random) -> Drawn:
    from torch import nn

    images, deep, side = size(random, 1, 32), size(random, 8, 256), size(random, 8, 112)
    kind = random.choice(["max", "average", "whole"])
    layers = {
        "max": nn.MaxPool2d(3, 2, 1), "average": nn.AvgPool2d(2), "whole": nn.AdaptiveAvgPool2d(1),
    }  # fmt: skip
    name, shape = f"{kind} pool {images}x{deep}x{side}", (images, deep, side, side)
    return name, module(lambda x, one: one(x), layers[str(kind)]), [shape]


def block(random: Random) -> Drawn:
    from torch import nn

    width = 64 * size(random, 1, 16)
    shape = (size(random, 1, 8), size(random, 16, 1024), width)
    layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, "gelu", batch_first=True)
    return (
        f"encoder layer {'x'.join(map(str, shape))}",
        module(lambda x, one: one(x), layer),
        [shape],
    )


def network(random: Random) -> Drawn:
    from torch import nn

    width = size(random, 16, 2048)
    first, last = (nn.Linear(width, width) for _ in range(2))
    layers: list[Any] = [first, nn.LayerNorm(width), nn.GELU(), last]
    rows = size(random, 1, 2048)
    return f"mlp {rows}x{width}", nn.Sequential(*layers), [(rows, width)]


def quantised(random: Random) -> Drawn:
    """A product with weights of i8, and a scale for each column."""
    import torch
    from torch import nn

    rows, deep, wide = size(random, 1, 512), 8 * size(random, 8, 512), 8 * size(random, 8, 512)

    class Quantised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.randint(-127, 128, (wide, deep), dtype=torch.int8))
            self.register_buffer("scale", torch.rand(wide) / 1000)

        def forward(self, x: Any) -> Any:
            weight, scale = (each.to(x.dtype) for each in self.buffers())
            return nn.functional.linear(x, weight) * scale

    return f"i8 weights {rows}x{deep}x{wide}", Quantised(), [(rows, deep)]


FAMILIES = (
    linear, products, convolution, sequence, attention, normalised, reduction, elementwise, moved,
    pooled, block, network, quantised,
)  # fmt: skip


def drawn(seed: int, number: int, families: Sequence[str] = ()) -> tuple[str, Drawn]:
    """The case of a number: a dtype, and a network with its inputs, of some families or of all."""
    random = Random((seed, number))
    kind = str(random.choice(["f32", "f16", "f16", "bf16"]))
    wanted = [each for each in FAMILIES if not families or each.__name__ in families]
    family = wanted[int(random.integers(len(wanted)))]
    return kind, family(random)


def measured(seed: int, number: int, families: Sequence[str] = ()) -> dict[str, Any]:
    """One case: right first, then how long it takes."""
    import torch
    import torch.utils.dlpack

    torch.manual_seed(number)
    torch.backends.cudnn.allow_tf32 = False
    kind, (name, whole, shapes) = drawn(seed, number, families)
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[kind]
    row: dict[str, Any] = {"number": number, "name": f"{kind} {name}", "ratio": 0.0}
    whole = whole.eval().cuda().to(dtype)
    given = [(torch.randn(shape, device="cuda") * 0.5).to(dtype) for shape in shapes]
    begin = time.perf_counter()
    try:
        exported = torch.export.export(whole, tuple(each.clone() for each in given))
        exe: Any = plica.compile(plica.from_torch(exported), target="cuda", cache=False)
    except (plica.PlicaError, CompilerBug) as error:
        return {**row, "refused": str(error).splitlines()[0][:120]}
    except RuntimeError as error:  # torch's own: it cannot export the network
        return {**row, "ratio": 1.0, "refused": f"torch: {str(error).splitlines()[0][:110]}"}
    row["made"] = time.perf_counter() - begin
    with torch.inference_mode():
        got = torch.utils.dlpack.from_dlpack(exe(*given)).double()
        exact = whole.double()(*[each.double() for each in given])
        whole = whole.to(dtype)
        scale = float(exact.abs().max()) or 1.0
        row["error"] = float((got - exact).abs().max()) / scale
        row["wrong"] = not row["error"] <= ERROR[kind]
        timers = {"plica": of_executable(exe, *given), "torch": of_graph(lambda: whole(*given))}
        times = in_turns(timers, ROUNDS, RUNS)
    ours, theirs = times["plica"], times["torch"]
    row |= {"seconds": ours.median, "torch": theirs.median, "ratio": theirs.median / ours.median}
    return {**row, "least": ours.least, "torch_least": theirs.least}


def shown(rows: list[dict[str, Any]]) -> int:
    """The table, the slowest first, and quantiles; 1 where a number is wrong."""
    for row in sorted(rows, key=lambda each: float(each["ratio"])):
        what = row.get("refused")
        if what is None:
            mine, other = (row[word] * 1e6 for word in ("seconds", "torch"))
            wrong = "  WRONG" if row["wrong"] else ""
            what = f"{mine:9.1f} us | torch {other:9.1f} us | error {row['error']:.1e}{wrong}"
        print(f"{row['ratio']:6.2f}x  {row['number']:4}  {row['name'][:52]:52} {what}")
    ratios = sorted(float(row["ratio"]) for row in rows)
    if ratios:
        parts = {f"p{part}": float(np.percentile(ratios, part)) for part in (5, 10, 50)}
        mean = math.exp(statistics.mean(math.log(max(each, 1e-3)) for each in ratios))
        told = ", ".join(f"{word} {value:.2f}" for word, value in parts.items())
        refused = sum("refused" in row for row in rows)
        least = f"{len(ratios)} cases: least {ratios[0]:.2f}"
        print(f"{least}, {told}, mean {mean:.2f}, {refused} refused")
    return int(any(row.get("wrong") for row in rows))


def main() -> int:
    """The cases of a part, or files of parts as one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=420)
    parser.add_argument("--families", nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--merge", nargs="*", type=Path)
    asked = parser.parse_args()
    if asked.merge:
        return shown([row for each in asked.merge for row in json.loads(each.read_text())])
    rows: list[dict[str, Any]] = []
    begin = time.monotonic()
    # What is printed last is what counts; a dot says that a case is done.
    for number in range(asked.first, asked.n):
        if time.monotonic() - begin > asked.seconds:
            print(f"the next part begins with --first {number}")
            break
        rows.append(measured(asked.seed, number, asked.families))
        print(".", end="", flush=True)
        if asked.json:
            asked.json.write_text(json.dumps(rows))
    return shown(rows)


if __name__ == "__main__":
    sys.exit(main())
