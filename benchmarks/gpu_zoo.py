"""The zoo of torch networks on a GPU, f32 and f16, beside torch in a CUDA graph, in one run.

    python benchmarks/gpu_zoo.py [NAME …] [--dtype f32 f16] [--batch 1] [--workers 8] [--json FILE]

Networks of `benchmarks/torch_zoo.py` are exported, compiled and saved by several processes; one
after another is loaded as soon as it is there, its results on fresh inputs are compared with
torch's in float64, and it is timed in turns with torch: medians of CUDA events around a graph on
both sides, no TF32.  A refusal counts as 0; a wrong number ends the command with 1.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import plica
from benchmarks.gpu_products import graph_of
from plica.core.diagnostic import CompilerBug

ROUNDS, RUNS = 3, 10
ERROR = {"f32": 1e-3, "f16": 4e-2}


def made(name: str, kind: str, batch: int, seed: int) -> tuple[Any, list[Any]]:
    """A network on the GPU, and inputs; weights are the same in every process."""
    import torch

    from benchmarks.torch_zoo import TORCH_NETWORKS

    torch.manual_seed(0)
    network, _ = TORCH_NETWORKS[name](batch)
    torch.manual_seed(seed)
    _, inputs = TORCH_NETWORKS[name](batch)
    dtype = torch.float16 if kind == "f16" else torch.float32
    given = [each.cuda() for each in inputs]
    return network.eval().cuda().to(dtype), [
        each.to(dtype) if each.is_floating_point() else each for each in given
    ]


def compiled(name: str, kind: str, batch: int, path: str) -> tuple[float, int]:
    """Compile and save a network: the seconds, and the launches."""
    import torch

    network, given = made(name, kind, batch, 1)
    begin = time.perf_counter()
    exported = torch.export.export(network, tuple(given))
    exe: Any = plica.compile(plica.from_torch(exported), target="cuda", cache=False)
    exe.save(path)
    return time.perf_counter() - begin, len(exe.artefact.device.steps)


def tensors(of: Any) -> list[Any]:
    """The tensors of a result."""
    return [leaf for each in of for leaf in tensors(each)] if isinstance(of, tuple | list) else [of]


def measured(
    name: str, kind: str, batch: int, path: str, made_of: Future[tuple[float, int]]
) -> dict[str, Any]:
    """A network beside torch: right first, then how long it takes."""
    import torch
    import torch.utils.dlpack

    torch.backends.cudnn.allow_tf32 = False
    seconds, launches = made_of.result()
    exe: Any = plica.load(path)
    network, given = made(name, kind, batch, 2)
    with torch.inference_mode():
        got = [torch.utils.dlpack.from_dlpack(each).double() for each in tensors(exe(*given))]
        theirs = graph_of(lambda: network(*given))
        wide = [each.double() if each.is_floating_point() else each for each in given]
        exact = tensors(made(name, "f32", batch, 2)[0].double()(*wide))
        error = max(float((one - other).abs().max() / other.abs().max().clamp(min=1e-9))
                    for one, other in zip(got, exact, strict=True))  # fmt: skip
        ours: list[float] = []
        found: list[float] = []
        for _ in range(ROUNDS):
            ours += exe.seconds(*given, runs=RUNS)
            found += [theirs() for _ in range(RUNS)]
    mine, other = statistics.median(ours), statistics.median(found)
    wrong = not error <= ERROR[kind]
    print(f"{name + ' ' + kind:18} {mine * 1e6:9.1f} us | torch {other * 1e6:9.1f} us | "
          f"{other / mine:6.2f}x | {launches:4} launches | made in {seconds:5.1f} s | "
          f"error {error:.1e}{'  WRONG' * wrong}", flush=True)  # fmt: skip
    return {"name": name, "kind": kind, "seconds": mine, "torch": other, "error": error,
            "ratio": other / mine, "wrong": wrong}  # fmt: skip


def tried(name: str, kind: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was measured, or why it was not."""
    try:
        return work()
    except (plica.PlicaError, CompilerBug) as error:
        word = "refused" if isinstance(error, plica.PlicaError) else "BUG"
        print(f"{name + ' ' + kind:18} {word}: {str(error).splitlines()[0][:160]}", flush=True)
        return {"name": name, "kind": kind, "ratio": 0.0, "wrong": False}


def main() -> None:
    """Each network, compiled beside others, timed alone."""
    from benchmarks.torch_zoo import TORCH_NETWORKS

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dtype", nargs="*", default=["f32", "f16"])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    names = [each for each in TORCH_NETWORKS if not asked.names or each in asked.names]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        pending: dict[tuple[str, str], tuple[str, Future[tuple[float, int]]]] = {}
        with ProcessPoolExecutor(asked.workers, get_context("spawn")) as pool:
            for kind in asked.dtype:
                for name in names:
                    path = str(Path(folder) / f"{name}_{kind}.plica")
                    pending[name, kind] = path, pool.submit(compiled, name, kind, asked.batch, path)
            for (name, kind), (path, future) in pending.items():
                work = partial(measured, name, kind, asked.batch, path, future)
                rows.append(tried(name, kind, work))
    for kind in asked.dtype:
        found = sorted(each["ratio"] for each in rows if each["kind"] == kind)
        mean = math.exp(statistics.fmean(math.log(max(each, 1e-3)) for each in found))
        print(f"{kind}: least {found[0]:.2f}x, median {statistics.median(found):.2f}x, "
              f"geometric mean {mean:.2f}x of {len(found)}")  # fmt: skip
    if asked.json:
        asked.json.write_text(json.dumps(rows))
    sys.exit(any(each["wrong"] for each in rows))


if __name__ == "__main__":
    main()
