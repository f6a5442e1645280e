"""Edited models: what is made of another model's artefact is what compiling would give."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper

import plica
from plica.codegen.backend import find_target
from plica.core.deferred import OBSERVED, StoredBytes, unobserved
from plica.core.encode import to_json
from plica.core.name import Name
from plica.frontend.onnx.fuzz import random_case
from plica.frontend.onnx.importer import from_onnx
from plica.ir.graph import provenance
from plica.ir.graph.expression import Apply, Expr, Var
from plica.ir.graph.plain_recipe import array_by
from plica.pipeline import front, known_model, lower, model_query, whole
from plica.pipeline.compiled import kept_pieces
from plica.runtime.executable import Executable
from plica.runtime.link import can_link
from plica.runtime.store import ArtefactStore
from plica.schedule.recipe import followed, packed_text

pytestmark = pytest.mark.skipif(not can_link(), reason="objects are not loaded here")

Array = np.ndarray[Any, Any]
Change = Callable[[Array, np.random.Generator], Array]


def _with(value: float) -> Change:
    def changed(of: Array, random: np.random.Generator) -> Array:
        made = of.copy()
        if made.size and made.dtype.kind == "f":
            made.reshape(-1)[random.integers(made.size)] = value
        return made

    return changed


CHANGES: Final[dict[str, Change]] = {
    "zeros": lambda of, random: np.zeros_like(of),
    "ones": lambda of, random: np.ones_like(of),
    "halved": lambda of, random: (of / 2).astype(of.dtype),
    "nan": _with(np.nan),
    "infinite": _with(-np.inf),
    "huge": _with(3e38),
    "permuted": lambda of, random: random.permutation(of.reshape(-1)).reshape(of.shape),
}


def edited(model: onnx.ModelProto, new: Mapping[str, Array]) -> onnx.ModelProto:
    """A model with other tensors."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for each in made.graph.initializer:
        if each.name in new:
            each.CopyFrom(numpy_helper.from_array(new[each.name], each.name))
    return made


def stored(model: onnx.ModelProto) -> dict[str, Array]:
    return {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}


def layers(seed: int, dtype: str = "f4") -> onnx.ModelProto:
    """A window that Winograd does, one that is scaled, and a product with a transposed weight."""
    random = np.random.default_rng(seed)
    given = {
        "w": random.standard_normal((32, 16, 3, 3)), "u": random.standard_normal((80, 32, 1, 1)),
        "s": random.standard_normal((80, 1, 1)), "v": random.standard_normal((10, 5120)),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "u"], ["c"]),
        helper.make_node("Mul", ["c", "s"], ["d"]),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("Gemm", ["e", "v"], ["y"], transB=1),
    ]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x = helper.make_tensor_value_info("x", kind, (1, 16, 8, 8))
    weights = [numpy_helper.from_array(each.astype(dtype), n) for n, each in given.items()]
    graph = helper.make_graph(nodes, "g", [x], [helper.make_empty_tensor_value_info("y")], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def in_bytes(seed: int, zero: int) -> onnx.ModelProto:
    """A product of bytes: signed ones as they are, or others less a zero point."""
    random = np.random.default_rng(seed)
    given: dict[str, Array] = {
        "w": random.integers(zero - 90, zero + 90, (96, 64)).astype(np.uint8 if zero else np.int8),
        "v": random.standard_normal((64, 32)).astype(np.float32),
        "s": np.array(0.03, np.float32), "z": np.array(3, np.uint8),
        "o": np.array(zero, np.uint8 if zero else np.int8),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "s", "o"], ["b"]),
        helper.make_node("MatMul", ["a", "b"], ["c"]),
        helper.make_node("MatMul", ["c", "v"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 96))
    weights = [numpy_helper.from_array(each, name) for name, each in given.items()]
    graph = helper.make_graph(nodes, "g", [x], [helper.make_empty_tensor_value_info("y")], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def compiled_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Any]]:
    """What the whole compiler is asked for, with a store of its own."""
    with pytest.MonkeyPatch.context() as patch:
        yield _watched(patch, tmp_path / "store")


