"""Choices among many are the same in halves."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from plica.core.fold import post_order
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import evaluate_stages, stages
from plica.ir.loop.tensor import buffer
from plica.ir.type.dtype import f32
from plica.schedule.default.gpu.choice import halved, with_halves


def put_together(sizes: list[int], inner: int) -> Any:
    """Pieces one after another, the first of which is chosen among elements itself."""
    pieces = [buffer(f"x{n}", (size,), f32) for n, size in enumerate(sizes)]

    def element(i: Any) -> sc.Scalar:
        chosen: sc.Scalar = sc.Lit(-1.0, f32)
        stop = sum(sizes)
        for piece, size in reversed([*zip(pieces, sizes, strict=True)]):
            value = piece[i - (stop - size)]
            for place in reversed(range(inner)):
                value = sc.Select(sc.Eq(i, sc.index(place)), sc.Lit(float(place), f32), value)
            chosen = sc.Select(sc.Lt(i, sc.index(stop)), value, chosen)
            stop -= size
        return chosen

    return stages(pieces, (stage("y", (sum(sizes) + 2,), element),))


@settings(max_examples=10)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.sampled_from([0, 3, 7]))
def test_halves_mean_the_same(sizes: list[int], inner: int) -> None:
    of = put_together(sizes, inner)
    given_ = [np.arange(size, dtype=np.float32) + 100 * n for n, size in enumerate(sizes)]
    meant = evaluate_stages(of, given_)
    np.testing.assert_array_equal(evaluate_stages(with_halves(of), given_), meant)


def deep(of: sc.Scalar) -> int:
    """How many choices are inside of one another."""
    depth: dict[object, int] = {}
    for each in post_order(of):
        below = max([depth[part] for part in each._children], default=0)
        depth[each] = below + isinstance(each, sc.Select)
    return depth[of]


def test_so_many_questions_as_halves() -> None:
    (of,) = put_together([1] * 60, 0).stages
    assert deep(of.value) == 60
    assert deep(halved(of.value)) == 6
    assert with_halves(put_together([2, 3], 0)) is put_together([2, 3], 0)
