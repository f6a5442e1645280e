"""Loops and scans: whether there is a first turn, what no turn gives, states whose size changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import plica
from tests.frontend.onnx.build import Array, model, runtime

node, info = helper.make_node, helper.make_tensor_value_info
FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def loop(given: dict[str, Array], stored: dict[str, Array], collects: bool) -> onnx.ModelProto:
    """v = v + x, `turns` times, as long as `going`."""
    extra = [node("Identity", ["next"], ["row"])] if collects else []
    body = helper.make_graph(
        [node("Add", ["v", "x"], ["next"]), node("Identity", ["on"], ["still"]), *extra],
        "body",
        [info("i", INT, []), info("on", BOOL, []), info("v", FLOAT, [2])],
        [info("still", BOOL, []), info("next", FLOAT, [2])]
        + ([info("row", FLOAT, [2])] if collects else []),
    )
    outputs = ["end", "rows"] if collects else ["end"]
    turn = node("Loop", ["turns", "going", "start"], outputs, body=body)
    return model([turn], given, outputs, stored)


@pytest.mark.parametrize("collects", [False, True])
@pytest.mark.parametrize("going", [False, True])
@pytest.mark.parametrize("inputs", [("going",), ("turns", "going"), ()])
def test_a_loop_begins_only_where_its_condition_says_so(
    collects: bool, going: bool, inputs: tuple[str, ...]
) -> None:
    given: dict[str, Any] = {"x": np.ones(2, np.float32)}
    stored = {"start": np.zeros(2, np.float32)}
    for name, value in (("turns", np.array(3)), ("going", np.array(going))):
        (given if name in inputs else stored)[name] = value
    made = loop(given, stored, collects)
    wanted: Any = runtime(made, given)
    found: Any = plica.compile(made)(**given)
    found = found if isinstance(found, tuple) else (found,)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)
        assert mine.shape == theirs.shape
    if not collects:
        np.testing.assert_array_equal(plica.interpret(plica.from_onnx(made), **given), wanted[0])


def test_a_scan_of_no_items_gives_no_rows() -> None:
    body = helper.make_graph(
        [node("Add", ["s", "a"], ["t"]), node("Mul", ["t", "a"], ["o"])],
        "body",
        [info("s", FLOAT, [2]), info("a", FLOAT, [2])],
        [info("t", FLOAT, [2]), info("o", FLOAT, [2])],
    )
    scan = node("Scan", ["s0", "A"], ["end", "rows"], body=body, num_scan_inputs=1,
                scan_output_axes=[1])  # fmt: skip
    inputs: dict[str, Any] = {"s0": np.ones(2, np.float32), "A": ("float32", ["t", 2])}
    exe = plica.compile(model([scan], inputs, ["end", "rows"]))
    end, rows = exe(np.ones(2, np.float32), np.ones((0, 2), np.float32))
    assert end.tolist() == [1, 1]
    assert rows.shape == (2, 0)
    end, rows = exe(np.ones(2, np.float32), np.ones((3, 2), np.float32))
    assert end.tolist() == [4, 4]
    assert rows.tolist() == [[2, 3, 4], [2, 3, 4]]


def decoder() -> onnx.ModelProto:
    """Words, one after another, of a table: each turn appends a row to `seen`, asks which word goes
    with all rows so far, appends it to `words`, and ends where it is the last word."""
    random = np.random.default_rng(3)
    stored = {
        "table": random.standard_normal((7, 4)).astype(np.float32) * 2,
        "follows": random.standard_normal((7, 4)).astype(np.float32),
        "first": np.array([0]), "last": np.array([-1]), "end": np.array([2**40]),
        "stop": np.array([6]), "none": np.array([], np.int64), "true": np.array(True),
    }  # fmt: skip
    nodes = [
        node("Slice", ["words", "last", "end", "first"], ["word"]),
        node("Gather", ["table", "word"], ["row"]),
        node("Concat", ["seen", "row"], ["seen_next"], axis=0),
        node("Transpose", ["seen_next"], ["turned"]),
        node("MatMul", ["row", "turned"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=1),
        node("MatMul", ["shares", "seen_next"], ["mixed"]),
        node("Gemm", ["mixed", "follows"], ["logits"], transB=1),
        node("ArgMax", ["logits"], ["next"], axis=1, keepdims=0),
        node("Concat", ["words", "next"], ["words_next"], axis=0),
        node("Equal", ["next", "stop"], ["is_last"]),
        node("Not", ["is_last"], ["on"]),
        node("Reshape", ["on", "none"], ["still"]),
    ]
    body = helper.make_graph(
        nodes,
        "turn",
        [info("i", INT, []), info("on_", BOOL, []), info("words", INT, [None]),
         info("seen", FLOAT, [None, 4])],
        [info("still", BOOL, []), info("words_next", INT, [None]),
         info("seen_next", FLOAT, [None, 4]), info("logits", FLOAT, [1, 7])],
    )  # fmt: skip
    outputs = ["said", "memory", "all"]
    turn = node("Loop", ["most", "true", "start", "before"], outputs, body=body)
    given: Any = {"start": ("int64", ["m"]), "before": ("float32", ["n", 4]), "most": ("int64", [])}
    return model([turn], given, outputs, stored)


def test_what_a_loop_carries_may_grow(tmp_path: Path) -> None:
    made = decoder()
    read = plica.from_onnx(made)
    assert plica.digest(plica.from_text(str(read))) == plica.digest(read)
    exe = plica.compile(made, cache=False, threads=1)
    exe.save(tmp_path / "grows.plica")
    loaded = plica.load(tmp_path / "grows.plica")
    random, lengths = np.random.default_rng(7), set()
    for before, most in ((0, 0), (0, 1), (3, 9), (2, 40)):
        given: dict[str, Any] = {
            "start": random.integers(0, 6, 2),
            "before": random.standard_normal((before, 4)).astype(np.float32),
            "most": np.array(most),
        }
        wanted: Any = runtime(made, given)
        for call in (exe, loaded, lambda **named: plica.interpret(read, **named)):
            found: Any = call(**given)
            for mine, theirs in zip(found, wanted, strict=True):
                assert mine.shape == theirs.shape
                np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
        lengths.add(len(wanted[0]))
    assert len(lengths) > 2
    assert exe.stats.at_call == 0


def test_what_a_loop_carries_keeps_its_rank() -> None:
    body = helper.make_graph(
        [node("Unsqueeze", ["v", "zero"], ["next"]), node("Identity", ["on"], ["still"])],
        "body",
        [info("i", INT, []), info("on", BOOL, []), info("v", FLOAT, None)],
        [info("still", BOOL, []), info("next", FLOAT, None)],
    )
    stored = {"zero": np.array([0]), "going": np.array(True)}
    turn = node("Loop", ["turns", "going", "start"], ["end"], body=body)
    made = model([turn], {"start": ("float32", [2]), "turns": ("int64", [])}, ["end"], stored)
    with pytest.raises(plica.UnsupportedError, match="rank or dtype changes"):
        plica.compile(made, cache=False)(np.ones(2, np.float32), np.array(3))


def test_what_no_turn_changes_is_no_state() -> None:
    """As exporters of other frameworks write loops: weights go through them."""
    body = helper.make_graph(
        [
            node("MatMul", ["v", "w"], ["next"]),
            node("Identity", ["w"], ["again"]),
            node("Identity", ["on"], ["still"]),
        ],
        "body",
        [info("i", INT, []), info("on", BOOL, []), info("w", FLOAT, [2, 2]),
         info("v", FLOAT, [1, 2]), info("u", FLOAT, [1])],
        [info("still", BOOL, []), info("again", FLOAT, [2, 2]), info("next", FLOAT, [1, 2]),
         info("u", FLOAT, [1])],
    )  # fmt: skip
    turn = node("Loop", ["turns", "", "weight", "start", "one"], ["ws", "end", "ones"], body=body)
    weight = np.array([[0.5, 1.0], [-1.0, 0.25]], np.float32)
    given = {"turns": np.array(3), "start": np.ones((1, 2), np.float32)}
    stored = {"weight": weight, "one": np.ones(1, np.float32)}
    made = model([turn], given, ["ws", "end", "ones"], stored)
    inner = [each for each in str(plica.from_onnx(made)).splitlines() if "def " in each][1:]
    assert inner
    assert not any("Tensor[(2, 2), f32]" in each for each in inner)
    exe = plica.compile(made)
    for turns in (3, 0, 5):
        feed = {**given, "turns": np.array(turns)}
        for found, wanted in zip(exe(**feed), runtime(made, feed), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert exe.stats.at_call == 0


def within(nodes: list[onnx.NodeProto], turns: str, value: str, row: str) -> onnx.NodeProto:
    """A loop of a given number of turns on x and a value, which gives the value and its rows."""
    body = helper.make_graph(
        [*nodes, node("Identity", [f"on_{row}"], [f"still_{row}"])],
        "body",
        [info(f"i_{row}", INT, []), info(f"on_{row}", BOOL, []), info(value, FLOAT, None)],
        [info(f"still_{row}", BOOL, []), info(f"next_{row}", FLOAT, None), info(row, FLOAT, None)],
    )
    started = "v" if turns.startswith("i_") else "x"
    return node("Loop", [turns, "", started], [f"end_{row}", f"{row}s"], body=body)


def test_a_loop_in_a_loop_takes_as_many_turns_as_that_took() -> None:
    inner = within(
        [node("Add", ["u", "x"], ["next_a"]), node("Sin", ["next_a"], ["a"])], "i_b", "u", "a"
    )
    outer = within(
        [inner, node("ReduceSum", ["as"], ["b"], keepdims=0),
         node("Sub", ["end_a", "x"], ["next_b"])], "turns", "v", "b",
    )  # fmt: skip
    given: dict[str, Any] = {"turns": np.array(0), "x": ("float32", ["p", "q"])}
    made = model([outer], given, ["end_b", "bs"])
    exe = plica.compile(made, cache=False, threads=1)
    for turns, shape in ((4, (2, 3)), (0, (1, 5)), (1, (3, 1))):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 7
        for mine, theirs in zip(
            exe(np.array(turns), x), runtime(made, {"turns": np.array(turns), "x": x}), strict=True
        ):
            assert mine.shape == theirs.shape
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    assert exe.stats.at_call == 0


def test_sizes_that_no_turn_measures_are_none() -> None:
    turn = [node("Compress", ["x", "kept"], ["a"], axis=0), node("Identity", ["u"], ["next_a"])]
    given: dict[str, Any] = {"x": ("float32", ["p", 3]), "kept": ("bool", ["p"])}
    x, kept = np.ones((4, 3), np.float32), np.array([True, False, True, True])
    for turns, wanted in ((0, (0, 0, 3)), (2, (2, 3, 3))):
        stored = {"turns": np.array(turns)}
        made = model([within(turn, "turns", "u", "a")], given, ["end_a", "as"], stored)
        exe = plica.compile(made, cache=False, threads=1)
        assert [each.shape for each in exe(x, kept)] == [(4, 3), wanted]
        assert exe.stats.at_call == 0
        open_ = model([within(turn, "turns", "u", "a")], {**stored, **given}, ["end_a", "as"])
        found: Any = plica.interpret(plica.from_onnx(open_), np.array(turns), x, kept)
        assert found[1].shape == wanted
