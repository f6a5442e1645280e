"""What `gpu_layers.py` draws with: sizes within a number of elements, functions, inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

import attrs
import torch
from torch import nn
from torch.nn import functional

Call = Callable[..., Any]


@attrs.frozen
class Given:
    """An input: sizes, whether the first of them is open, and what numbers it has."""

    shape: tuple[int, ...]
    kind: str = "normal"
    below: int = 0
    """Whole numbers of the kind `index` are less than this."""


@attrs.frozen
class Draw:
    """Random sizes within a number of elements."""

    random: Random
    largest: int

    def size(self, low: int, high: int) -> int:
        high = max(low, min(high, self.largest // 8))
        return round(math.exp(self.random.uniform(math.log(low), math.log(high))))

    def shape(self, rank: int, most: int | None = None) -> tuple[int, ...]:
        """Sizes of a given number of axes, within a number of elements."""
        most = self.largest if most is None else min(most, self.largest)
        total = self.random.uniform(math.log(2), math.log(most))
        cuts = sorted(self.random.uniform(0, total) for _ in range(rank - 1))
        parts = [b - a for a, b in zip([0.0, *cuts], [*cuts, total], strict=True)]
        self.random.shuffle(parts)
        return tuple([max(1, round(math.exp(each))) for each in parts])

    def axes(self, rank: int) -> tuple[int, ...]:
        return tuple(sorted(self.random.sample(range(rank), self.random.randint(1, rank))))

    def coin(self, chance: float = 0.5) -> bool:
        return self.random.random() < chance

    def one(self, *of: Any) -> Any:
        return self.random.choice(of)


Drawn = tuple[str, Call, Sequence[nn.Module], Sequence[Given]]
UNARY: Final[dict[str, Call]] = {
    "relu": torch.relu, "gelu": functional.gelu, "silu": functional.silu, "tanh": torch.tanh,
    "sigmoid": torch.sigmoid, "abs": torch.abs, "square": torch.square,
    "hardswish": functional.hardswish, "half": lambda x: x * 0.5, "neg": torch.neg,
    "clamp": lambda x: x.clamp(-1.0, 0.75), "elu": functional.elu, "none": lambda x: x,
}  # fmt: skip


def bent(draw: Draw) -> tuple[str, Call]:
    word = draw.one(*UNARY)
    return word, UNARY[word]
