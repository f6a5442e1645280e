"""One meaning a class name: no two public classes of the package have the same name."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[1] / "plica"
EXCEPTIONS: Final = frozenset[str]()
"""Names that two files may share; each needs a reason beside it."""
SCRIPTS: Final = ("ir/prelude/library.py", "_script.py")  # their classes are of the graph language


def test_a_class_name_has_one_meaning() -> None:
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        if not path.as_posix().endswith(SCRIPTS):
            text = path.read_text(encoding="utf-8")
            for name in re.findall(r"^class ([A-Za-z]\w*)", text, re.MULTILINE):
                found[name].append(path)
    homonyms = {name: files for name, files in found.items() if len(files) > 1}
    twice = {
        name: files
        for name, files in homonyms.items()
        if sum(_has(name, each) for each in files) > 1
    }
    assert twice.keys() <= EXCEPTIONS, twice


def _has(name: str, path: Path) -> bool:
    """Whether a file has the class, and not only a text in it."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return any(isinstance(node, ast.ClassDef) and node.name == name for node in body)
