"""The code of another commit beside this one's, in one interleaved run.

    git worktree add ../before COMMIT
    python benchmarks/beside.py ../before [--threads 1] [--rounds 7] [--only TEXT] [--json FILE]
    python benchmarks/beside.py ../before --draw SEED     convolutions of odd sizes, by a seed

Each side is a process of its own with its own checkout on the path, and both use the packages of
this interpreter.  For every workload both compile it (processor time), then take turns in bursts of
calls; what counts is the least time of all bursts.  This checkout is also put beside itself: a run
in which the same code differs from itself by more than 5 % says nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BURST = 0.08
"""Seconds of a burst."""

LAYERS = {
    "C1": (3, 64, 224, 7, 2), "C2": (64, 64, 56, 3, 1), "C3": (64, 64, 56, 1, 1),
    "C4": (64, 128, 56, 3, 2), "C5": (64, 128, 56, 1, 2), "C6": (128, 128, 28, 3, 1),
    "C7": (128, 256, 28, 3, 2), "C8": (128, 256, 28, 1, 2), "C9": (256, 256, 14, 3, 1),
    "C10": (256, 512, 14, 3, 2), "C11": (256, 512, 14, 1, 2), "C12": (512, 512, 7, 3, 1),
    "odd1": (17, 23, 31, 5, 1), "odd2": (30, 50, 30, 3, 1),
}  # fmt: skip
"""Channels, outputs, side, window and stride of convolutions."""

DEPTHWISE = {"D1": (32, 112, 1), "D2": (64, 112, 2), "D5": (256, 28, 1), "D8": (512, 14, 2)}
PRODUCTS = ((512, 512, 512), (1024, 1024, 1024), (127, 131, 129), (256, 256, 7), (33, 768, 768))
ROWS = {"softmax": (1024, 1024), "layer_norm": (1024, 768), "transpose": (1024, 1024)}


def names() -> list[str]:
    """All workloads."""
    from plica.frontend.zoo import NETWORKS

    products = [f"gemm {m}x{k}x{n}" for m, k, n in PRODUCTS]
    layers = [f"conv {each}" for each in (*LAYERS, *DEPTHWISE)]
    return [*[f"model {each}" for each in NETWORKS], *products, *layers, *ROWS]


def drawn(seed: int, count: int = 12) -> list[str]:
    """Convolutions of sizes that nobody chose: channels, outputs, side, window and stride."""
    draw = random.Random(seed)
    sizes = [(draw.randint(5, 90), draw.randint(9, 120), draw.randint(9, 60),
              draw.choice((3, 3, 5)), draw.choice((1, 1, 2))) for _ in range(count)]  # fmt: skip
    return [f"conv {'x'.join(map(str, each))}" for each in sizes]


def module(name: str) -> Any:  # a module of the checkout that is on the path, or an ONNX model
    """A workload: what every commit can read, whatever its files are called."""
    import numpy as np

    from plica.frontend.zoo import NETWORKS

    kind, _, which = name.partition(" ")
    if kind == "model":
        return NETWORKS[which]()
    draw = np.random.default_rng(0)
    if kind == "gemm":
        m, k, n = map(int, which.split("x"))
        return _model((m, k), "MatMul", draw.standard_normal((k, n), np.float32))
    if which in LAYERS or which.count("x") == 4:
        channels, outputs, side, window, stride = LAYERS.get(which) or map(int, which.split("x"))
        weight = draw.standard_normal((outputs, channels, window, window), np.float32)
        pads = [window // 2] * 4
        return _model((1, channels, side, side), "Conv", weight, strides=[stride] * 2, pads=pads)
    if which in DEPTHWISE:
        channels, side, stride = DEPTHWISE[which]
        weight = draw.standard_normal((channels, 1, 3, 3), np.float32)
        more = {"strides": [stride] * 2, "pads": [1] * 4, "group": channels}
        return _model((1, channels, side, side), "Conv", weight, **more)
    ones = np.ones(ROWS[kind][-1], np.float32)
    match kind:
        case "softmax":
            return _model(ROWS[kind], "Softmax", axis=-1)
        case "layer_norm":
            return _model(ROWS[kind], "LayerNormalization", ones, ones)
        case _:
            return _model(ROWS[kind], "Transpose", perm=[1, 0])


def _model(
    shape: tuple[int, ...], op: str, *weights: Any, **attributes: Any
) -> Any:  # a ModelProto
    from onnx import TensorProto, helper, numpy_helper

    kept = [numpy_helper.from_array(each, f"w{n}") for n, each in enumerate(weights)]
    made = "a" if op == "Conv" else "y"
    nodes = [helper.make_node(op, ["x", *[each.name for each in kept]], [made], **attributes)]
    if op == "Conv":
        nodes.append(helper.make_node("Relu", ["a"], ["y"]))
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [given], [result], kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# --- one side -------------------------------------------------------------------------------------


def serve(threads: int) -> None:
    """Compile and run what is asked for, a line each."""
    import numpy as np

    import plica

    call: Any = None
    for line in sys.stdin:
        word, _, name = line.strip().partition(" ")
        if word == "make":
            try:
                whole = module(name)
            except KeyError:  # a network that this commit does not have
                print("null", flush=True)
                continue
            begin = time.process_time()
            exe = plica.compile(whole, threads=threads, cache=False)
            spent = time.process_time() - begin
            draw = np.random.default_rng(1)
            given = [
                draw.standard_normal(port.shape).astype(port.numpy)
                if port.dtype.startswith("f")
                else draw.integers(0, 9, port.shape).astype(port.numpy)
                for port in exe.inputs
            ]
            exe(*given)
            call = (exe, given)
            print(json.dumps(spent), flush=True)
        else:
            exe, given = call
            least, until = math.inf, time.perf_counter() + BURST
            while time.perf_counter() < until:
                begin = time.perf_counter()
                exe(*given)
                least = min(least, time.perf_counter() - begin)
            print(json.dumps(least), flush=True)


class Side:
    """A process with a checkout of its own."""

    def __init__(self, root: Path, threads: int) -> None:
        paths = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
        given = {**os.environ, "PYTHONPATH": paths, "PLICA_CACHE": "off"}
        command = [sys.executable, str(Path(__file__).resolve()), "--serve", str(threads)]
        self.process = subprocess.Popen(
            command, cwd=root, env=given, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, line: str) -> float:
        """The seconds that it took, nan where there is nothing of that name."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return math.nan if answer is None else float(answer)


