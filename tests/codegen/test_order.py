"""Rows longer than a run, as compiled: the order is numpy's, with ties, nan and infinities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import plica
from plica.core.name import Name
from plica.ir.graph.expression import Var
from plica.ir.type.term import tensor
from tests.rewrite.packs.layers import call, of

Array = np.ndarray[Any, Any]


def rows(dtype: str, size: int) -> Array:
    """Few different numbers, so that there are ties; among floats also those that are none."""
    draw = np.random.default_rng(size)
    x = draw.integers(-40, 40, (3, size)).astype(dtype)
    if x.dtype.kind == "f":
        x[:, draw.integers(0, size, size // 9)] = np.nan
        x[0, draw.integers(0, size, size // 9)] = np.inf
        x[1, draw.integers(0, size, size // 9)] = -np.inf
        x[2] = np.where(draw.random(size) < 0.99, np.nan, np.inf)
    return x


def expected(x: Array, descending: bool) -> Array:
    """Places in order: a nan is greatest, equals keep theirs."""
    if not descending:
        return np.argsort(x, axis=-1, kind="stable")
    back = np.argsort(x[:, ::-1], axis=-1, kind="stable")[:, ::-1]
    return np.asarray(x.shape[-1] - 1 - back)


@pytest.mark.parametrize(
    ("dtype", "size", "descending"), [("f32", 300, False), ("f32", 97, True), ("i32", 161, True)]
)
def test_the_order_is_numpys(dtype: str, size: int, descending: bool) -> None:
    values = rows({"f32": "float32", "i32": "int32"}[dtype], size)
    x = Var(Name("x"), tensor(values.shape, dtype))
    whole = plica.compile(of(call("argsort", x, descending=descending), x), cache=False, threads=1)
    np.testing.assert_array_equal(whole(values), expected(values, descending))


@pytest.mark.parametrize("largest", [False, True])
def test_a_few_of_many_are_numpys(largest: bool) -> None:
    values = rows("float32", 500)
    x = Var(Name("x"), tensor(values.shape, "f32"))
    few = plica.compile(of(call("topk", x, k=40, largest=largest), x), cache=False, threads=1)
    np.testing.assert_array_equal(few(values)[1], expected(values, largest)[:, :40])


def test_a_number_divided_by_two_is_no_row() -> None:
    half = plica.compile(plica.from_text(HALF), cache=False, threads=1)
    np.testing.assert_array_equal(half(np.array(27)), 13)


HALF = """
import plica
from plica import op
from plica.script import Tensor, i64

@plica.function
def main(n: Tensor[(), i64]) -> Tensor[(), i64]:
    return n // 2
"""
