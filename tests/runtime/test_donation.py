"""Donated inputs: updated in place, right, without a copy, and refused where that cannot be."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import plica
from plica.runtime.error import ArtefactError, InputError, UnsupportedError
from plica.runtime.given import check_donated
from plica.runtime.interface import from_data, to_data

Array = np.ndarray[Any, Any]

STEP = """
@plica.function
def main(
    q: Tensor[(2, 1, 8), f32], new: Tensor[(2, 1, 8), f32], k: Tensor[(2, 32, 8), f32], pos: i64
) -> tuple[Tensor[(2, 1, 32), f32], Tensor[(2, 32, 8), f32]]:
    at = op.reshape(op.iota((32,)), (1, 32, 1))
    updated = op.where(op.equal(at, pos), new, k)
    return op.matmul(q, op.transpose(updated, (0, 2, 1))), updated
"""


def drawn(*shapes: tuple[int, ...], seed: int = 0) -> list[Array]:
    draw = np.random.default_rng(seed)
    return [draw.standard_normal(each).astype(np.float32) for each in shapes]


@cache
def step(donate: str = "k", **more: Any) -> Any:
    """One of each for all tests of this file."""
    return plica.compile(plica.from_text(STEP), threads=1, cache=False, donate=donate, **more)


def test_a_cache_is_updated_in_place_and_no_copy_is_made() -> None:
    exe = step()
    q, new, k = drawn((2, 1, 8), (2, 1, 8), (2, 32, 8))
    expected = k.copy()
    for pos in (5, 0, 31, 5):
        expected[:, pos] = new[:, 0]
        scores, cache = exe(q, new, k, np.int64(pos))
        assert cache is k
        np.testing.assert_array_equal(k, expected)
        np.testing.assert_allclose(scores, q @ expected.transpose(0, 2, 1), rtol=1e-5, atol=1e-5)
        new = new + 1
    moved = [each.bytes for each in exe.artefact.launches]
    product = max(moved)
    assert k.nbytes <= product < 2 * k.nbytes  # which reads the cache once
    assert sum(moved) - product < k.nbytes / 2


def test_an_artefact_updates_in_place_too(tmp_path: Any) -> None:
    path = tmp_path / "step.plica"
    step().save(path)
    q, new, k = drawn((2, 1, 8), (2, 1, 8), (2, 32, 8))
    assert plica.load(path)(q, new, k, np.int64(3))[1] is k
    np.testing.assert_array_equal(k[:, 3], new[:, 0])


def scattered(rows: int, width: int, count: int, axis: int | None) -> Any:
    """A model of ONNX that puts rows, or elements along an axis, into a table."""
    shape, of = [rows, width], TensorProto.FLOAT
    if axis is None:
        node, at = helper.make_node("ScatterND", ["t", "i", "u"], ["y"]), [count, 1]
        put = [count, width]
    else:
        node = helper.make_node("ScatterElements", ["t", "i", "u"], ["y"], axis=axis)
        at = put = [count, width] if axis == 0 else [rows, count]
    ports = (("t", of, shape), ("i", TensorProto.INT64, at), ("u", of, put))
    infos = [helper.make_tensor_value_info(*each) for each in ports]
    out = helper.make_tensor_value_info("y", of, shape)
    graph = helper.make_graph([node], "g", infos, [out])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@pytest.mark.parametrize(
    ("rows", "width", "count", "axis"),
    [(6, 5, 1, None), (6, 5, 3, None), (1, 1, 1, None), (5, 3, 2, 0), (4, 6, 1, 1)],
)
def test_updates_by_indices_are_those_of_a_copy(
    rows: int, width: int, count: int, axis: int | None
) -> None:
    model = scattered(rows, width, count, axis)
    seed = 10 * rows + width
    draw = np.random.default_rng(seed)
    put = tuple(each.dim_value for each in model.graph.input[2].type.tensor_type.shape.dim)
    table, updates = drawn((rows, width), put, seed=seed)
    size = width if axis == 1 else rows
    indices = draw.integers(
        -size, size, (count, 1) if axis is None else updates.shape, dtype=np.int64
    )
    expected = plica.interpret(plica.from_onnx(model), table, indices, updates)
    given_away = table.copy()
    found = plica.compile(model, threads=1, cache=False, donate="t")(given_away, indices, updates)
    assert found is given_away
    np.testing.assert_array_equal(found, expected)


def test_rows_of_a_cache_of_any_size_are_written_in_place() -> None:
    """One code for every number of rows, of the cache and of what is new; nothing is copied."""
    text = """
