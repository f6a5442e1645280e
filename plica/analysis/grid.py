"""Index terms at every point of a grid of loops, worked out at once.

>>> from plica.ir.loop.tensor import axis
>>> i, j = axis("i"), axis("j")
>>> (found,) = on_grid([i * 4 + j], {i: np.arange(2).reshape(2, 1), j: np.arange(3).reshape(1, 3)})
>>> found.tolist()
[[0, 1, 2], [4, 5, 6]]
>>> on_grid([i + j], {i: np.arange(2)}) is j
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plica.core import Term, post_order
from plica.ir.loop.scalar import Lit, Scalar, ScalarVar, row_of


def on_grid(
    wanted: Sequence[Scalar], grid: Mapping[Term, NDArray[Any]]
) -> list[NDArray[Any]] | Scalar:  # Any: index terms are integers, conditions bools
    """The values of terms over a grid of their variables; or the first subterm without a value: a
    variable of no loop, or a load."""
    memo: dict[Term, NDArray[Any]] = {}
    for node in post_order(*wanted):
        if not isinstance(node, Scalar):
            continue
        row = row_of(node)
        if isinstance(node, Lit):
            memo[node] = np.array(node.value)
        elif node in grid:
            memo[node] = grid[node]
        elif row is not None and not isinstance(node, ScalarVar):
            memo[node] = row.array(*[memo[each] for each in node._children])
        else:
            return node
    return [memo[each] for each in wanted]
