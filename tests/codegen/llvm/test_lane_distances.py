"""Lanes that are known distances apart: quotients and remainders of places in a loop."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.llvm.fold import emit
from plica.codegen.llvm.lane import LanesApart, LaneValue, constant
from plica.codegen.llvm.value import LlvmValues
from plica.codegen.llvm.writer import LlvmWriter
from plica.codegen.lower.passes import lower
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.statement import Kernel
from tests.codegen.lower.kernels import read
from tests.codegen.native import native_kernel

ROWS = """
def rows(x: Buffer[(16, {length}), f32], r: Buffer[(16,), f32], c: Buffer[({length},), f32],
         y: Buffer[(16, {length}), f32]):
    for v in unrolled({length}):
        for l in vectorized(16):
            y[(v * 16 + l) // {length}, (v * 16 + l) % {length}] = (
                x[(v * 16 + l) // {length}, (v * 16 + l) % {length}]
                * r[(v * 16 + l) // {length}] + c[(v * 16 + l) % {length}])
"""


def end_to_end(length: int) -> Kernel:
    return lower(read(ROWS.format(length=length)), "cpu")


@pytest.mark.parametrize("length", [2, 3, 5, 7, 12, 15])
def test_rows_end_to_end_are_vectors(length: int) -> None:
    kernel = end_to_end(length)
    draw = np.random.default_rng(length)
    given = [draw.standard_normal(s).astype(np.float32) for s in ((16, length), (16,), (length,))]
    code, (found,) = native_kernel(kernel, given)
    assert code == 0
    np.testing.assert_allclose(found, run_kernel(kernel, given)[0], rtol=1e-6)


def test_places_that_follow_one_another_are_read_as_a_vector() -> None:
    text = "\n".join(emit(end_to_end(5), "k").lines)
    assert text.count("load <16 x float>, ptr") == 5
    assert text.count("store <16 x float>") == 5
    assert "gather" not in text


def test_distances_are_added_to_what_lanes_share() -> None:
    lanes = LlvmValues(LlvmWriter()).lanes
    lanes.count = 4
    thirds = lanes.at_distances(constant(0), [0, 0, 0, 1])
    assert thirds.step is None
    rests = lanes.at_distances(constant(0), [0, 1, 2, 0])
    assert lanes.add(lanes.mul(thirds, constant(3)), rests) == LaneValue("", 1)
    moved = lanes.add(thirds, LaneValue("%i", 0, 2))
    assert lanes.distances(moved) == LanesApart(LaneValue("%i", 0, 2), (0, 0, 0, 1))
    assert lanes.sub(moved, thirds) == LaneValue("%i", 0, 2)
