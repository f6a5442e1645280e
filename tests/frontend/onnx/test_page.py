"""docs/onnx.md ends with the tables of operators; its prose states the limits of the code."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from plica.frontend.onnx.convert import MAX_BRANCH_POINTS
from plica.frontend.onnx.expand import has_definition
from plica.frontend.onnx.fuzz.kind import KINDS
from plica.frontend.onnx.row.repeat import MOST_TURNS
from plica.frontend.onnx.table import LEARNED_REASONS, REASONS, TABLE, TABLES
from plica.frontend.recurrence import MOST_STEPS
from plica.pipeline.code_for_sizes import MAX_EXECUTABLES
from tests.frontend.onnx.conformance import recorded, table

PAGE = Path(__file__).parents[3] / "docs" / "onnx.md"
TABLES_START = "## Conformance\n"
TABLES_HEAD = """## Conformance

Of the test cases with data in onnx {version}, {right} of {cases} give the right result, {special}
of them with fixed inputs for shapes, axes or counts. All others are refused; none is wrong. All
that pass are also right when compiled by `plica.compile`.
`tests/frontend/onnx/conformance.txt` lists them, and `make conformance` runs them.

{categories}

`pytest tests/frontend/onnx/test_page.py --update-golden` updates this section and the lists below.

"""
LIMITS = (
    f"opset versions 6 to {onnx.defs.onnx_opset_version()}",
    f"at most {MOST_TURNS} known iterations",
    f"up to {MOST_STEPS} steps",
    f"up to {MAX_BRANCH_POINTS} such decisions",
    f"the {MAX_EXECUTABLES} used last",
    f"{len(KINDS)} kinds of nodes",
)
"""What the prose of the page says of the limits of the code."""


def tables() -> str:
    """The figures of conformance and the lists of operators, from their heading to the end."""
    schemas = [
        each for each in onnx.defs.get_all_schemas() if each.domain == "" and not each.deprecated
    ]
    newest = onnx.defs.onnx_opset_version()
    names = sorted(each.name for each in schemas)
    rows, added, learned = map(sorted, (TABLE, TABLES["com.microsoft"], TABLES["ai.onnx.ml"]))
    others = [name for name in names if name not in TABLE and name not in REASONS]
    defined = [name for name in others if has_definition(name, newest, "")]
    refused = [name for name in names if name not in TABLE and name not in defined]
    *rows_, whole = table(recorded().values())
    head = TABLES_HEAD.format(
        version=onnx.__version__,
        right=f"{whole[2]:,}",
        cases=f"{whole[1]:,}",
        special=whole[3],
        categories=categories([*rows_, whole]),
    )
    parts = {
        f"## Supported operators ({len(rows)})": rows,
        f"## Supported by the standard's definition ({len(defined)})": defined,
        f"## Supported operators of onnxruntime (`com.microsoft`, {len(added)})": added,
        f"## Supported operators of `ai.onnx.ml` ({len(learned)})": learned,
    }
    tables = [f"{title}\n\n{wrapped(each)}" for title, each in parts.items()]
    refused += sorted(LEARNED_REASONS)
    title = f"## Refused operators ({len(refused)})"
    return head + "\n\n".join([*tables, f"{title}\n\n{reasons(refused)}"]) + "\n"


def categories(rows: list[tuple[str, int, int, int, int]]) -> str:
    lines = [
        "| cases | all | right | of these with fixed inputs | refused |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, each))} |" for each in rows)])


def reasons(names: list[str]) -> str:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault({**REASONS, **LEARNED_REASONS}[name], []).append(f"`{name}`")
    lines = ["| reason | operators |", "|---|---|"]
    return "\n".join([*lines, *(f"| {why} | {' '.join(each)} |" for why, each in found.items())])


def wrapped(names: list[str]) -> str:
    lines, line = [], ""
    for name in names:
        word = f"`{name}`"
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
    if f"onnx {onnx.__version__}" not in page:
        pytest.skip("the page was made with another version of onnx")
    assert page == prose + tables()


@pytest.mark.parametrize("limit", LIMITS)
def test_the_page_says_the_limits_of_the_code(limit: str) -> None:
    assert limit in " ".join(PAGE.read_text(encoding="utf-8").split())


def test_every_row_is_an_operator_of_some_version() -> None:
    learned = {each.name for each in onnx.defs.get_all_schemas() if each.domain == "ai.onnx.ml"}
    assert {*TABLES["ai.onnx.ml"]} | {*LEARNED_REASONS} == learned
    known = {each.name for each in onnx.defs.get_all_schemas_with_history() if each.domain == ""}
    known |= {"SimplifiedLayerNormalization"}  # onnxruntime adds it to the standard's own domain
    assert set(TABLE) <= known


def test_a_reason_is_given_for_what_is_refused_and_for_nothing_else() -> None:
    newest = onnx.defs.onnx_opset_version()
    schemas = [each for each in onnx.defs.get_all_schemas() if each.domain == ""]
    names = {each.name for each in schemas if not each.deprecated}
    assert set(REASONS) <= names
    assert not set(REASONS) & set(TABLE)
    known = {name for name in names if name in TABLE or has_definition(name, newest, "")}
    assert names - known <= set(REASONS)
