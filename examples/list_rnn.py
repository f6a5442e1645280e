"""A recurrent network over lists of any length: a fold, written with the prelude's `foldl`.

Run it: `python examples/list_rnn.py`.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

import plica
from plica import op
from plica.ir.prelude import list_value
from plica.ir.prelude.library import List, foldl
from plica.script import Tensor, f32

_random = np.random.default_rng(7)


def _weights(*shape: int) -> np.ndarray:
    return (_random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


READ, KEEP = _weights(16, 32), _weights(32, 32)


@plica.function
def network(words: List[Tensor[(16,), f32]], start: Tensor[(32,), f32]) -> Tensor[(32,), f32]:
    def step(state: Tensor[(32,), f32], word: Tensor[(16,), f32]) -> Tensor[(32,), f32]:
        return op.tanh(op.matmul(word, READ) + op.matmul(state, KEEP))

    return foldl(step, start, words)


def inputs(length: int, seed: int = 0):
    """A list of so many random vectors, and where to begin."""
    random = np.random.default_rng(seed)
    words = list(random.standard_normal((length, 16)).astype(np.float32))
    return list_value(words), np.zeros(32, np.float32)


CASES = [inputs(0), inputs(1), inputs(12)]
"""What the example runs on."""


def main() -> None:
    exe = plica.compile(network)
    for given in CASES:
        far = np.abs(exe(*given) - plica.interpret(network, *given)).max()
        print(f"{exe(*given)[:3]}: {far:.1e} from the interpreter")


if __name__ == "__main__":
    main()
