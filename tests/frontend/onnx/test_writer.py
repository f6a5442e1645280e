"""Every operator of the registry: as ONNX it means the same, or is refused by name."""

from __future__ import annotations

import textwrap
from importlib import import_module
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings

import plica
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.ir.op import names
from tests.codegen.native import assert_close
from tests.codegen.test_operator import module_of
from tests.conftest import PROFILE
from tests.deep import spread
from tests.frontend.zoo.small import SMALL
from tests.ir.reference.case import CASES

EXAMPLES = {"ci": 1, "dev": 5, "deep": 50}[PROFILE]


def agree(found: Any, expected: Any, arrays: Any) -> None:
    results = found if isinstance(found, tuple | list) else [found]
    wanted = expected if isinstance(expected, tuple) else [expected]
    for ours, meant in zip(results, wanted, strict=True):
        assert_close(np.asarray(ours), meant, arrays)


def means(of: Module, *arrays: Any) -> None:
    """The model means what the module means, to onnxruntime and read back."""
    expected = interpret(of, *arrays)
    model = plica.to_onnx(of)
    onnx.checker.check_model(model)
    agree(interpret(plica.from_onnx(model), *arrays), expected, arrays)
    feed = {each.name: array for each, array in zip(model.graph.input, arrays, strict=True)}
    session = onnxruntime.InferenceSession(model.SerializeToString())
    agree(session.run(None, feed), expected, arrays)


@pytest.mark.parametrize("name", spread(names(), len(names()) // 8))
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_an_operator_means_the_same_or_is_refused(name: str, data: st.DataObject) -> None:
    case = data.draw(CASES[name])
    of = module_of(name, case)
    try:
        model = plica.to_onnx(of)
    except plica.UnsupportedError:
        return  # its message is tested below
    onnx.checker.check_model(model)
    agree(interpret(plica.from_onnx(model), *case.args), interpret(of, *case.args), case.args)


@pytest.mark.parametrize("name", ["dqn", "mlp"])
def test_a_network_runs_in_onnxruntime(name: str) -> None:
    of = SMALL[name]()
    draw = np.random.default_rng(0)
    (x,) = of.main_function().params
    shape = [each.value for each in x.type.shape]  # type: ignore[union-attr]  # known sizes
    means(of, draw.standard_normal(shape).astype(np.float32))


HEAD = """# plica 1
from __future__ import annotations

import plica
from plica import op
from plica.script import Tensor, bool_, f32, i64
"""


def test_loops_branches_and_names() -> None:
    of = plica.from_text(
        HEAD
        + """
@plica.function
def loop(x: Tensor[(3,), f32], n: Tensor[(), i64]) -> Tensor[(3,), f32]:
    if n < 3:
        return loop(x * 2.0, n + 1)
    return x + 1.0


@plica.function
def main(x: Tensor[(3,), f32], c: Tensor[(), bool_]) -> Tensor[(3,), f32]:
    if c:
        y = loop(x, 0)
    else:
        y = -x
    return y
"""
    )
    model = plica.to_onnx(of)
    assert [each.name for each in model.graph.input] == ["x", "c"]
    assert [each.op_type for each in model.graph.node if each.op_type == "If"] == ["If"]
    for c in (True, False):
        means(of, np.array([1, 2, 3], np.float32), np.asarray(c))


REFUSED = {
    "atan2": "op.arctan2(x, x)",
    "bits_of": "op.bits_of(x)",
    "ReduceSum of i16": "op.sum(op.cast(x, dtype='i16'))",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_onnx_lacks_is_refused(name: str) -> None:
    text = f"\n@plica.function\ndef main(x: Tensor[(3,), f32]):\n    return {REFUSED[name]}\n"
    with pytest.raises(plica.UnsupportedError, match=f"{name}.*is not written as ONNX"):
        plica.to_onnx(plica.from_text(HEAD + text))


def test_a_decorated_function_is_a_program_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
@plica.function
def f(self: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return op.nn.relu(self)
"""
    (tmp_path / "decorated.py").write_text(HEAD + text)
    monkeypatch.syspath_prepend(tmp_path)
    f = import_module("decorated").f
    assert [each.name for each in plica.to_onnx(f).graph.input] == ["self"]
    data = np.asarray([-1, 2], np.float32)
    assert np.array_equal(plica.compile(f)(self=data), interpret(f.module, data))


@pytest.mark.parametrize("finite", [False, True])
def test_a_max_pool_carries_nan(finite: bool) -> None:
    text = """
        @plica.function
        def main(x: Tensor[(1, 1, 4, 4), f32]) -> Tensor[(1, 1, 2, 2), f32]:
            return op.nn.max_pool(x, kernel=(2, 2), strides=2)
    """
    module = plica.from_text(HEAD + textwrap.dedent(text))
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    if not finite:
        x[0, 0, 0, 0] = x[0, 0, 3, 3] = np.nan
    model = plica.to_onnx(module, finite=finite)
    assert finite == (len([n for n in model.graph.node if n.op_type == "MaxPool"]) == 1)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], plica.interpret(module, x))
