"""What is refused: every fault with its own message and place, and never a crash."""

from __future__ import annotations

import itertools
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import plica
from plica.core.diagnostic import Malformed
from plica.frontend.onnx import NeedsValue, from_onnx, order
from plica.frontend.onnx.expand import has_definition
from plica.frontend.onnx.table import REASONS, TABLE
from plica.runtime.archive import pack
from plica.runtime.error import InputError, PlicaError, UnsupportedError
from tests.frontend.onnx.build import f32_like as f32, model, one

X = f32(2, 3)


def refused(of: onnx.ModelProto, kind: type[PlicaError], *words: str) -> PlicaError:
    with pytest.raises(kind) as caught:
        from_onnx(of)
    for word in words:
        assert word in str(caught.value), (word, str(caught.value))
    return caught.value


def node(
    kind: str, inputs: list[str], outputs: list[str], name: str = "", **attrs: Any
) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, outputs, name=name, **attrs)


def test_all_unsupported_operators_are_listed_with_their_nodes() -> None:
    inner = helper.make_graph(
        [node("ImageDecoder", ["x"], ["d"], "deep")], "g", [], [onnx.ValueInfoProto(name="d")]
    )
    made = model(
        [
            node("MaxRoiPool", ["x", "x"], ["a"], "first"),
            node("Relu", ["x"], ["r"], "fine"),
            node("StringSplit", ["r"], ["b", "c"], "second"),
            node("If", ["k"], ["d"], "third", then_branch=inner, else_branch=inner),
        ],
        {"x": X, "k": np.asarray(True)},
        ["a"],
    )
    error = refused(made, UnsupportedError, "first", "second", "third/deep", "MaxRoiPool")
    assert len(error.diagnostics) == 4
    assert "fine" not in str(error)


def test_an_operator_whose_definition_needs_what_is_missing_is_listed_with_the_others() -> None:
    nodes = [node("Bernoulli", ["x"], ["a"], "first"), node("ImageDecoder", ["x"], ["b"], "second")]
    error = refused(model(nodes, {"x": X}, ["a"]), UnsupportedError, "first", "second", "random")
    assert [each.found for each in error.diagnostics] == ["Bernoulli", "ImageDecoder"]


def test_definitions_of_the_standard_are_made_of_what_is_read() -> None:
    """Otherwise an operator would be refused after the list of those that are."""
    newest = onnx.defs.onnx_opset_version()
    lost: dict[str, list[str]] = {}
    for schema in onnx.defs.get_all_schemas():
        if schema.domain == "" and schema.name not in TABLE and schema.name not in REASONS:
            used = [each.op_type for each in schema.function_body.node]
            unread = [n for n in used if n not in TABLE and not has_definition(n, newest, "")]
            lost |= {schema.name: unread} if unread else {}
    assert not lost


def test_independent_faults_are_reported_together() -> None:
    made = model(
        [
            node("MatMul", ["x", "x"], ["a"], "one"),
            node("Transpose", ["x"], ["b"], "two", perm=[0, 0]),
            node("Add", ["a", "b"], ["c"], "after"),
        ],
        {"x": X},
        ["c"],
    )
    error = refused(made, Malformed, "one", "two")
    assert "after" not in str(error)


def test_a_cycle_is_refused() -> None:
    nodes = [node("Add", ["x", "b"], ["a"], "n1"), node("Relu", ["a"], ["b"], "n2")]
    refused(model(nodes, {"x": X}, ["b"]), Malformed, "cycle", "n1", "n2")


def test_a_name_that_nothing_makes_is_refused() -> None:
    made = model([node("Add", ["x", "wieght"], ["y"], "n1")], {"x": X}, ["y"])
    refused(made, Malformed, "n1", "wieght")


def test_a_name_made_twice_is_refused() -> None:
    nodes = [node("Relu", ["x"], ["y"], "n1"), node("Abs", ["x"], ["y"], "n2")]
    refused(model(nodes, {"x": X}, ["y"]), Malformed, "n1", "n2")


def test_an_output_that_nothing_makes_is_refused() -> None:
    refused(model([node("Relu", ["x"], ["y"])], {"x": X}, ["z"]), Malformed, "'z'")


def test_nodes_out_of_order_are_read_all_the_same() -> None:
    nodes = [node("Abs", ["a"], ["y"]), node("Relu", ["x"], ["a"])]
    assert plica.interpret(from_onnx(model(nodes, {"x": X}, ["y"])), X).shape == (2, 3)


def test_an_unknown_element_type_is_refused() -> None:
    made = model([node("Relu", ["x"], ["y"])], {"x": X}, ["y"])
    made.graph.input[0].type.tensor_type.elem_type = 99
    refused(made, Malformed, "99")
    made.graph.input[0].type.tensor_type.elem_type = TensorProto.COMPLEX64
    refused(made, UnsupportedError, "COMPLEX64")


