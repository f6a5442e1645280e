"""Packages that extend Plica: an installed one by its name, or a folder that is not installed yet.

What a folder offers is read from the entry points of its pyproject.toml; while it is checked its
records are found as if it were installed, in the place of an installed version.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import invalidate_caches
from pathlib import Path
from typing import Any

from attrs import frozen

from plica.core.diagnostic import did_you_mean
from plica.core.extension import WHERE, ExtensionPoint, installed_points, provisionally
from plica.runtime.error import Diagnostic, Place, UnsupportedError


@frozen
class ExtensionPackage:
    """A name, a version, where it lies if it is not installed, and its entry points."""

    name: str
    version: str
    folder: Path | None
    points: tuple[ExtensionPoint, ...]

    @contextmanager
    def tried(self) -> Iterator[None]:
        """With its records found as those of installed packages are."""
        if self.folder is None:
            yield
            return
        places = [str(each) for each in (self.folder / "src", self.folder) if each.is_dir()]
        before = set(sys.modules)
        sys.path[:0] = places
        invalidate_caches()
        try:
            with provisionally(self.points):
                yield
        finally:
            for each in places:
                sys.path.remove(each)
            for name in set(sys.modules) - before:  # the next version of it is another
                where = getattr(sys.modules[name], "__file__", None) or ""
                if where.startswith(str(self.folder)):
                    del sys.modules[name]


def find_package(of: str | Path) -> ExtensionPackage:
    """A folder with a pyproject.toml, or an installed package by its name."""
    folder = Path(of)
    if (folder / "pyproject.toml").is_file():
        return _written(folder.resolve())
    points = installed_points()
    mine = tuple(each for each in points if each.package == str(of))
    if mine:
        return ExtensionPackage(mine[0].package, mine[0].version, None, mine)
    known = sorted({each.package for each in points})
    message = f"There is no package {str(of)!r} that extends Plica, and no such folder."
    hint = did_you_mean(str(of), known) or "plica new KIND NAME writes one."
    expected = f"a folder with a pyproject.toml, or one of {', '.join(known) or 'none'}"
    raise UnsupportedError(Diagnostic("unknown-extension", message, None, expected, None, hint))


def _written(folder: Path) -> ExtensionPackage:
    file = folder / "pyproject.toml"
    place = Place(file=str(file))
    try:
        project: Mapping[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        name, version = str(project["name"]), str(project.get("version", ""))
        groups = {group: dict(of) for group, of in project.get("entry-points", {}).items()}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, ValueError) as error:
        message = "The pyproject.toml cannot be read."
        told = Diagnostic("broken-extension", message, place, "[project] with a name", str(error))
        raise UnsupportedError(told) from error
    mine = {group: of for group, of in groups.items() if group.startswith("plica.")}
    wrong = [
        Diagnostic(
            "broken-extension", f"There is no group {group!r} of entry points.", place,
            ", ".join(WHERE), group, did_you_mean(group, WHERE),
        )
        for group in mine
        if group not in WHERE
    ]  # fmt: skip
    if not mine:
        message = f"The package {name} offers nothing to Plica."
        expected = f"entry points of {', '.join(WHERE)}"
        wrong.append(Diagnostic("broken-extension", message, place, expected))
    if wrong:
        raise UnsupportedError(wrong[0], *wrong[1:])
    points = tuple(
        ExtensionPoint(group, word, str(value), name, version)
        for group, of in mine.items()
        for word, value in of.items()
    )
    return ExtensionPackage(name, version, folder, points)
