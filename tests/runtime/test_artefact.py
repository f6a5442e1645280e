"""Artefacts: they come back as they were, need no compiler, and no edit of them goes unseen."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.codegen.llvm import toolchain
from plica.runtime import archive, host
from plica.runtime.artefact import (
    Artefact,
    ArtefactMachine,
    CompilationRecord,
    StoredAllocation,
    from_members,
    to_members,
)
from plica.runtime.error import ArtefactError, EvaluationError, InputError
from plica.runtime.link import can_link
from plica.runtime.load import executable, load
from plica.runtime.verify import verify
from tests.runtime.model import SOURCE, inputs, model

pytestmark = pytest.mark.skipif(not can_link(), reason="objects are not loaded here")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artefact") / "m.plica"
    model().save(path)
    return path


def test_what_is_loaded_computes_the_same(saved: Path) -> None:
    back = load(saved)
    assert repr(back) == repr(model())
    for seed in range(3):
        found, expected = back(*inputs(seed)), model()(*inputs(seed))
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    assert back.source("kernel") == model().source("kernel")
    x, w, _ = inputs()
    with pytest.raises(EvaluationError):
        back(x, w, np.array([0, 9]))
    with pytest.raises(InputError):
        back(w, x, np.array([0, 1]))


def test_saving_again_gives_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    load(saved).save(tmp_path / "again.plica")
    assert (tmp_path / "again.plica").read_bytes() == saved.read_bytes()
    assert from_members(to_members(model().artefact)).machine == model().artefact.machine


def test_compiling_elsewhere_gives_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    code = (
        "import sys, plica; plica.compile(plica.from_text(sys.argv[1]), threads=2, cache=False)"
        ".save(sys.argv[2])"
    )
    env = {**os.environ, "PYTHONHASHSEED": "77"}
    there = tmp_path / "there.plica"
    subprocess.run([sys.executable, "-c", code, SOURCE, there], cwd=ROOT, env=env, check=True)
    assert there.read_bytes() == saved.read_bytes()


def test_loading_needs_nothing_of_the_compiler(saved: Path, tmp_path: Path) -> None:
    x, w, at = inputs()
    np.savez(tmp_path / "given.npz", x=x, w=w, at=at)
    code = (
        "import sys, numpy, plica; given = numpy.load(sys.argv[2]);"
        "found = plica.load(sys.argv[1])(**given); numpy.savez(sys.argv[3], *found);"
        "print(*sys.modules)"
    )
    paths = [str(each) for each in (saved, tmp_path / "given.npz", tmp_path / "found.npz")]
    done = subprocess.run(
        [sys.executable, "-c", code, *paths], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"attr", "attrs", "llvmlite", "pyrsistent", "rich", "ml_dtypes", "pickle5"}
    ours = {name for name in loaded if name.startswith("plica.")}
    assert all(name.startswith("plica.runtime") for name in ours)
    found = np.load(tmp_path / "found.npz")
    for name, expected in zip(("arr_0", "arr_1"), model()(x, w, at), strict=True):
        assert np.array_equal(found[name], expected)


def test_it_verifies(saved: Path) -> None:
    found = verify(saved)
    assert found.objects == len(model().artefact.objects)
    assert found.workspace == model().workspace
    assert found.contract == "exact"


@given(st.data())
def test_no_edit_of_a_byte_goes_unseen(data: st.DataObject) -> None:
    whole = archive.pack(to_members(model().artefact))
    edited = bytearray(whole)
    place = data.draw(st.integers(0, len(whole) - 1))
    edited[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ArtefactError):
        archive.unpack(bytes(edited))


@given(st.data())
def test_no_cut_goes_unseen(data: st.DataObject) -> None:
    whole = archive.pack(to_members(model().artefact))
    with pytest.raises(ArtefactError):
        archive.unpack(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(ArtefactError):
        archive.unpack(whole + data.draw(st.binary(min_size=1, max_size=100)))


def changed(**fields: Any) -> Artefact:
    return dataclasses.replace(model().artefact, **fields)


def refused(artefact: Artefact, path: Path) -> str:
    """Why an artefact that was sealed properly does not verify."""
    archive.write(path, archive.pack(to_members(artefact)))
    with pytest.raises(ArtefactError) as caught:
        verify(path)
    return str(caught.value)


def test_a_plan_that_overlaps_is_refused(tmp_path: Path) -> None:
    one, two = StoredAllocation(0, 64, 0, 2, None, None), StoredAllocation(0, 64, 1, 3, None, None)
    path = tmp_path / "m.plica"
    assert "overlap" in refused(changed(plan=(one, two), workspace=128), path)
    assert "outside" in refused(changed(plan=(one,), workspace=8), path)
    beside = dataclasses.replace(two, offset=64)
    after = dataclasses.replace(two, born=2, in_place_of=0)
    early = dataclasses.replace(two, born=1, in_place_of=0)
    assert "overlap" in refused(changed(plan=(one, early), workspace=128), path)
    for good in (beside, after):
        archive.write(path, archive.pack(to_members(changed(plan=(one, good), workspace=128))))
        verify(path)


def test_a_derivation_outside_its_contract_is_refused(tmp_path: Path) -> None:
    zero = "0" * 32
    steps = (("mul-distribute", "reassociates", zero, zero),)
    record = CompilationRecord(zero, "exact", steps, "")
    assert "does not allow" in refused(changed(record=lambda: record), tmp_path / "m.plica")
    wrong = CompilationRecord(zero, "exact", (("a", "exact", "b", zero),), "")
    assert "damaged" in refused(changed(record=lambda: wrong), tmp_path / "m.plica")


def test_code_that_calls_anything_else_is_refused(tmp_path: Path) -> None:
    here = toolchain.host()
    text = (
        f'target triple = "{here.triple}"\ndeclare i32 @system(ptr)\n'
        "define i64 @plica_main(ptr %t) {\n  %1 = call i32 @system(ptr %t)\n  ret i64 0\n}\n"
    )
    code = toolchain.emit(text, here)
    assert "'system'" in refused(changed(objects=(code,)), tmp_path / "m.plica")
    assert "does not define" in refused(changed(objects=()), tmp_path / "m.plica")


def test_other_machines_are_refused(tmp_path: Path) -> None:
    mine = model().artefact.machine
    lacks = {"x86_64": "+amx-bf16", "aarch64": "+sme"}[mine.architecture]
    with pytest.raises(ArtefactError, match="another kind") as caught:
        executable(changed(machine=ArtefactMachine("riscv64-unknown-linux-gnu", "generic", ())))
    assert caught.value.code == "other-machine"
    assert host.lacking(mine.architecture, (lacks,), {"fpu"}) == (lacks[1:],)
    assert host.lacking(mine.architecture, (lacks,), set()) == ()
    assert host.lacking("x86_64", ("+sse4a", "+xop"), {"fpu"}) == ("sse4a", "xop")
    foreign = bytearray(model().artefact.objects[0])
    foreign[18] = 243  # riscv
    with pytest.raises(ArtefactError, match="another kind"):
        executable(changed(objects=(bytes(foreign),)))


def sealed(members: dict[str, bytes], path: Path) -> Path:
    archive.write(path, archive.pack(members))
    return path


def test_newer_and_foreign_files_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "m.plica"
    members = to_members(model().artefact)
    manifest = json.loads(members["manifest.json"])
    newer = json.dumps({**manifest, "format": 99}).encode()
    with pytest.raises(ArtefactError) as caught:
        load(sealed({**members, "manifest.json": newer}, path))
    assert caught.value.code == "newer-version"
    for bad in (b"[", b"[]", b"{}", json.dumps({**manifest, "threads": 0}).encode()):
        with pytest.raises(ArtefactError, match="manifest"):
            load(sealed({**members, "manifest.json": bad}, path))
    with pytest.raises(ArtefactError, match="not those its manifest lists"):
        load(sealed({**members, "params.bin": b"x"}, path))
    with pytest.raises(ArtefactError, match="cannot be read"):
        load(tmp_path / "nothing.plica")
    path.write_bytes(b"PK")
    with pytest.raises(ArtefactError, match="no artefact"):
        load(path)


def test_a_file_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "m.plica"
    archive.write(path, b"old")
    with pytest.raises(TypeError):
        archive.write(path, 5)  # type: ignore[arg-type]  # fails while writing
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["m.plica"]
