"""Attention on a GPU beside torch's backends, in CUDA graphs, in one run.

    python benchmarks/gpu_attention.py [WORD …] [--tiles 4,2,64 g8,1,128] [--json FILE]

Shapes are batch x heads x queries x keys x width, f16, causal or not; a word picks those that have
it in their name.  Results on fresh inputs are compared with those of torch in float64, of one head;
times are medians of CUDA events around a graph on both sides, in turns, each run queued behind a
kernel that keeps the device busy while it is launched (`device_time.py`).  `flash` and `cudnn` are
torch's backends of these names.  With tiles (warps, squares of 16 rows, keys; `g` for warps that
multiply together), those are tried in the place of what is chosen.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plica
from benchmarks.device_time import in_turns, of_executable, of_graph
from plica.codegen.cuda.scheduled import for_threads
from plica.core.diagnostic import CompilerBug
from plica.schedule.default.gpu import attention_form
from plica.schedule.default.gpu.attention_tile import AttentionTile

ROUNDS, RUNS = 3, 10
ERROR = 4e-3
"""In units of the greatest value: weights are rounded to f16 on both sides."""

SHAPES = (
    (8, 16, 1024, 64), (8, 16, 512, 64), (4, 16, 2048, 64), (2, 16, 4096, 64), (1, 16, 8192, 64),
    (8, 16, 1024, 128), (2, 16, 4096, 128),
)  # fmt: skip


def cases() -> Iterator[tuple[str, tuple[int, int, int, int], bool]]:
    """By name: batch, heads, length, width, and whether a row sees later keys."""
    for shape in SHAPES:
        for causal in (False, True):
            if causal and shape[2] == 512:
                continue
            yield f"{'x'.join(map(str, shape))}{' causal' if causal else ''}", shape, causal


def backends() -> dict[str, Any]:
    """Torch's own, by name."""
    from torch.nn.attention import SDPBackend

    return {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def network(causal: bool) -> Any:
    """Attention of what is given."""
    from torch import nn

    class Attention(nn.Module):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return Attention()


def measured(
    name: str,
    shape: tuple[int, int, int, int],
    causal: bool,
    tile: AttentionTile | None,
    together: bool,
) -> dict[str, Any]:
    """One shape: right first, then how long it takes."""
    import torch
    import torch.utils.dlpack
    from torch.nn.attention import sdpa_kernel

    usual = attention_form.ATTENTION, attention_form.GROUP_ATTENTION
    try:
        if tile is not None:  # for the time of a compilation
            attention_form.ATTENTION = () if together else (tile,)  # type: ignore[misc]
            attention_form.GROUP_ATTENTION = (tile,) if together else ()  # type: ignore[misc]
        for_threads.cache_clear()
        whole = network(causal)
        given = [torch.randn(shape, device="cuda").half() for _ in range(3)]
        exported = torch.export.export(whole, tuple(given))
        exe: Any = plica.compile(plica.from_torch(exported), target="cuda", cache=False)
    finally:
        attention_form.ATTENTION, attention_form.GROUP_ATTENTION = usual  # type: ignore[misc]  # as they were
    with torch.inference_mode():
        got = torch.utils.dlpack.from_dlpack(exe(*given))[-1, -1].double()
        exact = whole(*[each[-1, -1].double() for each in given])
        error = float((got - exact).abs().max() / exact.abs().max())
        timers = {"plica": of_executable(exe, *given)}
        for word, backend in backends().items():
            try:
                with sdpa_kernel(backend):
                    timers[word] = of_graph(lambda: whole(*given))
            except RuntimeError:
                continue
        times = in_turns(timers, ROUNDS, RUNS)
    least = {word: each.least for word, each in times.items()}
    other = {word: each.median for word, each in times.items()}
    mine = other.pop("plica")
    b, h, n, d = shape
    work = 4 * b * h * n * n * d * (0.5 if causal else 1)
    beside = " | ".join([f"{w} {s * 1e6:8.1f} us {s / mine:5.2f}x" for w, s in other.items()])
    shown = "" if tile is None else f"{'g' * together}{tile.warps},{tile.high},{tile.keys}"
    wrong = "" if error <= ERROR else "  WRONG"
    print(f"{name:24} {shown:8} {mine * 1e6:8.1f} us {work / mine / 1e12:4.0f} TFLOP/s | {beside}"
          f" | error {error:.1e}{wrong}", flush=True)  # fmt: skip
    return {"name": name, "tile": shown, "seconds": mine, "error": error, **other,
            "least": least}  # fmt: skip


def main() -> None:
    """Each shape, by each tile."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--tiles", nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    tiles: list[tuple[AttentionTile | None, bool]] = [
        (AttentionTile(*map(int, each.lstrip("g").split(","))), each.startswith("g"))
        for each in asked.tiles
    ]
    rows: list[dict[str, Any]] = []
    for name, shape, causal in cases():
        if asked.words and not any(word in name for word in asked.words):
            continue
        for tile, together in tiles or [(None, False)]:
            try:
                rows.append(measured(name, shape, causal, tile, together))
            except (plica.PlicaError, CompilerBug) as error:
                kind = "refused" if isinstance(error, plica.PlicaError) else "BUG"
                print(f"{name:24} {kind}: {str(error).splitlines()[0][:160]}", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
