"""docs/stablehlo.md ends with the tables of operations."""

from __future__ import annotations

from pathlib import Path

import pytest

from plica.frontend.stablehlo.table import CONTROL, REFUSED, TABLE
from tests.frontend.stablehlo.specification import OPERATIONS

PAGE = Path(__file__).parents[3] / "docs" / "stablehlo.md"
START = "## Operations of the specification"


def tables() -> str:
    """The lists of operations, from their first heading to the end of the page."""
    have = [name for name in OPERATIONS if name in {*TABLE, *CONTROL}]
    more = sorted(name for name in {*TABLE, *CONTROL} if name.startswith("chlo."))
    lack = "\n".join(f"| `{name}` | {REFUSED[name]} |" for name in OPERATIONS if name in REFUSED)
    return (
        f"{START} ({len(have)} of {len(OPERATIONS)})\n\n{wrapped(have)}\n\n"
        f"## Operations of CHLO\n\n{wrapped(more)}\n\n"
        f"## Refused operations\n\n| operation | why |\n| --- | --- |\n{lack}\n"
    )


def wrapped(names: list[str]) -> str:
    lines, line = [], ""
    for name in names:
        if len(line) + len(name) + 3 > 100:
            lines.append(line)
            line = ""
        line = f"{line} `{name}`".strip()
    return "\n".join([*lines, line])


def test_the_page_ends_with_the_tables(request: pytest.FixtureRequest) -> None:
    prose, _, _ = PAGE.read_text(encoding="utf-8").partition(START)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(prose + tables(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == prose + tables()
