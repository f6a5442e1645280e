"""Quantised ResNet-18: how near it is to the one in floats, and how fast, on this machine.

    python benchmarks/quantise.py [--image 224] [--samples 8] [--rounds 15]

Both run on one thread, in turns; the least and the middle time of each are shown.  Nearness is the
cosine of the angle between both results, and how often they agree on the greatest, on images that
were not among the samples.  `exact` says whether native code gives what the interpreter gives, on a
small image (the interpreter is slow).
"""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import Any, Final

import numpy as np

import plica
from plica.frontend.zoo import resnet
from plica.quantising import quantised

Array = np.ndarray[Any, Any]
HOW: Final[dict[str, dict[str, Any]]] = {
    "i8": {},
    "u8": {"symmetric": False},
    "shifts": {"power_of_two": True},
}


def images(seed: int, count: int, size: int) -> Array:
    """Random images."""
    shape = (count, 1, 3, size, size)
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def cosine(a: Array, b: Array) -> float:
    """The cosine of the angle between two results."""
    return float(np.sum(a * b) / np.linalg.norm(a) / np.linalg.norm(b))


def is_exact(how: dict[str, Any]) -> bool:
    """Whether native code and the interpreter agree to the bit on a small image."""
    found = plica.quantise(resnet(18, image=32), images(0, 2, 32), **how)
    x = images(1, 1, 32)[0]
    return bool(np.array_equal(plica.compile(found)(x), plica.interpret(found, x)))


def main() -> None:
    """Print a line for each way to quantise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    network = resnet(18, image=given.image)
    samples, others = images(0, given.samples, given.image), images(1, 8, given.image)
    programs = {"f32": plica.compile(network, threads=1)}
    wanted = [np.asarray(programs["f32"](x)) for x in others]
    near: dict[str, str] = {"f32": ""}
    for name, how in HOW.items():
        found = quantised(network, samples, **how)
        programs[name] = plica.compile(found.module, threads=1)
        results = [np.asarray(programs[name](x)) for x in others]
        angle = min(cosine(a, b) for a, b in zip(wanted, results, strict=True))
        same = sum(a.argmax() == b.argmax() for a, b in zip(wanted, results, strict=True))
        floats = found.report.count("f32")
        near[name] = (
            f"cosine {angle:.5f}  top-1 {same}/{len(others)}  in floats {floats}"
            f"  exact {is_exact(how)}"
        )
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(given.rounds):
        for name, program in programs.items():
            start = perf_counter()
            program(others[0])
            times[name].append(1e3 * (perf_counter() - start))
    base = min(times["f32"])
    for name, each in times.items():
        least, middle = min(each), float(np.median(each))
        print(
            f"{name:<7} {least:7.2f} ms  (middle {middle:7.2f})  {base / least:5.2f}x  {near[name]}"
        )


if __name__ == "__main__":
    main()
