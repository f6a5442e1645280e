"""TFLite models: the interpreter of LiteRT, Plica's, and compiled code give the same."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("ai_edge_litert")
pytest.importorskip("flatbuffers")

from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

import plica
from plica.cli import main as command
from plica.frontend.tflite.table import TABLE
from plica.ir.op.record import tensor_of
from plica.ir.type import static_shape
from tests.frontend.tflite.build import Builder, options
from tests.frontend.tflite.model import MODELS


def built(name: str) -> bytes:
    b = Builder()
    return b.file(*MODELS[name](b))


def reference(data: bytes, arrays: list[Any]) -> list[Any]:
    """What the interpreter of LiteRT computes."""
    peer = Interpreter(model_content=data)
    peer.allocate_tensors()
    for each, array in zip(peer.get_input_details(), arrays, strict=True):
        peer.set_tensor(each["index"], array)
    peer.invoke()
    return [peer.get_tensor(each["index"]) for each in peer.get_output_details()]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_means_what_litert_computes(name: str) -> None:
    data = built(name)
    module = plica.from_tflite(data)
    draw = np.random.default_rng(1)
    shapes = [static_shape(tensor_of(each)) for each in module.main_function().params]
    arrays = [draw.normal(0, 1.5, each).astype(np.float32) for each in shapes]
    expected = reference(data, arrays)
    for run in (lambda *given: plica.interpret(module, *given), plica.compile(module)):
        found = run(*arrays)
        every = found if isinstance(found, tuple | list) else [found]
        for one, two in zip(every, expected, strict=True):
            array = np.asarray(one)
            assert array.dtype == two.dtype
            np.testing.assert_allclose(array, two, rtol=1e-4, atol=1e-5)


def test_the_models_need_most_rows() -> None:
    codes = set()
    for make in MODELS.values():
        b = Builder()
        make(b)
        codes.update(b.codes)
    untested = {name for number, (name, _) in TABLE.items() if number not in codes}
    assert untested == {"SHAPE", "QUANTIZE"}
    names = {number: name for name, number in vars(schema.BuiltinOperator).items()
             if name[0] != "_"}  # fmt: skip
    assert {number: name for number, (name, _) in TABLE.items()} == {
        number: names[number] for number in TABLE
    }


def test_names_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(built("binary"))
    main = plica.from_tflite(path).main_function()
    assert [str(each.name) for each in main.params] == ["input_0", "input_1"]
    assert dict(main.attrs)["outputs"][0].startswith("t/")
    assert [each.name for each in plica.compile(path).inputs] == ["input_0", "input_1"]


def test_the_command_line_takes_files(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(built("mlp"))
    assert command(["compile", f"{tmp_path}/m.tflite", "-o", f"{tmp_path}/m.plica"]) == 0
    module, exe = plica.from_tflite(tmp_path / "m.tflite"), plica.load(tmp_path / "m.plica")
    (of,) = [static_shape(tensor_of(each)) for each in module.main_function().params]
    x = np.ones(of or (), np.float32)
    np.testing.assert_allclose(exe(x), plica.interpret(module, x), rtol=1e-5)


def unknown() -> bytes:
    b = Builder()
    x = b.op("RANK", [b.input(2, 2)], (), dtype="int32")
    return b.file(b.op("NEG", [x], (), dtype="int32"), b.op("FILL", [x, x], (2,), dtype="int32"))


def computed() -> bytes:
    b = Builder()
    x = b.input(2, 2)
    axes = b.op("CAST", [x], (2, 2), dtype="int32", options=options("Cast"))
    return b.file(b.op("TRANSPOSE", [x, axes], (2, 2)))


def mistyped() -> bytes:
    b = Builder()
    return b.file(b.op("EXP", [b.input(2, 2)], (4,)))


def activated() -> bytes:
    b = Builder()
    how = options("Concatenation", axis=0, fusedActivationFunction=1)
    return b.file(b.op("CONCATENATION", [b.input(2), b.input(2)], (4,), options=how))


@pytest.mark.parametrize(("make", "message"), [
    (unknown, "number 110"), (computed, "is computed"),
    (mistyped, "another type than the file says"), (activated, "has an activation"),
])  # fmt: skip
def test_refused(make: Any, message: str) -> None:
    with pytest.raises(plica.UnsupportedError, match=message):
        plica.from_tflite(make())


def test_another_file_is_refused() -> None:
    with pytest.raises(plica.InputError, match="no TFLite model"):
        plica.from_tflite(b"not a model")


@settings(max_examples=150)
@given(st.data())
def test_damaged_files_are_refused(data: st.DataObject) -> None:
    whole = bytearray(built("mlp"))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(8, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(8, len(whole)))
    with suppress(plica.PlicaError):
        plica.from_tflite(bytes(whole[:cut]))
