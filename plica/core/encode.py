"""Encoding: any term as flat rows, and as versioned JSON.

A term becomes a list of rows, children before parents, so depth and sharing cost nothing; a row is
the class's tag and its fields, where a term is written as the number of an earlier row.

Laws: `from_json(to_json(t)) is t`; a file that is not one of ours, or newer than this version, is
`Malformed`, and nothing partial is produced.
"""

from __future__ import annotations

import base64
import json
import struct
import types
import typing
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, NoReturn, Union

from plica.core.collector import paused
from plica.core.deferred import DeferredBytes
from plica.core.diagnostic import IllFormed, Malformed
from plica.core.fold import post_order
from plica.core.name import Name
from plica.core.term import Term, TermMeta, class_of, field_names, field_types
from plica.runtime.error import Diagnostic, Place

FORMAT: Final = "plica-term"
VERSION: Final = 1
MAX_NESTED: Final = 100  # tuples in tuples of plain data
MAX_INTEGER_BITS: Final = 4096  # of an integer: Python reads no longer ones as decimal digits


class Ref(NamedTuple):
    """The term of an earlier row."""

    row: int


Row = tuple[Any, ...]  # a tag, then field values: plain data with `Ref` for terms


def to_rows(root: Term) -> tuple[Row, ...]:
    """The flat form of a term; the last row is the root."""
    number: dict[Term, Ref] = {}
    rows: list[Row] = []
    with paused():
        for node in post_order(root):
            cls = type(node)
            if cls._simple:
                values = [number[kid] for kid in node._children]
            else:
                values = [_plain(getattr(node, name), number) for name in field_names(cls)]
            number[node] = Ref(len(rows))
            rows.append((cls.tag(), *values))
    return tuple(rows)


def from_rows(rows: tuple[Row, ...]) -> Term:
    """Builds the interned term whose flat form is `rows`."""
    terms: list[Term] = []
    used: set[int] = set()
    for row, (tag, *values) in enumerate(rows):
        cls = _class(tag, row)
        fields = [_term(value, terms, used, row) for value in values]
        terms.append(_build(cls, fields, row))
    if not terms:
        _refuse("bad-json", "A term has at least one row, found none.")
    if len(used) < len(terms) - 1:  # the end is missing, or somebody added what nobody needs
        unused = next(row for row in range(len(terms)) if row not in used)
        _refuse("bad-json", f"Row {unused} is used by no later row and is not the last.", unused)
    return terms[-1]


def _class(tag: object, row: int) -> TermMeta:
    cls = class_of(tag) if isinstance(tag, str) else None
    if cls is None:
        message = f"No imported module declares the term class {_brief(tag)}."
        _refuse("unknown-class", message, row)
    return cls


def reduced(root: Term) -> tuple[Callable[..., Term], tuple[Any, ...]]:
    """The pickle reduction of a term: a constructor, the flat form, and the classes in it, so that
    pickle imports their modules."""
    classes = dict.fromkeys(type(node) for node in post_order(root))
    return unpickle, (to_rows(root), tuple(classes))


def unpickle(rows: tuple[Row, ...], classes: tuple[TermMeta, ...]) -> Term:
    """What `reduced` took apart."""
    return from_rows(rows)


def to_json(root: Term) -> str:
    """The term as versioned JSON, the same bytes in any process."""
    with paused():
        rows = [[_to_data(value) for value in row] for row in to_rows(root)]
        document = {"format": FORMAT, "version": VERSION, "rows": rows}
        return json.dumps(document, ensure_ascii=True, separators=(",", ":"))


def from_json(text: str | bytes, own: bool = False) -> Term:
    """Read what `to_json` wrote.

    What this compiler wrote itself, as a digest tells, is its `own`: rows are what they should be.
    """
    with paused():
        if own:
            found = _document(text, None)
            if isinstance(found, dict):
                return _from_own(_rows(found))
        else:
            found = _document(text, _object)
            if isinstance(found, _Object) and len({key for key, _ in found}) == len(found):
                return _from_rows(_rows(dict(found)))
    _refuse("bad-json", "Expected an object whose keys differ.")


