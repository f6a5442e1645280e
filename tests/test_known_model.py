"""Known models: a file that was compiled before is loaded without the compiler, and only then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import plica
from plica.pipeline import front, known_model, model_query, whole
from plica.runtime.executable import Executable
from plica.runtime.link import can_link
from plica.runtime.store import ArtefactStore, key_of

pytestmark = pytest.mark.skipif(not can_link(), reason="objects are not loaded here")

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def model(scale: float = 2.0, rows: int | str = 2) -> onnx.ModelProto:
    """x * scale, the scale being a tensor of the file's."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, 3]) for n in "xy")
    weight = numpy_helper.from_array(np.full(3, scale, np.float32), "w")
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    return helper.make_model(helper.make_graph([node], "g", [x], [y], [weight]))


@pytest.fixture
def compiled_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What the whole compiler is asked for; nothing is shared within this process."""
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path / "store"))
    seen: list[Any] = []
    usual = whole.compile_anew

    def anew(source: Any, **options: Any) -> Executable:
        seen.append(source)
        return usual(source, **options)

    monkeypatch.setattr(front, "compile_anew", anew)
    return seen


def again(source: Any, **options: Any) -> Executable:
    """Compile as another process would."""
    known_model._SHARED.clear()
    return plica.compile(source, threads=1, **options)


@pytest.mark.parametrize("rows", [2, "n"])
def test_a_file_is_compiled_once(compiled_anew: list[Any], tmp_path: Path, rows: int | str) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(rows=rows), path)
    one = again(path)
    two = again(path)
    assert compiled_anew == [path]
    assert np.array_equal(one(X), X * 2)
    assert np.array_equal(two(X), X * 2)
    assert (two.tier, two.stats.compilations, two.kept) == ("default", 0, one.kept)
    assert two.artefact.objects == one.artefact.objects
    assert two.source("kernel") == one.source("kernel")  # by the compiler, which comes now
    assert str(two.derivation) == str(one.derivation)
    assert np.array_equal(two.at(X)(X), X * 2)
    assert len(compiled_anew) == 2


def test_a_large_file_is_scanned_once_for_each_state_of_it(
    compiled_anew: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scans: list[Any] = []
    scanned = model_query._scanned

    def noted(source: Any) -> model_query.Scanned:
        scans.append(source)
        return scanned(source)

    monkeypatch.setattr(model_query, "_KEPT_SCAN", 1)
    monkeypatch.setattr(model_query, "_scanned", noted)
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    again(path)
    again(path)
    assert len(scans) == 2  # a file that has just changed may change again and keep its times
    monkeypatch.setattr(model_query, "_SETTLED", -1)
    for _ in range(3):
        again(path)
    assert len(scans) == 3
    onnx.save(model(3.0), path)
    np.testing.assert_array_equal(again(path)(X), X * 3)
    assert len(compiled_anew) == 2


def test_digests_of_another_file_are_found_by_the_audit(
    compiled_anew: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(model_query, "_KEPT_SCAN", 1)
    monkeypatch.setattr(model_query, "_SETTLED", -1)
    monkeypatch.setenv("PLICA_CACHE_AUDIT", "1")
    path, other = tmp_path / "m.onnx", tmp_path / "other.onnx"
    onnx.save(model(), path)
    onnx.save(model(3.0), other)
    again(other)
    state = model_query.bytes_state(path)
    key = key_of("scan", str(path), str(state))
    store = ArtefactStore(tmp_path / "store")
    store.put(key, model_query._scan_text(model_query._scanned(other)))
    with pytest.warns(RuntimeWarning, match="wrong-entry"):
        np.testing.assert_array_equal(again(path)(X), X * 2)


def test_bytes_and_protos_are_known_by_what_they_say(compiled_anew: list[Any]) -> None:
    proto = model(3.0)
    for source in (proto, proto.SerializeToString(deterministic=True), model(3.0)):
        assert np.array_equal(again(source)(X), X * 3)
    assert len(compiled_anew) == 1


def test_another_model_and_other_options_are_told_apart(
    compiled_anew: list[Any], tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    for scale in (2.0, 5.0):
        onnx.save(model(scale), path)
        assert np.array_equal(again(path)(X), X * scale)
    assert again(path, contract="exact").tier == "default"
    assert again(path, effort="fast").tier == "fast"
    assert len(compiled_anew) == 4


def test_tensors_in_other_files_are_looked_at(compiled_anew: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    for scale in (2.0, 5.0):
        onnx.save(model(scale), path, save_as_external_data=True, size_threshold=0, location="w")
        assert np.array_equal(again(path)(X), X * scale)
    assert len(compiled_anew) == 2


def test_damaged_entries_are_made_again(compiled_anew: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    again(path)
    for kept in (tmp_path / "store").glob("*/*"):
        kept.write_bytes(kept.read_bytes()[:-1])
    with pytest.warns(RuntimeWarning, match="damaged-entry"):
        assert np.array_equal(again(path)(X), X * 2)
    assert len(compiled_anew) == 2
    assert np.array_equal(again(path)(X), X * 2)
    assert len(compiled_anew) == 2


@pytest.mark.parametrize(
    "said",
    [b"", b"{", b"[" * 9000, b"7",
     b'{"entry": "../../m", "texts": [], "tier": "", "eager": 1}',
     b'{"entry": "%s", "texts": [1], "tier": "x", "eager": false}' % (b"0" * 64), b"\xff" * 64],
)  # fmt: skip
def test_notes_that_say_something_else_are_made_again(
    compiled_anew: list[Any], tmp_path: Path, said: bytes
) -> None:
    """Their digests are right: somebody wrote them so."""
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    again(path)
    store = ArtefactStore(tmp_path / "store")
    for kept in (tmp_path / "store").glob("*/*"):
        key = kept.parent.name + kept.name
        if (store.get(key) or b"").startswith(b'{"entry"'):
            store.put(key, said)
    assert np.array_equal(again(path)(X), X * 2)
    assert np.array_equal(again(path)(X), X * 2)
    assert len(compiled_anew) == 2


def test_a_note_of_another_model_spoils_nothing(
    compiled_anew: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit finds it, and what the other model has in the store is not written over."""
    monkeypatch.setenv("PLICA_CACHE_AUDIT", "0")
    store, notes = ArtefactStore(tmp_path / "store"), dict[str, bytes]()
    for scale in (2.0, 5.0):
        again(model(scale))
        for kept in (tmp_path / "store").glob("*/*"):
            key = kept.parent.name + kept.name
            said = store.get(key) or b""
            if said.startswith(b'{"entry"'):
                notes.setdefault(key, said)
    mine, other = notes
    store.put(mine, notes[other])
    monkeypatch.setenv("PLICA_CACHE_AUDIT", "1")
    with pytest.warns(RuntimeWarning, match="wrong-entry"):
        assert np.array_equal(again(model(2.0))(X), X * 2)
    monkeypatch.setenv("PLICA_CACHE_AUDIT", "0")
    for scale in (5.0, 2.0, 5.0):
        assert np.array_equal(again(model(scale))(X), X * scale)


def test_texts_of_a_file_that_changed_are_refused(compiled_anew: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    again(path)
    exe = again(path)
    path.unlink()
    with pytest.raises(plica.UnsupportedError, match=r"another than it was.*\[no-source\]"):
        exe.source("kernel")


def test_the_compiler_is_not_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    said = "import sys, plica; plica.compile(sys.argv[1]); print('plica.core' in sys.modules)"
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path / "store"))
    plica.compile(path)
    found = subprocess.run(
        [sys.executable, "-c", said, path], capture_output=True, text=True, check=True
    ).stdout
    assert found.strip() == "False"
