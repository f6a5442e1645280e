"""Models that are read more than one way: ranks that depend on sizes or values.

All are held to onnxruntime; one executable serves every way, without a compilation at a call.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper, save

import plica
from plica.cli import main
from plica.codegen.staged.cut import cut
from plica.core.diagnostic import EvaluationError
from plica.frontend.onnx import NeedsValue, from_onnx
from plica.frontend.onnx.convert import MAX_BRANCH_POINTS
from plica.frontend.onnx.sequence_port import over_arrays
from tests.frontend.onnx.build import runtime

Array = np.ndarray[Any, Any]
F, INT = TensorProto.FLOAT, TensorProto.INT64


def whole(
    nodes: list[Any], inputs: list[Any], stored: dict[str, Array] | None = None
) -> ModelProto:
    inits = [numpy_helper.from_array(value, name) for name, value in (stored or {}).items()]
    ends = [helper.make_tensor_value_info("y", F, None)]
    made = helper.make_model(
        helper.make_graph(nodes, "g", inputs, ends, inits),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    made.ir_version = 9
    return made


def takes(name: str, *sizes: Any, of: int = F) -> Any:
    return helper.make_tensor_value_info(name, of, list(sizes))


def squeezed(*rest: Any, sizes: tuple[Any, ...] = ("n", 1, 3), **stored: Array) -> ModelProto:
    """A tensor without its axes of 1, and what is done with it."""
    return whole([helper.make_node("Squeeze", ["x"], ["s"]), *rest], [takes("x", *sizes)], stored)


def rows(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def agrees(run: Any, of: ModelProto, **given: Array) -> None:
    found, (wanted,) = run(**given), runtime(of, given)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


NEGATED = helper.make_node("Neg", ["s"], ["y"])


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", 1, 2]), min_size=1, max_size=4),
    st.integers(1, 2),
    st.integers(1, 3),
)
def test_squeeze_without_axes(sizes: list[Any], a: int, b: int) -> None:
    of = squeezed(NEGATED, sizes=tuple(sizes))
    given_ = [{"a": a, "b": b}.get(each, each) for each in sizes]
    agrees(lambda **x: plica.interpret(from_onnx(of), **x), of, x=rows(*given_))


def test_an_output_of_any_rank_and_its_artefact(tmp_path: Path) -> None:
    of = squeezed(NEGATED, sizes=("n", 3, "m"))
    exe = plica.compile(of, threads=1, cache=False)
    save(of, tmp_path / "any.onnx")
    assert main(["compile", str(tmp_path / "any.onnx"), "-o", str(tmp_path / "any.plica")]) == 0
    loaded = plica.load(tmp_path / "any.plica")
    for sizes in ((1, 3, 1), (2, 3, 1), (1, 3, 4), (5, 3, 2)):
        agrees(exe, of, x=rows(*sizes))
        agrees(loaded, of, x=rows(*sizes))
    assert exe.stats.at_call == 0
    assert str(exe.outputs[0]) == "y: Tensor[..., f32]"


def test_an_output_of_one_rank_is_a_plain_tensor() -> None:
    total = helper.make_node("ReduceSum", ["s"], ["y"], keepdims=0)
    of = squeezed(total)
    exe = plica.compile(of, threads=1, cache=False)
    for n in (1, 4):
        agrees(exe, of, x=rows(n, 1, 3))
    assert exe.stats.at_call == 0
    assert str(exe.outputs[0]) == "y: Tensor[(), f32]"


def test_sizes_measured_before_and_behind_a_fork() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["there"]),  # (2, m)
        helper.make_node("Cast", ["there"], ["places"], to=F),
        helper.make_node("Squeeze", ["places"], ["s"]),
        helper.make_node("NonZero", ["s"], ["again"]),
        helper.make_node("Cast", ["again"], ["last"], to=F),
        helper.make_node("ReduceSum", ["last"], ["y"], keepdims=0),
    ]
    of = whole(nodes, [takes("x", "n", 3)])
    exe = plica.compile(of, threads=1, cache=False)
    for x in (np.eye(4, 3), np.zeros((2, 3)), np.eye(1, 3, 2), np.ones((3, 3))):
        agrees(exe, of, x=x.astype(np.float32))
    assert exe.stats.at_call == 0


def test_a_way_without_meaning_is_refused_at_the_call() -> None:
    turned = helper.make_node("Transpose", ["s"], ["y"], perm=[1, 0])
    of = squeezed(turned)
    exe = plica.compile(of, threads=1, cache=False)
    for n in (0, 2, 3):
        agrees(exe, of, x=rows(n, 1, 3))
    for run in (exe, lambda x: plica.interpret(from_onnx(of), x)):
        with pytest.raises(EvaluationError, match="no meaning for such a size or value"):
            run(rows(1, 1, 3))
    assert exe.stats.at_call == 0


def side(name: str, *nodes: Any) -> Any:
    return helper.make_graph(list(nodes), name, [], [helper.make_tensor_value_info(name, F, None)])


def branching(*rest: Any) -> ModelProto:
    """A branch whose sides differ in rank, and what is done with what it gives."""
    chosen = helper.make_node(
        "If", ["c"], ["s"],
        then_branch=side("a", helper.make_node("ReduceSum", ["x"], ["a"], keepdims=0)),
        else_branch=side("b", helper.make_node("Neg", ["x"], ["b"])),
    )  # fmt: skip
    return whole([chosen, *rest], [takes("x", "n", 3), takes("c", of=TensorProto.BOOL)])


@pytest.mark.parametrize("rest", [(NEGATED,), (helper.make_node("Mul", ["x", "s"], ["y"]),)])
def test_sides_of_a_branch_that_differ_in_rank(rest: tuple[Any, ...]) -> None:
    of = branching(*rest)
    exe = plica.compile(of, threads=1, cache=False)
    for n, c in ((1, True), (4, False), (2, True)):
        agrees(exe, of, x=rows(n, 3), c=np.asarray(c))
    assert exe.stats.at_call == 0


def test_what_two_ways_share_is_there_once() -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["going"], ["goes_on"]),
         helper.make_node("Add", ["before", "before"], ["after"])],
        "body",
        [takes("number", of=INT), takes("going", of=TensorProto.BOOL), takes("before", "n", 3)],
        [takes("goes_on", of=TensorProto.BOOL), takes("after", "n", 3)],
    )  # fmt: skip
    nodes = [
        helper.make_node("Loop", ["turns", "", "x"], ["l"], body=body),
        helper.make_node("Squeeze", ["l"], ["s"]),
        NEGATED,
    ]
    of = whole(nodes, [takes("x", "n", 3), takes("turns", of=INT)])
    assert repr(cut(over_arrays(from_onnx(of))).program).count("RepeatBlock(") == 1
    exe = plica.compile(of, threads=1, cache=False)
    for n, turns in ((1, 2), (4, 3), (1, 0)):
        agrees(exe, of, x=rows(n, 3), turns=np.asarray(turns))
    assert exe.stats.at_call == 0


def test_two_readings_of_one_model_are_one_module() -> None:
    of = squeezed(NEGATED, sizes=("n", "m"))
    assert str(from_onnx(of)) == str(from_onnx(of))


def test_too_many_ways_are_compiled_at_the_call() -> None:
    sizes = tuple("abcdefgh"[: MAX_BRANCH_POINTS + 1])
    of = squeezed(NEGATED, sizes=sizes)
    exe = plica.compile(of, threads=1, cache=False)
    agrees(exe, of, x=rows(*(1, 2) * (len(sizes) // 2), *[1] * (len(sizes) % 2)))
    assert exe.stats.at_call == 1


def test_a_shape_of_unknown_rank_names_the_input_it_depends_on() -> None:
    made = helper.make_node("ConstantOfShape", ["wanted"], ["y"])
    with pytest.raises(NeedsValue, match=r"ConstantOfShape.*depends on 'wanted'") as refused:
        from_onnx(whole([made], [takes("wanted", "k", of=INT)]))
    assert refused.value.inputs == ("wanted",)


def recurrent_side(name: str, squeezes: bool) -> Any:
    """A branch with an LSTM, of a sequence that may have lost an axis."""
    before = helper.make_node("Squeeze" if squeezes else "Identity", ["x"], [f"in_{name}"])
    of = helper.make_node(
        "LSTM", [f"in_{name}", "w", "r"], ["", name], f"lstm_{name}", hidden_size=4
    )
    return side(name, before, of)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("bad", ["then_branch", "else_branch"])
def test_a_branch_that_does_not_type_is_refused_where_it_is_taken(nested: bool, bad: str) -> None:
    sides = {each: recurrent_side(each[0], each == bad) for each in ("then_branch", "else_branch")}
    last = helper.make_node("If", ["c"], ["s"], "choice", **sides)
    if nested:
        inner = {"then_branch": side("s", last), "else_branch": recurrent_side("z", False)}
        last = helper.make_node("If", ["d"], ["s2"], "outer", **inner)
    made = helper.make_node("Neg", list(last.output), ["y"])
    random = np.random.default_rng(0)
    stored = {"w": (1, 16, 3), "r": (1, 16, 4)}
    of = whole(
        [last, made],
        [takes("x", "t", "b", 3), takes("c", of=TensorProto.BOOL), takes("d", of=TensorProto.BOOL)],
        {name: random.normal(size=shape).astype(np.float32) for name, shape in stored.items()},
    )
    exe = plica.compile(of, threads=1, cache=False)
    good, other = np.asarray(bad == "else_branch"), np.asarray(bad != "else_branch")
    yes, no = np.asarray(True), np.asarray(False)
    agrees(exe, of, x=rows(5, 1, 3), c=good, d=yes)
    with pytest.raises(EvaluationError, match="A sequence has three axes") as refused:
        exe(x=rows(5, 1, 3), c=other, d=yes)
    (told,) = refused.value.diagnostics
    assert told.place is not None
    assert told.place.node is not None
    assert told.place.node.endswith(f"choice_lstm_{bad[0]}")
    assert (told.expected, told.found) == ("rank 3", "Tensor t 3 f32")
    if nested:
        agrees(exe, of, x=rows(5, 1, 3), c=other, d=no)


BOOL = TensorProto.BOOL


def stopping_loop(*, plain: bool) -> ModelProto:
    """A decoder's loop: a branch in it gives a bool of rank 0 or 1, which a later turn is given.

    It doubles x until an element is above the bound, or the turns are done.
    """
    yes = helper.make_graph(
        [helper.make_node("Constant", [], ["done"], value=numpy_helper.from_array(np.array(True)))],
        "then", [], [takes("done", of=BOOL)],
    )  # fmt: skip
    no = helper.make_graph(
        [helper.make_node("Or", ["before", "never"], ["kept"])], "else", [],
        [takes("kept", 1, of=BOOL)],
    )  # fmt: skip
    last = "before" if plain else "carried"
    body = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["doubled"]),
         helper.make_node("ReduceMax", ["doubled"], ["top"], keepdims=0),
         helper.make_node("Greater", ["top", "bound"], ["over"]),
         helper.make_node("If", ["over"], ["ends"], then_branch=yes, else_branch=no),
         helper.make_node("Not", ["ends"], ["going"]),
         helper.make_node("Or", ["ends", "never"], ["carried"]),
         helper.make_node("Identity", ["going"], ["goes_on"])],
        "body",
        [takes("turn", of=INT), takes("alive", of=BOOL), takes("x", "n"),
         helper.make_tensor_value_info("before", BOOL, None)],
        [helper.make_tensor_value_info("goes_on", BOOL, None), takes("doubled", "n"),
         helper.make_tensor_value_info(last, BOOL, None)],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["turns", "", "start", "first"], ["y", "z"], "loop", body=body)
    stored = {
        "turns": np.array(20), "first": np.array(False), "never": np.array([False]),
        "bound": np.array(50, np.float32),
    }  # fmt: skip
    return whole([loop], [takes("start", "n")], stored)


@pytest.mark.parametrize("plain", [True, False])
def test_a_branch_inside_of_a_loop_may_give_several_ranks(plain: bool) -> None:
    of = stopping_loop(plain=plain)
    exe = plica.compile(of, threads=1, cache=False)
    for start in ([1.0, 3.0], [0.5], [-1.0, -2.0, -4.0], [90.0]):
        agrees(exe, of, start=np.array(start, np.float32))
    assert exe.stats.at_call == 0


def test_a_pipeline_that_squeezes_a_mask_and_crops_a_picture() -> None:
    """More forks than there may be readings, in some of which the reductions have no axis."""
    byte = TensorProto.UINT8
    nodes = [
        helper.make_node("Squeeze", ["mask"], ["s"]),
        helper.make_node("Cast", ["s"], ["f"], to=F),
    ]
    for axis, word in ((1, "rows"), (0, "columns")):
        nodes += [
            helper.make_node("ReduceMax", ["f"], [word], axes=[axis], keepdims=0),
            helper.make_node("NonZero", [word], [f"{word}_at"]),
            helper.make_node("Squeeze", [f"{word}_at"], [f"{word}_list"]),
            helper.make_node("ReduceMin", [f"{word}_list"], [f"{word}_least"], keepdims=0),
            helper.make_node("ReduceMax", [f"{word}_list"], [f"{word}_most"], keepdims=0),
            helper.make_node("Reshape", [f"{word}_least", "one"], [f"{word}_start"]),
            helper.make_node("Reshape", [f"{word}_most", "one"], [f"{word}_last"]),
            helper.make_node("Add", [f"{word}_last", "one"], [f"{word}_end"]),
        ]
    nodes += [
        helper.make_node("Concat", ["rows_start", "columns_start"], ["starts"], axis=0),
        helper.make_node("Concat", ["rows_end", "columns_end"], ["ends"], axis=0),
        helper.make_node("Slice", ["x", "starts", "ends", "axes"], ["crop"]),
        helper.make_node("Cast", ["crop"], ["numbers"], to=F),
        helper.make_node("ReduceMean", ["numbers"], ["y"], axes=[2, 3], keepdims=1),
    ]
    inputs = [takes("x", "b", 3, "h", "w", of=byte), takes("mask", "b", 1, "h", "w", of=byte)]
    of = whole(nodes, inputs, {"one": np.array([1]), "axes": np.array([2, 3])})
    exe = plica.compile(of, threads=1, cache=False)
    random = np.random.default_rng(0)
    for height, width, most in ((5, 7, 2), (8, 6, 4)):
        mask = np.zeros((1, 1, height, width), np.uint8)
        mask[:, :, 1:most, 2:4] = 255
        agrees(exe, of, x=random.integers(0, 256, (1, 3, height, width), np.uint8), mask=mask)