def _document(text: str | bytes, hook: Callable[[list[tuple[str, Any]]], Any] | None) -> object:
    try:
        return json.loads(text, object_pairs_hook=hook)
    except (ValueError, RecursionError) as reason:  # no JSON, no Unicode, too long an integer
        _refuse("bad-json", f"The text is not JSON that Plica writes: {reason}.")


def _rows(found: dict[str, Any]) -> list[list[Any]]:
    """The rows of a document."""
    if found.get("format") != FORMAT:
        _refuse("bad-json", f'Expected an object with "format": "{FORMAT}".')
    version = found.get("version")
    if type(version) is not int or version < 1:
        _refuse("bad-json", f"The version must be a positive integer, found {_brief(version)}.")
    if version > VERSION:
        raise Malformed(
            Diagnostic(
                "newer-version",
                "The file was written by a newer Plica.",
                expected=f"version {VERSION} or older",
                found=f"version {version}",
                suggestion="Upgrade plica to read this file.",
            )
        )
    if unknown := found.keys() - {"format", "version", "rows"}:
        _refuse("bad-json", f"Unknown keys {', '.join(sorted(map(repr, unknown)))}.")
    rows = found.get("rows")
    if not isinstance(rows, list):
        _refuse("bad-json", "The rows must be a list.")
    for number, row in enumerate(rows):
        if not isinstance(row, list) or not row:
            _refuse("bad-json", "A row is a list that begins with a class tag.", number)
    return rows


def _from_rows(rows: list[list[Any]]) -> Term:
    return from_rows(
        tuple(tuple([_from_data(value, i) for value in row]) for i, row in enumerate(rows))
    )


def _from_own(rows: list[list[Any]]) -> Term:
    """The same without a look at what cannot be otherwise, in one go through the rows."""
    terms: list[Term] = []
    classes: dict[str, TermMeta] = {}

    def value_of(data: Any) -> Any:
        kind = data.__class__
        if kind is dict:
            if (row := data.get("t")) is not None:
                return terms[row]
            return _from_data(_Object(data.items()), len(terms))
        return tuple([value_of(item) for item in data]) if kind is list else data

    for tag, *fields in rows:
        if (cls := classes.get(tag)) is None:
            cls = classes[tag] = _class(tag, len(terms))
        terms.append(cls(*[value_of(field) for field in fields]))
    if not terms:
        _refuse("bad-json", "A term has at least one row, found none.")
    return terms[-1]


def _plain(value: Any, number: dict[Term, Ref]) -> Any:
    if isinstance(value, Term):
        return number[value]
    if type(value) is tuple:
        return tuple([_plain(item, number) for item in value])
    if isinstance(value, DeferredBytes):
        return bytes(value.read())
    return bytes(value) if type(value) is memoryview else value


def _term(value: Any, terms: list[Term], used: set[int], row: int) -> Any:
    if type(value) is Ref:
        if not 0 <= value.row < len(terms):
            message = f"Row {row} refers to row {value.row}, which does not come before it."
            _refuse("cyclic-data", message, row)
        used.add(value.row)
        return terms[value.row]
    if type(value) is tuple:
        return tuple([_term(item, terms, used, row) for item in value])
    return value


def _build(cls: TermMeta, values: list[Any], row: int) -> Term:
    if (wrong := misfit(cls, values)) is not None:
        _refuse("bad-json", wrong, row)
    try:
        return cls(*values)  # type: ignore[no-any-return]  # the metaclass returns what it builds
    except IllFormed as reason:
        message = reason.diagnostics[0].message
        _refuse("bad-json", f"{cls.__name__} refuses its fields: {message}", row)


def misfit(cls: TermMeta, values: list[Any]) -> str | None:
    """Why the values cannot be the fields of a term class as declared, or None."""
    if (checks := _check_table.get(cls)) is None:
        checks = _check_table[cls] = tuple(map(_check_of, field_types(cls)))
    if len(values) != len(checks):
        return f"{cls.__name__} has {len(checks)} fields, not {len(values)}."
    for name, value, check in zip(field_names(cls), values, checks, strict=True):
        if not check(value):
            return f"{cls.__name__}.{name} cannot be {_brief(value)}."
    return None


_check_table: Final[dict[TermMeta, tuple[Callable[[Any], bool], ...]]] = {}


