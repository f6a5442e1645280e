"""Typed JSON: records as plain data, and read back by the types of their fields.

    record                 [field, …], after its WORD if it has one
    KEYED record           {"name": field, …}
    tuple[T, ...]          [T, …]
    A | B                  what the first of them reads that can
    Annotated[T, values]   a T that is one of the values, as `range(0, 8)`
    Annotated[T, reader]   what the function makes of the data

A field with the metadata `OPTIONAL` is not written where it is the default, one that is `DERIVED`
from others never.  Nothing that is read
is believed: what is of another type, or a record that says of itself that it is not `is_possible`,
is refused in the words of the innermost record, `DAMAGED`.

Law: `read(type(of), plain(of)) == of`.

>>> @dataclass(frozen=True)
... class Copy:
...     WORD: ClassVar = "copy"
...     DAMAGED: ClassVar = "A copy is damaged."
...     source: int
...     target: Annotated[int, range(0, 8)]
>>> plain(Copy(0, 1)), read(Copy, ["copy", 0, 1])
(['copy', 0, 1], Copy(source=0, target=1))
>>> read(Copy, ["copy", 0, 9])  # doctest: +ELLIPSIS
Traceback (most recent call last):
plica.runtime.error.ArtefactError: A copy is damaged. [bad-artefact]
  ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from types import MappingProxyType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)  # fmt: skip

from plica.runtime.error import damaged

__all__ = ["DERIVED", "OPTIONAL", "Annotated", "ClassVar", "dataclass", "plain", "read"]

T = TypeVar("T")
Read = Callable[[object], Any]  # Any: what the type says

OPTIONAL: Final = MappingProxyType({"optional": True})
DERIVED: Final = MappingProxyType({"derived": True})


class _WrongType(Exception):
    """The data is not of the type that is read: the innermost record that it stands in."""

    def __init__(self, message: str = "", given: object = None, depth: int = 0) -> None:
        self.message, self.given, self.depth = message, given, depth

    def inside(self, message: str, given: object) -> _WrongType:
        """The same, said of the record around it unless one inside was named."""
        told = (self.message, self.given) if self.message else (message, given)
        return _WrongType(*told, self.depth + 1)


def plain(of: object) -> Any:  # Any: JSON
    """A record, or a tuple, as plain data."""
    if isinstance(of, tuple | list):
        return [plain(item) for item in of]
    if not is_dataclass(of):
        return of
    kind = type(of)
    written = {
        field.name: plain(getattr(of, field.name))
        for field in fields(of)
        if not field.metadata
        or ("optional" in field.metadata and getattr(of, field.name) != field.default)
    }
    return written if hasattr(kind, "KEYED") else [*_word(kind), *written.values()]


def read(kind: type[T], given: object) -> T:
    """The record of a type that was written down."""
    try:
        found: T = _reader(kind)(given)
        return found
    except _WrongType as wrong:
        raise damaged(wrong.message, repr(wrong.given)[:200]) from None
    except RecursionError:
        raise damaged("The artefact is damaged: it is nested too deep.") from None


def _word(kind: Any) -> list[str]:  # Any: the class of a record
    return [kind.WORD] if hasattr(kind, "WORD") else []


def _reader(kind: Any) -> Read:  # Any: a type
    """What reads values of a type."""
    arguments, origin = get_args(kind), get_origin(kind)
    if is_dataclass(kind):
        return partial(_record, kind)
    if origin is Annotated:
        base, *values = arguments
        if callable(values[0]):
            own: Read = values[0]
            return own
        return partial(_one_of, _reader(base), values)
    if origin is Literal:
        return partial(_one_of, lambda given: given, [arguments])
    if origin in (Union, UnionType):
        return partial(_any_of, [_reader(each) for each in arguments])
    if origin is tuple and arguments[1:] == (...,):
        return partial(_all, _reader(arguments[0]))
    if origin is tuple:
        return partial(_each, [_reader(each) for each in arguments])
    return partial(_plain, kind)


def _plain(kind: type, given: object) -> object:
    if type(given) is not kind:
        raise _WrongType
    return given


def _one_of(base: Read, values: list[Any], given: object) -> Any:
    found = base(given)
    if not all(found in some for some in values):
        raise _WrongType
    return found


def _any_of(readers: list[Read], given: object) -> Any:
    wrong: list[_WrongType] = []
    try:
        for each in readers:
            try:
                return each(given)
            except _WrongType as error:
                wrong.append(error)
        raise max(wrong, key=lambda error: error.depth)
    finally:
        wrong.clear()  # errors hold the frames around them, and all that those hold


def _all(item: Read, given: object) -> tuple[Any, ...]:
    if not isinstance(given, list):
        raise _WrongType
    return tuple([item(each) for each in given])


def _each(items: list[Read], given: object) -> tuple[Any, ...]:
    if not isinstance(given, list) or len(given) != len(items):
        raise _WrongType
    return tuple([item(each) for item, each in zip(items, given, strict=True)])


@cache
def _fields(kind: Any) -> dict[str, Read]:  # Any: the class of a record
    """What reads each field: found when it is first needed, since a record may hold its like."""
    types = get_type_hints(kind, include_extras=True)
    return {field.name: _reader(types[field.name]) for field in fields(kind)}


def _record(kind: Any, given: object) -> Any:  # Any: the class of a record, and one
    message, readers, word = getattr(kind, "DAMAGED", ""), _fields(kind), _word(kind)
    found: dict[str, object] = {}
    if hasattr(kind, "KEYED"):
        found = {name: given[name] for name in readers if isinstance(given, dict) and name in given}
    elif isinstance(given, list) and given[: len(word)] == word:
        values = given[len(word) :]
        found = dict(zip(readers, values, strict=False)) if len(values) <= len(readers) else {}
    if any(field.name not in found and not field.metadata for field in fields(kind)):
        raise _WrongType(message, given)
    try:
        made = kind(**{name: readers[name](value) for name, value in found.items()})
    except _WrongType as wrong:
        raise wrong.inside(message, given) from None
    if not getattr(made, "is_possible", True):
        raise _WrongType(message, given)
    return made