def _watched(patch: pytest.MonkeyPatch, folder: Path) -> list[Any]:
    patch.setenv("PLICA_CACHE", str(folder))
    patch.setenv("PLICA_CACHE_AUDIT", "0")
    seen: list[Any] = []
    usual = whole.compile_anew

    def anew(source: Any, **options: Any) -> Executable:
        seen.append(source)
        return usual(source, **options)

    patch.setattr(front, "compile_anew", anew)
    return seen


def artefact(source: Any, **options: Any) -> bytes | None:
    """The artefact, as another process would make it; None where the model is refused, or is no
    one artefact."""
    known_model._SHARED.clear()
    try:
        made = plica.compile(source, threads=1, **options)
    except plica.PlicaError:
        return None
    return b"".join(kept_pieces(made.artefact)) if type(made) is Executable else None


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 1 << 30), st.sampled_from(sorted(CHANGES)), st.data())
def test_what_is_made_of_another_model_is_what_compiling_gives(
    tmp_path_factory: pytest.TempPathFactory, seed: int, change: str, data: st.DataObject
) -> None:
    """Whatever the model, whichever tensor is changed and however; even one of one element."""
    model = random_case(seed).model
    tensors = stored(model)
    with pytest.MonkeyPatch.context() as patch:
        anew = _watched(patch, tmp_path_factory.mktemp("store"))
        patch.setattr(provenance, "STORED", 1)
        patch.setattr(model_query, "_LARGE_TENSOR_BYTES", 1)
        artefact(model)
        for name in data.draw(st.permutations(sorted(tensors)))[:2]:
            other = CHANGES[change](tensors[name], np.random.default_rng(seed))
            again = edited(model, {name: other})
            count = len(anew)
            found = artefact(again)
            if len(anew) == count:
                assert found == artefact(again, cache=False)


@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 1 << 30), st.sampled_from(["f2", "f4", "f8"]), st.data())
def test_layers_are_edited_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, seed: int, dtype: str, data: st.DataObject
) -> None:
    model = layers(seed, dtype)
    change = data.draw(st.sampled_from(sorted(CHANGES)))
    large = [name for name, each in stored(model).items() if each.nbytes >= provenance.STORED]
    with pytest.MonkeyPatch.context() as patch:
        anew = _watched(patch, tmp_path_factory.mktemp("store"))
        artefact(model)
        name = data.draw(st.sampled_from(large))
        other = CHANGES[change](stored(model)[name], np.random.default_rng(seed))
        again = edited(model, {name: other})
        found = artefact(again)
        assert len(anew) == 1 or change not in ("halved", "permuted")
        assert found == artefact(again, cache=False)


