"""Extensions: what installed packages add to Plica, found by entry point, the same for all groups.

A *group* (`plica.packs`, `plica.operators` …) holds records of one class by name. Plica's own
records are given by their import paths; a package adds to a group with an entry point. A record is
imported on first use, and always the current one: after a reload, the new record.

    group.points()     every name and where its record is; two packages with one name are refused
    group.load(name)   one record; a broken one is refused
    group.all()        every record that can be loaded; a broken one is reported, and skipped

>>> demo = ExtensionGroup("plica.examples", "number", int, own={"one": "sys:maxsize"})
>>> demo.load("one") > 0, list(demo.points())
(True, ['one'])
>>> demo.load("two")
Traceback (most recent call last):
plica.runtime.error.PlicaError: There is no number 'two'. [unknown-extension]
  expected: one
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import metadata
from os import stat
from pkgutil import resolve_name
from types import ModuleType
from typing import Any, Final, Generic, TypeAlias, TypeVar

from attrs import field, frozen

from plica.core.diagnostic import did_you_mean
from plica.runtime.error import Diagnostic, Place, PlicaError

T = TypeVar("T")

FAILURES: Final = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, OSError,
    PlicaError, RuntimeError, SyntaxError, TypeError, ValueError,
)  # fmt: skip
"""Exceptions that running extension code may raise."""

GROUPS: Final[dict[str, ExtensionGroup[Any]]] = {}  # Any: each holds records of its own class
"""Every group whose room has been imported."""

WHERE: Final[Mapping[str, str]] = {
    "plica.packs": "plica.rewrite.packs:PACKS",
    "plica.operators": "plica.ir.graph.operator:OPERATORS",
    "plica.passes": "plica.ir.passes:INSTALLED",
    "plica.forms": "plica.schedule.form:FORM_RULES",
    "plica.instructions": "plica.schedule.instruction:INSTRUCTIONS",
    "plica.schedule_rules": "plica.search.sketch_rule:SCHEDULE_RULES",
    "plica.cost_models": "plica.search.policy.named:COST_MODELS",
    "plica.targets": "plica.codegen.backend:TARGETS",
    "plica.accelerators": "plica.codegen.accel.target:ACCELERATORS",
    "plica.frontends": "plica.frontend.offered:FRONT_ENDS",
    "plica.commands": "plica.cli.offered:COMMANDS",
}
"""The module that declares each group."""


class SkippedExtension(UserWarning):
    """An entry point of an installed package is broken and is ignored."""


@frozen
class ExtensionPoint:
    """A name of a group, where its record is, and which package at which version says so."""

    group: str
    name: str
    value: str
    package: str
    version: str

    def __str__(self) -> str:
        return f"{self.package} {self.version}".strip()


OWNER: Final = "plica"  # the package whose entry points are known beforehand

Points: TypeAlias = tuple[ExtensionPoint, ...]

_provisional: Final[list[Points]] = []  # of packages that are tried before they are installed


@frozen(eq=False)
class ExtensionGroup(Generic[T]):
    """Records of one class, by name; `own` are Plica's own, as pyproject.toml registers them.

    `kind` is the class of the records, or a predicate. An entry point holds one record; with
    `several`, it may also hold a tuple of records or a module that defines them. `named` returns
    the name of a record, which must equal the entry point's name or start with it. `made` converts
    the entry point's object to a record (for example, a function to its result).
    """

    name: str
    noun: str
    kind: type[T] | Callable[[object], bool]
    own: Mapping[str, str] = field(factory=dict)
    named: Callable[[T], str] | None = None
    several: bool = False
    made: Callable[[Any], Any] | None = None  # Any: whatever somebody's package holds
    error: type[PlicaError] = PlicaError
    unknown: str = "unknown-extension"
    broken: str = "broken-extension"
    _held: dict[str, T] = field(factory=dict, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        GROUPS[self.name] = self

    def points(self) -> dict[str, ExtensionPoint]:
        """Every name and where its record is; none is imported by asking.

        A name that two packages declare is refused, and so is a name of Plica's own.
        """
        known = {name: self._own(name) for name in self.own}
        wrong: list[Diagnostic] = []
        for point in installed_points(self.name):
            other = known.setdefault(point.name, point)
            if other is not point and point.package != other.package:
                message = f"Two packages offer a {self.noun} {point.name!r}: {other} and {point}."
                found = f"{other.value} and {point.value}"
                hint = f"Uninstall one of them, or rename it in {point.package}."
                wrong.append(Diagnostic("name-clash", message, None, "one", found, hint))
        if wrong:
            raise self.error(wrong[0], *wrong[1:])
        return known

    def added(self) -> dict[str, ExtensionPoint]:
        """The names that other packages than Plica add."""
        return {name: point for name, point in self.points().items() if point.package != OWNER}

    def find(self, name: str) -> ExtensionPoint:
        """Where the record of a name is; a wrong name is refused with the nearest right one."""
        if name in self.own:  # the packages that are installed are not looked through for these
            return self._own(name)
        known = self.points()
        if name not in known:
            message = f"There is no {self.noun} {name!r}."
            expected, near = ", ".join(sorted(known)) or None, did_you_mean(name, known)
            raise self.error(Diagnostic(self.unknown, message, None, expected, None, near))
        return known[name]

    def load(self, name: str) -> T:
        """The record of a name; fast, because every compilation loads some of Plica's own."""
        if name not in self.own:
            return self.records(self.find(name))[0]
        if name not in self._held:
            self._held[name] = self.records(self._own(name))[0]
        return self._held[name]

    def all(self) -> tuple[T, ...]:
        """The records that other packages add, sorted by name. Duplicate names are refused. A
        broken entry point is skipped with a warning that names the package and the reason."""
        found: dict[str, tuple[ExtensionPoint, T]] = {}
        for point in sorted(self.added().values(), key=lambda each: each.name):
            try:
                records = self.records(point)
            except self.error as broken:
                if broken.code == "name-clash":
                    raise
                report(broken)
                continue
            for record in records:
                name = point.name if self.named is None else self.named(record)
                other, _ = found.setdefault(name, (point, record))
                if other is not point:
                    message = f"Two packages offer a {self.noun} {name!r}: {other} and {point}."
                    raise self.error(Diagnostic("name-clash", message))
        return tuple(each for _, each in found.values())

    def records(self, point: ExtensionPoint) -> tuple[T, ...]:
        """The records of an entry point. Objects of another class and names outside the entry
        point's name are refused."""
        try:
            held = resolve_name(point.value)
            if self.made is not None:
                held = self.made(held)
        except FAILURES as error:
            if isinstance(error, self.error) and error.code == "name-clash":
                raise
            raise self.error(self._failed(point, error)) from error
        records = self._flat(held)
        for record in records:
            if not self._holds(record):
                message = (
                    f"The entry point {point.name} of {self.name} is no {self.noun} but {record!r}."
                )
                raise self.error(Diagnostic(self.broken, message, _package(point)))
            name = point.name if self.named is None else self.named(record)
            if name != point.name and not name.startswith((f"{point.name}.", f"{point.name}-")):
                message = f"The {self.noun} {name!r} of {point} is outside of its names."
                expected = f"{point.name}, {point.name}.… or {point.name}-…"
                raise self.error(Diagnostic(self.broken, message, _package(point), expected, name))
        if not records:
            message = f"The entry point {point.name} of {self.name} holds no {self.noun}."
            raise self.error(Diagnostic(self.broken, message, _package(point), found=point.value))
        return records

    def _flat(self, held: Any) -> tuple[Any, ...]:  # Any: whatever somebody's package holds
        if self.several and isinstance(held, ModuleType):
            return tuple(dict.fromkeys(
                var for var in vars(held).values()
                if self._holds(var) and self._is_of(var, held)
            ))  # fmt: skip
        return tuple(held) if self.several and isinstance(held, tuple | list) else (held,)

    def _holds(self, each: object) -> bool:
        kind = self.kind
        return isinstance(each, kind) if isinstance(kind, type) else kind(each)

    def _is_of(self, each: Any, module: ModuleType) -> bool:  # Any: as above
        """Whether a record was made in a module, where it says so; imported ones are another's."""
        home = getattr(each, "__module__", None) if isinstance(each, type) else None
        return home is None or home == module.__name__

    def _failed(self, point: ExtensionPoint, error: BaseException) -> Diagnostic:
        message = f"The entry point {point.name} of {self.name} cannot be loaded."
        expected = f"a {self.noun} at {point.value}"
        hint = f"It is broken in {point}: install another version, or uninstall it."
        return Diagnostic(
            self.broken, message, raised_at(error) or _package(point), expected, said(error), hint
        )

    def _own(self, name: str) -> ExtensionPoint:
        return ExtensionPoint(self.name, name, self.own[name], OWNER, "")


