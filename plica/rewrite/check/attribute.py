"""Values for the attributes of an operator: what its readers accept, from a pool that fits shapes.

>>> from plica.ir.op import find
>>> from plica.ir.type.term import tensor
>>> spec = find("sum").attributes[0]
>>> spec.name, attribute_values(spec, [tensor((2, 3), "f32")])[:3]
('axis', ((0,), (1,), (-1,)))
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from plica.ir.graph.operator import Attribute, Mismatch
from plica.ir.type import DTYPES, TensorType, Type
from plica.rewrite.check.data import Shape, sizes

WORDS: Final = (
    "constant", "edge", "reflect", "symmetric", "wrap", "raise", "clip", "none", "tanh",
    "replace", "add", "mul", "max", "min",
)  # fmt: skip
"""What attributes that are a choice of words may be."""

FREE_SHAPES: Final[tuple[Shape, ...]] = ((), (3,), (3, 3), (2, 3), (2, 2, 2), (1, 3), (0,), (2, 0))
"""Shapes for a hole without neighbours to match."""
LONG_NUMBERS: Final = (0.1, -2.7182818284590451)  # numbers that every narrower dtype rounds


def alike(options: Sequence[Any], length: int | None) -> Sequence[Any]:
    """The options of that length: sequences of one operator mostly have one item for each axis.

    As long as none is chosen, single values are as likely as all sequences together.
    """
    single = [option for option in options if not isinstance(option, tuple)]
    if length is None:
        several = len(options) - len(single)
        return single * (several // len(single)) + [*options] if single else options
    fitting = [each for each in options if not isinstance(each, tuple) or len(each) == length]
    return fitting or options


def attribute_values(spec: Attribute, context: Iterable[Type]) -> tuple[Any, ...]:
    """Values the attribute's reader accepts, from a pool that suits the arguments' shapes."""
    shapes = dict.fromkeys(sizes(each) for each in context if isinstance(each, TensorType))
    return _accepted(spec.read, tuple(shapes))


@functools.lru_cache(maxsize=4096)
def _accepted(read: Callable[[Any], Any], shapes: tuple[Shape, ...]) -> tuple[Any, ...]:
    for pool in (_pool(shapes), WORDS):  # an index reads a word as a symbolic dim: words come last
        found = [value for raw in pool if not isinstance(value := _read(read, raw), Mismatch)]
        if found:
            return tuple(dict.fromkeys(found))
    return ()


@functools.lru_cache(maxsize=1 << 16, typed=True)  # 1 is not True
def _read(read: Callable[[Any], Any], raw: Any) -> Any:
    return read(raw)


def _pool(shapes: tuple[Shape, ...]) -> list[Any]:
    rank = max(map(len, shapes), default=0)
    pool: list[Any] = [
        0,
        1,
        -1,
        2,
        -2,
        3,
        True,
        False,
        None,
        0.5,
        2.0,
        -1.0,
        *LONG_NUMBERS,
        math.inf,
        -math.inf,
        *DTYPES,
    ]
    pool.extend(() if any(shapes) else FREE_SHAPES)
    for shape in shapes:
        pool.extend([shape, (-1,), (1, *shape), (*shape, 1), shape[::-1]])
        pool.append((*shape[:1], *shape))  # an axis twice
        if len(shape) <= 4:
            pool.extend(itertools.permutations(range(len(shape))))
        volume = int(np.prod(shape, dtype=np.int64))
        pool.append((volume,))
        pool.extend((k, volume // k) for k in (1, 2, 3) if volume % k == 0)
        pool.extend(shape[:i] + shape[i + 1 :] for i in range(len(shape)))
    pool.extend(itertools.product((0, 1), repeat=rank))
    pool.extend((i,) for i in range(-rank, rank))
    pool.extend((i, j) for i in range(rank) for j in range(i + 1, rank))
    pool.extend(tuple((a, b) for _ in range(rank)) for a in (0, 1) for b in (0, 1))
    inner = [((0, 0), (0, 0), *[pair] * (rank - 2)) for pair in ((1, 1), (0, 1), (2, 0))]
    pool.extend(inner if rank > 2 else ())  # around what a window slides over
    return pool
