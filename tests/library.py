"""A package that is installed as long as a test runs."""

from __future__ import annotations

import sys
from importlib import invalidate_caches
from pathlib import Path

import pytest

from plica.core import extension


class Library:
    """Packages in a folder on the path, each with files and entry points."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.names = folder, set[str]()
        monkeypatch.syspath_prepend(folder)

    def install(self, package: str, points: str, version: str = "1.0", **files: str) -> None:
        """Put a package of that name there, or change it; `points` is its entry_points.txt."""
        info = self.folder / f"{package}-{version}.dist-info"
        info.mkdir(exist_ok=True)
        head = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        (info / "METADATA").write_text(head)
        (info / "entry_points.txt").write_text(points)
        for name, text in files.items():
            (self.folder / f"{name}.py").write_text(text)
            self.names.add(name)
        invalidate_caches()
        extension.refresh()

    def remove(self) -> None:
        """Forget what was imported."""
        for name in self.names:
            sys.modules.pop(name, None)
        extension.refresh()
