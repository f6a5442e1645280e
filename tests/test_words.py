"""One meaning a class name: no two public classes of the package have the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[1] / "plica"
EXCEPTIONS: Final = frozenset[str]()
"""Names that two files may share; each needs a reason beside it."""
SCRIPTS: Final = ("ir/prelude/library.py", "_script.py")  # their classes are of the graph language


def test_a_class_name_has_one_meaning() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        if where.endswith(SCRIPTS):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(where)
    twice = {name: files for name, files in found.items() if len(files) > 1}
    assert twice.keys() <= EXCEPTIONS, twice
