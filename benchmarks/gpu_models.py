"""Whole networks on a GPU: right beside the processor's code, and how long the device works.

python benchmarks/gpu_models.py --models resnet18,mobilenet_v2 --profile
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import plica
from plica.frontend.zoo import NETWORKS
from plica.runtime.cuda.program import CudaExecutable
from plica.runtime.port import Port


def drawn(port: Port, random: np.random.Generator) -> np.ndarray:  # type: ignore[type-arg]
    if port.dtype[0] in "iu":
        return random.integers(0, 2, port.shape).astype(port.numpy)
    return random.standard_normal(port.shape).astype(port.numpy)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default=",".join(NETWORKS))
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    for name in options.models.split(","):
        module = NETWORKS[name]()
        begin = time.perf_counter()
        exe = plica.compile(module, target="cuda")
        made = time.perf_counter() - begin
        assert isinstance(exe, CudaExecutable)
        random = np.random.default_rng(0)
        inputs = [drawn(port, random) for port in exe.inputs]
        got = exe(*inputs)
        want = plica.compile(module)(*inputs)
        pairs = zip(*[x if isinstance(x, tuple) else (x,) for x in (got, want)], strict=True)
        print("   ", np.ravel(got if not isinstance(got, tuple) else got[0])[:4])
        error = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)
        seconds = exe.seconds(*inputs)
        print(
            f"{name:14} {statistics.median(seconds) * 1e3:9.3f} ms (min {min(seconds) * 1e3:.3f}), "
            f"made in {made:.1f} s, difference {error:.1e}",
            flush=True,
        )
        if options.profile:
            print(exe.profile(*inputs))


if __name__ == "__main__":
    main()