def test_an_edited_artefact_is_audited(
    compiled_anew: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = layers(5)
    artefact(model)
    again = edited(model, {name: stored(model)[name] / 2 for name in "wuv"})
    found = artefact(again)
    assert len(compiled_anew) == 1
    monkeypatch.setenv("PLICA_CACHE_AUDIT", "1")  # what differs would be told of
    assert artefact(again) == found
    assert len(compiled_anew) == 2


@pytest.mark.parametrize(("zero", "count"), [(0, 1), (120, 2)])
def test_what_was_looked_at_is_compiled(
    compiled_anew: list[Any], monkeypatch: pytest.MonkeyPatch, zero: int, count: int
) -> None:
    """How large numbers are decides how a product of bytes is done, where no dtype tells."""
    model = in_bytes(3 + zero, zero)
    artefact(model)
    for name in "wv":
        again = edited(model, {name: np.roll(stored(model)[name], 1)})
        found = artefact(again)
        assert len(compiled_anew) == count
        with monkeypatch.context() as patch:
            patch.setattr(front, "compile_anew", whole.compile_anew)
            assert found == artefact(again, cache=False)
        model = again


def test_equal_tensors_stay_equal_and_no_others_become_so(compiled_anew: list[Any]) -> None:
    random = np.random.default_rng(9)
    one, two = random.standard_normal((2, 64, 64)).astype(np.float32)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 64))
    nodes = [helper.make_node("MatMul", [a, b], [c]) for a, b, c in ("xpa", "aqb", "bry")]
    weights = [
        numpy_helper.from_array(each, name)
        for name, each in zip("pqr", (one, one, two), strict=True)
    ]
    graph = helper.make_graph(nodes, "g", [x], [helper.make_empty_tensor_value_info("y")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    artefact(model)
    for new, count in (
        ({"p": one / 2, "q": one / 2}, 1),
        ({"r": two / 2}, 1),
        ({"p": one / 4}, 2),
        ({"r": one}, 3),
    ):
        found = artefact(edited(model, new))
        assert len(compiled_anew) == count
        assert found == artefact(edited(model, new), cache=False)
        del compiled_anew[count:]
        artefact_of_first = artefact(model)
        assert artefact_of_first is not None


def beside(place: str, weight: Array, other: Array) -> onnx.ModelProto:
    """Two products, one with a tensor that is stored elsewhere than large ones are looked for."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 32))
    nodes = [helper.make_node("MatMul", ["x", each], [f"x{each}"]) for each in "wc"]
    nodes.append(helper.make_node("Add", ["xw", "xc"], ["y"]))
    weights = [numpy_helper.from_array(weight, "w")]
    match place:
        case "numbers":
            weights.append(helper.make_tensor("c", TensorProto.FLOAT, (32, 32), other.ravel()))
        case "node":
            value = numpy_helper.from_array(other)
            nodes.insert(0, helper.make_node("Constant", [], ["c"], value=value))
        case _:
            inner = [numpy_helper.from_array(other, "inner")]
            given = helper.make_empty_tensor_value_info("product")
            there = helper.make_node("MatMul", ["x", "inner"], ["product"])
            here = helper.make_node("MatMul", ["x", "w"], ["product"])
            branches = {
                "then_branch": helper.make_graph([here], "then", [], [given]),
                "else_branch": helper.make_graph([there], "else", [], [given], inner),
            }
            summed = helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0)
            asked = helper.make_node("Cast", ["sum"], ["asked"], to=TensorProto.BOOL)
            nodes[1:2] = [summed, asked, helper.make_node("If", ["asked"], ["xc"], **branches)]
    y = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("place", ["numbers", "node", "branch"])
def test_what_lies_elsewhere_is_neither_replaced_nor_shared(
    compiled_anew: list[Any], place: str
) -> None:
    """Tensors of branches and nodes, and those not stored as bytes, may be equal to a weight."""
    one, two, three = np.random.default_rng(4).standard_normal((3, 32, 32)).astype(np.float32)
    artefact(beside(place, one, one))
    for model in (beside(place, two, one), beside(place, one, one)):
        assert artefact(model) == artefact(model, cache=False)
    again = beside(place, three, one)
    count = len(compiled_anew)
    assert artefact(again) is not None
    assert len(compiled_anew) == count  # another number alone


@pytest.mark.parametrize("first", ["numbers", "node", "bytes"])
def test_artefacts_are_those_of_a_model_wherever_its_tensors_lie(
    compiled_anew: list[Any], first: str
) -> None:
    one, two = np.random.default_rng(6).standard_normal((2, 32, 32)).astype(np.float32)
    models = {place: beside(place, one, one) for place in ("numbers", "node")}
    in_bytes_alone = onnx.ModelProto()
    in_bytes_alone.CopyFrom(models["numbers"])
    in_bytes_alone.graph.initializer[1].CopyFrom(numpy_helper.from_array(one, "c"))
    models["bytes"] = in_bytes_alone
    made = {place: artefact(each) for place, each in
            sorted(models.items(), key=lambda each: each[0] != first)}  # fmt: skip
    for place, each in models.items():
        assert made[place] == artefact(each, cache=False)
        if place != "bytes":
            other = beside(place, two, one)
            assert artefact(other) == artefact(other, cache=False)


def test_the_next_process_finds_it_as_it_is(compiled_anew: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    model = layers(11)
    onnx.save(model, path)
    artefact(path)
    onnx.save(edited(model, {"v": stored(model)["v"] * 3}), path)
    found = artefact(path)
    for each in (tmp_path / "store").glob("*/*"):
        key = each.parent.name + each.name
        if b'"recipes"' in (ArtefactStore(tmp_path / "store").get(key) or b""):
            each.unlink()
    assert artefact(path) == found
    assert len(compiled_anew) == 1


def test_one_layer_needs_no_terms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model, other = layers(19), tmp_path / "other.onnx"
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path / "store"))
    monkeypatch.setenv("PLICA_CACHE_AUDIT", "0")
    plica.compile(model)
    onnx.save(edited(model, {name: stored(model)[name] / 2 for name in "wuv"}), other)
    said = "import sys, plica; plica.compile(sys.argv[1]); print('plica.core.term' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", said, other], capture_output=True, text=True, check=True
    ).stdout
    assert found.strip() == "False"


@settings(max_examples=2)
@given(st.integers(0, 1 << 30), st.sampled_from(["f2", "f4", "f8"]))
def test_recipes_of_terms_and_plain_ones_make_the_constant(seed: int, dtype: str) -> None:
    lowered = lower(from_onnx(layers(seed, dtype)), target=find_target("cpu"))
    model = stored(layers(seed, dtype))
    bytes_of = {sha256(each.tobytes()).hexdigest(): each.tobytes() for each in model.values()}
    made = [each for each in lowered.program.constants if provenance.leaves_of(each)]
    assert len(made) >= (1 if dtype == "f2" else 3)
    for each in made:
        by_term = followed(to_json(provenance.recipe_of(each)), bytes_of.get)
        text = packed_text(each)
        assert text is not None
        assert text.startswith("[") or dtype == "f2"
        plain = array_by(text, bytes_of.get) if text.startswith("[") else by_term
        assert by_term is not None
        assert plain is not None
        assert by_term.tobytes() == plain.tobytes() == bytes(each.content)


# --- bytes of a model, and who looks at them ------------------------------------------------------


@given(st.binary(max_size=64), st.integers(0, 40))
def test_bytes_that_are_no_model_are_one_digest(data: bytes, cut: int) -> None:
    model = layers(13).SerializeToString()
    for each in (data, model[: len(model) - 1 - cut], model + b"\x07" + data):
        told = model_query.model_bytes(each)
        assert told is not None
        assert told == model_query.model_bytes(each)
        assert told.digest != model_query.model_bytes(model).digest  # type: ignore[union-attr]


def test_large_tensors_are_found_where_they_lie() -> None:
    model = layers(17)
    told = model_query.model_bytes(model)
    assert told is not None
    large = [each for each in model.graph.initializer if len(each.raw_data) >= provenance.STORED]
    assert [told.elements(each) for each in told.tensors] == [each.raw_data for each in large]
    other = model_query.model_bytes(edited(model, {"w": stored(model)["w"] / 2}))
    assert other is not None
    assert other.structure == told.structure
    assert [a == b for a, b in zip(told.tensors, other.tensors, strict=True)] == [False, True, True]
    assert model_query._LARGE_TENSOR_BYTES == provenance.STORED


def test_reading_what_is_made_of_a_tensor_is_looking_at_it() -> None:
    weight = provenance.stored_const(np.arange(2048, dtype=np.float32))
    assert isinstance(weight.data, StoredBytes)
    with unobserved():
        made = provenance.derived_const(Apply("negative", (weight,), ()), weight)
    assert provenance.leaves_of(made) == {weight.data.digest}
    recipe = provenance.recipe_of(made)
    assert isinstance(recipe, Apply)
    assert [each.name for each in recipe.args if isinstance(each, Var)] == [
        Name(weight.data.digest)
    ]
    assert not OBSERVED.looked_among({weight.data.digest})

    def unknown(of: Expr) -> Array | None:
        return None

    assert not provenance.answered("is-tame", [made], lambda of: np.array([np.nan]))
    assert not OBSERVED.looked_among({weight.data.digest})
    assert not provenance.answered("is-tame", [made], unknown)
    assert OBSERVED.looked_among({weight.data.digest})
