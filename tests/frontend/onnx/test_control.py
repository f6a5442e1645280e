"""Loops and scans: whether there is a first turn, and what no turn at all gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import plica
from tests.frontend.onnx.build import Array, model, runtime

node, info = helper.make_node, helper.make_tensor_value_info
FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def loop(given: dict[str, Array], stored: dict[str, Array], collects: bool) -> onnx.ModelProto:
    """v = v + x, `turns` times, as long as `going`."""
    extra = [node("Identity", ["next"], ["row"])] if collects else []
    body = helper.make_graph(
        [node("Add", ["v", "x"], ["next"]), node("Identity", ["on"], ["still"]), *extra],
        "body",
        [info("i", INT, []), info("on", BOOL, []), info("v", FLOAT, [2])],
        [info("still", BOOL, []), info("next", FLOAT, [2])]
        + ([info("row", FLOAT, [2])] if collects else []),
    )
    outputs = ["end", "rows"] if collects else ["end"]
    turn = node("Loop", ["turns", "going", "start"], outputs, body=body)
    return model([turn], given, outputs, stored)


@pytest.mark.parametrize("collects", [False, True])
@pytest.mark.parametrize("going", [False, True])
@pytest.mark.parametrize("inputs", [("going",), ("turns", "going"), ()])
def test_a_loop_begins_only_where_its_condition_says_so(
    collects: bool, going: bool, inputs: tuple[str, ...]
) -> None:
    given: dict[str, Any] = {"x": np.ones(2, np.float32)}
    stored = {"start": np.zeros(2, np.float32)}
    for name, value in (("turns", np.array(3)), ("going", np.array(going))):
        (given if name in inputs else stored)[name] = value
    made = loop(given, stored, collects)
    wanted: Any = runtime(made, given)
    found: Any = plica.compile(made)(**given)
    found = found if isinstance(found, tuple) else (found,)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)
        assert mine.shape == theirs.shape
    if not collects:
        np.testing.assert_array_equal(plica.interpret(plica.from_onnx(made), **given), wanted[0])


def test_a_scan_of_no_items_gives_no_rows() -> None:
    body = helper.make_graph(
        [node("Add", ["s", "a"], ["t"]), node("Mul", ["t", "a"], ["o"])],
        "body",
        [info("s", FLOAT, [2]), info("a", FLOAT, [2])],
        [info("t", FLOAT, [2]), info("o", FLOAT, [2])],
    )
    scan = node("Scan", ["s0", "A"], ["end", "rows"], body=body, num_scan_inputs=1,
                scan_output_axes=[1])  # fmt: skip
    inputs: dict[str, Any] = {"s0": np.ones(2, np.float32), "A": ("float32", ["t", 2])}
    exe = plica.compile(model([scan], inputs, ["end", "rows"]))
    end, rows = exe(np.ones(2, np.float32), np.ones((0, 2), np.float32))
    assert end.tolist() == [1, 1]
    assert rows.shape == (2, 0)
    end, rows = exe(np.ones(2, np.float32), np.ones((3, 2), np.float32))
    assert end.tolist() == [4, 4]
    assert rows.tolist() == [[2, 3, 4], [2, 3, 4]]
