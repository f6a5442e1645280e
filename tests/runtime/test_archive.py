"""Writing files: where links lead, what is never replaced, and how a refusal reads."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.runtime.archive import aligned_members, destination, member_views, pack, unpack, write
from plica.runtime.artefact import aligned_array
from plica.runtime.error import ArtefactError, OutputError


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


MEMBERS = st.dictionaries(
    st.text("abz/.", min_size=1, max_size=40), st.binary(max_size=200), max_size=5
)


@given(MEMBERS)
def test_an_archive_reads_back(members: dict[str, bytes]) -> None:
    assert unpack(pack(members)) == members


@given(MEMBERS, st.sampled_from((1, 4, 64, 4096)))
def test_members_begin_where_they_are_aligned(members: dict[str, bytes], align: int) -> None:
    """Read back as they lie in aligned memory."""
    parts = {name: (data[:7], data[7:]) for name, data in members.items()}
    whole = b"".join(aligned_members(parts, align))
    room = aligned_array(len(whole))
    room[:] = np.frombuffer(whole, np.uint8)
    found = member_views(room.data)
    assert {name: bytes(data) for name, data in found.items()} == members
    start = room.__array_interface__["data"][0]
    for data in filter(len, found.values()):
        assert (np.frombuffer(data, np.uint8).__array_interface__["data"][0] - start) % align == 0
    for damage in (whole[:-1], whole + b"x", whole[5:], whole[:20] + b"[" + whole[21:]):
        if damage != whole and members and any(members.values()):
            with pytest.raises(ArtefactError):
                member_views(damage)


@pytest.mark.parametrize(
    ("table", "said"),
    [(b"{}", "is none"), (b"[1, 0, []]", "is none"), (b"[", "cannot be read"),
     (b'[1, 1, [["a", -1]]]', "A row"), (b"[99, 1, []]", "newer version")],
)  # fmt: skip
def test_a_table_that_is_none_is_refused(table: bytes, said: str) -> None:
    with pytest.raises(ArtefactError, match=said):
        member_views(b"plica kept\n" + len(table).to_bytes(8, "little") + table)


def test_a_current_folder_that_is_gone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(OutputError, match="no longer there"):
        destination("m.plica")
