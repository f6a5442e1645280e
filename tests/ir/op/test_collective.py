"""Collectives refuse what their reductions refuse."""

from __future__ import annotations

import pytest

from plica.ir.graph.operator import Mismatch
from plica.ir.op.collective import all_reduce, reduce_scatter
from plica.ir.type.term import tensor


@pytest.mark.parametrize(("combiner", "dtype"), [("sum", "bool"), ("max", "bool"), ("all", "f32")])
def test_a_combiner_refuses_elements_that_its_reduction_refuses(combiner: str, dtype: str) -> None:
    rows = tensor((2, 4), dtype)
    for found in (
        all_reduce.relation({"combiner": combiner}, rows),
        reduce_scatter.relation({"combiner": combiner, "dim": 0}, rows),
    ):
        assert isinstance(found, Mismatch)
        assert found.code == "dtype-conflict"
