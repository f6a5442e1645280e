"""What cannot be differentiated is said, all of it at once."""

from __future__ import annotations

from typing import Any

import pytest

import plica
from plica.ir.op import find, names
from plica.ir.op.record import pointwise
from plica.ir.operator import Operator
from plica.ir.scalar import Add
from plica.rewrite.gradient.form import definition_of
from tests.rewrite.gradient import source

ONE = """
@plica.function
def main(x: Tensor[(2,), f64], n: Tensor[(2,), i64]) -> Tensor[(2,), f64]:
    return x * 2.0
"""


@pytest.fixture(scope="module")
def strange() -> tuple[str, str]:
    """Two operators whose records have no gradient."""
    found = []
    for name in ("test.strange", "test.stranger"):
        if find(name) is None:
            pointwise(name, ("x",), lambda x: Add(x, x), "Twice x.")
        found.append(name)
    return found[0], found[1]
