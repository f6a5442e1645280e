"""The greatest elements are kept one by one: the same places, in the same order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica.core.name import Name
from plica.ir.graph.expression import Project, Var
from plica.ir.graph.module import Module
from plica.ir.type.term import tensor
from plica.rewrite.pack import rewrite
from plica.rewrite.packs.selection import (
    MAX_KEPT_PER_COLUMN,
    MAX_SELECTED,
    MIN_COLUMNS,
    MIN_ROW_LENGTH,
    SELECTION,
)
from tests.ir.reference.order import argsort
from tests.rewrite.packs.layers import call, of, operators

DRAWN = settings(max_examples=max(4, settings().max_examples // 16))


def greatest(shape: tuple[int, ...], dtype: str = "f32", **attrs: Any) -> Module:
    x = Var(Name("x"), tensor(shape, dtype))
    return of(Project(call("topk", x, **attrs), 1), x)


def rewritten(before: Module) -> Module:
    after, _ = rewrite(before, SELECTION)
    assert isinstance(after, Module)
    return after


@DRAWN
@given(st.data())
def test_compiled_places_are_those_of_a_stable_sort(data: st.DataObject) -> None:
    """With equal elements, infinities and what is no number; more rows than one, or one, and
    columns that fill vectors, or some of the last."""
    rows = data.draw(st.integers(1, 40))
    most = data.draw(st.sampled_from((MAX_KEPT_PER_COLUMN, 70)))
    size = data.draw(
        st.integers(
            1 if rows >= MIN_COLUMNS and most == MAX_KEPT_PER_COLUMN else MIN_ROW_LENGTH, 70
        )
    )
    kept, largest = data.draw(st.integers(1, min(most, size))), data.draw(st.booleans())
    axis, threads = data.draw(st.sampled_from((0, 1))), data.draw(st.sampled_from((1, 2)))
    dtype = data.draw(st.sampled_from(("f32", "f64", "i32", "i64")))
    source = np.random.default_rng(data.draw(st.integers(0, 1 << 16)))
    x = source.integers(-4, 5, (rows, size)).astype(f"{dtype[0]}{int(dtype[1:]) // 8}")
    for wild in (np.nan, np.inf, -np.inf) if dtype[0] == "f" else ():
        x[source.random(x.shape) < 0.1] = wild
    x = x if axis else np.ascontiguousarray(x.T)
    before = greatest(x.shape, dtype, k=kept, axis=axis, largest=largest)
    exe = plica.compile(before, cache=False, threads=threads)
    assert "first_places" in exe.source("kernel")
    assert "for mine in" not in exe.source("kernel")  # each compared with each
    assert np.array_equal(exe(x), argsort(x, axis, largest).take(range(kept), axis))


@pytest.mark.parametrize(("shape", "axis"), [((3, 20, 5, 4), 1), ((20, 3, 3), 0), ((3, 4, 20), 2)])
def test_short_columns_are_side_by_side(shape: tuple[int, ...], axis: int) -> None:
    """Where they are so in memory, and where they have to be brought there."""
    after = rewritten(greatest(shape, k=3, axis=axis))
    assert operators(after)["first_places"] == 1
    x = np.random.default_rng(0).integers(0, 9, shape).astype(np.float32)
    assert np.array_equal(plica.interpret(after, x), argsort(x, axis, True).take(range(3), axis))
    exe = plica.compile(greatest(shape, k=3, axis=axis), cache=False)
    assert "kept = alloc(Buffer[(" in exe.source("kernel")
    assert '"local"' in exe.source("kernel")
    assert np.array_equal(exe(x), argsort(x, axis, True).take(range(3), axis))


def test_an_axis_that_is_not_the_last_is_turned() -> None:
    after = rewritten(greatest((20, 3), k=4, axis=0))
    assert operators(after)["topk"] == 0
    assert operators(after)["first_places"] == 1
    x = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
    assert np.array_equal(plica.interpret(after, x), argsort(x, 0, True)[:4])


@pytest.mark.parametrize("shape", [(40,), (40, 3), (3, 40), (40, 1, 3), (1, 40, 1)])
def test_one_place_of_each_row_is_found_in_one_turn(shape: tuple[int, ...]) -> None:
    """Where the result has no axis for it, too."""
    axis = shape.index(40)
    exe = plica.compile(greatest(shape, k=1, axis=axis), cache=False)
    assert "for mine in" not in exe.source("kernel")  # each compared with each
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    assert np.array_equal(exe(x), x.argmax(axis, keepdims=True))


@pytest.mark.parametrize(
    "attrs",
    [
        {"shape": (MIN_ROW_LENGTH - 1,), "k": 2},
        {"shape": (20,), "k": 0},
        {"shape": (2 * MAX_SELECTED,), "k": MAX_SELECTED + 1},
        {"shape": (0, 20), "k": 2},
        {"shape": (20,), "k": 2, "dtype": "i8"},
    ],
)
def test_others_stay(attrs: dict[str, Any]) -> None:
    before = greatest(**attrs)
    assert rewritten(before) is before