def test_types_that_the_standard_does_not_admit_are_refused() -> None:
    refused(one("Relu", [np.asarray([True])]), Malformed, "node", "bool")
    mixed = one("Add", [X, X.astype(np.float64)])
    refused(mixed, Malformed, "node", "one type")


def test_unknown_attributes_are_refused() -> None:
    refused(one("Relu", [X], alpha=1.0), Malformed, "alpha")
    refused(one("Softmax", [X], axis="one"), Malformed, "axis")
    refused(one("Concat", [X, X]), Malformed, "axis")


def test_the_wrong_number_of_inputs_is_refused() -> None:
    refused(one("Relu", [X, X]), Malformed, "inputs")


def test_shapes_that_do_not_fit_are_refused_at_their_node() -> None:
    refused(one("MatMul", [X, X]), Malformed, "node")
    refused(one("Reshape", [X, np.asarray([4, 2])], stored=1), Malformed, "node")
    refused(one("Concat", [X, X.T], axis=0), Malformed, "node")


def test_an_operator_that_a_version_has_not_is_refused() -> None:
    refused(one("Gelu", [X], opset=13), PlicaError, "Gelu")


@pytest.mark.parametrize("version", [1, 5, 1000])
def test_versions_outside_the_range_are_refused(version: int) -> None:
    refused(one("Relu", [X], opset=version), UnsupportedError, str(version))


def test_a_shape_that_is_an_input_may_be_fixed() -> None:
    wanted = np.asarray([3, 2], np.int64)
    made = one("Reshape", [X, wanted])
    assert plica.interpret(from_onnx(made), X, wanted).shape == (3, 2)
    module = from_onnx(made, fixed={"x1": wanted})
    assert plica.interpret(module, X).shape == (3, 2)
    with pytest.raises(InputError):
        from_onnx(made, fixed={"x1": wanted, "other": wanted})
    with pytest.raises(InputError):
        from_onnx(made, fixed={"x1": wanted.astype(np.float32)})


def test_a_shape_of_unknown_length_must_be_fixed() -> None:
    ports: dict[str, tuple[str, list[int | str]]] = {"x": ("float32", [6]), "s": ("int64", ["n"])}
    made = model([node("Reshape", ["x", "s"], ["y"])], ports, ["y"])
    error = refused(made, NeedsValue, "'s'", "fixed")
    assert isinstance(error, NeedsValue)
    assert error.inputs == ("s",)
    module = from_onnx(made, fixed={"s": np.asarray([3, 2])})
    assert plica.interpret(module, np.zeros(6, np.float32)).shape == (3, 2)


def test_sizes_for_dims_that_are_not_there_are_refused() -> None:
    with pytest.raises(InputError):
        from_onnx(one("Relu", [X]), dims={"batch": 2})


def test_outputs_that_are_not_made_are_refused() -> None:
    made = one("BatchNormalization", [f32(1, 1, 4, 4), *[f32(1)] * 4], outputs=2)
    refused(made, UnsupportedError, "BatchNormalization", "y1")


def test_an_output_of_another_type_than_said_is_refused() -> None:
    made = one("Relu", [X])
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y0", TensorProto.INT64, None))
    refused(made, Malformed, "y0")


def test_sequences_of_sequences_and_sparse_tensors_are_refused() -> None:
    made = one("Relu", [X])
    listed = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None))
    made.graph.input[0].type.CopyFrom(listed)
    refused(made, Malformed, "Relu", "seq(tensor(float))")
    made.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(listed))
    refused(made, UnsupportedError, "x0")
    sparse = one("Relu", [X])
    sparse.graph.sparse_initializer.add().values.name = "w"
    refused(sparse, UnsupportedError, "sparse")


def test_a_function_that_calls_itself_is_refused() -> None:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    call = helper.make_node("f", ["a"], ["b"], domain="mine", name="again")
    function = helper.make_function("mine", "f", ["a"], ["b"], [call], opsets)
    graph = model([helper.make_node("f", ["x"], ["y"], domain="mine")], {"x": X}, ["y"]).graph
    made = helper.make_model(graph, functions=[function], opset_imports=opsets)
    refused(made, Malformed, "nested")


def test_functions_that_double_are_refused_before_they_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(order, "MOST_NODES", 1000)  # the real bound takes seconds to reach
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    functions = []
    for level in range(40):
        inner = "Relu" if level == 0 else f"f{level - 1}"
        domain = "" if level == 0 else "mine"
        nodes = [
            helper.make_node(inner, [a], [b], domain=domain) for a, b in (("a", "m"), ("m", "b"))
        ]
        functions.append(helper.make_function("mine", f"f{level}", ["a"], ["b"], nodes, opsets))
    graph = model([helper.make_node("f39", ["x"], ["y"], domain="mine")], {"x": X}, ["y"]).graph
    made = helper.make_model(graph, functions=functions, opset_imports=opsets)
    refused(made, UnsupportedError, "too many nodes")


