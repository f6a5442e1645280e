"""Extensions: one mechanism for all groups; broken ones are skipped, clashes are named."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from plica.core.extension import (
    GROUPS,
    WHERE,
    ExtensionGroup,
    ExtensionPoint,
    SkippedExtension,
    every_group,
    provisionally,
)
from plica.runtime.error import PlicaError
from tests.library import Library

GROUP = "plica.test_numbers"
TEXT = "ONE = 1\nTWO = (2, 22)\nWORD = 'no number'\n"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    made = Library(tmp_path, monkeypatch)
    yield made
    made.remove()


@pytest.fixture
def numbers() -> Iterator[ExtensionGroup[int]]:
    yield ExtensionGroup(GROUP, "number", int, own={"most": "sys:maxsize"}, several=True)
    del GROUPS[GROUP]


def test_records_are_found_by_name_with_their_package(
    library: Library, numbers: ExtensionGroup[int]
) -> None:
    library.install("acme", f"[{GROUP}]\none = acme_n:ONE\ntwo = acme_n:TWO\n", acme_n=TEXT)
    assert list(numbers.points()) == ["most", "one", "two"]
    assert str(numbers.points()["one"]) == "acme 1.0"
    assert numbers.load("one") == 1
    assert numbers.all() == (1, 2)  # what has no name of its own has that of its entry point
    assert set(numbers.added()) == {"one", "two"}


def test_a_new_version_and_a_reload_are_seen(
    library: Library, numbers: ExtensionGroup[int]
) -> None:
    library.install("acme", f"[{GROUP}]\none = acme_n:ONE\n", acme_n=TEXT)
    assert numbers.load("one") == 1
    library.remove()
    library.install("acme", f"[{GROUP}]\none = acme_n:ONE\n", acme_n="ONE = 100_000\n")
    assert numbers.load("one") == 100_000


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("acme_n:WORD", "is no number but 'no number'"),
        ("acme_n:NOPE", "has no attribute 'NOPE'"),
        ("not_there:ONE", "No module named 'not_there'"),
        ("acme_bad:ONE", "division by zero"),
        ("acme_odd:ONE", "SyntaxError"),
    ],
)
def test_a_broken_one_is_refused_by_name_and_skipped_among_all(
    library: Library, numbers: ExtensionGroup[int], value: str, said: str
) -> None:
    files = {"acme_n": TEXT, "acme_bad": "x = 1 / 0\n", "acme_odd": "def\n"}
    library.install("acme", f"[{GROUP}]\nbad = {value}\none = acme_n:ONE\n", **files)
    with pytest.raises(PlicaError, match="The entry point bad of") as caught:
        numbers.load("bad")
    assert caught.value.code == "broken-extension"
    assert said in str(caught.value)
    with pytest.warns(SkippedExtension, match="The entry point bad of"):
        assert numbers.all() == (1,)


def test_where_it_broke_is_said(library: Library, numbers: ExtensionGroup[int]) -> None:
    library.install("acme", f"[{GROUP}]\nbad = acme_bad:ONE\n", acme_bad="\n\nx = 1 / 0\n")
    with pytest.raises(PlicaError) as caught:
        numbers.load("bad")
    place = caught.value.diagnostics[0].place
    assert place is not None
    assert (Path(place.file or "").name, place.line) == ("acme_bad.py", 3)


def test_two_packages_with_one_name_are_refused_and_named(
    library: Library, numbers: ExtensionGroup[int]
) -> None:
    library.install("acme", f"[{GROUP}]\none = acme_n:ONE\n", acme_n=TEXT)
    library.install("other", f"[{GROUP}]\none = acme_n:TWO\n", version="2.5")
    for ask in (numbers.points, numbers.all, lambda: numbers.load("one")):
        with pytest.raises(PlicaError, match=r"acme 1\.0|other 2\.5") as caught:
            ask()
        assert caught.value.code == "name-clash"
        assert "acme 1.0" in str(caught.value)
        assert "other 2.5" in str(caught.value)


def test_a_name_of_plica_is_taken(library: Library, numbers: ExtensionGroup[int]) -> None:
    library.install("acme", f"[{GROUP}]\nmost = acme_n:ONE\n", acme_n=TEXT)
    with pytest.raises(PlicaError, match=r"'most': plica and acme 1\.0"):
        numbers.points()


def test_an_unknown_name_is_refused_with_the_nearest(numbers: ExtensionGroup[int]) -> None:
    with pytest.raises(PlicaError, match=r"There is no number 'mots'.*\n.*\n.*Did you mean 'most'"):
        numbers.load("mots")


def test_a_record_outside_of_its_names_is_refused(library: Library) -> None:
    from plica.rewrite.packs import PACKS

    pack = "from plica.rewrite import pack\nP = pack('algebra', version='9')\n"
    library.install("acme", "[plica.packs]\nacme = acme_p:P\n", acme_p=pack)
    with pytest.raises(PlicaError, match=r"'algebra' of acme 1\.0 is outside of its names"):
        PACKS.load("acme")


def test_an_empty_module_is_refused(library: Library, numbers: ExtensionGroup[int]) -> None:
    library.install("acme", f"[{GROUP}]\nnone = acme_none\n", acme_none="")
    with pytest.raises(PlicaError, match="holds no number"):
        numbers.load("none")


def test_a_package_is_tried_before_it_is_installed(
    library: Library, numbers: ExtensionGroup[int]
) -> None:
    library.install("acme", f"[{GROUP}]\none = acme_n:ONE\n", acme_n=TEXT)
    with provisionally([ExtensionPoint(GROUP, "two", "acme_n:TWO", "acme", "0")]):
        assert numbers.all() == (2,)  # in the place of what is installed
    assert numbers.all() == (1,)


def test_every_group_is_declared_where_the_table_says() -> None:
    assert [each.name for each in every_group()] == list(WHERE)
    root = Path(__file__).parents[2]
    points = tomllib.loads((root / "pyproject.toml").read_text())["project"]["entry-points"]
    assert {each for each in points if each.startswith("plica.")} <= set(WHERE)
