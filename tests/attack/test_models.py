"""Hostile ONNX models: damaged bytes, graphs that are none, attributes that make no sense."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import plica
from plica.runtime.error import PlicaError
from tests.attack.judge import outcome, refused

FLOAT: Final = TensorProto.FLOAT


def info(name: str, *shape: Any, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, list(shape))


def model(
    nodes: list[Any],
    inputs: list[Any] | None = None,
    outputs: list[Any] | None = None,
    stored: list[Any] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", 1, 2, 4, 4)] if inputs is None else inputs,
        [onnx.ValueInfoProto(name="y")] if outputs is None else outputs,
        stored or [],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 10
    return made


def one(kind: str, *more: str, **attributes: Any) -> onnx.ModelProto:
    return model([helper.make_node(kind, ["x", *more], ["y"], **attributes)])


def weighted(kind: str, shape: tuple[int, ...], **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(kind, ["x", "w"], ["y"], **attributes)
    return model([node], stored=[numpy_helper.from_array(np.ones(shape, np.float32), "w")])


def damaged_raw() -> onnx.ModelProto:
    made = weighted("Add", (4,))
    made.graph.initializer[0].raw_data = b"\0" * 3
    return made


def negative_dims() -> onnx.ModelProto:
    made = weighted("Add", (4,))
    made.graph.initializer[0].dims[:] = [-4]
    return made


def huge_dims() -> onnx.ModelProto:
    made = weighted("Add", (4,))
    made.graph.initializer[0].dims[:] = [2**40, 2**40]
    return made


def unknown_dtype() -> onnx.ModelProto:
    made = weighted("Add", (4,))
    made.graph.initializer[0].data_type = 9999
    return made


def outside(location: str) -> onnx.ModelProto:
    made = weighted("Add", (4,))
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return made


def endless_if() -> onnx.ModelProto:
    inner = helper.make_graph(
        [helper.make_node("Identity", ["nowhere"], ["z"])],
        "inner",
        [],
        [onnx.ValueInfoProto(name="z")],
    )
    node = helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)
    return model([node])


MODELS: Final[dict[str, Callable[[], onnx.ModelProto]]] = {
    "no nodes": lambda: model([]),
    "an unknown operator": lambda: one("Nothing"),
    "an unknown domain": lambda: model([helper.make_node("Relu", ["x"], ["y"], domain="evil.org")]),
    "an input that is not there": lambda: model([helper.make_node("Relu", ["z"], ["y"])]),
    "a cycle": lambda: model(
        [helper.make_node("Relu", ["b"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
         helper.make_node("Add", ["x", "a"], ["y"])]
    ),
    "itself": lambda: model([helper.make_node("Relu", ["y"], ["y"])]),
    "a result twice": lambda: model(
        [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Exp", ["x"], ["y"])]
    ),
    "no such output": lambda: model([helper.make_node("Relu", ["x"], ["z"])]),
    "no inputs for a node": lambda: model([helper.make_node("Add", [], ["y"])]),
    "too many inputs": lambda: one("Relu", "x", "x", "x"),
    "an empty kind": lambda: one(""),
    "opset 0": lambda: model([helper.make_node("Relu", ["x"], ["y"])], opset=0),
    "opset 10**6": lambda: model([helper.make_node("Relu", ["x"], ["y"])], opset=10**6),
    "opset below zero": lambda: model([helper.make_node("Relu", ["x"], ["y"])], opset=-3),
    "an axis past the end": lambda: one("Softmax", axis=9),
    "an axis of a text": lambda: one("Softmax", axis="last"),
    "an axis of many": lambda: one("Softmax", axis=[1, 2]),
    "a kernel of zero": lambda: one("MaxPool", kernel_shape=[0, 0]),
    "a kernel below zero": lambda: one("MaxPool", kernel_shape=[-2, 2]),
    "a kernel of three": lambda: one("MaxPool", kernel_shape=[2, 2, 2]),
    "a huge kernel": lambda: one("MaxPool", kernel_shape=[2**40, 2**40]),
    "a stride of zero": lambda: one("MaxPool", kernel_shape=[2, 2], strides=[0, 1]),
    "pads below zero": lambda: one("MaxPool", kernel_shape=[2, 2], pads=[-9, 0, 0, 0]),
    "huge pads": lambda: one("MaxPool", kernel_shape=[2, 2], pads=[2**61, 0, 2**61, 0]),
    "no groups": lambda: weighted("Conv", (2, 2, 1, 1), group=0),
    "groups that do not divide": lambda: weighted("Conv", (2, 2, 1, 1), group=3),
    "weights of another rank": lambda: weighted("Conv", (2, 2)),
    "weights of another width": lambda: weighted("Conv", (2, 5, 1, 1)),
    "shapes that do not meet": lambda: weighted("MatMul", (7, 2)),
    "an unknown padding": lambda: one("MaxPool", kernel_shape=[2, 2], auto_pad="SOMEHOW"),
    "an unknown equation": lambda: one("Einsum", equation="ij,jk->ik"),
    "a huge permutation": lambda: one("Transpose", perm=[0, 1, 2, 3, 4, 5]),
    "a permutation twice": lambda: one("Transpose", perm=[0, 0, 1, 2]),
    "raw data too short": damaged_raw,
    "negative dims": negative_dims,
    "huge dims": huge_dims,
    "an unknown dtype": unknown_dtype,
    "data above": lambda: outside("../../../etc/passwd"),
    "data at the root": lambda: outside("/etc/passwd"),
    "data at a null": lambda: outside("a\0b"),
    "data nowhere": lambda: outside("nowhere.bin"),
    "data in a long name": lambda: outside("a" * 5000),
    "data in itself": lambda: outside("."),
    "a branch on a tensor": endless_if,
    "an input of texts": lambda: model(
        [helper.make_node("Relu", ["x"], ["y"])], [info("x", 2, kind=TensorProto.STRING)]
    ),
    "an input of 2**62": lambda: model(
        [helper.make_node("MatMul", ["x", "x"], ["y"])], [info("x", 2**31, 2**31)]
    ),
    "an input twice": lambda: model(
        [helper.make_node("Relu", ["x"], ["y"])], [info("x", 2), info("x", 3)]
    ),
    "a name that is Python": lambda: model(
        [helper.make_node("Relu", ["__import__('os')"], ["y"])], [info("__import__('os')", 2)]
    ),
    "a name of line ends": lambda: model(
        [helper.make_node("Relu", ["a\nb"], ["y"])], [info("a\nb", 2)]
    ),
}  # fmt: skip
RIGHT: Final = ("a name that is Python", "a name of line ends", "pads below zero")
"""Strange, and yet models."""


@pytest.mark.parametrize("name", MODELS)
def test_what_is_no_model_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"

    def attack() -> object:
        path.write_bytes(MODELS[name]().SerializeToString())
        read = plica.from_onnx(path)
        return plica.compile(read, threads=1, cache=False)

    if name in RIGHT:
        outcome(attack)
        return
    refused(attack)


BYTES: Final = weighted("Conv", (2, 2, 1, 1)).SerializeToString()


@pytest.mark.parametrize("part", range(8))
def test_a_part_of_a_model_is_refused_or_read(part: int, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    random = Random(part)
    for _ in range(12):
        data = bytearray(BYTES[: random.randrange(len(BYTES))] if part % 2 else BYTES)
        for _ in range(random.randrange(1, 4)):
            if data:
                data[random.randrange(len(data))] = random.randrange(256)
        path.write_bytes(data)
        outcome(lambda: plica.from_onnx(path))


FILES: Final[dict[str, Callable[[Path], object]]] = {
    "no file": lambda path: None,
    "an empty file": lambda path: path.write_bytes(b""),
    "a folder": lambda path: path.mkdir(),
    "a text": lambda path: path.write_text("model"),
    "a picture": lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 100),
    "zeros": lambda path: path.write_bytes(b"\0" * 4096),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
    "random bytes": lambda path: path.write_bytes(Random(1).randbytes(4096)),
    "a zip": lambda path: path.write_bytes(b"PK\x03\x04" + b"\0" * 64),
}


@pytest.mark.parametrize("name", FILES)
def test_what_is_no_file_of_a_model_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    FILES[name](path)
    refused(lambda: plica.compile(plica.from_onnx(path), cache=False))


def test_a_model_may_be_called_as_it_likes(tmp_path: Path) -> None:
    made = MODELS["a name that is Python"]()
    found = outcome(lambda: plica.compile(plica.from_onnx(made), threads=1, cache=False))
    if not isinstance(found, PlicaError):
        x = np.array([-1.0, 2.0], np.float32)
        assert np.array_equal(found(x), [0.0, 2.0])  # type: ignore[operator]  # an executable
