"""Networks, products and memory-bound work on a GPU beside torch in a CUDA graph, in one run.

    python benchmarks/gpu_rows.py zoo resnet50 sequences memory products
        [--only WORD …] [--seed 0] [--drawn 50] [--seconds 480] [--workers 12] [--json FILE]
    python benchmarks/gpu_rows.py --compile          ResNet-18 alone, by all cores: cold, then warm

Cases of `benchmarks/gpu_cases.py` are exported, compiled and saved by several processes; each is
loaded as soon as it is there, its results on fresh inputs are compared with torch's in float64
(those of many elements in f32), and it is timed in turns with torch: medians of CUDA events around
a graph on both sides, no TF32, each run queued behind a kernel that keeps the device busy while it
is launched (`device_time.py`).  `ratio` is torch's time over ours; `copy` is the share of what a
copy of the same bytes would take at the bandwidth of a copy of 1 GiB, and beside it of what one of
as many bytes takes in the same run.  What is not there after a given number of seconds is left out
and named.  A refusal counts as 0; a wrong number ends the command with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import plica
from benchmarks.device_time import Timer, in_turns, of_executable, of_graph
from benchmarks.gpu_cases import cases, made
from plica.rewrite.fuzz.judge import CRASHES

ROUNDS, RUNS = 3, 10
ERROR = {"f32": 1e-3, "f16": 4e-2, "bf16": 8e-2}
FEW = 40_000_000
"""Elements of inputs whose exact result is made in float64."""

Compiled = tuple[float, int]
"""Seconds, and launches."""


def compiled(name: str, path: str) -> Compiled:
    """Compile and save a case in a process of its own."""
    import torch

    os.environ["PLICA_JOBS"] = "1"  # others have the other cores
    torch.set_num_threads(1)
    network, given, _ = made(name, 1)
    exported = torch.export.export(network, tuple(given))
    begin = time.perf_counter()
    exe: Any = plica.compile(plica.from_torch(exported), target="cuda", cache=False)
    seconds = time.perf_counter() - begin
    exe.save(path)
    return seconds, len(exe.artefact.device.steps)


def tensors(of: Any) -> list[Any]:
    """The tensors of a result."""
    return [leaf for each in of for leaf in tensors(each)] if isinstance(of, tuple | list) else [of]


def bandwidth() -> float:
    """Bytes that a copy reads and writes in a second."""
    times = in_turns({"copy": copying(1 << 30)}, 1, RUNS)
    return 2 * (1 << 30) / times["copy"].median


def copying(size: int) -> Timer:
    """A copy of a given number of bytes."""
    import torch

    one = torch.empty(size, dtype=torch.uint8, device="cuda")
    two = torch.empty_like(one)
    return of_graph(lambda: two.copy_(one))


def measured(name: str, path: str, made_of: Compiled, rate: float) -> dict[str, Any]:
    """A case beside torch: right first, then how long it takes."""
    import torch
    import torch.utils.dlpack

    torch.backends.cudnn.allow_tf32 = False
    exe: Any = plica.load(path)
    network, given, kind = made(name, 2)
    with torch.inference_mode():
        got = [torch.utils.dlpack.from_dlpack(each) for each in tensors(exe(*given))]
        moved = sum(each.nbytes for each in (*given, *got))
        if ":gather" in name:
            moved = 2 * sum(each.nbytes for each in got)
        timers = {"plica": of_executable(exe, *given), "torch": of_graph(lambda: network(*given))}
        if name.startswith("mem"):
            timers["copy"] = copying(moved // 2)
        times = in_turns(timers, ROUNDS, RUNS)
        wide = torch.float64 if sum(each.numel() for each in given) <= FEW else torch.float32
        exact = tensors(network.to(wide)(*[each.to(wide) if each.is_floating_point() else each
                                           for each in given]))  # fmt: skip
        error = max(float((one.double() - other.double()).abs().max()
                          / other.double().abs().max().clamp(min=1e-9))
                    for one, other in zip(got, exact, strict=True))  # fmt: skip
    mine, other = times["plica"].median, times["torch"].median
    seconds, launches = made_of
    wrong = not error <= ERROR[kind]
    share = ""
    if "copy" in times:
        same = times["copy"].median / mine
        share = f" | copy {moved / mine / rate:4.2f}, of as many bytes {same:4.2f}"
    print(f"{name:38} {mine * 1e6:9.1f} us | torch {other * 1e6:9.1f} us | {other / mine:6.2f}x"
          f"{share} | {launches:3} launches, {seconds:4.1f} s | {error:.0e}{'  WRONG' * wrong}",
          flush=True)  # fmt: skip
    return {"name": name, "kind": kind, "seconds": mine, "torch": other, "error": error,
            "ratio": other / mine, "copy": moved / mine / rate, "wrong": wrong,
            "least": times["plica"].least, "torch_least": times["torch"].least}  # fmt: skip


def tried(name: str, path: str, future: Future[Compiled], rate: float) -> dict[str, Any]:
    """What was measured, or why it was not."""
    try:
        return measured(name, path, future.result(), rate)
    except (*CRASHES, RuntimeError, OSError) as error:
        word = "refused" if isinstance(error, plica.PlicaError) else "FAILED"
        print(f"{name:38} {word}: {(str(error).splitlines() or [''])[0][:160]}", flush=True)
        return {"name": name, "kind": "", "ratio": 0.0, "wrong": False}


def told(rows: Sequence[dict[str, Any]]) -> None:
    """Least, tenth, middle and mean of each group and dtype."""
    groups = sorted({(row["name"].split(":")[0], row["kind"]) for row in rows})
    for group, kind in groups:
        found = sorted(row["ratio"] for row in rows
                       if row["name"].startswith(group) and row["kind"] == kind)  # fmt: skip
        mean = statistics.geometric_mean([max(each, 1e-3) for each in found])
        print(f"{group} {kind or 'not run'}: {len(found)}, least {found[0]:.2f}x, tenth "
              f"{found[len(found) // 10]:.2f}x, median {statistics.median(found):.2f}x, "
              f"geometric mean {mean:.2f}x")  # fmt: skip


def compile_seconds() -> None:
    """ResNet-18 by all cores: the first time, and with what the store has kept."""
    import torch

    for word in ("f32", "f16"):
        network, given, _ = made(f"seq:resnet18 {word} 1", 1)
        module = plica.from_torch(torch.export.export(network, tuple(given)))
        for turn in ("cold", "workers there", "warm"):
            begin = time.perf_counter()
            plica.compile(module, target="cuda", cache=turn == "warm")
            if turn == "warm":  # the first one puts it into the store
                begin = time.perf_counter()
                plica.compile(module, target="cuda")
            print(f"ResNet-18 {word} {turn}: {time.perf_counter() - begin:.2f} s", flush=True)


def main() -> None:
    """Each case, compiled beside others, timed alone."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("groups", nargs="*")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drawn", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--compile", action="store_true")
    asked = parser.parse_args()
    if asked.compile:
        compile_seconds()
        return
    begin = time.perf_counter()
    every = [name for group in asked.groups for name in cases(group, asked.seed, asked.drawn)]
    names = [name for name in every if not asked.only or any(word in name for word in asked.only)]
    rows: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(asked.workers, get_context("spawn")) as pool,
    ):
        path = {name: str(Path(folder) / f"{at}.plica") for at, name in enumerate(names)}
        pending = {pool.submit(compiled, name, path[name]): name for name in names}
        rate = bandwidth()
        print(f"a copy: {rate / 1e12:.2f} TB/s", flush=True)
        try:
            for each in as_completed(pending, asked.seconds - (time.perf_counter() - begin)):
                name = pending[each]
                rows.append(tried(name, path[name], each, rate))
                if time.perf_counter() - begin > asked.seconds:
                    break
        except TimeoutError:
            pass
        pool.shutdown(wait=False, cancel_futures=True)
        done = {row["name"] for row in rows}
        print("no time:", ", ".join(name for name in names if name not in done) or "none")
        told(rows)
        if asked.json:
            asked.json.write_text(json.dumps(rows))
        sys.stdout.flush()
        for process in list((pool._processes or {}).values()):
            process.terminate()  # what is being compiled is of no use any more
    sys.exit(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    main()
