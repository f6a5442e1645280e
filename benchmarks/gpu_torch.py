"""Networks of torch on a GPU, through `plica.from_torch`, beside torch in a CUDA graph, in one run.

    python benchmarks/gpu_torch.py [NAME …] [--profile] [--without PASS …] [--json FILE]

Networks have random weights, which lie on the GPU.  Results on fresh inputs are compared with those
of torch in float64; times are medians of CUDA events around a graph on both sides, in turns, each
run queued behind a kernel that keeps the device busy while it is launched (`device_time.py`), and
nobody uses TF32.
With `--profile` the launches that take longest are listed, each timed by itself.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import plica
from benchmarks.device_time import in_turns, of_executable, of_graph
from plica.core.diagnostic import CompilerBug

ROUNDS, RUNS = 3, 20
LISTED = 14
"""Launches of a profile."""
ERROR = {"f16": 2e-2, "f32": 1e-3}


Made: TypeAlias = "tuple[Any, tuple[int, ...] | tuple[tuple[int, ...], ...]]"
"""A network, and the shape of its input, or those of several."""


def networks() -> dict[str, Callable[[], Made]]:
    """By name: a network, and the shapes of what it is given."""
    import torch
    from torch import nn

    class Residual(nn.Module):
        """Two convolutions and a way around them."""

        def __init__(self, width: int, out: int, stride: int) -> None:
            super().__init__()
            self.way = nn.Sequential(
                nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
                nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out),
            )  # fmt: skip
            same = stride == 1 and width == out
            self.around = nn.Identity() if same else nn.Conv2d(width, out, 1, stride)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.way(x) + self.around(x))

    def resnet() -> Any:
        blocks: list[Any] = []
        width = 64
        for out in (64, 128, 256, 512):
            blocks += [Residual(width, out, 1 if out == 64 else 2), Residual(out, out, 1)]
            width = out
        return nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
            *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000),
        )  # fmt: skip

    class Block(nn.Module):
        """A layer of a transformer."""

        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            q, k, v = self.qkv(self.first(x)).chunk(3, -1)
            q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
            mixed = nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + self.out(mixed.transpose(1, 2).reshape(b, t, c))
            return x + self.mlp(self.second(x))

    class Causal(Block):
        """A layer of a decoder: rows see those before them, and those of a cache."""

        def forward(self, x: Any, *cache: Any) -> Any:
            b, t, c = x.shape
            q, k, v = self.qkv(self.first(x)).chunk(3, -1)
            q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
            if cache:
                k, v = (torch.cat((old, new), 2) for old, new in zip(cache, (k, v), strict=True))
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=not cache)
            x = x + self.out(mixed.transpose(1, 2).reshape(b, t, c))
            return x + self.mlp(self.second(x))

    class Decoder(nn.Module):
        """Layers of a decoder, and a word for each row."""

        def __init__(self, width: int, heads: int, layers: int, words: int) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Causal(width, heads) for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, x: Any, *cache: Any) -> Any:
            for number, layer in enumerate(self.layers):
                x = layer(x, *[each[number] for each in cache])
            return self.head(self.norm(x))

    def encoder(width: int, heads: int) -> Any:
        return nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True)

    class Attention(nn.Module):
        """Softmax between two products, of what is given."""

        def forward(self, x: Any) -> Any:
            q, k, v = x.unbind(0)
            return nn.functional.scaled_dot_product_attention(q, k, v)

    class Speech(nn.Module):
        """Convolutions along time, then a transformer."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv1d(80, 384, 3, 1, 1), nn.Conv1d(384, 384, 3, 2, 1)
            self.rest = nn.Sequential(*[Block(384, 6) for _ in range(2)])

        def forward(self, x: Any) -> Any:
            gelu = nn.functional.gelu
            return self.rest(gelu(self.second(gelu(self.first(x)))).transpose(1, 2))

    def mlp() -> Any:
        return nn.Sequential(
            nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
        )

    return {
        "resnet18 f32 1": lambda: (resnet(), (1, 3, 224, 224)),
        "resnet18 f32 32": lambda: (resnet(), (32, 3, 224, 224)),
        "resnet18 f16 1": lambda: (resnet(), (1, 3, 224, 224)),
        "resnet18 f16 32": lambda: (resnet(), (32, 3, 224, 224)),
        "mlp f16 256": lambda: (mlp(), (256, 784)),
        "mlp f32 256": lambda: (mlp(), (256, 784)),
        "linear f16 512x768x3072": lambda: (nn.Linear(768, 3072), (512, 768)),
        "linear f16 1x4096x4096": lambda: (nn.Linear(4096, 4096), (1, 4096)),
        "block f16 8x1024x1024": lambda: (Block(1024, 16), (8, 1024, 1024)),
        "block f16 1x128x768": lambda: (Block(768, 12), (1, 128, 768)),
        "block f32 1x197x192": lambda: (Block(192, 3), (1, 197, 192)),
        "attention f16 8x16x1024x64": lambda: (Attention(), (3, 8, 16, 1024, 64)),
        "encoder f16 4x256x512": lambda: (encoder(512, 8), (4, 256, 512)),
        "decoder f16 1x512x768": lambda: (Decoder(768, 12, 12, 8000), (1, 512, 768)),
        "decode f16 1x1024x768": lambda: (
            Decoder(768, 12, 12, 8000),
            ((1, 1, 768), *[(12, 1, 12, 1023, 64)] * 2),
        ),
        "decode f16 8x1024x768": lambda: (
            Decoder(768, 12, 12, 8000),
            ((8, 1, 768), *[(12, 8, 12, 1023, 64)] * 2),
        ),
        "speech f32 1x80x600": lambda: (Speech(), (1, 80, 600)),
        "gru f32 50x1x128": lambda: (_First(nn.GRU(128, 128, bidirectional=True)), (50, 1, 128)),
    }


