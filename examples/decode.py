"""Decoding: a loop that ends when the data says so, in a model that gives one symbol at a time.

The loop is a function that calls itself last, which takes no stack.  Run it:
`python examples/decode.py`.
"""

# mypy: ignore-errors
# ruff: noqa: F821  (constructors are names of the script)
from __future__ import annotations

import numpy as np

import plica
from plica import op
from plica.ir.prelude.library import List, rev
from plica.script import Tensor, f32, i64

_random = np.random.default_rng(7)
TABLE = _random.standard_normal((12, 24)).astype(np.float32)
MOVE = (_random.standard_normal((24, 24)) / np.sqrt(24)).astype(np.float32)
SCORE = _random.standard_normal((24, 12)).astype(np.float32)


@plica.function
def decode(
    state: Tensor[(24,), f32], symbol: i64, said: List[i64], left: i64
) -> tuple[List[i64], Tensor[(24,), f32]]:
    after = op.tanh(op.matmul(state, MOVE) + op.take(TABLE, symbol, axis=0))
    best = op.argmax(op.matmul(after, SCORE), axis=0)
    if op.logical_or(best == 0, left == 0):
        return rev(said), after
    else:
        return decode(after, best, Cons(best, said), left - 1)


@plica.function
def network(start: Tensor[(24,), f32], most: i64) -> tuple[List[i64], Tensor[(24,), f32]]:
    return decode(start, i64(1), Nil(), most)


def inputs(most: int, seed: int = 0):
    """Where to begin, and after how many symbols to stop in any case."""
    random = np.random.default_rng(seed)
    return random.standard_normal(24).astype(np.float32), np.int64(most)


CASES = [inputs(0), inputs(5, 1), inputs(50, 2), inputs(50, 3)]
"""What the example runs on."""


def main() -> None:
    exe = plica.compile(network)
    for given in CASES:
        print(exe(*given)[0])


if __name__ == "__main__":
    main()
