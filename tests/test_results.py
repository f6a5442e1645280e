"""The results page holds what its raw data say."""

from __future__ import annotations

import pytest

from docs import draw_results

RUNS = draw_results.stored()


def test_the_page_is_made_of_the_raw_data() -> None:
    page = draw_results.PAGE.read_text(encoding="utf-8")
    assert set(RUNS) == set(draw_results.COMMANDS) == set(draw_results.PARTS)
    assert draw_results.written(page, RUNS) == page


@pytest.mark.parametrize("name", sorted(RUNS))
def test_a_plot_is_drawn_from_the_raw_data(name: str) -> None:
    draw, _ = draw_results.PARTS[name]
    file = draw_results.ROOT / "docs" / "picture" / f"results-{name}.svg"
    assert file.read_text(encoding="utf-8") == draw(RUNS[name])


def test_a_page_without_the_section_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"no line <!-- networks -->"):
        draw_results.written("# Results\n", {"networks": RUNS["networks"]})