@plica.function
def main(
    k: Tensor[("c", 8), f32], at: Tensor[("n",), i64], new: Tensor[("n", 8), f32],
    seen: Tensor[("s",), i64], q: Tensor[(1, 8), f32]
) -> tuple[Tensor[(1, "s"), f32], Tensor[("c", 8), f32]]:
    updated = op.scatter_rows(k, at, new)
    return op.matmul(q, op.transpose(op.take(updated, seen, axis=0), (1, 0))), updated
"""
    exe = plica.compile(plica.from_text(text), threads=1, cache=False, donate="k")
    for rows, places, seen in ((32, (5,), (5, 0)), (500, (7, 499, 7), (7, 499)), (4, (), (1,))):
        k, new, q = drawn((rows, 8), (len(places), 8), (1, 8), seed=rows)
        expected = k.copy()
        for place, row in zip(places, new, strict=True):
            expected[place] = row
        scores, cache = exe(k, np.array(places, np.int64), new, np.array(seen), q)
        assert cache is k
        np.testing.assert_array_equal(k, expected)
        np.testing.assert_allclose(scores, q @ expected[[*seen]].T, rtol=1e-5, atol=1e-5)
    (written,) = [each.kernel for each in exe.artefact.launches if "scatter" in each.kernel]
    assert written.startswith("scatter_rows_in_place")


def test_an_input_that_nothing_reads_is_the_memory_of_a_result() -> None:
    """Of one of its type.  A condition is read, though no kernel does."""
    text = """
@plica.function
def main(k: Tensor[(4,), f32], x: Tensor[(4,), f32]) -> tuple[Tensor[(), f32], Tensor[(4,), f32]]:
    return op.sum(x), x + 1.0
"""
    k, x = drawn((4,), (4,))
    _, found = plica.compile(plica.from_text(text), cache=False, donate="k")(k, x)
    assert found is k
    np.testing.assert_array_equal(found, x + np.float32(1))
    text = """
@plica.function
def main(k: Tensor[(), bool], x: Tensor[(), f32]) -> tuple[Tensor[(), bool], Tensor[(), f32]]:
    y = x + 2.0 if k else x
    return x > 1.0, y
"""
    with pytest.raises(UnsupportedError, match="'k' is not updated in place"):
        plica.compile(plica.from_text(text), cache=False, donate="k")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return k + 1.0, k", "no result is the input with some elements replaced"),
        (
            "new = op.where(m, k, 2.0)\n    return k + op.sum(new), new",
            "reads it after it was updated",
        ),
    ],
)
def test_what_is_not_updated_in_place_is_refused(body: str, why: str) -> None:
    text = f"""
@plica.function
def main(
    k: Tensor[(4,), f32], m: Tensor[(4,), bool]
) -> tuple[Tensor[(4,), f32], Tensor[(4,), f32]]:
    {body}
"""
    with pytest.raises(UnsupportedError, match=why) as refused:
        plica.compile(plica.from_text(text), cache=False, donate="k")
    assert "'k'" in str(refused.value)


def test_what_cannot_be_donated_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"no input 'neu' to donate[\s\S]*mean 'new'"):
        step("neu")
    with pytest.raises(UnsupportedError, match="of this target are not donated"):
        step(target="c")
    with pytest.raises(UnsupportedError, match="not exported"):
        step().export("/tmp/never.so")


def test_arrays_that_cannot_be_written_are_refused_before_anything_is_written() -> None:
    exe = step()
    q, new, k = drawn((2, 1, 8), (2, 1, 8), (2, 32, 8))
    before = k.copy()
    fixed = k.copy()
    fixed.flags.writeable = False
    for bad, why in ((fixed, "a read-only array"), (np.asfortranarray(k), "must be copied first")):
        with pytest.raises(InputError, match=why):
            exe(q, new, bad, np.int64(1))
    with pytest.raises(InputError, match="'new' lies in it"):
        exe(q, k.reshape(-1)[:16].reshape(2, 1, 8), k, np.int64(1))
    np.testing.assert_array_equal(k, before)


def test_damaged_pairs_in_an_artefact_are_refused() -> None:
    interface = step().artefact.interface
    assert from_data(to_data(interface)) == interface
    data = to_data(interface)
    for bad in ([[9, 0]], [[0, 0]], [[2, 1], [2, 1]], "k", [["k", 1]]):
        with pytest.raises(ArtefactError):
            from_data({**data, "donated": bad})


def test_the_check_names_every_input() -> None:
    interface = step().artefact.interface
    arrays = drawn((2, 1, 8), (2, 1, 8), (2, 32, 8))
    with pytest.raises(InputError, match="Input 'k' is donated"):
        check_donated(interface, [*arrays, np.zeros((), np.int64)], [])
