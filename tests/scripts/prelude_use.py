"""Live scripts that use the prelude as they would any Python module."""

from __future__ import annotations

import plica
from plica import op
from plica.ir.prelude.library import List, Tree, foldl, map, sum, tfold


@plica.function
def sum_of_squares(xs: List[i64]) -> i64:
    return sum(map(lambda x: x * x, xs))


@plica.function
def two_maps(
    xs: List[i64], ys: List[Tensor[(4,), f32]]
) -> tuple[List[i64], List[Tensor[(4,), f32]]]:
    def one_more(x: i64) -> i64:
        return x + 1

    def twice(y: Tensor[(4,), f32]) -> Tensor[(4,), f32]:
        return y + y

    return (map(one_more, xs), map(twice, ys))


@plica.function
def tree_net(
    t: Tree[Tensor[(4,), f32]], w: Tensor[(4, 4), f32], u: Tensor[(4, 4), f32]
) -> Tensor[(4,), f32]:
    def plus(a: Tensor[(4,), f32], b: Tensor[(4,), f32]) -> Tensor[(4,), f32]:
        return a + b

    def cell(x: Tensor[(4,), f32], inside: List[Tensor[(4,), f32]]) -> Tensor[(4,), f32]:
        below = foldl(plus, op.zeros((4,), dtype=f32), inside)
        return op.tanh(x @ w + below @ u)

    return tfold(cell, t)
