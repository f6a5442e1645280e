"""Functions as values: a list of closures, made when the program runs, mapped over a list.

Run it: `python examples/map_closures.py`.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

import plica
from plica import op
from plica.ir.prelude import list_value
from plica.ir.prelude.library import List, map
from plica.script import Fn, Tensor, f32


@plica.function
def chosen(by: Tensor[(), f32]) -> Fn[(Tensor[(8,), f32],), Tensor[(8,), f32]]:
    def scaled(x: Tensor[(8,), f32]) -> Tensor[(8,), f32]:
        return x * by

    def bent(x: Tensor[(8,), f32]) -> Tensor[(8,), f32]:
        return op.tanh(x) + by

    return scaled if by > 0.0 else bent


@plica.function
def network(numbers: List[Tensor[(), f32]], x: Tensor[(8,), f32]) -> List[Tensor[(8,), f32]]:
    def applied(f: Fn[(Tensor[(8,), f32],), Tensor[(8,), f32]]) -> Tensor[(8,), f32]:
        return f(f(x))

    return map(applied, map(chosen, numbers))


def inputs(*numbers: float):
    """A list of numbers, and a vector."""
    return list_value([np.float32(each) for each in numbers]), np.arange(8, dtype=np.float32)


CASES = [inputs(), inputs(2.0, -1.0, 0.5), inputs(*range(-4, 5))]
"""What the example runs on."""


def main() -> None:
    exe = plica.compile(network)
    for given in CASES:
        print(exe(*given))


if __name__ == "__main__":
    main()
