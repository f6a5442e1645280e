"""Open pads: rows with a border, of any length, against numpy."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper

import plica
from plica.codegen.lower.nest import elements
from plica.codegen.lower.open_pad import padded_rows
from plica.ir.loop.scalar import And, Le, Load, Lt, Select, index, lit
from plica.ir.loop.stage import Each, stage
from plica.ir.loop.statement import Stmt
from plica.ir.loop.tensor import buffer
from plica.ir.type.dim import DimLike, dim_var
from plica.ir.type.dtype import f32
from plica.schedule.default import Machine

SHORT, WIDE = Machine(128, 32), Machine(512, 32)

BORDERS = ((0, 1, 2, 0, 1, 3), (0, 0, 9, 0, 0, 0), (1, 0, 0, 0, 0, 5), (0, 2, 4, 1, 0, 0))


@lru_cache(maxsize=8)
def made(border: tuple[int, ...]) -> Any:
    """A pad of open sizes, compiled."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "h", "w"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    given_ = [numpy_helper.from_array(np.array(border, np.int64), "p"),
              numpy_helper.from_array(np.array(1.5, np.float32), "v")]  # fmt: skip
    nodes = [helper.make_node("Pad", ["x", "p", "v"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y], given_)
    return plica.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


@pytest.mark.parametrize("border", BORDERS)
@given(st.integers(0, 3), st.integers(0, 70))
@example(2, 0)
@example(0, 5)
@example(2, 1)
@example(2, 16)
@example(1, 67)
@settings(max_examples=5, deadline=None)
def test_rows_of_every_length_have_their_border(
    border: tuple[int, ...], high: int, wide: int
) -> None:
    x = np.random.default_rng(wide).random((2, high, wide), dtype=np.float32)
    wanted = np.pad(x, list(zip(border[:3], border[3:], strict=True)), constant_values=1.5)
    np.testing.assert_array_equal(np.asarray(made(border)(x)), wanted)
    assert made(border).stats.at_call == 0


def loops(size: DimLike, machine: Machine) -> Stmt:
    """The loops of rows with two elements before them and one behind."""
    x = buffer("x", (3, size), f32)
    n = x.shape[1]
    of = stage("y", (3, n + 3), lambda i, j: Select(
        And(Le(index(0), j - 2), Lt(j - 2, n)), Load(x, (i, j - 2)), lit(0.0, f32),
    ))  # fmt: skip
    assert isinstance(of, Each)
    return elements(of, of.out, None, machine=machine)


def test_vectors_that_are_read_in_part_ask_lane_by_lane() -> None:
    assert loops(dim_var("n"), SHORT) != loops(dim_var("n"), WIDE)
    assert loops(8, SHORT) == loops(8, WIDE)


def test_one_number_for_some_places_is_no_row() -> None:
    x, n = buffer("x", (), f32), dim_var("n")
    of = stage("y", (n,), lambda j: Select(Lt(j, index(3)), Load(x, ()), lit(0.0, f32)))
    assert isinstance(of, Each)
    assert padded_rows(of, of.out, SHORT) is None
