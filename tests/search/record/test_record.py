"""Records: joining is a lattice, what is damaged is refused, databases agree in any order."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given, settings, strategies as st

from plica.codegen.llvm import toolchain
from plica.core.diagnostic import Malformed
from plica.schedule.trace import Trace
from plica.search.record import (
    Applies,
    Database,
    Record,
    Stale,
    applied,
    fingerprint,
    joined,
    record,
    versions,
)
from plica.search.record.database import SCHEMA
from plica.search.record.record import from_row, to_row
from plica.search.space import Space
from tests.search.measure.work import product_space
from tests.strategies.text import texts

words = st.sampled_from(("a", "b", "c"))
costs = st.lists(st.floats(1e-9, 10.0), min_size=1, max_size=3).map(tuple)
pairs = st.lists(st.tuples(words, words), max_size=2).map(tuple)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Records of few different trials, so that some meet."""
    error = draw(st.sampled_from(("", "", "wrong", "crash")))
    return record(
        draw(words),
        draw(words),
        draw(st.sampled_from(("{}", '{"steps": []}'))),
        draw(words),
        () if error else draw(costs),
        noise=draw(st.floats(0, 1)),
        seed=draw(st.integers(0, 1)),
        versions=draw(pairs),
        error=error,
        policy=draw(words),
        message=draw(texts(5)),
        trial=draw(st.integers(0, 3)),
    )


@given(records())
def test_a_record_comes_back_from_its_row(of: Record) -> None:
    assert from_row(to_row(of)) == of


@given(records(), costs, costs, costs)
def test_joining_is_a_lattice(
    of: Record, a: tuple[float, ...], b: tuple[float, ...], c: tuple[float, ...]
) -> None:
    one, two, three = [evolve(of, costs=each, error="") for each in (a, b, c)]
    assert one.identity == two.identity
    assert joined(one, two) == joined(two, one)
    assert joined(one, joined(two, three)) == joined(joined(one, two), three)
    assert joined(one, one) == one
    assert joined(one, two).cost == min(*a, *b)
    failed = evolve(of, costs=(), error="wrong")
    assert joined(failed, one) == one


