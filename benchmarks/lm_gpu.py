"""A decoding step of a language model on a GPU beside torch and beside a copy, in one run.

    python benchmarks/lm_gpu.py [1B 8B …] [--layers N] [--batch B …] [--cache N …] [--compiled]

Grouped queries, rotary positions and SwiGLU in bf16 with random weights, as a module that
`torch.export` reads.  Times are medians of CUDA events around a graph on both sides, in turns
(`device_time.py`).  `copy` moves as many bytes as weights and cache have, so its ratio is the share
of the copy bandwidth.  The error is that of the logits against float32, beside torch's own.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, Final

from attrs import evolve, frozen

import plica
from benchmarks.device_time import in_turns, of_executable, of_graph

ROUNDS, RUNS = 3, 10
MAX_ERROR_BESIDE_TORCH: Final = 2.0  # times torch's own error in bf16


@frozen
class DecoderSize:
    """The sizes of a decoder."""

    layers: int
    width: int
    hidden: int
    heads: int
    shared: int
    words: int = 128_256

    @property
    def head(self) -> int:
        return self.width // self.heads


SIZES: Final = {"1B": DecoderSize(16, 2048, 8192, 32, 8), "8B": DecoderSize(32, 4096, 14336, 32, 8)}


def network(of: DecoderSize) -> Any:
    """One decoding step: the logits of a token, and its keys and values of each layer."""
    import torch
    from torch import nn
    from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

    def turned(x: Any, angle: Any) -> Any:
        first, second = x.chunk(2, -1)
        rotated = torch.cat((-second, first), -1)
        return (x * angle.cos() + rotated * angle.sin()).to(x.dtype)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            linear = lambda a, b: nn.Linear(a, b, bias=False)  # noqa: E731  # the only use
            narrow = of.shared * of.head
            self.q, self.o = linear(of.width, of.width), linear(of.width, of.width)
            self.k, self.v = linear(of.width, narrow), linear(of.width, narrow)
            self.gate, self.up = linear(of.width, of.hidden), linear(of.width, of.hidden)
            self.down = linear(of.hidden, of.width)
            self.first, self.second = (nn.Parameter(torch.ones(of.width)) for _ in range(2))

        def forward(self, x: Any, angle: Any, keys: Any, values: Any) -> Any:
            rows = x.shape[0]
            y = rms_norm(x, (of.width,), self.first)
            q, k, v = (
                part(y).view(rows, 1, heads, of.head).transpose(1, 2)
                for part, heads in ((self.q, of.heads), (self.k, of.shared), (self.v, of.shared))
            )
            k = turned(k, angle)
            all_keys, all_values = torch.cat((keys, k), 2), torch.cat((values, v), 2)
            attended = scaled_dot_product_attention(
                turned(q, angle), all_keys, all_values, enable_gqa=True
            )
            x = x + self.o(attended.transpose(1, 2).reshape(rows, 1, of.width))
            y = rms_norm(x, (of.width,), self.second)
            return x + self.down(silu(self.gate(y)) * self.up(y)), k, v

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(of.words, of.width)
            self.layers = nn.ModuleList([Layer() for _ in range(of.layers)])
            self.norm = nn.Parameter(torch.ones(of.width))

        def forward(self, token: Any, angle: Any, *cache: Any) -> Any:
            x, new = self.words(token), []
            for layer, keys, values in zip(self.layers, cache[::2], cache[1::2], strict=True):
                x, k, v = layer(x, angle, keys, values)
                new += [k, v]
            logits = rms_norm(x, (of.width,), self.norm) @ self.words.weight.T
            return logits, *new

    torch.manual_seed(0)
    with torch.device("cuda"):
        made = Decoder().to(torch.bfloat16)
    with torch.no_grad():
        for weight in made.parameters():
            if weight.dim() > 1:
                weight.normal_(0, weight.shape[1] ** -0.5)
    return made.eval()


def inputs(of: DecoderSize, batch: int, cached: int) -> list[Any]:
    """A token, its angles, and a cache."""
    import torch

    token = torch.randint(of.words, (batch, 1), device="cuda")
    angle = (torch.rand((1, 1, 1, of.head), device="cuda") * 6).to(torch.bfloat16)
    shape = (batch, of.shared, cached, of.head)
    cache = [torch.randn(shape, device="cuda").to(torch.bfloat16) for _ in range(2 * of.layers)]
    return [token, angle, *cache]


def measured(word: str, of: DecoderSize, batch: int, cached: int, compiled: bool) -> None:
    """One case: right first, then how long it takes."""
    import torch
    import torch.utils.dlpack

    whole, given = network(of), inputs(of, batch, cached)
    begin = time.perf_counter()
    exported = torch.export.export(whole, tuple(given))
    exe: Any = plica.compile(plica.from_torch(exported), target="cuda", cache=False)
    seconds = time.perf_counter() - begin
    with torch.inference_mode():
        got = torch.utils.dlpack.from_dlpack(exe(*given)[0]).float()
        own = whole(*given)[0].float()
        wide = network(of).float()
        exact = wide(*[x.float() if x.is_floating_point() else x for x in given])[0]
        del wide
        top = exact.abs().max()
        error, theirs = (float((x - exact).abs().max() / top) for x in (got, own))
        size = sum(x.numel() * x.element_size() for x in (*whole.parameters(), *given))
        one, two = (torch.zeros(size // 2, dtype=torch.int8, device="cuda") for _ in range(2))
        timers = {"plica": of_executable(exe, *given), "torch": of_graph(lambda: whole(*given)),
                  "copy": of_graph(lambda: two.copy_(one))}  # fmt: skip
        if compiled:
            fast = torch.compile(whole, mode="max-autotune-no-cudagraphs")
            timers["torch.compile"] = of_graph(lambda: fast(*given))
        times = in_turns(timers, ROUNDS, RUNS)
    mine = times.pop("plica")
    beside = " | ".join(
        f"{name} {t.median * 1e3:.3f} ms {t.median / mine.median:.2f}x "
        f"(least {t.least / mine.least:.2f}x)"
        for name, t in times.items()
    )
    wrong = "" if error <= MAX_ERROR_BESIDE_TORCH * theirs else "  WRONG"
    print(f"{word} {of.layers} layers, batch {batch}, cache {cached}: {mine.median * 1e3:.3f} ms "
          f"{size / mine.median / 1e12:.2f} TB/s | {beside} | error {error:.1e}, torch {theirs:.1e}"
          f"{wrong} | compiled in {seconds:.1f} s", flush=True)  # fmt: skip


def main() -> None:
    """Each case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", default=["1B"], help=f"of {', '.join(SIZES)}")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--cache", type=int, nargs="+", default=[1024])
    parser.add_argument("--compiled", action="store_true", help="torch.compile beside it, too")
    asked = parser.parse_args()
    for word in asked.words:
        of = SIZES[word]
        of = evolve(of, layers=asked.layers) if asked.layers else of
        for batch in asked.batch:
            for cached in asked.cache:
                measured(word, of, batch, cached, asked.compiled)


if __name__ == "__main__":
    main()
