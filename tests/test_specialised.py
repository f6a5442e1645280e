"""Models with open sizes: compiled for those of a call, once, and right at every size."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper

import plica
from plica.cli import main as command
from plica.core.name import Name
from plica.ir.graph.expression import Function, Var
from plica.ir.graph.module import Module, module
from plica.ir.loop.scalar import index
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32
from plica.ir.type.term import TensorType
from plica.pipeline.code_for_sizes import MAX_EXECUTABLES, Specialised
from plica.pipeline.whole import at_call
from plica.runtime.error import InputError, UnsupportedError
from plica.runtime.selecting_executable import SelectingExecutable
from tests.frontend.onnx.build import model as onnx_model, one, runtime

Array = np.ndarray[Any, Any]


SOURCE = """
from __future__ import annotations
import plica
from plica.op import nn

@plica.function
def main(NAME
"""


def scripted(text: str) -> Module:
    return plica.from_text(SOURCE.replace("NAME", text))


DENSE = scripted(
    'x: Tensor[("n", "m"), f32], w: Tensor[("m", 3), f32]) -> Tensor[("n", 3), f32]:\n'
    "    return nn.relu(x @ w)"
)
FOLDED = scripted(
    'x: Tensor[("n", 4), f32]) -> Tensor[("2*n", 2), f32]:\n'
    '    return op.reshape(x, shape=("2*n", 2))'
)


def hidden() -> Module:
    """A dim that only stands in a product."""
    n, main = dim_var("n"), Var(Name("main"), None)
    x = Var(Name("x"), TensorType((n * 2, index(4)), f32))
    return module({main: Function((n,), (), (x,), None, x + x)}, main)


def specialised(of: Module) -> Specialised:
    """What compiles a model for the sizes of each call."""
    found = at_call(of, plica.compile)
    assert isinstance(found, SelectingExecutable)
    return found


def f32s(*shape: int) -> Array:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


OPEN = plica.compile(DENSE, cache=False)


@given(st.integers(0, 5), st.integers(1, 4))
@settings(max_examples=min(60, settings().max_examples // 4))
def test_every_size_gives_what_the_interpreter_gives(n: int, m: int) -> None:
    x, w = f32s(n, m), f32s(m, 3)
    np.testing.assert_allclose(OPEN(x, w), plica.interpret(DENSE, x, w), rtol=1e-5, atol=1e-6)


def test_a_size_is_compiled_once() -> None:
    exe = specialised(DENSE)
    first, again, other = (exe.at(f32s(n, 2), f32s(2, 3)) for n in (1, 1, 2))
    assert first is again
    assert other is not first
    assert "2 compiled" in repr(exe)


def test_the_table_stays_small() -> None:
    exe = specialised(FOLDED)
    for n in range(1, MAX_EXECUTABLES + 4):
        assert exe(f32s(n, 4)).shape == (2 * n, 2)
    assert f"{MAX_EXECUTABLES} compiled" in repr(exe)


def test_what_was_used_last_is_kept() -> None:
    exe = specialised(FOLDED)
    first = np.ones((1, 4), np.float32)
    kept = exe.at(first)
    for n in range(2, MAX_EXECUTABLES + 3):
        exe(np.ones((n, 4), np.float32))
        exe(first)
    assert exe.at(first) is kept


def test_a_shape_seen_before_is_no_leave_for_another_type() -> None:
    exe = plica.compile(FOLDED)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    wanted = exe(x)
    for strange in (x.astype(np.float64), x.view(np.int32), "x", None, (x,)):
        with pytest.raises(InputError):
            exe(strange)
    for same in (np.asfortranarray(x), x[::-1][::-1], x.astype(">f4")):
        np.testing.assert_array_equal(exe(same), wanted)
    with pytest.raises(InputError):
        exe(x, x)
    with pytest.raises(InputError) as caught:
        exe([1.0])
    assert caught.value.diagnostics[0].expected == "Tensor[('n', 4), f32]"


def test_values_seen_before_are_told_from_others_by_their_type() -> None:
    given = {"x": ("float32", [6]), "s": ("int64", [2])}
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    exe: Any = plica.compile(onnx_model(nodes, given, ["y"]))
    x, s = np.arange(6, dtype=np.float32), np.array([2, 3])
    assert exe(x, s).shape == (2, 3)
    assert exe(x, s[::-1]).shape == (3, 2)
    assert exe(x, s).shape == (2, 3)
    with pytest.raises(InputError):
        exe(x, s.view(np.float64))


def test_ports_have_names_for_sizes() -> None:
    exe = plica.compile(FOLDED, cache=False)
    assert [str(each) for each in exe.inputs] == ["x: Tensor[('n', 4), f32]"]
    assert str(exe.outputs[0]) == "output: Tensor[('2*n', 2), f32]"
    with pytest.raises(UnsupportedError):
        exe.outputs[0].empty()


def test_many_threads_share_it() -> None:
    exe = plica.compile(DENSE, cache=False)
    wrong: list[int] = []

    def call(n: int) -> None:
        for _ in range(20):
            found = exe(f32s(n, 2), f32s(2, 3))
            if not np.allclose(found, np.maximum(f32s(n, 2) @ f32s(2, 3), 0), atol=1e-5):
                wrong.append(n)

    threads = [Thread(target=call, args=(n,)) for n in (1, 2, 3, 4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_arrays_that_do_not_fit_are_refused_before_anything_is_compiled() -> None:
    exe = specialised(DENSE)
    with pytest.raises(InputError, match="w"):
        exe(f32s(2, 3), f32s(2, 3))
    with pytest.raises(InputError, match="x"):
        exe(f32s(2), f32s(2, 3))
    with pytest.raises(InputError, match="f32"):
        exe(f32s(2, 2).astype(np.float64), f32s(2, 3))
    with pytest.raises(InputError, match="not a tensor"):
        exe("x", f32s(2, 3))
    assert "0 compiled" in repr(exe)


def test_what_has_no_sizes_has_no_code() -> None:
    exe = specialised(DENSE)
    with pytest.raises(UnsupportedError, match="at"):
        _ = exe.artefact
    with pytest.raises(UnsupportedError, match="at"):
        exe.source()
    assert "define" in exe.at(f32s(1, 2), f32s(2, 3)).source("llvm")


def test_a_dim_that_no_shape_says_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="never stands alone in x"):
        plica.compile(hidden())


# --- ONNX ----------------------------------------------------------------------------------------


def test_a_path_with_an_open_batch_runs_at_every_batch(tmp_path: Path) -> None:
    weight = f32s(4, 5)
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["y"]),
    ]
    stored = {"zero": np.asarray([0]), "rest": np.asarray([-1]), "w": weight}
    made = onnx_model(nodes, {"x": ("float32", ["batch", 2, 2])}, ["y"], stored)
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    for exe in (
        plica.compile(plica.from_onnx(path)),
        plica.compile(path),
        plica.compile(str(path)),
    ):
        for batch in (1, 3, 2, 3):
            x = f32s(batch, 2, 2)
            np.testing.assert_allclose(exe(x=x), runtime(made, {"x": x})[0], rtol=1e-5)


def test_a_shape_of_unknown_length_is_part_of_the_code() -> None:
    x = f32s(2, 6)
    ports: dict[str, Any] = {"x0": ("float32", [2, 6]), "s": ("int64", ["n"])}
    made = onnx_model([helper.make_node("Reshape", ["x0", "s"], ["y"])], ports, ["y"])
    exe = plica.compile(made, cache=False)
    for shape in ([3, 4], [12], [3, 4]):
        np.testing.assert_array_equal(exe(x, np.asarray(shape)), x.reshape(shape))
    assert "2 compiled" in repr(exe)
    assert exe.stats.at_call == 2
    assert [each.name for each in exe.at(x, np.asarray([3, 4])).inputs] == ["x0"]


def test_a_shape_that_is_an_input_is_no_part_of_the_code() -> None:
    x = f32s(2, 6)
    exe = plica.compile(one("Reshape", [x, np.asarray([3, 4])]), cache=False)
    for shape in ([3, 4], [12, 1], [-1, 2]):
        np.testing.assert_array_equal(exe(x, np.asarray(shape)), x.reshape(shape))
    assert exe.stats.at_call == 0


def test_sizes_that_do_not_agree_are_refused() -> None:
    nodes = [
        helper.make_node("Add", ["x", "z"], ["s"]),
        helper.make_node("Reshape", ["s", "t"], ["y"]),
    ]
    pair: tuple[str, list[int | str]] = ("float32", ["n", 2])
    made = onnx_model(nodes, {"x": pair, "z": pair, "t": ("int64", [1])}, ["y"])
    exe = plica.compile(made, cache=False)
    with pytest.raises(InputError, match="n = 2"):
        exe(f32s(2, 2), f32s(3, 2), np.asarray([-1]))
    np.testing.assert_array_equal(
        exe(f32s(2, 2), f32s(2, 2), np.asarray([-1])), 2 * f32s(2, 2).ravel()
    )


def loop(count: str, condition: bool) -> Any:
    """Doubles `a` as often as asked, or until its sum reaches a limit."""
    infos = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        helper.make_tensor_value_info("a", TensorProto.FLOAT, [3]),
    ]
    nodes = [helper.make_node("Add", ["a", "a"], ["b"])]
    if condition:
        nodes += [
            helper.make_node("ReduceSum", ["b"], ["s"], keepdims=0),
            helper.make_node("Less", ["s", "limit"], ["on"]),
        ]
    else:
        nodes.append(helper.make_node("Identity", ["go"], ["on"]))
    outputs = [
        helper.make_tensor_value_info("on", TensorProto.BOOL, []),
        helper.make_tensor_value_info("b", TensorProto.FLOAT, [3]),
    ]
    body = helper.make_graph(nodes, "body", infos, outputs)
    inputs: dict[str, Any] = {"x": ("float32", [3])}
    inputs |= {"limit": ("float32", [])} if condition else {count: ("int64", [])}
    return onnx_model([helper.make_node("Loop", [count, "", "x"], ["y"], body=body)], inputs, ["y"])


def test_a_loop_whose_count_is_an_input_runs() -> None:
    exe = plica.compile(loop("count", False), cache=False)
    for turns in (0, 1, 5):
        np.testing.assert_array_equal(exe(f32s(3), turns), f32s(3) * 2**turns)


def test_a_loop_that_ends_by_what_it_computes_runs() -> None:
    made = loop("", True)
    exe = plica.compile(made, cache=False)
    x = np.ones(3, np.float32)
    for limit in (1.0, 50.0):
        given = {"x": x, "limit": np.asarray(limit, np.float32)}
        np.testing.assert_array_equal(exe(**given), runtime(made, given)[0])


def test_branches_of_different_shapes_run() -> None:
    def branch(axis: int) -> Any:
        node = helper.make_node("Concat", ["x", "x"], [f"b{axis}"], axis=axis)
        out = helper.make_tensor_value_info(f"b{axis}", 1, None)
        return helper.make_graph([node], "branch", [], [out])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch(0), else_branch=branch(1))
    made = onnx_model([node], {"c": ("bool", []), "x": ("float32", [2, 3])}, ["y"])
    exe = plica.compile(made, cache=False)
    shapes = [np.shape(exe(np.asarray(flag), f32s(2, 3))) for flag in (True, False, True)]
    assert shapes == [(4, 3), (2, 6), (4, 3)]


def test_operators_that_are_missing_are_refused_when_it_is_compiled() -> None:
    made = onnx_model(
        [helper.make_node("Bernoulli", ["x"], ["y"], name="d")],
        {"x": ("float32", ["n", 2, 2])},
        ["y"],
    )
    with pytest.raises(UnsupportedError, match="Bernoulli"):
        plica.compile(made)


def test_what_needs_numbers_for_sizes_is_read_when_they_are_known() -> None:
    scales = np.asarray([1, 1, 2], np.float32)
    nodes = [helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear")]
    made = onnx_model(nodes, {"x": ("float32", ["n", 2, 3])}, ["y"], {"s": scales})
    exe = plica.compile(made, cache=False)
    for n in (1, 2):
        x = f32s(n, 2, 3)
        np.testing.assert_allclose(exe(x), runtime(made, {"x": x})[0], rtol=1e-5, atol=1e-6)


def test_the_command_takes_a_number_for_a_dim(tmp_path: Path) -> None:
    path, out = tmp_path / "m.onnx", tmp_path / "m.plica"
    made = onnx_model([helper.make_node("Relu", ["x"], ["y"])], {"x": ("float32", ["n", 2])}, ["y"])
    path.write_bytes(made.SerializeToString())
    assert command(["compile", str(path), "-o", str(out)]) == 0
    assert str(plica.load(out).inputs[0]) == "x: Tensor[('n', 2), f32]"
    assert command(["compile", str(path), "-o", str(out), "--dim", "n=4"]) == 0
    assert plica.load(out).inputs[0].shape == (4, 2)


def test_a_dim_that_never_stands_alone_is_named_once() -> None:
    module = plica.from_text("""
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[("2*n",), f32], y: Tensor[("2*n", 3), f32]):
    return x + op.sum(y, axis=1)
""")
    with pytest.raises(UnsupportedError, match="it never stands alone in x and y") as refused:
        plica.compile(module)
    assert len(refused.value.diagnostics) == 1


def test_recursion_that_no_input_decides_is_one_code_for_every_size() -> None:
    exe = plica.compile(
        plica.from_text("""
@plica.function
def power(x: Tensor[("n",), f32], k: i64) -> Tensor[("n",), f32]:
    return op.broadcast_to(f32(1.0), shape=("n",)) if k == 0 else x * power(x, k - 1)


@plica.function
def main(x: Tensor[("n",), f32]) -> Tensor[("n",), f32]:
    return power(x, i64(3))
"""),
        cache=False,
    )
    for size in (3, 7):
        x = np.arange(size, dtype=np.float32)
        assert np.array_equal(exe(x), x**3)
    assert (exe.stats.compilations, exe.stats.at_call) == (1, 0)
