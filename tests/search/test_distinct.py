"""Distinct candidates: points that lower to one kernel are one, and what is illegal is none."""

from __future__ import annotations

import pytest

from plica.codegen.backend import find_target
from plica.ir.contract import reassociates
from plica.ir.text.script import from_text
from plica.schedule import block, do, loops, sample_tile, split, trace_of, vectorize
from plica.schedule.trace import Trace
from plica.search.distinct import distinct_candidates, space_sizes
from plica.search.space import DOUBLED, Space, sketch

CPU = find_target("cpu")
KERNEL = from_text(DOUBLED).values[0]

MODEL = """
# plica 1
import plica
from plica import op
from plica.script import Tensor, f32


@plica.function
def main(x: Tensor[(64, 48), f32], y: Tensor[(48, 32), f32]) -> Tensor[(64, 32), f32]:
    return op.matmul(x, y)
"""


def tiled() -> Trace:
    @do
    def tiles():  # type: ignore[no-untyped-def]  # a do-block, whose yields have many types
        (i,) = yield loops((yield block("out")))
        _, inner = yield split(i, sample_tile(2, max_inner=16))
        yield vectorize(inner)

    return trace_of(tiles, KERNEL)  # type: ignore[arg-type]  # it is a kernel


def test_points_of_one_kernel_are_one_candidate() -> None:
    one = sketch("tiled", KERNEL, tiled())  # type: ignore[arg-type]  # as above
    space = Space((one,))
    assert space.size == 5
    assert distinct_candidates(space, CPU, 64) == 5
    assert distinct_candidates(Space((one, one)), CPU, 64) == 5
    assert distinct_candidates(space, CPU, 3) == 3
    assert distinct_candidates(Space(()), CPU, 3) == 0


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_product_has_many(target: str) -> None:
    (found,) = space_sizes(from_text(MODEL), reassociates, (), find_target(target), 4)
    assert found.kernel == "matmul"
    assert found.enough
    assert found.distinct == 4
    assert found.points >= found.sketches > 1
    assert str(found).split()[-2:] == ["4+", "matmul"]
