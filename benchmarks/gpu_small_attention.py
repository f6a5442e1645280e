"""Small attention on a GPU, drawn by a seed, beside the best of torch's backends, in one run.

    python benchmarks/gpu_small_attention.py --seed SEED [--n 40] [--seconds 200] [--json FILE]
                                             [--tiles 4] [--workers 2]

Batches of 1 to 64, few heads, some of which share keys, 1 to 300 queries and up to 1,500 keys,
causal or not, heads 32 to 128 wide, f16, bf16 and f32.  Results on fresh inputs are compared with
those of torch in float64; times are medians of CUDA events around a graph on both sides, in turns,
each run queued behind a kernel that keeps the device busy while it is launched (`device_time.py`);
torch's is the least of what its backends take.  Each row says how many blocks of how many warps
were launched.  With tiles, a given number of others are drawn and tried beside what is chosen: the
cost of tiles is fitted to those.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import re
import tempfile
import time
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from attrs import asdict, frozen

import plica
from benchmarks.device_time import in_turns, of_executable, of_graph
from plica.codegen.cuda.scheduled import for_threads
from plica.core.diagnostic import CompilerBug
from plica.schedule.default.gpu import attention_form, choose
from plica.schedule.default.gpu.attention_tile import AttentionTile

ROUNDS, RUNS = 5, 8
ERROR = {"f16": 4e-3, "bf16": 3e-2, "f32": 2e-5}
"""In units of the greatest value."""


@frozen
class SmallCase:
    """Sizes of an attention."""

    batch: int
    heads: int
    shared: int
    queries: int
    keys: int
    width: int
    dtype: str
    causal: bool

    def __str__(self) -> str:
        sizes = (self.batch, self.heads, self.shared, self.queries, self.keys, self.width)
        return f"{self.dtype} {'x'.join(map(str, sizes))}{' causal' * self.causal}"


def cases(seed: int) -> Iterator[SmallCase]:
    """Cases without end, of some of which queries are as many as keys."""
    draw = random.Random(f"small attention/{seed}")

    def size(least: int, most: int) -> int:
        return round(math.exp(draw.uniform(math.log(least), math.log(most))))

    while True:
        batch, heads, queries = size(1, 64), size(1, 16), size(1, 300)
        shared = draw.choice([each for each in (1, 2, 4) if heads % each == 0])
        square = draw.random() < 0.6
        keys = queries if square else size(16, 1500)
        causal = square and queries > 1 and draw.random() < 0.5
        width = draw.choice((32, 64, 64, 72, 80, 96, 128, 128))
        dtype = draw.choice(("f16", "f16", "bf16", "f32"))
        if batch * heads * queries * keys <= 1 << 25:
            yield SmallCase(batch, heads, heads // shared, queries, keys, width, dtype, causal)


def network(of: SmallCase) -> Any:
    """Attention of what is given."""
    from torch import nn

    class Attention(nn.Module):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=of.causal, enable_gqa=of.heads != of.shared
            )

    return Attention()


def inputs(of: SmallCase) -> list[Any]:
    """Queries, keys and values."""
    import torch

    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[of.dtype]
    shapes = [(of.batch, of.heads, of.queries, of.width)]
    shapes += [(of.batch, of.shared, of.keys, of.width)] * 2
    return [torch.randn(shape, device="cuda").to(dtype) for shape in shapes]


WAYS = {"warps": "ATTENTION", "wgmma": "GROUP_ATTENTION", "f32": "WIDE_ATTENTION"}
"""Tables of tiles, by the word that says which one a tile is of."""


USUAL = {table: getattr(attention_form, table) for table in WAYS.values()}
"""All tiles of each table."""


def only(way: str) -> None:
    """Lets one tile be all there is for this process, or a way to read keys in parts."""
    for_threads.cache_clear()
    if not way:
        for table, tiles in USUAL.items():
            setattr(attention_form, table, tiles)
        setattr(choose, "in_key_parts", attention_form.in_key_parts)  # noqa: B010  # as it was
        return
    word, *numbers = way.replace(",", " ").split()
    for each, table in WAYS.items():
        tiles = (AttentionTile(*map(int, numbers)),) if each == word else ()
        setattr(attention_form, table, tiles)
    whole = attention_form.in_key_parts

    def some(*given: Any) -> Iterator[Any]:
        found = list(whole(*given))
        return iter(found[int(numbers[0]) :][:1] if word == "keys" else [])

    setattr(choose, "in_key_parts", some)  # noqa: B010  # for this process alone


def built(of: SmallCase, way: str, to: str) -> str:
    """Compiles a case into a file; says what is launched."""
    import torch

    only(way)
    exported = torch.export.export(network(of), tuple(inputs(of)))
    exe: Any = plica.compile(plica.from_torch(exported), target="cuda", cache=False)
    exe.save(to)
    text = str(exe.source("kernel"))
    launches = []
    for each in text.split("@plica.kernel")[1:]:
        for part in each.split('thread("blockIdx.x"')[1:]:
            sizes = re.findall(r"i32\((\d+)\)", part)[:1]
            sizes += re.findall(r'thread\("threadIdx.y", i32\((\d+)\)', part)[:1]
            launches.append("x".join(sizes) + ("+" if "mixes" in part else ""))
    return " ".join(launches) + (" wgmma" if "wgmma" in str(exe.source("cuda")) else "")


def worker(of: SmallCase, way: str, to: str) -> str:
    """The same, or why not."""
    try:
        return built(of, way, to)
    except (plica.PlicaError, CompilerBug, RuntimeError) as error:
        return f"REFUSED {str(error).splitlines()[0][:90]}"


def timers_of_torch(whole: Any, given: list[Any]) -> dict[str, Any]:
    """What torch has for it."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    found = {}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION,
                    SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH):  # fmt: skip
        try:
            with sdpa_kernel(backend):
                found[backend.name.split("_")[0].lower()] = of_graph(lambda: whole(*given))
        except RuntimeError:
            continue
    return found


