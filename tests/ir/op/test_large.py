"""Large problems: sorting and putting by way of order mean what the direct way means."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from plica.core.fold import post_order
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Function, Var
from plica.ir.graph.module import Module, module
from plica.ir.interpret.interpreter import interpret
from plica.ir.op import find, put
from plica.ir.type.dtype import dtype
from plica.ir.type.term import tensor
from plica.pipeline import compile
from tests.deep import spread
from tests.ir.reference import REFERENCE, attributes, types_of

Array = np.ndarray[Any, Any]
RANDOM: Final = np.random.default_rng(0)


def program(name: str, args: list[Array], **attrs: Any) -> Module:
    record = find(name)
    assert record is not None
    params = tuple(
        Var(Name("x", at), tensor(each.shape, dtype(each.dtype))) for at, each in enumerate(args)
    )
    main = Var(Name("main"), None)
    return module({main: Function((), (), params, None, record(*params, **attrs))}, main)


def operators_of(name: str, args: list[Array], **attrs: Any) -> set[str]:
    """What an operator is made of."""
    record = find(name)
    assert record is not None
    assert record.decompose is not None
    params = [Var(Name("x", at), each) for at, each in enumerate(types_of(args))]
    body = record.decompose(attributes(record, attrs), *params)
    return {node.op for node in post_order(body) if isinstance(node, Apply)}


def keys(count: int) -> Array:
    """Many equals, nan, infinities and both zeros."""
    x = RANDOM.integers(-50, 50, count).astype(np.float32)
    x[::7], x[1::11], x[2::13], x[3::17] = np.nan, np.inf, -np.inf, -0.0
    return x


@pytest.mark.parametrize("descending", spread([False, True], 1))
def test_many_are_sorted_as_numpy_sorts_them(descending: bool) -> None:
    x = keys(1500)
    of = program("argsort", [x], descending=descending)
    wanted = REFERENCE["argsort"](x, descending=descending)
    np.testing.assert_array_equal(compile(of)(x), wanted)
    np.testing.assert_array_equal(interpret(of, x), wanted)


def test_many_are_unique() -> None:
    x = keys(1500)
    of = program("unique", [x], sorted=False)
    for ours, theirs in zip(compile(of)(x), REFERENCE["unique"](x, sorted=False), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_many_are_found() -> None:
    x = (RANDOM.uniform(size=(70, 80)) < 0.3).astype(np.int8)
    of = program("argwhere", [x])
    for ours, theirs in zip(compile(of)(x), REFERENCE["argwhere"](x), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("reduction", ["replace", "add", "mul", "max", "min"])
def test_putting_by_order_is_putting(reduction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(put, "MAX_PAIRS", 0)
    x, updates = RANDOM.uniform(-2, 2, (9, 4)), RANDOM.uniform(-2, 2, (13, 3))
    places = RANDOM.integers(-9, 9, (13, 3))
    how = {"axis": 0, "reduction": reduction}
    of = program("scatter_elements", [x, places, updates], **how)
    assert "argsort" in operators_of("scatter_elements", [x, places, updates], **how)
    wanted = REFERENCE["scatter_elements"](x, places, updates, **how)
    np.testing.assert_allclose(interpret(of, x, places, updates), wanted, rtol=1e-12)
    rows, slices = RANDOM.integers(-9, 9, (13, 1)), RANDOM.uniform(-2, 2, (13, 4))
    of = program("scatter_nd", [x, rows, slices], reduction=reduction)
    wanted = REFERENCE["scatter_nd"](x, rows, slices, reduction=reduction)
    np.testing.assert_allclose(interpret(of, x, rows, slices), wanted, rtol=1e-12)


def test_many_are_put() -> None:
    x, updates = np.zeros(5000, np.float32), np.ones(5000, np.float32)
    places = RANDOM.integers(0, 700, 5000)
    found = compile(program("scatter_elements", [x, places, updates], reduction="add"))
    np.testing.assert_array_equal(found(x, places, updates), np.bincount(places, minlength=5000))


@pytest.mark.parametrize("dtype", spread([np.float32, np.int32], 1))
def test_the_greatest_of_many_come_in_order(dtype: Any) -> None:
    """Blocks of which some are equal, some have a nan, and the last is not full."""
    draw = np.random.default_rng(3)
    x = draw.integers(-20, 20, (2, 1003)).astype(dtype)
    nan = np.zeros(x.shape, bool)
    if dtype is np.float32:
        x[:, draw.integers(0, 1003, 9)] = np.inf
        nan[:, draw.integers(0, 1003, 9)] = True
        x[nan] = np.nan
    values, places = compile(program("topk", [x], k=30, largest=True))(x)
    keys = np.where(nan, 0, -x)
    order = [np.lexsort((np.arange(1003), keys[row], ~nan[row])) for row in range(2)]
    np.testing.assert_array_equal(places, np.stack(order)[:, :30])
    np.testing.assert_array_equal(values, np.take_along_axis(x, places, -1))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_few_are_found_one_after_another(largest: bool, dtype: Any) -> None:
    """Equal ones keep their order, infinite ones count, and a nan is the greatest."""
    k, x = 3, np.random.default_rng(4).integers(-5, 5, (3, 40)).astype(dtype)
    keys = np.where(x > 3, 9, x).astype(np.int64)
    if dtype is np.float32:
        x[x == -5], x[x == 4] = -np.inf, np.inf
        keys[:, ::3] = 20
        x[:, ::3] = np.nan
    values, places = compile(program("topk", [x], k=k, largest=largest))(x)
    order = np.argsort(-keys if largest else keys, axis=-1, kind="stable")[:, :k]
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, -1))
