"""Kinds of databases: what each answers, and the laws of their unions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from plica.core.diagnostic import Malformed
from plica.search.record import (
    Database,
    FunctionDatabase,
    JsonDatabase,
    OrderedUnion,
    Record,
    UnionDatabase,
    record,
)
from tests.search.record.test_record import records

some = st.lists(records(), max_size=6)


def kept(of: list[Record]) -> Database:
    found = Database()
    found.put_all(of)
    return found


@given(some, some)
def test_a_union_is_a_merge(a: list[Record], b: list[Record]) -> None:
    one, two = kept(a), kept(b)
    both = UnionDatabase(one, two)
    assert both.all() == UnionDatabase(two, one).all()
    assert UnionDatabase(one, one).all() == one.all()
    merged = kept(a)
    merged.merge(two)
    assert both.all() == merged.all()
    for each in both:
        assert both.find(each.identity) == each
        assert both.top(each.key, each.target, 2) == merged.top(each.key, each.target, 2)


@given(some, some, some)
def test_an_ordered_union_asks_in_turn(a: list[Record], b: list[Record], c: list[Record]) -> None:
    one, two, three = kept(a), kept(b), kept(c)
    whole = OrderedUnion(one, two, three)
    assert whole.all() == OrderedUnion(OrderedUnion(one, two), three).all()
    assert OrderedUnion(one, one).all() == one.all()
    for each in whole:
        if each.cost is None:
            continue
        asked = [part for part in (one, two, three) if part.best(each.key, each.target) is not None]
        assert whole.best(each.key, each.target) == asked[0].best(each.key, each.target)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some)
def test_a_text_comes_back(tmp_path: Path, of: list[Record]) -> None:
    path = tmp_path / "tune.jsonl"
    path.unlink(missing_ok=True)
    text = JsonDatabase(path)
    assert text.all() == ()
    for each in of:
        text.put(each)
    assert UnionDatabase(JsonDatabase(path)).all() == kept(of).all()


def test_what_was_in_flight_is_lost_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "tune.jsonl"
    one, two = (record("w", "m", "{}", form, (1e-3,)) for form in ("a", "b"))
    JsonDatabase(path).put(one)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    assert JsonDatabase(path).all() == (one,)
    JsonDatabase(path).put(two)
    assert {each.form for each in JsonDatabase(path)} == {"a", "b"}


@pytest.mark.parametrize("line", ["[1, 2]", "{}", '["x"]', "[" * 5000 + "]"])
def test_what_is_no_record_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "tune.jsonl"
    path.write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(Malformed, match="no tuning record"):
        JsonDatabase(path).all()


def test_a_name_says_which_kind_a_file_is(tmp_path: Path) -> None:
    """What a search wrote into `tune.jsonl` was refused by whoever read it."""
    path = tmp_path / "tune.jsonl"
    with pytest.raises(Malformed, match="lines of JSON") as refused:
        Database(path)
    assert refused.value.code == "bad-database"
    assert not path.exists()


def test_a_function_answers() -> None:
    asked: list[str] = []

    def schedule(key: str, target: str) -> list[Record]:
        asked.append(key)
        return [record(key, target, "{}", "rowed", (1e-3,))] if key == "known" else []

    of = FunctionDatabase(schedule, [("known", "cpu"), ("other", "cpu")])
    best = of.best("known", "cpu")
    assert best is not None
    assert best.form == "rowed"
    assert of.best("another", "cpu") is None
    assert of.all() == (best,)
    assert asked == ["known", "another", "other"]  # each is asked once
    wrong = FunctionDatabase(lambda key, target: [best])
    with pytest.raises(ValueError, match="was given for"):
        wrong.all("another", "cpu")


def test_the_equality_is_recorded() -> None:
    assert record("ab12", "cpu", "{}", "f", (1.0,)).equality == "ignore-constants"
    assert record("anchor:ab12", "cpu", "{}", "f", (1.0,)).equality == "anchor"
    assert record("structural:ab12", "cpu", "{}", "f", (1.0,)).equality == "structural"
