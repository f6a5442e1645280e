"""The documentation has short sentences and the words of the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_reference import load

ROOT = Path(__file__).parents[1]
PROSE = load("check_prose")


@pytest.mark.parametrize("page", PROSE.pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_has_short_sentences_in_words_of_the_field(page: Path) -> None:
    assert [f"{each.line}: {each.why}: {each.sentence}" for each in PROSE.findings(page)] == []


def test_long_sentences_and_foreign_words_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    long = " ".join(["word"] * (PROSE.MAX_WORDS + 1))
    page.write_text(f"# {long}\n\n| {long} |\n\nShort. {long}.\n\n- This road\n  is no house.\n")
    found = [(each.line, each.why) for each in PROSE.findings(page)]
    assert found == [(5, f"{PROSE.MAX_WORDS + 1} words"), (7, "road"), (7, "house")]


def test_code_is_not_read(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    long = " ".join(["road"] * (PROSE.MAX_WORDS + 1))
    page.write_text(f"Text `{long}` and\n\n```py\n{long}\n```\n\n- an item\n- another `house`\n")
    assert PROSE.findings(page) == []


def test_a_sentence_ends_at_its_full_stop() -> None:
    assert PROSE.sentences("See [the page](x.md). `a. b` and 1.5 are `c`, e.g. here.") == [
        "See the page.",
        "code and 1.5 are code, e.g. here.",
    ]