def report(broken: PlicaError) -> None:
    """Warns once that an entry point is broken."""
    warnings.warn(str(broken), SkippedExtension, stacklevel=3)


def said(error: BaseException) -> str:
    """The message of an exception from extension code, in one line."""
    return f"{type(error).__name__}: {'; '.join(str(error).splitlines())}"


def raised_at(error: BaseException, file: str | None = None) -> Place | None:
    """The last line of extension code (or of one file) in the exception's traceback."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return Place(file=error.filename, line=error.lineno, column=error.offset)
    here = _own_folder()
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        mine = frame.filename.startswith((here, "<frozen", sys.base_prefix))
        if frame.filename == file or (file is None and not mine):
            return Place(file=frame.filename, line=frame.lineno)
    return None


@lru_cache(maxsize=1)
def _own_folder() -> str:
    return __file__.removesuffix("core/extension.py")


def _package(point: ExtensionPoint) -> Place:
    return Place(node=str(point))


def every_group() -> tuple[ExtensionGroup[Any], ...]:  # Any: as of GROUPS
    """All groups, their rooms imported."""
    return tuple(resolve_name(where) for where in WHERE.values())


def installed_points(group: str | None = None) -> Points:
    """The entry points of installed packages, Plica's own left out; of one group or of all."""
    tried = [point for points in _provisional for point in points]
    theirs = {point.package for point in tried}
    found = (*tried, *(point for point in _scanned(_stamp()) if point.package not in theirs))
    return tuple(point for point in found if group is None or point.group == group)