def _check_of(hint: Any) -> Callable[[Any], bool]:
    """Whether plain data has the declared type; the declarations use no other type forms."""
    if hint is Any or hint is object:
        return lambda value: True
    if hint is None or hint is type(None):
        return lambda value: value is None
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        if all(isinstance(part, TermMeta) for part in inner):
            return lambda value: isinstance(value, inner)
        parts = tuple(_check_of(part) for part in inner)
        return lambda value: any(part(value) for part in parts)
    if origin is Literal:
        return lambda value: any(value == word and type(value) is type(word) for word in inner)
    if origin is tuple:
        parts = tuple(_check_of(part) for part in inner if part is not Ellipsis)
        if inner[-1:] == (Ellipsis,):
            return lambda value: type(value) is tuple and all(map(parts[0], value))
        return lambda value: (
            type(value) is tuple
            and len(value) == len(parts)
            and all(part(item) for part, item in zip(parts, value, strict=True))
        )
    if isinstance(hint, TermMeta):
        return lambda value: isinstance(value, hint)
    return lambda value: type(value) is hint


def _to_data(value: Any) -> Any:
    kind = type(value)
    if kind is Ref:
        return {"t": value.row}
    if kind is tuple:
        return [_to_data(item) for item in value]
    if kind is float:
        return {"f": struct.pack(">d", value).hex()}
    if kind is bytes:
        return {"b": base64.b64encode(value).decode()}
    if kind is Name:
        return {"n": [value.hint, value.index]}
    if kind is str:
        if not _is_text(value):
            _refuse("bad-json", f"{value!a} is no Unicode text, so JSON cannot hold it.")
    elif kind is int and value.bit_length() > MAX_INTEGER_BITS:
        _refuse("bad-json", f"An integer of {value.bit_length()} bits is too long for JSON.")
    return value


class _Object(tuple[tuple[str, Any], ...]):
    """A JSON object as it was written: a dict would lose keys that occur twice."""

    __slots__ = ()


def _object(pairs: list[tuple[str, Any]]) -> _Object | Ref:
    if len(pairs) == 1 and pairs[0][0] == "t" and type(pairs[0][1]) is int:
        return Ref(pairs[0][1])
    return _Object(pairs)


def _from_data(value: Any, row: int, depth: int = 0) -> Any:
    kind = type(value)
    if kind is list:
        if depth == MAX_NESTED:
            _refuse("bad-json", f"Lists are nested deeper than {MAX_NESTED}.", row)
        return tuple([_from_data(item, row, depth + 1) for item in value])
    if kind is float:
        _refuse("bad-json", f"Numbers with a fraction are written as bits, found {value}.", row)
    if kind is int and value.bit_length() > MAX_INTEGER_BITS:
        _refuse("bad-json", f"An integer of {value.bit_length()} bits is too long.", row)
    if kind is str and not _is_text(value):
        _refuse("bad-json", f"{value!a} is no Unicode text.", row)
    if kind is not _Object:
        return value
    match tuple(value):
        case (("f", str(digits)),) if len(digits) == 16 and _is_hex(digits):
            return struct.unpack(">d", bytes.fromhex(digits))[0]
        case (("b", str(text)),):
            try:
                return base64.b64decode(text, validate=True)
            except ValueError as reason:
                _refuse("bad-json", f"Bytes are written in base64: {reason}.", row)
        case (("n", [str(hint), index]),) if type(index) is int:
            if _is_text(hint) and index.bit_length() <= MAX_INTEGER_BITS:
                return Name(hint, index)
    _refuse("bad-json", f"{_brief(value)} is no value of a term.", row)


def _is_text(value: str) -> bool:
    """Whether the string has no lone half of a surrogate pair."""
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)


def _is_hex(digits: str) -> bool:
    return all(digit in "0123456789abcdef" for digit in digits)


def _brief(value: object) -> str:
    text = ascii(value)  # a message must be printable wherever it goes
    return text if len(text) <= 80 else text[:76] + " ..."


def _refuse(code: str, message: str, row: int | None = None) -> NoReturn:
    place = None if row is None else Place(node=f"row {row}")
    raise Malformed(Diagnostic(code, message, place=place))
