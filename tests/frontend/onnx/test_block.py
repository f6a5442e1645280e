"""Blocks of pixels of open sizes: one code for all of them that blocks divide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import plica
from tests.frontend.onnx.build import model, runtime


@pytest.mark.parametrize(
    ("kind", "how"),
    [("DepthToSpace", {"mode": "CRD"}), ("DepthToSpace", {}), ("SpaceToDepth", {})],
    ids=["columns first", "depth first", "back"],
)
def test_one_code_serves_sizes_that_blocks_divide(kind: str, how: dict[str, Any]) -> None:
    node = helper.make_node(kind, ["x"], ["y"], blocksize=2, **how)
    of = model([node], {"x": ("float32", ["n", "c", "h", "w"])}, ["y"])
    exe = plica.compile(of, cache=False)
    for sizes in ((1, 4, 2, 6), (2, 8, 4, 2)):
        x = np.random.default_rng(3).random(sizes, np.float32)
        np.testing.assert_array_equal(exe(x), runtime(of, {"x": x})[0])
    assert exe.stats.at_call == 0
    with pytest.raises(plica.InputError, match=r"== [24]\*\([chw]//[24]\)"):
        exe(np.zeros((1, 3, 3, 3), np.float32))
