"""Packages that extend Plica, installed or a folder, and what a check can say of their records.

>>> print(ExtensionVerdict("plica.passes", "acme-tidy", "untested", "it changed no program"))
plica.passes  acme-tidy: untested, it changed no program
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeAlias

from attrs import asdict, frozen

from plica.core import did_you_mean
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
            for place in places:
                sys.path.remove(place)
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
    if mine := tuple(point for point in points if point.package == str(of)):
        return ExtensionPackage(mine[0].package, mine[0].version, None, mine)
    raise UnsupportedError(_no_package(str(of), sorted({point.package for point in points})))


def _no_package(given: str, known: Sequence[str]) -> Diagnostic:
    """What is there instead of a package that extends Plica."""
    path, place = Path(given), Place(file=given)
    code, expected = "unknown-extension", "a folder with a pyproject.toml"
    hint: str | None = "plica new KIND NAME writes one."
    if path.is_dir():
        message = "The folder is not a package: it has no pyproject.toml."
        return Diagnostic(code, message, place, expected, None, hint)
    if path.is_file():
        message = "This is a file, not a package."
        is_python = path.suffix == ".py"
        hint = "plica rules check FILE.py checks the rules of a file." if is_python else None
        return Diagnostic(code, message, place, expected, None, hint)
    if os.sep in given or given.startswith("."):
        return Diagnostic(code, "There is no such folder.", place, expected, None, hint)
    if given.isidentifier() and find_spec(given) is not None:
        message = f"The package {given} is installed, but has no entry points for Plica."
        expected = "entry points of a group of Plica, as plica.packs"
        return Diagnostic(code, message, None, expected, None, "docs/extend.md lists them.")
    message = f"There is no installed package and no folder {given!r}."
    if known:
        expected = f"{', '.join(known)}, or {expected}"
    return Diagnostic(code, message, None, expected, None, did_you_mean(given, known) or hint)


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
        message = f"The package {name} has no entry points for Plica."
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


# --- verdicts -------------------------------------------------------------------------------------

Word: TypeAlias = Literal["proved", "tested", "untested", "refuted", "broken"]


@frozen
class ExtensionVerdict:
    """A record of a group, what is known of it and why; a smallest example where it is wrong."""

    group: str
    name: str
    word: Word
    why: str = ""
    example: str = ""

    @property
    def good(self) -> bool:
        """Whether something speaks for it and nothing against it."""
        return self.word in ("proved", "tested")

    def to_data(self) -> dict[str, Any]:
        return {**asdict(self), "good": self.good}

    def __str__(self) -> str:
        return f"{self.group}  {self.name}: {self.word}" + (f", {self.why}" if self.why else "")
