# ruff: noqa: E501  # rows of a table
"""Integers that models make of quotients: the default contract moves no tie of them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from onnx import NodeProto, helper

import plica
from plica.frontend.onnx.fuzz.peer import by_reference
from tests.frontend.onnx.build import model

node = helper.make_node
ROW: Final = (np.arange(-1210, 1330) * 0.001).astype(np.float32)
X: Final = np.stack([ROW] * 4)
SCALES: Final = np.array([0.01, 0.03, 0.007, 0.011], np.float32)
STORED: Final[dict[str, np.ndarray[Any, Any]]] = {
    "s": SCALES, "column": SCALES.reshape(4, 1), "one": np.array(0.01, np.float32),
    "z": np.zeros(4, np.int8), "z1": np.array(-7, np.int8), "last": np.array([-1]),
    "first": np.array([-4]), "three": np.array(3, np.float32), "ax": np.array([1]),
}  # fmt: skip
DIVIDED: Final = node("Div", ["x", "column"], ["q"])
CASES: Final[dict[str, list[NodeProto]]] = {
    "moved": [node("Unsqueeze", ["x", "last"], ["u"]), node("QuantizeLinear", ["u", "one", "z1"], ["q"]),
              node("Unsqueeze", ["q", "first"], ["y"])],
    "rows": [node("QuantizeLinear", ["x", "s", "z"], ["y"], axis=0)],
    "dynamic": [node("DynamicQuantizeLinear", ["x"], ["y", "a", "b"])],
    "floor": [DIVIDED, node("Transpose", ["q"], ["r"]), node("Floor", ["r"], ["y"])],
    "cast": [DIVIDED, node("Unsqueeze", ["q", "ax"], ["r"]), node("Cast", ["r"], ["y"], to=6)],
    "compared": [DIVIDED, node("Reshape", ["q", "last"], ["r"]), node("Less", ["r", "three"], ["y"])],
    "joined": [node("Relu", ["x"], ["r"]), node("Concat", ["r", "x"], ["c"], axis=1),
               node("QuantizeLinear", ["c", "s", "z"], ["y"], axis=0)],
    "row by row": [node("Abs", ["x"], ["a"]), node("ReduceMax", ["a", "ax"], ["m"]),
                   node("Div", ["m", "three"], ["t"]), node("Div", ["x", "t"], ["q"]), node("Round", ["q"], ["y"])],
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_default_contract_moves_no_tie(case: str) -> None:
    used = {name for each in CASES[case] for name in each.input}
    stored = {name: value for name, value in STORED.items() if name in used}
    made = model(CASES[case], {"x": X}, ["y"], stored)
    wanted = by_reference(made, {"x": X})
    assert wanted is not None
    np.testing.assert_array_equal(plica.compile(made, cache=False)(X), wanted[0])
