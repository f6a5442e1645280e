"""What a call takes the host on a GPU: executables, `torch.compile` and small steps of training.

    python benchmarks/gpu_calls.py [calls] [training] [--rounds 7] [--json FILE]

Times are of the host, the least of some rounds, all ways in turns; what the device does is so
little that the host is never waiting for it.  `dynamo` and `aot` are `torch.compile` with backends
that only hand out a tensor: what torch itself takes for its guards and wrappers.  Beside a step of
training is what the driver was asked in it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
import torch.utils.dlpack
from torch import nn
from torch._dynamo.backends.common import aot_autograd

import plica
from plica.dynamo import backend
from plica.runtime.cuda.driver import CudaDevice

RUNS = 300


def least(ways: dict[str, Callable[[], object]], rounds: int, runs: int = RUNS) -> dict[str, float]:
    """Seconds of a call of each way, the least of some rounds in turns."""
    found = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, way in ways.items():
            for _ in range(5):
                way()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(runs):
                way()
            found[name] = min(found[name], (time.perf_counter() - begin) / runs)
            torch.cuda.synchronize()
    return found


@contextmanager
def asked() -> Iterator[Counter[str]]:
    """What the driver is asked by Plica meanwhile."""
    counts: Counter[str] = Counter()
    ask = CudaDevice.ask

    def counting(self: CudaDevice, name: str, *args: Any) -> None:
        counts[name] += 1
        ask(self, name, *args)

    CudaDevice.ask = counting  # type: ignore[method-assign]  # for the length of a measurement
    try:
        yield counts
    finally:
        CudaDevice.ask = ask  # type: ignore[method-assign]


def apart(of: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function with code of its own: torch asks the guards of all that one code was made to."""

    def call(*args: Any) -> Any:
        return of(*args)

    return FunctionType(
        call.__code__.replace(co_name=name), globals(), name, None, call.__closure__
    )


def perceptron(out: int = 64) -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, out)
    )


def calls(rounds: int) -> dict[str, float]:
    """An executable and a compiled module, called with a tensor on the GPU."""
    torch.manual_seed(0)
    network = perceptron().eval().cuda()
    x, made = torch.randn(4, 64, device="cuda"), torch.empty(4, 64, device="cuda")
    exported = torch.export.export(network, (x,))
    exe: Any = plica.compile(plica.from_torch(exported), target="cuda", cache=False)

    def boxed(args: list[Any]) -> Any:
        args.clear()
        return (made,)

    boxed._boxed_call = True  # type: ignore[attr-defined]  # torch's word for such a function
    backends: dict[str, Any] = {
        "dynamo": lambda graph, given: lambda *args: (made,),
        "aot": aot_autograd(fw_compiler=lambda graph, given: boxed),
        "aot_eager": "aot_eager",
        "torch.compile": backend,
    }
    with torch.no_grad():
        compiled = {
            name: torch.compile(apart(network, f"of_{at}"), backend=each)
            for at, (name, each) in enumerate(backends.items())
        }
        error = float((compiled["torch.compile"](x) - network(x)).abs().max())
        error = max(error, float((torch.utils.dlpack.from_dlpack(exe(x)) - network(x)).abs().max()))
        print(f"error {error:.0e}{'' if error < 1e-4 else '  WRONG'}")
        stream = torch.cuda.current_stream()
        kept: list[Any] = []

        def keeping() -> None:
            kept.append(compiled["torch.compile"](x))
            del kept[:-8]

        taken = torch.utils.dlpack.from_dlpack
        places = [x.data_ptr()], [made.data_ptr()]
        ways: dict[str, Callable[[], object]] = {
            "eager": lambda: network(x),
            **{name: partial(way, x) for name, way in compiled.items()},
            "torch.compile, results kept": keeping,
            "exe(x)": lambda: exe(x),
            "exe(x, stream)": lambda: exe(x, stream=stream),
            "exe(x, stream) as a tensor": lambda: taken(exe(x, stream=stream)),
            "run_at": lambda: exe.run_at(*places, stream.cuda_stream),
        }
        found = least(ways, rounds)
    for name, seconds in found.items():
        print(f"{name:28} {seconds * 1e6:7.1f} us", flush=True)
    return found


def training(rounds: int) -> dict[str, float]:
    """Small steps of training: forward, backward, and with an optimiser."""
    convolutional = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2048, 10),
    )  # fmt: skip
    found: dict[str, float] = {}
    for word, network, shape in (
        ("MLP 32x64", perceptron(10), (32, 64)),
        ("CNN 8x3x32x32", convolutional, (8, 3, 32, 32)),
    ):
        network = network.cuda()
        x, labels = torch.randn(shape, device="cuda"), torch.randint(0, 10, shape[:1]).cuda()

        def loss(of: Any = network, x: Any = x, labels: Any = labels) -> Any:
            return nn.functional.cross_entropy(of(x), labels)

        parameters = list(network.parameters())
        ways: dict[str, Callable[[], object]] = {}
        for name, way in (
            ("eager", loss),
            ("plica", torch.compile(apart(loss, "of_plica"), backend=backend)),
            ("aot_eager", torch.compile(apart(loss, "of_eager"), backend="aot_eager")),
        ):
            optimiser = torch.optim.SGD(parameters, 1e-4, foreach=True)

            def slopes(way: Any = way, own: Any = optimiser) -> None:
                own.zero_grad(set_to_none=True)
                way().backward()

            def step(slopes: Any = slopes, own: Any = optimiser) -> None:
                slopes()
                own.step()

            ways |= {f"{word} {name} slopes": slopes, f"{word} {name} step": step}
        grads = []
        for name in ("eager", "plica"):
            ways[f"{word} {name} slopes"]()
            grads.append([each.grad.clone() for each in parameters if each.grad is not None])
        error = max(float((a - b).abs().max()) for a, b in zip(*grads, strict=True))
        print(f"{word}: error {error:.0e}{'' if error < 1e-3 else '  WRONG'}")
        times = least(ways, rounds, 60)
        found |= times
        for name, seconds in times.items():
            print(f"{name:28} {seconds * 1e6:7.1f} us", flush=True)
        with asked() as counts:
            for _ in range(20):
                ways[f"{word} plica slopes"]()
        print("asked in a step:", {name: n / 20 for name, n in counts.most_common()})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["calls", "training"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: dict[str, float] = {}
    for part in given.parts:
        found |= {"calls": calls, "training": training}[part](given.rounds)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
