"""Hostile artefacts and stores: damaged, of another kind, in strange places."""

from __future__ import annotations

import os
import signal
import stat
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pytest

import plica
from plica.runtime.error import ArtefactError, PlicaError
from tests.attack.judge import outcome, refused

SOURCE: Final = """
import plica
from plica import op

@plica.function
def main(x: Tensor[(3,), f32]) -> Tensor[(3,), f32]:
    return op.absolute(x) + 1.0
"""
X: Final = np.array([0.0, 1.0, -1.0], np.float32)
Y: Final = np.abs(X) + 1


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("artefact") / "m.plica"
    plica.compile(plica.from_text(SOURCE), threads=1, cache=False).save(path)
    return path.read_bytes()


def test_a_missing_artefact_is_refused_with_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "model.plica").touch()
    with pytest.raises(ArtefactError) as caught:
        plica.load(tmp_path / "modle.plica")
    (problem,) = caught.value.diagnostics
    assert problem.code == "bad-artefact"
    assert (problem.found, problem.suggestion) == (
        "No such file or directory",
        "Did you mean 'model.plica'?",
    )


@pytest.mark.parametrize("part", range(20))
def test_a_cut_artefact_is_refused(part: int, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.plica"
    path.write_bytes(data[: len(data) * part // 20])
    refused(lambda: plica.load(path), "bad-artefact")


@pytest.mark.parametrize("part", range(20))
def test_a_changed_bit_is_refused(part: int, data: bytes, tmp_path: Path) -> None:
    random = Random(part)
    path = tmp_path / "m.plica"
    changed = bytearray(data)
    changed[random.randrange(len(data) * part // 20, len(data) * (part + 1) // 20)] ^= 1 << part % 8
    path.write_bytes(changed)
    refused(lambda: plica.load(path), "bad-artefact")


FILES: Final[dict[str, Callable[[Path, bytes], object]]] = {
    "nothing": lambda path, data: None,
    "an empty file": lambda path, data: path.write_bytes(b""),
    "a folder": lambda path, data: path.mkdir(),
    "a text": lambda path, data: path.write_text("plica"),
    "one of it after the other": lambda path, data: path.write_bytes(data + data),
    "something after it": lambda path, data: path.write_bytes(data + b"x"),
    "something before it": lambda path, data: path.write_bytes(b"x" + data),
    "an empty zip": lambda path, data: zipfile.ZipFile(path, "w").close(),
    "another zip": lambda path, data: _zipped(path, {"a.txt": b"a"}),
    "a zip that leaves its folder": lambda path, data: _zipped(path, {"../../evil": b"a"}),
    "a zip of a bomb": lambda path, data: _zipped(path, {"code.o": b"\0" * 50_000_000}),
    "a zip of many": lambda path, data: _zipped(path, {str(at): b"" for at in range(3000)}),
    "its parts sealed anew": lambda path, data: _repacked(path, data, lambda name, part: part),
    "its parts reversed": lambda path, data: _repacked(path, data, lambda name, part: part[::-1]),
    "its parts emptied": lambda path, data: _repacked(path, data, lambda name, part: b""),
    "a link to itself": lambda path, data: path.symlink_to(path),
}


def _zipped(path: Path, parts: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, part in parts.items():
            made.writestr(name, part)


def _repacked(path: Path, data: bytes, change: Callable[[str, bytes], bytes]) -> None:
    path.write_bytes(data)
    with zipfile.ZipFile(path) as old:
        parts = {name: change(name, old.read(name)) for name in old.namelist()}
    path.unlink()
    _zipped(path, parts)


@pytest.mark.parametrize("name", FILES)
def test_what_is_no_artefact_is_refused(name: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.plica"
    FILES[name](path, data)
    refused(lambda: plica.load(path))
    assert not (tmp_path.parent / "evil").exists()


PLACES: Final[dict[str, Callable[[Path], Path]]] = {
    "a folder that is not there": lambda folder: folder / "no" / "m.plica",
    "a file as a folder": lambda folder: _file(folder / "f") / "m.plica",
    "a folder itself": lambda folder: folder,
    "a full device": lambda folder: Path("/dev/full"),
    "a long name": lambda folder: folder / ("a" * 300),
    "a null in it": lambda folder: folder / "a\0b.plica",
    "a link to itself": lambda folder: _linked(folder / "l"),
}


def _file(path: Path) -> Path:
    path.write_text("x")
    return path


def _linked(path: Path) -> Path:
    path.symlink_to(path)
    return path


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("how", ["save", "export"])
def test_what_cannot_be_written_is_refused(name: str, how: str, tmp_path: Path) -> None:
    exe = plica.compile(plica.from_text(SOURCE), threads=1)
    before = sorted(tmp_path.iterdir())
    place = PLACES[name](tmp_path)
    found = outcome(lambda: getattr(exe, how)(place))
    if name == "a link to itself" and how == "save":  # the new file takes its name
        return
    assert isinstance(found, PlicaError), found
    left = [
        each for each in tmp_path.iterdir() if each not in before and each.name not in ("f", "l")
    ]
    assert not left


STORES: Final[dict[str, Callable[[Path], Path]]] = {
    "not there yet": lambda folder: folder / "a" / "b" / "c",
    "a file": lambda folder: _file(folder / "f"),
    "a link to itself": lambda folder: _linked(folder / "l"),
    "a name with a line end": lambda folder: folder / "a\nb",
    "a long name": lambda folder: folder / ("a" * 300),
    "a full device": lambda folder: Path("/dev/full"),
    "no folder at all": lambda folder: Path("/proc/1/no"),
    "an empty name": lambda folder: Path(),
    "for all to write": lambda folder: _for_all(folder / "open"),
}


def _for_all(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o777)
    return path


@pytest.mark.parametrize("name", STORES)
def test_a_strange_store_costs_time_and_nothing_else(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLICA_CACHE", str(STORES[name](tmp_path)))
    more = _own_number(name)
    for _ in range(2):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found: Any = outcome(lambda: plica.compile(_model(more), threads=1))
        if name == "for all to write":  # nothing is taken from it, and that is said
            assert isinstance(found, PlicaError) or any("store" in str(w.message) for w in said)
        if not isinstance(found, PlicaError):
            assert np.allclose(found(X), Y + more, atol=1e-4)
        del found  # so that it is not shared within this process


def _own_number(name: str) -> float:
    """A number of a test's own, since models are shared within a process."""
    return float(zlib.crc32(name.encode()) % 1000)


def _model(more: float) -> Any:
    return plica.from_text(SOURCE.replace("+ 1.0", f"+ {1.0 + more}"))


def _replaced(make: Callable[[Path], object]) -> Callable[[Path], object]:
    """Something else in the place of a file."""

    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


def _fifo(path: Path) -> None:
    os.mkfifo(path)


ENTRIES: Final[dict[str, Callable[[Path], object]]] = {
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "another's": lambda path: path.write_bytes(b"x" * 500),
    "a folder": _replaced(Path.mkdir),
    "a fifo": _replaced(_fifo),
    "a link to itself": _replaced(_linked),
    "a link to the root": _replaced(lambda path: path.symlink_to("/")),
    "gone": Path.unlink,
    "for all to write": lambda path: path.chmod(0o666),
    "twice as long": lambda path: path.write_bytes(path.read_bytes() * 2),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_a_damaged_store_is_made_good(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path / "store"))
    more = _own_number(f"entry {name}")
    plica.compile(_model(more), threads=1)
    entries = [each for each in (tmp_path / "store").rglob("*") if each.is_file()]
    assert entries
    for each in entries:
        ENTRIES[name](each)
    exe: Any = outcome(lambda: plica.compile(_model(more), threads=1))
    assert np.allclose(exe(X), Y + more, atol=1e-4)


def test_a_store_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    try:
        monkeypatch.setenv("PLICA_CACHE", str(tmp_path / "store"))
        plica.compile(_model(_own_number("owner")), threads=1)
    finally:
        os.umask(before)
    kept = [tmp_path / "store", *(tmp_path / "store").rglob("*")]
    assert len(kept) > 2
    for each in kept:
        assert not stat.S_IMODE(each.stat().st_mode) & 0o022, each


@pytest.mark.parametrize("after", [0.0, 0.002, 0.005, 0.01, 0.02])
def test_a_writer_that_is_killed_leaves_no_broken_file(
    after: float, data: bytes, tmp_path: Path
) -> None:
    source, target = tmp_path / "a.plica", tmp_path / "b.plica"
    source.write_bytes(data)
    exe = plica.load(source)
    child = os.fork()
    if not child:
        try:
            while True:
                exe.save(target)
        finally:
            os._exit(1)
    time.sleep(0.05 + after)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if target.exists():
        assert np.allclose(plica.load(target)(X), Y, atol=1e-6)
