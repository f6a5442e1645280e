"""Writing files: where links lead, what is never replaced, and how a refusal reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plica.runtime.archive import destination, write
from plica.runtime.error import OutputError


def test_a_link_is_followed_and_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("before")
    link.symlink_to(real)
    write(link, b"after")
    assert link.is_symlink()
    assert real.read_bytes() == b"after"
    missing = tmp_path / "missing"
    (tmp_path / "early").symlink_to(missing)
    write(tmp_path / "early", b"new")
    assert missing.read_bytes() == b"new"


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "no folder", "loop", "long name"])
def test_what_is_no_plain_file_is_refused_and_left_alone(kind: str, tmp_path: Path) -> None:
    target = tmp_path / "there"
    match kind:
        case "folder":
            target.mkdir()
        case "pipe":
            os.mkfifo(target)
        case "device":
            target = Path("/dev/null")
        case "no folder":
            target = tmp_path / "nowhere" / "there"
        case "loop":
            target.symlink_to(target)
        case _:
            target = tmp_path / ("x" * 300)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OutputError) as caught:
        write(target, b"data")
    (found,) = caught.value.diagnostics
    assert found.code == "cannot-write"
    assert found.place is not None
    assert found.place.file == str(target)
    assert found.suggestion is not None
    assert sorted(tmp_path.iterdir()) == before
    assert kind != "pipe" or target.is_fifo()


@pytest.mark.skipif(os.geteuid() == 0, reason="who may do everything is never refused")
def test_a_folder_of_others_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="Nobody lets you write"):
        destination(tmp_path / "there")
