"""Optimisers, in the graph language: how one weight `w` changes by its slope `g`.

`plica.training.step` reads these at the shape of every weight.  What follows `w` and `g` is memory,
one number for each weight; `t` is the number of the step, from 1 on; the rest are settings.
"""

from __future__ import annotations

from plica import op
from plica.ir.text.script import function
from plica.script import Tensor, f32


@function
def sgd(w: Tensor[(), f32], g: Tensor[(), f32], rate: Tensor[(), f32]) -> Tensor[(), f32]:
    return w - rate * g


@function
def momentum(
    w: Tensor[(), f32],
    g: Tensor[(), f32],
    v: Tensor[(), f32],
    rate: Tensor[(), f32],
    decay: Tensor[(), f32],
) -> tuple[Tensor[(), f32], Tensor[(), f32]]:
    speed = decay * v + g
    return w - rate * speed, speed


@function
def adam(
    w: Tensor[(), f32],
    g: Tensor[(), f32],
    m: Tensor[(), f32],
    v: Tensor[(), f32],
    t: Tensor[(), f32],
    rate: Tensor[(), f32],
    first: Tensor[(), f32],
    second: Tensor[(), f32],
    small: Tensor[(), f32],
) -> tuple[Tensor[(), f32], Tensor[(), f32], Tensor[(), f32]]:
    mean = first * m + (1.0 - first) * g
    square = second * v + (1.0 - second) * (g * g)
    # Both begin at 0, and are too small at first by what is divided by here.
    scale = rate / (1.0 - op.power(first, t))
    width = 1.0 / op.sqrt(1.0 - op.power(second, t))
    return w - scale * mean / (op.sqrt(square) * width + small), mean, square
