"""Certificates of ten networks: how long the independent checker takes, and what it refuses.

    python benchmarks/certificates.py [--networks mlp dqn …] [--damages 20] [--seed 0]

A line: rule applications, seconds to compile, kilobytes of certificate, seconds to check it, and
how many damaged certificates are refused.  A damage changes one number, word or list, anywhere.
Exit code 1: a right certificate is refused, a damaged one is accepted, or a check takes more than
ten seconds.
"""

from __future__ import annotations

import argparse
import json
import random
from time import perf_counter
from typing import Any, Final

from plica.frontend.zoo import NETWORKS
from plica.pipeline import lower
from plica.rewrite.certificate import certificate
from plica.runtime.derivation_check import check_derivation

Json = Any  # what json.loads gives

TEN: Final = (
    "mlp", "dqn", "resnet18", "resnet50", "mobilenet_v2", "squeezenet", "densenet121",
    "inception_v3", "transformer", "dcgan",
)  # fmt: skip
MAX_CHECK_SECONDS: Final = 10.0


def damaged(text: str, source: random.Random) -> str:
    """A certificate with another value somewhere."""
    whole = json.loads(text)
    at, key = whole, source.choice(list(whole))
    while isinstance(inner := at[key], dict | list) and inner and source.random() < 0.95:
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        at, key = inner, source.choice(keys)
    at[key] = _another(at[key], source)
    return json.dumps(whole, separators=(",", ":"))


def _another(value: Json, source: random.Random) -> Json:
    """Another value of its kind."""
    match value:
        case str():
            return f"{value}x"
        case bool() | int():
            return value + source.choice((-1, 1, 7))
        case None:
            return 0
        case dict():
            return {**value, "another": [["1"], []]}
    return value[:-1] if value and source.random() < 0.5 else value + (value[-1:] or [0])


def checked(name: str, damages: int, seed: int) -> bool:
    """Whether the certificate of one network is accepted in time, and every damaged one refused."""
    start = perf_counter()
    given = certificate(lower(NETWORKS[name]()).derivation)
    made = perf_counter()
    text = json.dumps(given, separators=(",", ":"))
    begun = perf_counter()
    found = check_derivation(json.loads(text))
    seconds = perf_counter() - begun
    source = random.Random(f"{name} {seed}")
    tried = [each for _ in range(damages) if (each := damaged(text, source)) != text]
    accepted = [each for each in tried if not check_derivation(json.loads(each)).problem]
    print(f"{name:<14} {found.matched:5} steps  {made - start:6.1f} s  {len(text) / 1e3:7.0f} kB  "
          f"checked in {seconds:5.2f} s  {len(tried) - len(accepted)} of {len(tried)} refused"
          f"{'; ' + found.problem if found.problem else ''}", flush=True)  # fmt: skip
    return not found.problem and not accepted and seconds <= MAX_CHECK_SECONDS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=sorted(NETWORKS), default=TEN)
    parser.add_argument("--damages", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    good = [checked(name, given.damages, given.seed) for name in given.networks]
    print(f"{sum(good)} of {len(good)} networks as they should be")
    raise SystemExit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
