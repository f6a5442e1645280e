"""docs/schedule.md lists every primitive, and every key of an annotation."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest

from plica.schedule.instruction import Instruction, kinds
from plica.schedule.primitive.annotate import KEYS
from plica.schedule.python_text import form_of

PAGE = Path(__file__).parents[2] / "docs" / "schedule.md"
HEAD = "| primitive | yields | effect |\n| --- | --- | --- |\n"
TABLE = re.compile(r"^\| primitive \|.*?\n\n|^TABLE\n\n", re.DOTALL | re.MULTILINE)
GIVES = {"one": "one handle", "several": "a tuple", "any": ""}


def text_of(cls: type[Instruction], kind: str) -> str:
    """What a primitive says of itself: its class, or else the file that it has to itself."""
    own = inspect.getdoc(cls) or ""
    whole = sys.modules[cls.__module__].__doc__ or ""
    return own if "Preconditions" in own else whole.removeprefix(f"{kind}: ").rstrip()


def row(kind: str, cls: type[Instruction]) -> str:
    asked = [f"*{name}" if starred else name for name, _, starred in form_of(cls) or ()]
    about = text_of(cls, kind).split("\n")[0].replace("|", "\\|")
    about = about[:1].lower() + about[1:]
    return f"| `{kind}({', '.join(asked)})` | {GIVES[cls.gives]} | {about} |"


def test_the_page_lists_every_primitive(request: pytest.FixtureRequest) -> None:
    own = {
        kind: cls
        for kind, cls in sorted(kinds().items())
        if cls.__module__.startswith("plica.schedule.primitive.")
    }
    text = HEAD + "".join(f"{row(kind, cls)}\n" for kind, cls in own.items()) + "\n"
    page = PAGE.read_text(encoding="utf-8")
    if request.config.getoption("--update-golden"):
        page = TABLE.sub(lambda _: text, page)
        PAGE.write_text(page, encoding="utf-8")
    assert text in page


def test_the_page_lists_every_key() -> None:
    page = PAGE.read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE)
    assert listed == [(key, of.__name__) for key, of in KEYS.items()]