# --- all ------------------------------------------------------------------------------------------


def rows(
    before: Path, threads: int, rounds: int, wanted: list[str]
) -> Iterator[tuple[str, list[float]]]:
    """Seconds of each workload: the other commit, this one, this one again; then of compiling."""
    here = Path(__file__).resolve().parents[1]
    sides = [Side(before, threads), Side(here, threads), Side(here, threads)]
    for name in wanted:
        made = [side.ask(f"make {name}") for side in sides]
        if any(map(math.isnan, made)):
            continue
        least = [math.inf] * len(sides)
        for _ in range(rounds):
            for number, side in enumerate(sides):
                least[number] = min(least[number], side.ask("run"))
        yield name, [*least, *made[:2]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", nargs="?", type=Path)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="")
    parser.add_argument("--draw", type=int, metavar="SEED")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve)
        return
    found: dict[str, list[float]] = {}
    every = names() if options.draw is None else drawn(options.draw)
    wanted = [each for each in every if options.only in each]
    if not wanted:
        parser.error(f"no workload has {options.only!r} in its name; there are {', '.join(every)}")
    for name, each in rows(options.before.resolve(), options.threads, options.rounds, wanted):
        old, new, again, made_old, made_new = each
        found[name] = each
        void = "  void" if abs(new / again - 1) > 0.05 else ""
        print(
            f"{name:22} before {old * 1e3:9.3f} ms  now {new * 1e3:9.3f}  {old / new:5.2f}x"
            f" | itself {again / new:4.2f} | compile {made_old:5.2f} -> {made_new:5.2f} s{void}",
            flush=True,
        )
    ratios = sorted(old / min(new, again) for old, new, again, _, _ in found.values())
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"{len(ratios)} workloads: geometric mean {mean:.2f}x, least {ratios[0]:.2f}x")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
