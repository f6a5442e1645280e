"""The prelude: every function against its Python counterpart, on random lists and trees."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.core.diagnostic import EvaluationError
from plica.ir.graph.expression import Function
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.ir.interpret.value import build
from plica.ir.prelude import list_items, list_value, prelude
from plica.ir.text.script import from_text
from plica.ir.type.infer import infer
from tests.same_value import same_value
from tests.scripts import prelude_use

NUMBERS = st.lists(st.integers(-100, 100), max_size=8)
SOME = st.lists(st.integers(-100, 100), min_size=1, max_size=8)


@functools.cache
def function(name: str) -> Module:
    library = prelude()
    main = next(each for each, _ in library.functions() if str(each.name) == name)
    return Module(library.names, library.values, main)


def call(name: str, *args: Any) -> Any:
    return to_python(interpret(function(name), *map(to_value, args)))


def to_value(value: Any) -> Any:
    """Lists are lists of the prelude, integers are i64; functions are called with Python values."""
    if isinstance(value, list):
        return list_value([to_value(each) for each in value])
    if isinstance(value, tuple):
        return tuple([to_value(each) for each in value])
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int):
        return np.int64(value)
    if value is None:
        return build(prelude(), "Nothing")
    if callable(value):
        return lambda *args: to_value(value(*map(to_python, args)))
    return value


def to_python(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.item()
    if isinstance(value, tuple):
        return tuple([to_python(each) for each in value])
    match str(getattr(value, "name", "")):
        case "Nil" | "Cons":
            return [to_python(each) for each in list_items(value)]
        case "Nothing":
            return None
        case "Some":
            return to_python(value.fields[0])
    return value


def test_every_name_the_feature_map_asks_for_is_there() -> None:
    wanted = """
        id compose flip hd tl nth length update map foldl foldr foldr1 sum concat filter zip rev
        map_accumr map_accuml unfoldr unfoldl tmap size iterate
    """
    for name in wanted.split():
        assert isinstance(prelude().find(name), Function), name


def test_the_prelude_is_inferred_and_reads_back() -> None:
    assert infer(prelude()) is prelude()
    assert prelude() is prelude()
    assert str(from_text(str(prelude()))) == str(prelude())


@given(st.integers(-9, 9), st.integers(-9, 9))
def test_functions(x: int, y: int) -> None:
    assert call("id", x) == x
    assert call("compose", lambda x: x * 3, lambda x: x + 1)(to_value(x)) == (x + 1) * 3
    assert call("flip", lambda x, y: x - y)(to_value(x), to_value(y)) == y - x
    assert call("iterate", lambda x: x * 2, abs(y))(to_value(x)) == x * 2 ** abs(y)


@given(NUMBERS)
def test_lists_as_a_whole(xs: list[int]) -> None:
    assert call("length", xs) == len(xs)
    assert call("sum", xs) == sum(xs)
    assert call("rev", xs) == xs[::-1]


@given(SOME, st.data())
def test_elements_of_lists(xs: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(xs) - 1))
    assert call("hd", xs) == xs[0]
    assert call("tl", xs) == xs[1:]
    assert call("nth", xs, at) == xs[at]
    assert call("update", xs, at, 7) == [*xs[:at], 7, *xs[at + 1 :]]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("hd", ([],)),
        ("tl", ([],)),
        ("nth", ([1], 1)),
        ("update", ([1], 1, 0)),
        ("foldr1", (lambda x, y: x, [])),
    ],
)
def test_what_an_empty_list_does_not_have(name: str, args: tuple[Any, ...]) -> None:
    with pytest.raises(EvaluationError) as caught:
        call(name, *args)
    assert caught.value.code == "match-failure"


@given(NUMBERS, NUMBERS)
def test_lists_into_lists(xs: list[int], ys: list[int]) -> None:
    assert call("map", lambda x: x * x, xs) == [x * x for x in xs]
    assert call("filter", lambda x: x % 2 == 0, xs) == [x for x in xs if x % 2 == 0]
    assert call("concat", xs, ys) == xs + ys
    assert call("zip", xs, ys) == list(zip(xs, ys, strict=False))


def minus(a: int, b: int) -> int:
    return a - b


@given(NUMBERS)
def test_folds(xs: list[int]) -> None:
    assert call("foldl", minus, 3, xs) == functools.reduce(minus, xs, 3)
    assert call("foldr", minus, 3, xs) == functools.reduce(lambda a, x: x - a, xs[::-1], 3)
    if xs:
        assert call("foldr1", minus, xs) == functools.reduce(lambda a, x: x - a, xs[::-1])


def running(state: int, x: int) -> tuple[int, int]:
    return state + x, state * x


def accumulate(f: Callable[[int, int], tuple[int, int]], state: int, xs: list[int]) -> Any:
    found = []
    for x in xs:
        state, y = f(state, x)
        found.append(y)
    return state, found


@given(NUMBERS)
def test_maps_with_a_state(xs: list[int]) -> None:
    assert call("map_accuml", running, 1, xs) == accumulate(running, 1, xs)
    state, found = accumulate(running, 1, xs[::-1])
    assert call("map_accumr", running, 1, xs) == (state, found[::-1])


@given(st.integers(-2, 8))
def test_unfolds(n: int) -> None:
    def down(k: int) -> Any:
        inside = to_value((k - 1, k * k))
        return None if k <= 0 else build(prelude(), "Some", inside)

    squares = [k * k for k in range(n, 0, -1)]
    assert call("unfoldr", down, n) == squares
    assert call("unfoldl", down, n) == squares[::-1]


@given(st.none() | st.integers(-5, 5))
def test_options(x: int | None) -> None:
    option = None if x is None else build(prelude(), "Some", np.int64(x))
    assert call("option_map", lambda x: x + 1, option) == (None if x is None else x + 1)
    assert call("get_or", option, 9) == (9 if x is None else x)


@given(st.integers(0, 20), st.integers(0, 20))
def test_natural_numbers(a: int, b: int) -> None:
    x, y = interpret(function("nat"), a), interpret(function("nat"), b)
    assert call("from_nat", x) == a
    assert call("from_nat", interpret(function("nat_add"), x, y)) == a + b
    assert call("from_nat", interpret(function("nat_double"), x)) == 2 * a


# --- trees -----------------------------------------------------------------------------------

TREES = st.recursive(
    st.tuples(st.integers(-3, 3), st.just(())),
    lambda inner: st.tuples(st.integers(-3, 3), st.lists(inner, max_size=3).map(tuple)),
    max_leaves=10,
)


def rose(tree: Any, value: Callable[[int], Any] = np.int64) -> Any:
    children = list_value([rose(child, value) for child in tree[1]])
    return build(prelude(), "Rose", value(tree[0]), children)


def flat(value: Any) -> Any:
    return to_python(value.fields[0]), tuple(map(flat, list_items(value.fields[1])))


def count(tree: Any) -> int:
    return 1 + sum(map(count, tree[1]))


def doubled(tree: Any) -> Any:
    return 2 * tree[0], tuple(map(doubled, tree[1]))


@given(TREES)
def test_trees(tree: Any) -> None:
    assert call("size", rose(tree)) == count(tree)
    assert flat(interpret(function("tmap"), to_value(lambda x: 2 * x), rose(tree))) == doubled(tree)


def vector(seed: int) -> np.ndarray[Any, Any]:
    return np.linspace(-1, seed, 4, dtype=np.float32)


@given(TREES)
def test_a_recursive_network_over_a_tree(tree: Any) -> None:
    """A cell at every node, in the manner of a TreeLSTM, beside the same recursion in numpy."""
    w = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
    u = w.T.copy()

    def model(tree: Any) -> Any:
        inside = sum((model(child) for child in tree[1]), np.zeros(4, np.float32))
        return np.tanh(vector(tree[0]) @ w + inside @ u)

    found = interpret(prelude_use.tree_net, rose(tree, vector), w, u)
    np.testing.assert_allclose(found, model(tree), rtol=1e-5, atol=1e-6)


def test_live_scripts_import_the_prelude() -> None:
    xs = list_value(map(np.int64, range(5)))
    assert to_python(interpret(prelude_use.sum_of_squares, xs)) == 30


def test_map_at_two_types_in_one_module() -> None:
    xs = list_value(map(np.int64, range(3)))
    ys = list_value([vector(1), vector(2)])
    left, right = interpret(prelude_use.two_maps, xs, ys)
    assert to_python(left) == [1, 2, 3]
    for one, other in itertools.zip_longest(list_items(right), list_items(ys)):
        assert same_value(one, other + other)


def test_a_long_list_needs_no_deep_stack() -> None:
    xs = list(range(3_000))
    assert call("sum", xs) == sum(xs)
    assert call("rev", xs) == xs[::-1]
    assert call("foldr", minus, 0, xs) == functools.reduce(lambda a, x: x - a, xs[::-1], 0)
