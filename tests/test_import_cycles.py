"""Import cycles: no module of the package imports itself, directly or through others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
IMPORT: Final = re.compile(r"^ *from (plica[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)
"""An import: at once, in a function, or for types alone."""


def test_no_module_imports_itself_by_way_of_others() -> None:
    paths = [each for each in sorted((ROOT / "plica").rglob("*.py")) if each.stem != "__init__"]
    files = {".".join(each.relative_to(ROOT).with_suffix("").parts): each for each in paths}
    graph = {name: set(_imported(path, files)) - {name} for name, path in files.items()}
    assert sum(map(len, graph.values())) > len(graph)
    TopologicalSorter(graph).prepare()  # a CycleError lists the modules of a circle


def _imported(path: Path, files: dict[str, Path]) -> Iterator[str]:
    for module, names in IMPORT.findall(path.read_text(encoding="utf-8")):
        for name in re.findall(r"\w+", names.partition("#")[0]):
            whole = f"{module}.{name}"
            if whole in files or module in files:
                yield whole if whole in files else module
