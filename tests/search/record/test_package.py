"""Packages of records: what goes in comes out, the best of each work, and no byte may change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from plica.cli import main
from plica.codegen.backend import backend_of, find_target
from plica.core.diagnostic import Malformed
from plica.search.record import Database, Record, record
from plica.search.record.package import described, packed, unpacked
from plica.search.target import fingerprint


@st.composite
def records(draw: st.DrawFn) -> Record:
    """A trial of one of a few works on one of a few machines."""
    key, target = draw(st.sampled_from(["ab", "cd"])), draw(st.sampled_from(["cpu", "gpu"]))
    form, seed = draw(st.sampled_from(["rowed", "blocked"])), draw(st.integers(0, 9))
    if draw(st.booleans()):
        return record(key, target, "{}", form, seed=seed, error="wrong")
    costs = tuple(draw(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=3)))
    return record(key, target, "{}", form, costs, seed=seed, versions=(("plica", "1"),))


@given(st.lists(records(), max_size=8))
def test_a_package_holds_the_best_of_each_work(of: list[Record]) -> None:
    with Database() as database:
        database.put_all(of)
        text = packed(database)
        found = unpacked(text)
        works = {(each.key, each.target) for each in of if each.cost is not None}
        assert {(each.key, each.target) for each in found} == works
        assert list(found) == [database.best(*work) for work in sorted(works)]
    assert described(text).count == len(found)
    assert packed(found) == text


@given(st.lists(records(), min_size=1, max_size=4), st.data())
def test_no_byte_of_a_package_may_change(of: list[Record], data: st.DataObject) -> None:
    text = packed(of)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from([each for each in 'x7" ]' if each != text[at]]))
    with pytest.raises(Malformed):
        unpacked(text[:at] + other + text[at + 1 :])


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "bad-record"),
        ("[1]\n", "bad-record"),
        ('{"format": "plica-records", "version": 9}\n', "newer-version"),
        ('{"format": "plica-records", "version": 1, "digest": "0"}\n', "bad-record"),
    ],
)
def test_what_is_no_package_is_refused(text: str, code: str) -> None:
    with pytest.raises(Malformed) as error:
        unpacked(text)
    assert error.value.diagnostics[0].code == code


def test_records_go_from_one_database_to_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Database(tmp_path / "one.db") as one:
        one.put(record("ab", "cpu", "{}", "rowed", (2.0,)))
        one.put(record("ab", "cpu", "{}", "blocked", (1.0,)))
    package, other = tmp_path / "mine.records", tmp_path / "two.db"
    assert main(["records", "export", str(tmp_path / "one.db"), "-o", str(package)]) == 0
    assert main(["records", "import", str(package), "--db", str(other)]) == 0
    assert "1 of 1 records" in capsys.readouterr().out
    with Database(other) as two:
        assert [each.form for each in two] == ["blocked"]
    assert main(["records", "show", str(package)]) == 0
    assert "cpu" in capsys.readouterr().out
    assert main(["records", "show", str(tmp_path / "none.db")]) == 1
    assert "input-missing" in capsys.readouterr().err
    package.write_text(package.read_text()[:-9])
    assert main(["records", "import", str(package), "--db", str(other)]) == 1
    assert f"{package}: error: This is no package" in capsys.readouterr().err


def test_the_first_line_of_a_package_is_held_to_its_records() -> None:
    first, _, rest = packed([record("ab", "cpu", "{}", "rowed", (2.0,))]).partition("\n")
    for other in ({"count": 2}, {"targets": ["gpu"]}, {"versions": [["plica", "9"]]}, {"more": 1},
                  {"versions": [1]}, {"versions": [["plica", 9]]}):  # fmt: skip
        with pytest.raises(Malformed, match="first line"):
            unpacked(f"{json.dumps({**json.loads(first), **other})}\n{rest}")


def test_an_empty_file_is_no_package_and_is_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "cut.records"
    empty.touch()
    for verb in (["show", str(empty)], ["import", str(empty), "--db", str(tmp_path / "t.db")]):
        assert main(["records", *verb]) == 1
        assert "The file is empty. [bad-database]" in capsys.readouterr().err
    assert empty.read_bytes() == b""


def test_a_package_is_no_database_to_compile_with_and_says_how_it_becomes_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.records"
    path.write_text(packed([record("ab", "cpu", "{}", "rowed", (2.0,))]))
    with pytest.raises(Malformed, match=r"plica records import mine\.records"):
        Database(path)


def test_this_machine_is_shown_with_its_threads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = find_target("cpu")
    one = fingerprint(backend_of(here).with_threads(here, 1))
    with Database(tmp_path / "t.db") as database:
        database.put(record("ab", one, "{}", "rowed", (2.0,)))
        database.put(record("ab", "another", "{}", "rowed", (2.0,)))
    assert main(["records", "show", str(tmp_path / "t.db"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["machines"]
    assert {each["machine"]: (each["here"], each["threads"]) for each in shown} == {
        one: (True, 1),
        "another": (False, None),
    }
