"""A small model with constants, temporaries, a call to the library, and a check."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from plica.ir.graph.module import Module
from plica.ir.text.script import from_text
from plica.pipeline import compile
from plica.runtime.executable import Executable

SOURCE = """
import plica
from plica import op

@plica.function
def main(
    x: Tensor[(3, 4), f32], w: Tensor[(4, 5), f32], at: Tensor[(2,), i64]
) -> tuple[Tensor[(3, 5), f32], Tensor[(2, 4), f32]]:
    y = op.matmul(x, w)
    return op.nn.softmax(y, axis=-1) + op.tan(y), op.take(x, at, axis=0)
"""


@lru_cache(maxsize=1)
def module() -> Module:
    return from_text(SOURCE)


@lru_cache(maxsize=1)
def model() -> Executable:
    return compile(module(), threads=2)


def inputs(seed: int = 0) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(seed)
    x, w = (random.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (4, 5)))
    return x, w, random.integers(0, 3, 2)
