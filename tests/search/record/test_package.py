"""Packages of records: what goes in comes out, the best of each work, and no byte may change."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plica.cli import main
from plica.core.diagnostic import Malformed
from plica.search.record import Database, Record, record
from plica.search.record.package import described, packed, unpacked


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
def test_no_byte_of_the_records_may_change(of: list[Record], data: st.DataObject) -> None:
    text = packed(of)
    first = text.index("\n") + 1
    if first == len(text):
        return
    at = data.draw(st.integers(first, len(text) - 1))
    other = "x" if text[at] != "x" else "y"
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