def _stamp() -> tuple[tuple[str, int], ...]:
    """A stamp that changes when packages are installed or removed."""
    found = []
    for path in sys.path:
        try:
            found.append((path, stat(path or ".").st_mtime_ns))
        except OSError:
            continue
    return tuple(found)


@lru_cache(maxsize=4)
def _scanned(stamp: tuple[tuple[str, int], ...]) -> Points:
    """Scanning the installed packages takes longer than compiling a small model, so the result is
    cached by stamp."""
    found: list[ExtensionPoint] = []
    seen = {OWNER}
    for dist in metadata.distributions():
        points = [
            point for point in dist.entry_points if point.group.startswith(("plica.", "plica_lm."))
        ]
        if not points or dist.name in seen:  # of two versions, the first is what is imported
            continue
        seen.add(dist.name)
        found += [ExtensionPoint(point.group, point.name, point.value, dist.name, dist.version)
                  for point in points]  # fmt: skip
    metadata.MetadataPathFinder().invalidate_caches()  # it would keep every state of every folder
    return tuple(found)


def refresh() -> None:
    """Rescans installed packages, for a package that changed in place."""
    _scanned.cache_clear()


@contextmanager
def provisionally(points: Sequence[ExtensionPoint]) -> Iterator[None]:
    """Adds entry points to those of installed packages, as `plica check` does for a pack under
    test."""
    given = tuple(points)
    _provisional.append(given)
    try:
        yield
    finally:
        _provisional.remove(given)