def test_absurd_sizes_are_refused_without_memory() -> None:
    huge = np.asarray([2**31, 2**31], np.int64)
    refused(one("ConstantOfShape", [huge], stored=1), Malformed, "node")
    ports = model([node("Relu", ["x"], ["y"])], {"x": ("float32", [2**40, 2**40])}, ["y"])
    refused(ports, UnsupportedError, "too large")
    limits = [np.asarray(each, np.int64) for each in (0, 2**60, 1)]
    refused(one("Range", limits, stored=3), Malformed, "node")


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.dims.append(2**31),
        lambda t: t.dims.append(-1),
        lambda t: t.ClearField("raw_data"),
        lambda t: setattr(t, "raw_data", b"123"),
        lambda t: setattr(t, "data_type", 77),
        lambda t: setattr(t, "name", ""),
    ],
)
def test_a_stored_tensor_that_does_not_fit_is_refused(change: object) -> None:
    made = one("Add", [X, X], stored=1)
    assert callable(change)
    change(made.graph.initializer[0])
    refused(made, Malformed)


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "", ".", "a/../../b"])
def test_a_file_outside_of_the_models_folder_is_never_read(tmp_path: Path, location: str) -> None:
    made = external(location, 24)
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(24))
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(Malformed, match="folder"):
        from_onnx(folder / "m.onnx")


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(24))
    (folder / "w").symlink_to(tmp_path / "secret")
    (folder / "m.onnx").write_bytes(external("w", 24).SerializeToString())
    with pytest.raises(Malformed, match="folder"):
        from_onnx(folder / "m.onnx")


def test_stored_tensors_are_read_from_files_beside_the_model(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(b"junk" + X.tobytes())
    path = tmp_path / "m.onnx"
    path.write_bytes(external("w", 24, offset=4).SerializeToString())
    assert np.array_equal(plica.interpret(plica.from_onnx(path), X), X + X)
    path.write_bytes(external("w", 24, offset=8).SerializeToString())
    with pytest.raises(Malformed, match="short"):
        from_onnx(path)
    path.write_bytes(external("v", 24).SerializeToString())
    with pytest.raises(Malformed, match="missing"):
        from_onnx(path)
    refused(external("w", 24), UnsupportedError, "file")


@pytest.mark.parametrize(
    "location", ["w\0", "a" * 5000, "a" * 300, "a/" * 3000 + "w", "loop"], ids=range(5)
)
def test_a_location_that_is_no_path_is_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    path = tmp_path / "m.onnx"
    path.write_bytes(external(location, 24).SerializeToString())
    with pytest.raises(Malformed, match="stored tensor"):
        from_onnx(path)


def external(location: str, length: int, offset: int = 0) -> onnx.ModelProto:
    made = one("Add", [X, X], stored=1)
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    pairs = {"location": location, "offset": str(offset), "length": str(length)}
    for key, value in pairs.items():
        tensor.external_data.add(key=key, value=value)
    return made


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    for data in (b"", b"\x00" * 10, b"not a model", bytes(range(256))):
        with pytest.raises(PlicaError):
            from_onnx(data)
    with pytest.raises(Malformed):
        from_onnx(tmp_path / "absent.onnx")


def test_damaged_files_are_refused_or_read_but_never_crash() -> None:
    whole = one("Gemm", [X, f32(3, 4), f32(4)], stored=2, alpha=0.5).SerializeToString()
    draw = random.Random(5)
    for end in range(0, len(whole), 7):
        _survives(whole[:end])
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        _survives(bytes(damaged))


def _survives(data: bytes) -> None:
    with suppress(PlicaError):
        from_onnx(data)


def test_deep_and_wide_models_are_read_in_linear_time() -> None:
    names = [f"v{at}" for at in range(6_001)]
    names[0] = "x"
    nodes = [node("Relu", [a], [b]) for a, b in itertools.pairwise(names)]
    assert from_onnx(model(nodes, {"x": X}, [names[-1]])).main is not None


def test_what_is_no_model_is_told_from_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match="no such file"):
        from_onnx(tmp_path / "nothing.onnx")
    with pytest.raises(Malformed, match="a folder"):
        from_onnx(tmp_path)
    (tmp_path / "network.onnx").write_bytes(b"")
    with pytest.raises(Malformed, match=r"Did you mean 'network\.onnx'"):
        from_onnx(tmp_path / "netwrk.onnx")
    with pytest.raises(Malformed, match=r"Give a file in it, such as '.*network\.onnx'"):
        from_onnx(tmp_path)
    nothing: Any = None
    with pytest.raises(InputError, match="no model"):
        from_onnx(nothing)
    artefact = tmp_path / "m.plica"
    artefact.write_bytes(pack({"a": b"b"}))
    with pytest.raises(Malformed, match=r"plica\.load"):
        from_onnx(artefact)


def test_a_shape_of_more_than_one_size_that_is_left_over_is_said_to_be_that() -> None:
    shape = np.array([-1, -1])
    made = model([node("Reshape", ["x", "s"], ["y"], "flat")], {"x": X}, ["y"], {"s": shape})
    refused(made, UnsupportedError, "flat", "More than one size is -1")
