"""Sequences and optionals: lists of arrays at a call, held to the standard's own evaluator."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from onnx import ModelProto, TensorProto, ValueInfoProto, helper
from onnx.reference import ReferenceEvaluator

import plica
from plica.frontend.onnx import from_onnx
from plica.ir.graph.module import Module
from plica.runtime import archive
from plica.runtime.error import ArtefactError, EvaluationError, InputError
from plica.runtime.executable import Executable
from plica.runtime.selecting_executable import SelectingExecutable

FLOAT = TensorProto.FLOAT
Array = np.ndarray[Any, Any]


def listed(name: str, shape: list[Any] | None) -> ValueInfoProto:
    """A sequence of tensors of f32."""
    return helper.make_tensor_sequence_value_info(name, FLOAT, shape)


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> ModelProto:
    """A model of some nodes."""
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def several() -> ModelProto:
    """What can be done to a sequence, all at once."""
    at, whole = (helper.make_tensor_value_info(n, TensorProto.INT64, []) for n in ("i", "n"))
    return model(
        [
            helper.make_node("SequenceErase", ["x", "i"], ["less"]),
            helper.make_node("SequenceAt", ["x", "i"], ["item"]),
            helper.make_node("Neg", ["item"], ["other"]),
            helper.make_node("SequenceInsert", ["less", "other", "i"], ["y"]),
            helper.make_node("ConcatFromSequence", ["y"], ["z"], axis=-1),
            helper.make_node("SequenceLength", ["y"], ["n"]),
        ],
        [listed("x", [2, "w"]), at],
        [listed("y", None), helper.make_tensor_value_info("z", FLOAT, [2, None]), whole],
    )


@pytest.fixture(scope="module")
def compiled() -> Executable:
    return plica.compile(several(), threads=1)


@cache
def read() -> Module:
    return from_onnx(several())


def arrays(widths: list[int]) -> list[Array]:
    draw = np.random.default_rng(len(widths))
    return [draw.standard_normal((2, each)).astype(np.float32) for each in widths]


def same(mine: Any, other: Any) -> None:
    if isinstance(other, list):
        assert isinstance(mine, list)
        assert len(mine) == len(other)
        for each, wanted in zip(mine, other, strict=True):
            same(each, wanted)
    else:
        np.testing.assert_array_equal(mine, other)
        assert np.asarray(mine).dtype == np.asarray(other).dtype


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=6), st.data())
def test_lists_of_any_length_by_one_code(
    compiled: Executable, widths: list[int], data: st.DataObject
) -> None:
    # Behind the last tensor the evaluator inserts as if it were the first place.
    place = np.asarray(data.draw(st.integers(1 - len(widths), len(widths) - 2)))
    x = arrays(widths)
    wanted = ReferenceEvaluator(several()).run(None, {"x": x, "i": place})
    same(list(compiled(x, place)), list(wanted))
    same(list(plica.interpret(read(), x, place)), list(wanted))
    assert compiled.stats.at_call == 0


def test_what_is_saved_takes_lists_too(compiled: Executable, tmp_path: Path) -> None:
    path = tmp_path / "m.plica"
    compiled.save(path)
    loaded = plica.load(path)
    assert isinstance(loaded, SelectingExecutable)
    assert [str(each) for each in loaded.inputs] == [
        "x: List[Tensor[(2, 'w'), f32]]", "i: Tensor[(), i64]",
    ]  # fmt: skip
    x = arrays([3, 1])
    same(list(loaded(x, 1)), list(compiled(x, 1)))
    members = archive.read(path)
    for damaged in (b"[]", b'{"inputs": [["x", "list", "f99", null]], "outputs": []}', b"{"):
        archive.write(path, archive.pack({**members, "lists.json": damaged}))
        with pytest.raises(ArtefactError):
            plica.load(path)


def test_a_list_that_does_not_fit_is_refused(compiled: Executable) -> None:
    for wrong in (np.zeros((2, 2), np.float32), [np.zeros(2, np.float32)], [np.zeros((2, 1))]):
        with pytest.raises(InputError) as error:
            compiled(wrong, 0)
        assert "'x" in str(error.value)
    with pytest.raises(EvaluationError):
        compiled(arrays([1, 2]), 5)
    with pytest.raises(InputError):
        plica.interpret(read(), arrays([1]))


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 7), st.integers(0, 7), st.booleans())
def test_a_tensor_is_split_as_the_standard_says(step: int, length: int, first: bool) -> None:
    shape: list[str | int | None] = ["n", 3] if first else [3, "n"]
    parts = model(
        [helper.make_node("SplitToSequence", ["x", "s"], ["y"], axis=0 if first else 1)],
        [helper.make_tensor_value_info("x", FLOAT, shape),
         helper.make_tensor_value_info("s", TensorProto.INT64, [])],
        [listed("y", None)],
    )  # fmt: skip
    x = np.arange(3.0 * length, dtype=np.float32).reshape((length, 3) if first else (3, length))
    wanted: Any = ReferenceEvaluator(parts).run(None, {"x": x, "s": np.asarray(step)})
    same(plica.interpret(from_onnx(parts), x, step), [each for each in wanted[0] if each.size])


def test_an_optional_is_a_value_or_none() -> None:
    of = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, ["n"]))
    chosen = model(
        [
            helper.make_node("OptionalHasElement", ["x"], ["there"]),
            helper.make_node("If", ["there"], ["y"], then_branch=helper.make_graph(
                [helper.make_node("OptionalGetElement", ["x"], ["a"])], "t", [],
                [helper.make_tensor_value_info("a", FLOAT, None)],
            ), else_branch=helper.make_graph(
                [helper.make_node("Constant", [], ["b"], value_floats=[7.0])], "e", [],
                [helper.make_tensor_value_info("b", FLOAT, [1])],
            )),
            helper.make_node("Identity", ["x"], ["z"]),
        ],
        [helper.make_value_info("x", of)],
        [helper.make_tensor_value_info("y", FLOAT, [None]), helper.make_value_info("z", of)],
    )  # fmt: skip
    exe = plica.compile(chosen, threads=1)
    for run in (exe, lambda x: plica.interpret(from_onnx(chosen), x)):
        y, z = run(None)
        assert y.tolist() == [7.0]
        assert z is None
        y, z = run(np.ones(3, np.float32))
        assert y.tolist() == z.tolist() == [1.0] * 3
    assert exe.stats.at_call == 0


@settings(max_examples=6, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=6), st.booleans())
def test_bits_of_floats(numbers: list[float], wide: bool) -> None:
    pairs = ((TensorProto.DOUBLE, TensorProto.INT64), (FLOAT, TensorProto.INT32))
    float_, whole = pairs[0 if wide else 1]
    x = np.asarray([*numbers, 5e-324, -0.0, np.inf], np.float64 if wide else np.float32)
    there, back = (
        from_onnx(helper.make_model(helper.make_graph(
            [helper.make_node("BitCast", ["x"], ["y"], to=into)], "g",
            [helper.make_tensor_value_info("x", of, [None])],
            [helper.make_tensor_value_info("y", into, [None])],
        ), opset_imports=[helper.make_opsetid("", 26)]))
        for of, into in ((float_, whole), (whole, float_))
    )  # fmt: skip
    bits = plica.interpret(there, x)
    same(bits, x.view(np.int64 if wide else np.int32))
    same(np.signbit(plica.interpret(back, bits)), np.signbit(x))
    same(plica.interpret(back, bits), x)
