"""A Tree-LSTM: a recurrent network that follows the shape of its input, a tree.

The tree is an algebraic data type, the network a recursive function over it; one compiled program
takes trees of every shape.  Run it: `python examples/tree_lstm.py`.
"""

# mypy: ignore-errors
# ruff: noqa: F821  (constructors are names of the script)
from __future__ import annotations

import numpy as np

import plica
from plica import op
from plica.ir.interpret.value import build
from plica.script import Tensor, f32

WIDTH = 64
_random = np.random.default_rng(7)


def _weights(*shape: int) -> np.ndarray:
    return (_random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


EMBED, GATES = _weights(64, 64), _weights(128, 320)


@plica.data
class Tree:
    Leaf: (Tensor[(64,), f32],)
    Node: (Tree, Tree)


@plica.function
def encode(tree: Tree) -> tuple[Tensor[(64,), f32], Tensor[(64,), f32]]:
    match tree:
        case Leaf(x):
            return op.tanh(op.matmul(x, EMBED)), x
        case Node(left, right):
            h, c = encode(left)
            k, d = encode(right)
            a = op.matmul(op.concat((h, k), axis=0), GATES)
            i = op.sigmoid(op.slice(a, starts=(0,), stops=(64,)))
            f = op.sigmoid(op.slice(a, starts=(64,), stops=(128,)))
            g = op.sigmoid(op.slice(a, starts=(128,), stops=(192,)))
            o = op.sigmoid(op.slice(a, starts=(192,), stops=(256,)))
            u = op.tanh(op.slice(a, starts=(256,), stops=(320,)))
            memory = i * u + f * c + g * d
            return o * op.tanh(memory), memory


@plica.function
def network(tree: Tree) -> Tensor[(64,), f32]:
    return encode(tree)[0]


def inputs(leaves: int, seed: int = 0):
    """A random tree with so many leaves."""
    module, random = network.module, np.random.default_rng(seed)
    vectors = random.standard_normal((leaves, WIDTH)).astype(np.float32)
    parts = [build(module, "Leaf", each) for each in vectors]
    while len(parts) > 1:
        at = int(random.integers(len(parts) - 1))
        parts[at : at + 2] = [build(module, "Node", parts[at], parts[at + 1])]
    return (parts[0],)


CASES = [inputs(1), inputs(2), inputs(7), inputs(40)]
"""What the example runs on."""


def main() -> None:
    exe = plica.compile(network)
    for given in CASES:
        far = np.abs(exe(*given) - plica.interpret(network, *given)).max()
        print(f"{exe(*given)[:3]}: {far:.1e} from the interpreter")


if __name__ == "__main__":
    main()