@settings(max_examples=max(5, settings.get_profile("ci").max_examples // 2))
@given(st.lists(records(), max_size=6), st.lists(records(), max_size=6))
def test_merging_is_commutative(left: list[Record], right: list[Record]) -> None:
    with Database() as one, Database() as other, Database() as back:
        one.put_all(left)
        other.put_all(right)
        back.merge(other)
        back.merge(one)
        one.merge(other)
        assert one.all() == back.all()
        assert one.merge(back) == 0
        assert len(one) == len({each.identity for each in (*left, *right)})


def test_the_best_and_the_top(tmp_path: Path) -> None:
    with Database(tmp_path / "tune.db") as found:
        for number, cost in enumerate((3.0, 1.0, 2.0)):
            found.put(record("k", "t", f"{{{number}}}", "blocked", (cost,), trial=number))
        found.put(record("k", "t", "{3}", "blocked", error="crash", trial=3))
        found.put(record("k", "u", "{}", "blocked", (0.1,)))
        best = found.best("k", "t")
        assert best is not None
        assert best.cost == 1.0
        assert found.best("k", "v") is None
        assert [each.cost for each in found.top("k", "t", 2)] == [1.0, 2.0]
        assert [each.trial for each in found.all("k", "t")] == [0, 1, 2, 3]
        assert found.prune("k", "t", 1) == 3
    with Database(tmp_path / "tune.db") as again:
        assert [each.cost for each in again] == [1.0, 0.1]


@pytest.mark.parametrize("single", [1.05, 0.98, 0.5])
def test_what_was_timed_in_turns_comes_before_what_was_timed_alone(single: float) -> None:
    with Database() as found:
        found.put(record("k", "t", "compared", "f", (1.0,)))
        found.put(record("k", "t", "compared", "f", (1.0, 1.1), policy="g/final"))
        found.put(record("k", "t", "single", "f", (single,)))
        chosen = found.best("k", "t")
        assert chosen is not None
        assert chosen.trace_json == "compared"


@pytest.mark.parametrize(("gain", "best"), [(0.02, "default"), (0.2, "other")])
def test_the_default_stays_unless_another_is_clearly_faster_in_turns(
    gain: float, best: str
) -> None:
    default = tuple([1.0 + 0.1 * (n % 3) for n in range(12)])
    other = tuple([1.0 - gain + 0.1 * (n % 4) for n in range(12)])
    with Database() as found:
        for trial, (name, costs) in enumerate((("default", default), ("other", other))):
            found.put(record("k", "t", name, "f", costs, policy="g/final", trial=trial))
        chosen = found.best("k", "t")
        assert chosen is not None
        assert chosen.trace_json == best
        assert min(other) < min(default)  # the least alone would take it


def test_a_slow_hour_does_not_make_what_was_compared_slow() -> None:
    with Database() as found:
        found.put(record("k", "t", "winner", "f", (1.0,)))
        found.put(record("k", "t", "winner", "f", (3.0,), policy="g/final"))
        found.put(record("k", "t", "second", "f", (1.1,)))
        assert [each.trace_json for each in found.top("k", "t", 2)] == ["winner", "second"]


def test_what_was_reported_outlives_its_process(tmp_path: Path) -> None:
    path = tmp_path / "tune.db"
    script = (
        "import os, signal, sys\n"
        "from plica.search.record.database import Database\n"
        "from plica.search.record.record import record\n"
        "found = Database(sys.argv[1])\n"
        "found.put(record('k', 't', '{}', 'blocked', (1.0,)))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False, timeout=60)
    assert done.returncode == -9
    with Database(path) as found:
        assert len(found) == 1


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tune.db"
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(Malformed) as refused:
        Database(path)
    assert refused.value.code == "bad-database"
    assert path.read_bytes().startswith(b"this is no database")


def test_a_schema_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with Database(tmp_path / "db"):
        pass
    raw = bytearray((tmp_path / "db").read_bytes())
    raw[raw.find(b"CREATE TABLE") + 3] = 0xD5
    (tmp_path / "damaged").write_bytes(raw)
    with pytest.raises(Malformed) as refused:
        Database(tmp_path / "damaged")
    assert refused.value.code == "bad-database"


def test_a_database_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (a)")
    with pytest.raises(Malformed, match="not one of tuning records"):
        Database(path)


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tune.db"
    Database(path).close()
    with sqlite3.connect(path) as newer:
        newer.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    with pytest.raises(Malformed) as refused:
        Database(path)
    assert refused.value.code == "newer-version"


# fmt: off
DAMAGE = (
    ("costs",    "[1e999]"),
    ("costs",    "[true]"),
    ("costs",    "{}"),
    ("costs",    "["),
    ("versions", "[[1, 2]]"),
    ("form",     "another"),
    ("error",    "bored"),
)
# fmt: on


@pytest.mark.parametrize(("column", "value"), DAMAGE)
def test_a_damaged_row_is_refused(tmp_path: Path, column: str, value: str) -> None:
    path = tmp_path / "tune.db"
    with Database(path) as found:
        found.put(record("k", "t", "{}", "blocked", (1.0,), versions=versions()))
    with sqlite3.connect(path) as damaged:
        damaged.execute(f"UPDATE trial SET {column} = ?", (value,))
    with Database(path) as again, pytest.raises(Malformed, match="row of the database is damaged"):
        again.all()


def test_a_record_has_costs_or_a_failure() -> None:
    for wrong in ({"costs": ()}, {"costs": (1.0,), "error": "wrong"}, {"costs": (-1.0,)}):
        with pytest.raises(Malformed, match="no tuning record"):
            record("k", "t", "{}", "blocked", **wrong)
    with pytest.raises(Malformed, match="which work"):
        record("", "t", "{}", "blocked", (1.0,))


def test_old_records_apply_or_say_why_not() -> None:
    space = product_space()
    for point in list(space.points())[:4]:
        text = space.trace(point).to_json()
        found = applied(record("k", "t", text, "tiled", (1.0,)), space)
        assert isinstance(found, Applies)
        assert found.point == point
    empty = applied(record("k", "t", Trace(()).to_json(), "tiled", (1.0,)), space)
    assert isinstance(empty, Applies)
    assert empty.point is None
    illegal = space.sketches[0].decided(((3, 5), (1, 16))).to_json()
    # fmt: off
    stale = (
        (record("k", "t", "{}",    "gone",  (1.0,)), "no sketch 'gone'"),
        (record("k", "t", "{}",    "tiled", (1.0,)), "cannot be read"),
        (record("k", "t", illegal, "tiled", (1.0,)), "is refused"),
    )
    # fmt: on
    for old, reason in stale:
        why = applied(old, Space(space.sketches))
        assert isinstance(why, Stale)
        assert reason in why.reason


def test_fingerprints_tell_machines_apart() -> None:
    host = toolchain.host()
    assert fingerprint(host) == fingerprint(evolve(host, features=tuple(reversed(host.features))))
    others = (evolve(host, cpu="other"), evolve(host, vector=64), evolve(host, cores=77))
    assert len({fingerprint(each) for each in (host, *others)}) == 4


def test_a_full_disk_loses_no_record_and_the_database_goes_on(tmp_path: Path) -> None:
    """SQLite ends a transaction by itself when the disk is full; the next one must begin anew."""
    path = tmp_path / "tune.db"
    with Database(path) as database:
        database.put(record("work", "machine", "{}", "blocked", (1e-3,)))
        pages = database._file.execute("PRAGMA page_count").fetchone()[0]
        database._file.execute(f"PRAGMA max_page_count = {pages}")
        large = record("work", "machine", json.dumps("x" * 100_000), "blocked", (1e-3,))
        for _ in range(2):
            with pytest.raises(Malformed, match="full") as refused:
                database.put(large)
            assert "Make room" in str(refused.value)
        assert len(database) == 1
        database._file.execute("PRAGMA max_page_count = 1000000")
        database.put(large)
        assert len(database) == 2


def test_a_file_on_a_read_only_disk_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a tune?.db"
    with Database(path) as database:
        database.put(record("work", "machine", "{}", "blocked", (1e-3,)))
    monkeypatch.setattr("plica.search.record.database._is_on_fixed_disk", lambda path: True)
    with Database(path) as database:
        assert len(database) == 1
        with pytest.raises(Malformed, match="readonly") as refused:
            database.put(record("work", "machine", "{}", "tiled", (1e-3,)))
        assert "Copy it" in str(refused.value)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_no_damage_of_a_database_is_more_than_a_refusal(tmp_path: Path) -> None:
    """Whatever bytes a file has, it is read or refused, and no time in it is no number."""
    path, draw = tmp_path / "tune.db", random.Random(7)
    with Database(path) as database:
        database.put_all(
            record(f"work {n}", "machine", "{}", "blocked", (1e-3 * (n + 1),)) for n in range(6)
        )
    whole = path.read_bytes()
    for turn in range(min(1_000, 2 * settings().max_examples)):
        data = bytearray(whole)
        for _ in range(draw.choice((1, 4, 64))):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        damaged = tmp_path / f"{turn}.db"
        damaged.write_bytes(data if turn % 3 else data[: draw.randrange(len(data))])
        with suppress(Malformed), Database(damaged) as database:
            for each in database.all():
                assert all(0 < cost < float("inf") for cost in each.costs)
            database.put(record("other", "machine", "{}", "blocked", (1e-3,)))