def measured(of: SmallCase, paths: dict[str, tuple[str, str]]) -> list[dict[str, Any]]:
    """One case: right first, then how long each way takes."""
    import torch
    import torch.utils.dlpack

    whole, given, rows, timers = network(of), inputs(of), [], {}
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = whole(*[each.double() for each in given])
        for way, (path, how) in paths.items():
            if how.startswith("REFUSED"):
                print(f"{of!s:34} {way:14} {how}", flush=True)
                continue
            exe: Any = plica.load(path)
            got = torch.utils.dlpack.from_dlpack(exe(*given)).double()
            error = float((got - exact).abs().max() / exact.abs().max())
            timers[way] = of_executable(exe, *given)
            rows.append({**asdict(of), "name": str(of), "way": way, "how": how, "error": error})
        others = timers_of_torch(whole, given)
        times = in_turns({**timers, **others}, ROUNDS, RUNS)
    beside, word = min((times[word].median, word) for word in others)
    for row in rows:
        mine = times[row["way"]]
        row |= {"seconds": mine.median, "least": mine.least, "torch": beside}
        row |= {"ratio": beside / mine.median, "wrong": not row["error"] <= ERROR[of.dtype]}
        print(f"{row['ratio']:5.2f}x {of!s:34} {row['way']:14} {mine.median * 1e6:7.1f} us "
              f"({mine.least * 1e6:6.1f}) | {word:9} {beside * 1e6:7.1f} us | {row['how']} | "
              f"{row['error']:.0e}{'  WRONG' * row['wrong']}", flush=True)  # fmt: skip
    return rows


def fits(of: SmallCase, word: str, tile: AttentionTile) -> bool:
    """Whether a tile is not much larger than the work, and has memory."""
    size = 4 if of.dtype == "f32" else 2
    wide = -(-of.width // 64) * 64 if word == "wgmma" else of.width
    shared = size * wide * (tile.rows + 4 * tile.span) + 4 * tile.parts * tile.rows * wide
    whole = word != "wgmma" or -(-of.keys // 64) % (tile.span // 64) == 0
    near = tile.rows < of.queries + 64 and tile.span < of.keys + 64 and tile.high * wide <= 256
    return whole and near and shared <= 225 * 1024 and min(of.queries, of.keys) >= 8


def ways(of: SmallCase, count: int, draw: random.Random) -> list[str]:
    """The default, and others that are drawn."""
    words = ["f32"] if of.dtype == "f32" else ["warps", "wgmma"]
    some = {word: [tile for tile in USUAL[WAYS[word]] if fits(of, word, tile)] for word in words}
    found = [""]
    for word, tiles in some.items():
        few = count if word == "f32" else count // 3 if word == "wgmma" else count - count // 3
        chosen = draw.sample(tiles, min(few, len(tiles)))
        found += [f"{word} {e.warps},{e.high},{e.keys},{e.parts}" for e in chosen]
    if count and (of.queries <= 32 or of.heads > of.shared):
        found += [f"keys {at}" for at in range(1 if of.dtype == "f32" else 3)]
    return found


def main() -> int:
    """Each case, by the default and other ways."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n", type=int, default=40)
    parser.add_argument("--tiles", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    begun, rows = time.monotonic(), []
    draw = random.Random(f"ways/{asked.seed}")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, context.Pool(asked.workers) as pool:
        jobs = []
        for number, of in enumerate(islice(cases(asked.seed), asked.n)):
            made = {}
            for at, way in enumerate(ways(of, asked.tiles, draw)):
                to = f"{folder}/{number}-{at}.plica"
                made[way] = (to, pool.apply_async(worker, (of, way, to)))
            jobs.append((of, made))
        for of, made in jobs:
            left = asked.seconds - (time.monotonic() - begun)
            try:
                paths = {way: (to, job.get(max(0.0, left))) for way, (to, job) in made.items()}
            except multiprocessing.TimeoutError:
                print("no time for the rest", flush=True)
                break
            rows += measured(of, paths)
            if asked.json:
                asked.json.write_text(json.dumps(rows))
        pool.terminate()
    ratios = sorted(row["ratio"] for row in rows if not row["way"])
    if ratios:
        few = f"least {ratios[0]:.2f}x, tenth {ratios[len(ratios) // 10]:.2f}x"
        mean = f"median {median(ratios):.2f}x, geometric mean {geometric_mean(ratios):.2f}x"
        print(f"{len(ratios)} cases: {few}, {mean}")
    return int(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
