"""Rules of optimisers, and what looks like one."""

from __future__ import annotations

import plica
from plica import op
from plica.script import Tensor, f32


@plica.function
def signed(
    w: Tensor[(), f32],
    g: Tensor[(), f32],
    last: Tensor[(), f32],
    rate: Tensor[(), f32],
    pull: Tensor[(), f32],
) -> tuple[Tensor[(), f32], Tensor[(), f32]]:
    return w - rate * op.sign(g) - pull * last, g


@plica.function
def matrix(w: Tensor[(2, 2), f32], g: Tensor[(2, 2), f32]) -> Tensor[(2, 2), f32]:
    return w - g


@plica.function
def forgetful(w: Tensor[(), f32], g: Tensor[(), f32], v: Tensor[(), f32]) -> Tensor[(), f32]:
    return w - g - v


@plica.function
def alone(w: Tensor[(), f32]) -> Tensor[(), f32]:
    return w
