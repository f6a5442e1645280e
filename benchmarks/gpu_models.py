"""Whole networks on a GPU beside torch in a CUDA graph, in one run: right, and how long they take.

    python benchmarks/gpu_models.py [--models resnet18,mobilenet_v2] [--profile] [--json FILE]

A network of convolutions is the same in torch (cuDNN, TF32 off): its operators one by one with the
same weights, captured in a CUDA graph.  Both are compared with torch's result in float64 on fresh
inputs; times are medians of CUDA events around a graph on both sides, in turns, each run queued
behind a kernel that keeps the device busy while it is launched (`device_time.py`).  Other networks
are compared with the processor's code.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import plica
from benchmarks.device_time import Timer, in_turns, of_executable, of_graph
from plica.core.fold import post_order
from plica.frontend.zoo import NETWORKS
from plica.ir.graph.expression import Apply, Const, Var
from plica.ir.graph.module import Module
from plica.runtime.cuda.program import CudaExecutable
from plica.runtime.port import Port

ROUNDS, RUNS = 5, 10


def drawn(port: Port, random: np.random.Generator) -> np.ndarray:
    if port.dtype[0] in "iu":
        return random.integers(0, 2, port.shape).astype(port.numpy)
    return random.standard_normal(port.shape).astype(port.numpy)


# --- torch ----------------------------------------------------------------------------------------


def _operators() -> dict[str, Callable[..., Any]]:
    import torch
    from torch.nn import functional as of

    return {
        "nn.conv": lambda x, w, a: of.conv2d(
            x, w, None, a["strides"], a["padding"], a["dilation"], a["groups"]
        ),
        "nn.batch_norm": lambda x, g, b, m, v, a: of.batch_norm(
            x, m, v, g, b, False, 0.0, a["epsilon"]
        ),
        "nn.relu": lambda x, a: torch.relu_(x),
        "nn.relu6": lambda x, a: of.hardtanh_(x, 0.0, 6.0),
        "nn.max_pool": lambda x, a: of.max_pool2d(
            x, a["kernel"], a["strides"], a["padding"], a["dilation"], a["ceil_mode"]
        ),
        "nn.global_avg_pool": lambda x, a: x.mean((2, 3), keepdim=True),
        "nn.flatten": lambda x, a: torch.flatten(x, a["axis"]),
        "nn.dense": lambda x, w, a: of.linear(x, w),
        "add": lambda x, y, a: x + y,
    }


def in_torch(module: Module, dtype: Any) -> Callable[[Any], Any] | None:
    """The network in torch, on the GPU, in some precision; None where an operator is not known."""
    import torch

    known = _operators()
    body = module.main_function().body
    steps = [each for each in post_order(body) if isinstance(each, Apply | Const)]
    if any(isinstance(each, Apply) and each.op not in known for each in steps):
        return None
    weights = {
        each: torch.from_numpy(np.array(each.numpy())).to("cuda", dtype)
        for each in steps
        if isinstance(each, Const)
    }

    def network(x: Any) -> Any:
        made: dict[Any, Any] = {**weights}
        for each in steps:
            if isinstance(each, Apply):
                args = [x if isinstance(arg, Var) else made[arg] for arg in each.args]
                made[each] = known[each.op](*args, dict(each.attrs))
        return made[body]

    return network


def beside_torch(module: Module, x: Any) -> tuple[Timer, Any] | None:
    """Torch's timer, and its result in float64; None where torch has no such network here."""
    import torch

    single, double = (in_torch(module, of) for of in (torch.float32, torch.float64))
    if single is None or double is None:
        return None
    with torch.inference_mode():
        given = torch.from_numpy(x).cuda()
        timer = of_graph(lambda: single(given))
        exact = double(given.double()).cpu().numpy()
    return timer, exact


# --- both -----------------------------------------------------------------------------------------


def difference(got: Any, want: Any) -> float:
    pairs = zip(*[x if isinstance(x, tuple) else (x,) for x in (got, want)], strict=True)
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)


def measured(name: str, profile: bool) -> dict[str, Any]:
    """One network: a line of the table is printed, and given."""
    module = NETWORKS[name]()
    begin = time.perf_counter()
    exe = plica.compile(module, target="cuda", cache=False)
    made = time.perf_counter() - begin
    assert isinstance(exe, CudaExecutable)
    random = np.random.default_rng()
    inputs, fresh = ([drawn(port, random) for port in exe.inputs] for _ in range(2))
    timers = {"plica": of_executable(exe, *inputs)}
    got = exe(*fresh)
    theirs = beside_torch(module, fresh[0]) if len(fresh) == 1 else None
    if theirs is not None:
        timers["torch"] = theirs[0]
    times = in_turns(timers, ROUNDS, RUNS)
    ours, other = times["plica"], times.get("torch")
    if theirs is None or other is None:
        error, said = difference(got, plica.compile(module)(*fresh)), "beside the processor's code"
    else:
        error = difference(got, theirs[1])
        said = f"torch's graph {other.median * 1e3:.3f} ms, {other.median / ours.median:.2f}x"
    wrong = "" if error <= 1e-4 else "  WRONG"
    print(
        f"{name:14} {ours.median * 1e3:9.3f} ms | {said} | "
        f"made in {made:.1f} s | error {error:.1e}{wrong}",
        flush=True,
    )
    if profile:
        print(exe.profile(*inputs), flush=True)
    return {
        "name": name, "seconds": ours.median, "torch": other and other.median, "made": made,
        "error": error, "least": ours.least, "torch_least": other and other.least,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default=",".join(NETWORKS))
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    rows = [measured(name, options.profile) for name in options.models.split(",")]
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
