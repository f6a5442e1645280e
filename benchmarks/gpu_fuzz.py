"""Random kernels with random schedules on a GPU, held to the interpreter.

    python benchmarks/gpu_fuzz.py [--examples 300] [--seed 0] [--json FILE]

Cases are drawn, lowered and compiled by as many processes as there are cores, and run one after
another on the GPU, into poisoned memory.  The exit code is 1 where one of them is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from plica.codegen.cuda.fuzz import TRIES, CudaCase, built, on_gpu, report, safely
from plica.runtime.cuda.driver import device
from plica.runtime.error import PlicaError
from plica.runtime.host import cores


def made(number: int, seed: int, architecture: str) -> tuple[CudaCase | str, bytes]:
    """A case and its code."""
    found = safely(seed, number)
    if isinstance(found, str):
        return found, b""
    try:
        return found, built(found, architecture)
    except PlicaError as error:
        return f"making it fails: {error}", b""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    gpu = device()
    codes: dict[int, bytes] = {}

    def cases() -> Generator[CudaCase | str, None, None]:
        make = partial(made, seed=options.seed, architecture=gpu.architecture)
        with ProcessPoolExecutor(cores(), get_context("spawn")) as pool:
            for begin in range(0, TRIES * (options.examples + 1), 64):
                for case, code in pool.map(make, range(begin, begin + 64)):
                    if isinstance(case, CudaCase):
                        codes[case.number] = code
                    yield case

    drawn = cases()
    found = report(
        lambda _: next(drawn),
        options.examples,
        options.seed,
        lambda of: on_gpu(gpu, of, codes.pop(of.number)),
    )
    drawn.close()
    print(f"{gpu.name}: {found.examples} kernels, seed {found.seed}: {found.kinds}")
    print(f"steps: {found.steps}")
    for reason, times in found.skipped.items():
        print(f"not run: {reason} ({times})")
    for each in found.findings:
        print(f"WRONG: {each}")
    failed = [each for each in found.skipped if each.startswith("making it fails")]
    print("none is wrong" if not found.findings else f"{len(found.findings)} are wrong")
    if options.json:
        options.json.write_text(json.dumps({"device": gpu.name, **found.to_data()}, indent=1))
    return 1 if found.findings or failed else 0


if __name__ == "__main__":
    sys.exit(main())
