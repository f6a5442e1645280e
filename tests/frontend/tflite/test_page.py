"""docs/tflite.md ends with the list of operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from plica.frontend.tflite.table import NAMES

PAGE = Path(__file__).parents[3] / "docs" / "tflite.md"
START = "## Supported operators"


def operators() -> str:
    """The list of operators, from its heading to the end of the page."""
    lines, line = [], ""
    for name in sorted(NAMES):
        if len(line) + len(name) + 3 > 100:
            lines.append(line)
            line = ""
        line = f"{line} `{name}`".strip()
    return f"{START} ({len(NAMES)})\n\n" + "\n".join([*lines, line]) + "\n"


def test_the_page_ends_with_the_list(request: pytest.FixtureRequest) -> None:
    prose, _, _ = PAGE.read_text(encoding="utf-8").partition(START)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(prose + operators(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == prose + operators()
