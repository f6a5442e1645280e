"""docs/torch.md ends with the tables of operators."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch  # it may be missing

from plica.frontend.torch.row.complex_number import COMPLEX
from plica.frontend.torch.table import TABLE
from tests.frontend.torch.case import DECOMPOSED

PAGE = Path(__file__).parents[3] / "docs" / "torch.md"
TABLES_START = "## Supported core operators"


def core() -> list[str]:
    """The operators that torch itself calls the core."""
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if space != "aten":
            continue
        operator = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
        if operator is not None and torch.Tag.core in operator.tags:
            found.append(f"{packet}.{overload or 'default'}")
    return sorted(set(found))


# Sizes are read from what torch knows of every tensor, not by a row.
SIZES = ("sym_size.int", "sym_numel.default")


def tables() -> str:
    """The lists of operators, from their first heading to the end of the page."""
    known = core()
    read = {*TABLE, *COMPLEX, *DECOMPOSED}
    have = [name for name in known if name in read or name in SIZES]
    lack = [name for name in known if name not in have]
    more = sorted(name for name in read if name not in known)
    parts = {
        f"## Supported core operators ({len(have)} of {len(known)})": have,
        f"## Supported operators beyond the core ({len(more)})": more,
        f"## Refused core operators ({len(lack)})": lack,
    }
    return "\n\n".join(f"{title}\n\n{wrapped(each)}" for title, each in parts.items()) + "\n"


def wrapped(names: list[str]) -> str:
    lines, line = [], ""
    for name in names:
        word = f"`{name.removesuffix('.default')}`"
        if len(line) + len(word) + 1 > 100:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


def test_the_page_ends_with_the_tables(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text(encoding="utf-8")
    prose, start, _ = page.partition(TABLES_START)
    assert start
    if request.config.getoption("--update-golden"):
        page = prose + tables()
        PAGE.write_text(page, encoding="utf-8")
    if f"torch {torch.__version__.partition('+')[0]}." not in page:
        pytest.skip("the page was made with another version of torch")
    assert page == prose + tables()
