"""Loops of unknown length that carry optionals: one code, whatever they hold and how often it runs.

onnxruntime takes the first model alone: an optional of a sequence.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

import plica
from plica.core.diagnostic import EvaluationError
from plica.frontend.onnx import from_onnx

Array = np.ndarray[Any, Any]
F = TensorProto.FLOAT


def looping(of: Any, gives: Any, first: list[Any], turn: list[Any]) -> ModelProto:
    """A loop that begins with `first` where its optional holds nothing, and goes on with `turn`."""
    element = helper.make_value_info("held", gives)
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["goes_on"]),
            helper.make_node("OptionalHasElement", ["before"], ["there"]),
            helper.make_node(
                "If", ["there"], ["now"],
                then_branch=helper.make_graph(
                    [helper.make_node("OptionalGetElement", ["before"], ["held"])],
                    "t", [], [element],
                ),
                else_branch=helper.make_graph(
                    first, "e", [], [helper.make_value_info("new", gives)]
                ),
            ),
            *turn,
        ],
        "body",
        [
            helper.make_tensor_value_info("number", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_value_info("before", of),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_value_info("after", gives),
        ],
    )  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("Loop", ["turns", "start", "given"], ["y"], body=body)],
        "g",
        [
            helper.make_tensor_value_info("turns", TensorProto.INT64, []),
            helper.make_tensor_value_info("start", TensorProto.BOOL, []),
            helper.make_value_info("given", of),
        ],
        [helper.make_value_info("y", gives)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)])
    made.ir_version = 8
    return made


def listed() -> ModelProto:
    of = helper.make_sequence_type_proto(helper.make_tensor_type_proto(F, None))
    return looping(
        helper.make_optional_type_proto(of), of,
        [helper.make_node("Constant", [], ["five"], value_float=5.0),
         helper.make_node("SequenceConstruct", ["five"], ["new"])],
        [helper.make_node("Cast", ["number"], ["as_float"], to=F),
         helper.make_node("SequenceInsert", ["now", "as_float"], ["after"])],
    )  # fmt: skip


def grown() -> ModelProto:
    of = helper.make_tensor_type_proto(F, ["n"])
    return looping(
        helper.make_optional_type_proto(of), helper.make_tensor_type_proto(F, [None]),
        [helper.make_node("Constant", [], ["new"], value_floats=[5.0])],
        [helper.make_node("Concat", ["now", "now"], ["after"], axis=0)],
    )  # fmt: skip


def test_an_optional_sequence() -> None:
    of = listed()
    exe = plica.compile(of, threads=1, cache=False)
    session = onnxruntime.InferenceSession(of.SerializeToString())
    for turns, given in ((3, None), (1, []), (2, [np.ones(2, np.float32), np.float32(3)]), (0, [])):
        some = None if given is None else [np.asarray(each) for each in given]
        feeds: dict[str, Any] = {
            "turns": np.asarray(turns),
            "start": np.asarray(True),
            "given": some,
        }
        (wanted,) = session.run(None, feeds)
        for found in (exe(**feeds), plica.interpret(from_onnx(of), **feeds)):
            assert [each.tolist() for each in found] == [np.asarray(w).tolist() for w in wanted]
    assert exe.stats.at_call == 0


def test_an_optional_tensor_that_grows() -> None:
    of = grown()
    exe = plica.compile(of, threads=1, cache=False)
    runs: list[Any] = [exe, lambda **x: plica.interpret(from_onnx(of), **x)]
    for run in runs:
        for turns, given in ((3, None), (2, [1.0, 2.0]), (0, [4.0])):
            some = None if given is None else np.asarray(given, np.float32)
            found = run(turns=np.asarray(turns), start=np.asarray(True), given=some)
            first = [5.0] if given is None else given
            assert found.tolist() == first * 2**turns
        with pytest.raises(EvaluationError, match="negative"):  # there is nothing to give
            run(turns=np.asarray(0), start=np.asarray(True), given=None)
    assert exe.stats.at_call == 0
