"""Attention of few queries to a long cache beside torch and beside a copy, in one run.

    python benchmarks/gpu_decode.py [WORD …] [--json FILE]

Shapes are batch x heads (x heads of the cache) x queries x keys x width.  Results on fresh inputs
are compared with those of torch in float64; times are medians of CUDA events around a graph on
both sides, in turns, each run queued behind a kernel that keeps the device busy while it is
launched (`device_time.py`).  `copy` is a copy that moves as many bytes as keys and values have, so
its ratio is the share of the copy bandwidth.  Small caches stay in the second level of cache
between runs, on all sides alike.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from attrs import frozen

import plica
from benchmarks.device_time import in_turns, of_executable, of_graph
from plica.core.diagnostic import CompilerBug

ROUNDS, RUNS = 3, 10
ERROR = {"f16": 2e-3, "bf16": 2e-2, "f32": 1e-5}
"""In units of the greatest value."""


@frozen
class DecodeCase:
    """Sizes of a decode step, and what masks its keys."""

    batch: int
    heads: int
    shared: int
    queries: int
    keys: int
    width: int
    dtype: str = "f16"
    mask: str = ""

    def __str__(self) -> str:
        sizes = (self.batch, self.heads, self.shared, self.queries, self.keys, self.width)
        return f"{'x'.join(map(str, sizes))} {self.dtype}{' ' * bool(self.mask)}{self.mask}"


CASES = (
    DecodeCase(8, 32, 32, 1, 4096, 128),
    DecodeCase(1, 16, 16, 1, 2048, 64),
    DecodeCase(8, 32, 8, 1, 4096, 128),
    DecodeCase(1, 32, 8, 1, 8192, 128),
    DecodeCase(4, 16, 2, 1, 3001, 64, "bf16", "bool"),
    DecodeCase(2, 12, 12, 4, 1000, 80, "f16", "float"),
    DecodeCase(8, 16, 16, 1, 2048, 128, "f32"),
    DecodeCase(1, 8, 1, 1, 32768, 128, "bf16"),
    DecodeCase(16, 12, 12, 1, 700, 64, "f32", "bool"),
    DecodeCase(64, 32, 32, 1, 150, 128),
)


def network(case: DecodeCase) -> Any:
    """Attention of what is given."""
    from torch import nn

    class Decode(nn.Module):
        def forward(self, q: Any, k: Any, v: Any, *mask: Any) -> Any:
            return nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask[0] if mask else None, enable_gqa=case.heads != case.shared
            )

    return Decode()


def inputs(case: DecodeCase) -> list[Any]:
    """Queries, keys, values and what masks them."""
    import torch

    kind = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[case.dtype]
    cache = (case.shared, case.keys)
    shapes = [
        (case.batch, *each, case.width) for each in ((case.heads, case.queries), cache, cache)
    ]
    given = [torch.randn(shape, device="cuda").to(kind) for shape in shapes]
    if case.mask:
        drawn = torch.randn((case.batch, 1, case.queries, case.keys), device="cuda")
        given.append(drawn > -1 if case.mask == "bool" else drawn.to(kind))
    return given


def measured(case: DecodeCase) -> dict[str, Any]:
    """One case: right first, then how long it takes."""
    import torch
    import torch.utils.dlpack

    whole, given, again = network(case), inputs(case), inputs(case)
    exported = torch.export.export(whole, tuple(given))
    exe: Any = plica.compile(plica.from_torch(exported), target="cuda", cache=False)
    with torch.inference_mode():
        got = torch.utils.dlpack.from_dlpack(exe(*again)).double()
        exact = whole(*[each if each.dtype is torch.bool else each.double() for each in again])
        error = float((got - exact).abs().max() / exact.abs().max())
        size = sum(each.numel() * each.element_size() for each in given[1:3])
        one, two = (torch.zeros(size // 2, dtype=torch.int8, device="cuda") for _ in range(2))
        timers = {"plica": of_executable(exe, *given), "torch": of_graph(lambda: whole(*given)),
                  "copy": of_graph(lambda: two.copy_(one))}  # fmt: skip
        times = in_turns(timers, ROUNDS, RUNS)
    least = {word: each.least for word, each in times.items()}
    other = {word: each.median for word, each in times.items()}
    mine = other.pop("plica")
    beside = " | ".join([f"{w} {s * 1e6:7.1f} us {s / mine:5.2f}x" for w, s in other.items()])
    launches = sum(row.each for row in exe.profile(*given).rows)
    wrong = "" if error <= ERROR[case.dtype] else "  WRONG"
    print(f"{case!s:34} {mine * 1e6:7.1f} us {size / mine / 1e12:4.2f} TB/s | {beside} | "
          f"{launches:.0f} launches | error {error:.1e}{wrong}", flush=True)  # fmt: skip
    return {"name": str(case), "seconds": mine, "error": error, **other, "least": least}


def main() -> None:
    """Each case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for case in CASES:
        if asked.words and not any(word in str(case) for word in asked.words):
            continue
        try:
            rows.append(measured(case))
        except (plica.PlicaError, CompilerBug) as error:
            kind = "refused" if isinstance(error, plica.PlicaError) else "BUG"
            print(f"{case!s:34} {kind}: {str(error).splitlines()[0][:160]}", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