def _First(network: Any) -> Any:  # a class of torch's, made where torch is
    """A network whose first result is wanted."""
    from torch import nn

    class Only(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: Any) -> Any:
            return self.network(x)[0]

    return Only()


def measured(
    name: str, make: Callable[[], Made], profile: bool, without: list[str]
) -> dict[str, Any]:
    """A network beside torch: right first, then how long it takes."""
    import torch
    import torch.utils.dlpack

    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = False  # products of f32 are of f32 on both sides
    kind = name.split()[1]
    dtype = torch.float16 if kind == "f16" else torch.float32
    network, shape = make()
    network = network.eval().cuda().to(dtype)
    shapes: Any = shape if isinstance(shape[0], tuple) else (shape,)
    with torch.inference_mode():
        fresh, again = (
            [(torch.randn(each, device="cuda") * 0.5).to(dtype) for each in shapes]
            for _ in range(2)
        )
    begin = time.perf_counter()
    exported = torch.export.export(network, tuple([each.clone() for each in again]))
    exe: Any = plica.compile(plica.from_torch(exported), target="cuda", cache=False,
                             disabled=tuple(without))  # fmt: skip
    made = time.perf_counter() - begin
    with torch.inference_mode():
        got = torch.utils.dlpack.from_dlpack(exe(*fresh)).double()
        exact = network.double()(*[each.double() for each in fresh])
        network = network.to(dtype)
        error = float((got - exact).abs().max() / exact.abs().max())
        timers = {"plica": of_executable(exe, *again), "torch": of_graph(lambda: network(*again))}
        times = in_turns(timers, ROUNDS, RUNS)
    mine, other = times["plica"].median, times["torch"].median
    wrong = "" if error <= ERROR[kind] else "  WRONG"
    print(f"{name:28} {mine * 1e6:10.1f} us | torch {other * 1e6:9.1f} us | {other / mine:6.3f}x | "
          f"made in {made:5.1f} s | error {error:.1e}{wrong}", flush=True)  # fmt: skip
    if profile:
        for row in sorted(exe.profile(*again).rows, key=lambda each: -each.median)[:LISTED]:
            print(f"    {row.kernel[:48]:48} {row.median * 1e6:9.1f} us  x{row.each:4.0f} "
                  f"{row.gflops / 1e3:6.1f} TFLOP/s {row.gbytes:6.0f} GB/s")  # fmt: skip
    return {"name": name, "seconds": mine, "torch": other, "error": error, "made": made,
            "least": times["plica"].least, "torch_least": times["torch"].least}  # fmt: skip


def main() -> None:
    """Each network, those that are refused with why."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--without", nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, make in networks().items():
        if asked.names and not any(each in name for each in asked.names):
            continue
        try:
            rows.append(measured(name, make, asked.profile, asked.without))
        except (plica.PlicaError, CompilerBug) as error:
            kind = "refused" if isinstance(error, plica.PlicaError) else "BUG"
            print(f"{name:28} {kind}: {str(error).splitlines()[0][:160]}", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
