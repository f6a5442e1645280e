"""Sizes that cannot be: refused by the name of the dim and the inputs, before anything is written.

Each is tried on code for every size and on code in segments, by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import plica
from plica.runtime.error import EvaluationError, InputError, PlicaError
from plica.runtime.executable import Executable
from plica.runtime.open_executable import holds

Array = np.ndarray[Any, Any]

OPEN = """
@plica.function
def main(x: Tensor[("n", 4), f32], y: Tensor[("n",), f32]) -> Tensor[("n", 4), f32]:
    return x + op.reshape(y, ("n", 1))
"""

CACHE = """
@plica.function
def main(
    cache: Tensor[("n", 4), f32], new: Tensor[(1, 4), f32], rows: Tensor[("n", 1), bool]
) -> Tensor[("n", 4), f32]:
    return op.where(rows, new, cache)
"""

STAGED = """
@plica.function(dims="n k")
def main(x: Tensor[("n",), f32], y: Tensor[("n",), f32], count: i64) -> Tensor[("k",), f32]:
    measure("k", count)
    return op.take(x + y, op.iota(("k",)), mode="clip")
"""


@cache
def made(text: str, donate: str = "") -> Executable:
    return plica.compile(plica.from_text(text), threads=1, cache=False, donate=donate)


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize("text", [OPEN, STAGED])
def test_two_inputs_that_disagree_are_both_named(text: str) -> None:
    more = (np.int64(1),) if text is STAGED else ()
    x = zeros(3, 4) if text is OPEN else zeros(3)
    with pytest.raises(InputError) as refused:
        made(text)(x, zeros(2), *more)
    said = str(refused.value)
    assert "'y'" in said
    assert "'x'" in said
    assert "n" in said.split("expected")[1]


def test_a_size_outside_of_its_range_is_refused_by_name() -> None:
    text = OPEN.replace("@plica.function", '@plica.function(attrs={"dim_ranges": (("n", 2, 8),)})')
    exe = made(text)
    assert exe(zeros(2, 4), zeros(2)).shape == (2, 4)  # type: ignore[union-attr]  # one output
    for size in (1, 9):
        with pytest.raises(InputError, match=r"n[\s\S]*2[\s\S]*8"):
            exe(zeros(size, 4), zeros(size))


@pytest.mark.parametrize(
    ("count", "kind"),
    [(-1, PlicaError), (1 << 46, EvaluationError), ((1 << 63) - 1, EvaluationError)],
)
def test_a_measured_size_that_cannot_be_names_the_dim_and_the_input(
    count: int, kind: type[PlicaError]
) -> None:
    with pytest.raises(kind) as refused:
        made(STAGED)(zeros(3), zeros(3), np.int64(count))
    said = str(refused.value)
    assert "'k'" in said
    assert "'count'" in said


def test_what_no_memory_holds_is_refused_with_the_dim() -> None:
    with pytest.raises(EvaluationError) as refused:
        made(STAGED)(zeros(3), zeros(3), np.int64(1 << 44))
    assert "k" in str(refused.value)


def test_nothing_is_written_where_sizes_are_refused() -> None:
    exe = made(CACHE, "cache")
    cache_, new = zeros(3, 4), np.ones((1, 4), np.float32)
    with pytest.raises(InputError, match="rows"):
        exe(cache_, new, np.ones((2, 1), bool))
    assert not cache_.any()
    assert exe(cache_, new, np.array([[False], [True], [False]])) is cache_
    assert cache_.sum(axis=1).tolist() == [0, 4, 0]


def model(
    nodes: list[Any], inputs: list[tuple[str, int, tuple[Any, ...]]]
) -> Callable[..., Any]:  # Any: the protocol's own types
    ports = [helper.make_tensor_value_info(*each) for each in inputs]
    last = helper.make_tensor_value_info("z", inputs[0][1], None)
    graph = helper.make_graph(nodes, "g", ports, [last])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return plica.compile(proto, threads=1, cache=False)


F32, I64 = TensorProto.FLOAT, TensorProto.INT64


@pytest.mark.parametrize("kind", ["Concat", "Add"])
def test_inputs_that_do_not_fit_are_named_with_their_sizes(kind: str) -> None:
    attrs: dict[str, Any] = {"axis": 0} if kind == "Concat" else {}  # Any: as onnx takes them
    node = helper.make_node(kind, ["x", "y"], ["z"], **attrs)
    exe = model([node], [("x", F32, ("n", "m")), ("y", F32, ("k", "p"))])
    with pytest.raises(InputError) as refused:
        exe(zeros(2, 3), zeros(2, 4))
    said = str(refused.value)
    assert "p ==" in said or "m == p" in said
    for each in ("m is 3", "'x'", "p is 4", "'y'"):
        assert each in said
    if kind == "Concat":
        assert "n is" not in said  # it does not matter


def test_axes_and_steps_that_are_none_are_refused_as_such() -> None:
    node = helper.make_node("CumSum", ["x", "a"], ["z"])
    running = model([node], [("x", F32, ("n", "m")), ("a", I64, ())])
    assert running(zeros(2, 3) + 1, np.array(-1)).tolist() == [[1, 2, 3], [1, 2, 3]]
    for axis in (2, -3):
        with pytest.raises(EvaluationError, match=r"axis[\s\S]*'a'"):
            running(zeros(2, 3), np.array(axis))
    node = helper.make_node("Range", ["a", "b", "c"], ["z"])
    numbers = model([node], [(each, F32, ()) for each in "abc"])
    for numbers_ in ((0, 3, 0), (0, np.nan, 1), (0, np.inf, 1), (0, 3, np.nan), (np.nan, 1, 1)):
        with pytest.raises(EvaluationError, match=r"step[\s\S]*'c'"):
            numbers(*[np.float32(each) for each in numbers_])
    assert numbers(*[np.float32(each) for each in (0, 3, -1)]).size == 0


@pytest.mark.parametrize(("n", "k", "m"), [(0, 0, 0), (1, 3, 1), (1, 1, 4), (3, 3, 2), (2, 4, 3)])
def test_what_is_asked_of_sizes_is_read_from_its_words(n: int, k: int, m: int) -> None:
    sizes = {"n": n, "k": k, "m": m}
    assert holds("2*n + 1 >= k*m", sizes) is (2 * n + 1 >= k * m)
    assert holds("n == k or n == 1", sizes) is (n in (1, k))
    assert holds("max(n, k) >= m // 2 + k % 3", sizes) is (max(n, k) >= m // 2 + k % 3)
    assert holds("n ~ k", sizes) is None
    assert holds("n >= other", sizes) is None
