"""The table of codes, suggestions, and how errors look."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from rich.console import Console

from plica.core.diagnostic import (
    CODES,
    LONGEST_EXCERPT,
    CompilerBug,
    EvaluationError,
    IllTyped,
    Malformed,
    ScriptError,
    _excerpt,
    did_you_mean,
    render,
)
from plica.runtime.error import Diagnostic, Place, PlicaError
from tests.strategies.text import texts

ROOT = Path(__file__).parents[2]
MAKERS = {"Diagnostic", "Mismatch"}
PAGE = ROOT / "docs" / "errors.md"

HEADER = """\
# Error codes

After this page you know what an error code means. `error.diagnostics` has every error of a refusal:

```py
try:
    plica.compile(model)
except plica.PlicaError as error:
    for each in error.diagnostics:
        print(each.code, each.message, each.expected, each.found, each.suggestion)
```

A diagnostic has a stable code, a sentence and a place. Where it helps, it has what was expected,
what was found, and a suggestion. `error.to_data()` returns plain data.

This table comes from `CODES` in `plica/core/diagnostic.py`:
`pytest tests/core/test_diagnostic.py --update-golden`.

| code | meaning |
| --- | --- |
"""


def shown(error: PlicaError, line: str = "") -> str:
    stream = io.StringIO()
    render(error, Console(file=stream, width=200), line_of=lambda file, number: line)
    return stream.getvalue()


def codes_in(source: str) -> Iterator[str]:
    """The literal codes given to the makers of diagnostics in a text."""
    if not any(f"{maker}(" in source for maker in MAKERS):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and _last_name(node.func) in MAKERS:
            named = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            for code in (*node.args[:1], *named):
                if isinstance(code, ast.Constant):
                    yield str(code.value)


def _last_name(function: ast.expr) -> str | None:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return None


def test_codes_are_kebab_case_and_meanings_are_sentences() -> None:
    for code, meaning in CODES.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code), code
        assert meaning[0].isupper(), code
        assert meaning.endswith("."), code


def test_every_code_in_the_source_is_in_the_table() -> None:
    sources = sorted((ROOT / "plica").rglob("*.py"))
    unknown = {
        f"{path.relative_to(ROOT)}: {code}"
        for path in sources
        for code in codes_in(path.read_text(encoding="utf-8"))
        if code not in CODES
    }
    assert sources
    assert not unknown


def test_an_unknown_code_is_caught_while_testing() -> None:
    with pytest.raises(AssertionError, match="made-up"):
        Diagnostic("made-up", "No such code.")


def test_the_page_of_errors_is_the_table(request: pytest.FixtureRequest) -> None:
    page = HEADER + "".join(f"| `{code}` | {meaning} |\n" for code, meaning in CODES.items())
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page, encoding="utf-8", newline="\n")
    assert PAGE.read_text(encoding="utf-8") == page


def test_every_kind_but_a_bug_is_a_plica_error() -> None:
    for kind in (ScriptError, IllTyped, Malformed, EvaluationError):
        assert issubclass(kind, PlicaError)
    assert not issubclass(CompilerBug, PlicaError)


def test_a_near_word_is_suggested() -> None:
    assert did_you_mean("sofmax", ["relu", "softmax"]) == "Did you mean 'softmax'?"
    assert did_you_mean("conv2d", []) is None
    assert did_you_mean("xyz", ["relu", "softmax"]) is None


@given(texts(8), st.lists(texts(8), max_size=6))
def test_suggestions_do_not_depend_on_order(word: str, candidates: list[str]) -> None:
    assert did_you_mean(word, candidates) == did_you_mean(word, candidates[::-1])


def test_rendering_shows_place_source_and_details() -> None:
    error = IllTyped(
        Diagnostic(
            "shape-conflict",
            "The operands of add do not broadcast.",
            Place("net.py", 7, 12),
            expected="(3, 4)",
            found="(3, 5)",
            suggestion="Slice it.",
        )
    )
    assert shown(error, "    return x + [bold]\n") == (
        "net.py:7:12: error: The operands of add do not broadcast. [shape-conflict]\n"
        "    return x + [bold]\n"
        "           ^\n"
        "  expected: (3, 4)\n"
        "  found: (3, 5)\n"
        "  suggestion: Slice it.\n"
    )


def test_rendering_shows_all_errors_and_notes() -> None:
    error = Malformed(
        Diagnostic("bad-json", "The text is empty."),
        Diagnostic("unknown-class", "There is no class 'Foo'.", Place(node="$.body")),
    )
    error.add_note("while reading a module")
    assert shown(error) == (
        "error: The text is empty. [bad-json]\n"
        "$.body: error: There is no class 'Foo'. [unknown-class]\n"
        "while reading a module\n"
        "2 errors\n"
    )


@given(st.integers(0, 999))
def test_of_a_long_line_only_what_is_around_the_mark_is_shown(at: int) -> None:
    line = "-" * at + "!" + "-" * (999 - at)
    shown, marked = _excerpt(
        Diagnostic("syntax", "It is wrong.", Place("a.py", 1, at + 1)), lambda *_: line
    )
    assert (shown[len(marked) - 1], marked.strip()) == ("!", "^")
    assert len(shown) <= LONGEST_EXCERPT + 1
