"""Values: from Python to the objects of native code, and back.

Values of data types have `index`, `name` and `fields`: those of the interpreter, or `Datum` here.

>>> from plica.runtime.element import ELEMENTS
>>> given = CallArguments((), {})
>>> given.add("x", Port("x", (), "i64", ELEMENTS["i64"].numpy), 7)
>>> block = given.block()
>>> taken([block.roots[0]], [Port("x", (), "i64", ELEMENTS["i64"].numpy)], (), None)
[array(7)]
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from plica.runtime.dynamic.form import ConstructorForm, DataForm, Form, flat
from plica.runtime.error import Diagnostic, Place
from plica.runtime.port import LINE, Array, Port

NEVER: Final = -1  # the count of an object that is not counted
SMALL: Final = 1 << 14
"""Tensors smaller than this are copied: finding an array's address takes longer."""

_PADDING: Final = (b"", *[bytes(LINE - size) for size in range(1, LINE + 1)])
"""What fills up a line, by how many bytes of it are used."""

_WORD: Final = ctypes.c_int64.from_address

Make: TypeAlias = Callable[[int, int, tuple[Any, ...]], Any]
"""Makes a value of a data type: its number, the constructor's, and the fields."""


Ways: TypeAlias = dict[tuple[int, type, object], ConstructorForm]
"""The constructors of values, by data type, class and name."""


@dataclass(frozen=True, slots=True)
class Datum:
    """A value of a data type, where no compiler is at hand to say more of it."""

    name: str
    index: int
    fields: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"{self.name}({'...' if self.fields else ''})"


@dataclass(frozen=True, slots=True)
class ObjectBlock:
    """Objects in memory: their words, the offsets of the roots, and referenced arrays."""

    words: Array
    roots: list[int]
    kept: tuple[object, ...]


class CallArguments:
    """Values given to a call, as they become objects."""

    def __init__(self, data: Sequence[DataForm], ways: Ways) -> None:
        self.data = data
        self.ways = ways  # by data type, class and name of values that were found right before
        self.words: list[int] = []
        self.wrong: list[Diagnostic] = []
        self._objects: list[int] = []  # which words are offsets of objects
        self._small: list[int] = []  # which words are offsets of small tensors
        self._bytes: list[bytes] = []
        self._size = 0
        self._kept: list[object] = []
        self._roots: list[int] = []
        self._seen: list[dict[int, int]] = [{} for _ in data]

    def add(self, name: str, form: Form, value: object) -> None:
        """Adds the objects of a parameter; errors are recorded."""
        words, seen, objects, ways = self.words, self._seen, self._objects, self.ways
        small, parts, size = self._small.append, self._bytes.append, self._size
        first = len(words)
        count = len(flat(form))
        self._roots += range(first, first + count)
        words += [0] * count
        # A value, its form, and the word that is to hold where it is.
        stack: list[tuple[Any, Any, int]] = [(value, form, first)]
        pop, push, extend = stack.pop, stack.append, words.extend
        while stack:
            each, of, at = pop()
            kind = of.__class__
            if kind is int:
                known = seen[of]
                here = id(each)
                if here in known:
                    words[at] = known[here]
                    continue
                way = ways.get((of, each.__class__, getattr(each, "name", None)))
                if way is None or each.index != way.index or len(each.fields) != len(way.fields):
                    way = self._constructor(name, of, each)
                    if way is None:
                        return
                start = len(words) + 2
                words[at] = known[here] = 8 * start - 16
                extend((NEVER, way.meta, *way.empty))
                objects += range(start, start + way.width)
                for inside, (item, offset) in zip(each.fields, way.places, strict=True):
                    if (  # a small tensor as it should be: most of what data holds
                        item.__class__ is Port
                        and (inside.__class__ is np.ndarray or inside.__class__ is item.numpy.type)
                        and inside.dtype is item.numpy
                        and inside.shape == item.shape
                        and inside.nbytes <= LINE
                    ):
                        place = len(words)
                        words[start + offset] = 8 * place
                        small(place + 2)
                        extend((NEVER, 0, size))
                        data = inside.tobytes()
                        parts(data)
                        parts(_PADDING[len(data)])
                        size += LINE if data else 0
                    else:
                        push((inside, item, start + offset))
            elif kind is tuple:
                if not isinstance(each, tuple) or len(each) != len(of):
                    found = f"a tuple of {len(each)}" if isinstance(each, tuple) else ""
                    self._mistaken(name, f"a tuple of {len(of)}", each, found)
                    return
                for inside, item in zip(each, of, strict=True):
                    push((inside, item, at))
                    at += len(flat(item))
            else:
                self._size = size
                taken = self._tensor(each, of)
                size = self._size
                if taken.__class__ is Diagnostic:
                    self.wrong.append(_within(name, of, taken))
                    return
                words[at] = taken  # type: ignore[assignment]  # it is none
        self._size = size

    def block(self) -> ObjectBlock:
        """The objects in memory."""
        whole = np.empty(len(self.words) + 1, np.int64)
        whole[:-1] = self.words
        base = _address(whole)
        whole[self._objects] += base
        data = np.empty(self._size + LINE, np.uint8)
        start = -_address(data) % LINE
        data[start : start + self._size] = np.frombuffer(b"".join(self._bytes), np.uint8)
        whole[self._small] += _address(data) + start
        roots = [base + self.words[root] for root in self._roots]
        return ObjectBlock(whole, roots, (data, *self._kept))

    def _tensor(self, value: Any, port: Port) -> int | Diagnostic:
        """A tensor: copied or referenced."""
        if not (
            value.__class__ is np.ndarray
            and value.dtype is port.numpy
            and value.shape == port.shape
            and value.nbytes < SMALL
        ) and isinstance(value := port.take(value), Diagnostic):
            return value
        words = self.words
        offset = 8 * len(words)
        if value.nbytes < SMALL:
            self._small.append(len(words) + 2)
            words += (NEVER, 0, self._size)
            data = value.tobytes()
            rest = -len(data) % LINE
            self._bytes.append(data + bytes(rest) if rest else data)
            self._size += len(data) + rest
        else:
            self._kept.append(value)
            words += (NEVER, 0, _address(value))
        return offset

    def _constructor(self, name: str, number: int, value: Any) -> ConstructorForm | None:
        """The constructor a value was made by; None, and a note, where it fits none."""
        data = self.data[number]
        index, fields = getattr(value, "index", None), getattr(value, "fields", None)
        made_by = getattr(value, "name", None)
        count = len(data.constructors)
        whole = f"a value of the data type {data.name}"
        if not isinstance(index, int) or fields.__class__ is not tuple or made_by is None:
            self._mistaken(name, whole, value)
        elif not 0 <= index < count:
            found = f"{made_by} with index {index}"
            self._mistaken(name, f"{whole}, whose indices are 0 to {count - 1}", value, found)
        elif str(made_by) != (of := data.constructors[index]).name:
            found = f"{made_by} with index {index}"
            self._mistaken(name, f"{whole}, of which {of.name} has index {index}", value, found)
        elif len(fields) != len(of.fields):
            found = f"{made_by} of {len(fields)}"
            self._mistaken(name, f"{whole}: {of.name} of {len(of.fields)} fields", value, found)
        else:
            self.ways[number, value.__class__, made_by] = of
            return of
        return None

    def _mistaken(self, name: str, expected: str, value: object, found: str = "") -> None:
        kind = found or getattr(value, "name", None) or type(value).__name__
        message = f"A part of the input {name!r} is not the value it must be."
        place = Place(node=name)
        self.wrong.append(Diagnostic("input-type", message, place, expected, str(kind)))


def _within(name: str, port: Port, wrong: Diagnostic) -> Diagnostic:
    """The diagnostic of a tensor that is part of an input."""
    if port.name == name:
        return wrong
    message = wrong.message.replace(f"Input {port.name!r}", f"A tensor in the input {name!r}", 1)
    place = Place(node=name)
    return Diagnostic(wrong.code, message, place, wrong.expected, wrong.found, wrong.suggestion)


def taken(
    roots: Sequence[int], forms: Sequence[Port | int], data: Sequence[DataForm], make: Make | None
) -> list[Any]:
    """The values of objects; `make` builds those of data types, `Datum` by default."""
    results: list[Any] = []
    seen: dict[tuple[int, int], Any] = {}
    stack: list[Any] = list(zip(reversed(roots), reversed(forms), strict=True))
    pop, push, extend = stack.pop, results.append, stack.extend
    while stack:
        address, form = pop()
        if form.__class__ is tuple:  # an object whose fields are there by now
            number, tag = form
            of = data[number].constructors[tag]
            width = of.width
            rest = tuple(results[-width:]) if width else ()
            if not of.is_flat:
                parts = iter(rest)
                rest = tuple([_nested(field, parts) for field in of.fields])
            value: Any = Datum(of.name, tag, rest) if make is None else make(number, tag, rest)
            if width:
                del results[-width:]
            push(value)
            seen[address, number] = value
        elif form.__class__ is not int:
            push(_array(_WORD(address + 16).value, form))
        elif (address, form) in seen:
            push(seen[address, form])
        else:
            tag = _WORD(address + 8).value >> 32
            of = data[form].constructors[tag]
            stack.append((address, (form, tag)))
            if of.width:
                inside = (ctypes.c_int64 * of.width).from_address(address + 16)
                extend(zip(inside[::-1], of.leaves[::-1], strict=True))
    return results


def _nested(form: Form, leaves: Any) -> Any:  # Any: an iterator over values
    """The value of a form whose tensors and data are given from left to right."""
    if isinstance(form, tuple):
        return tuple([_nested(each, leaves) for each in form])
    return next(leaves)


def _array(address: int, port: Port) -> Array:
    """A copy of a tensor."""
    size = prod(port.shape) * port.numpy.itemsize
    if 0 < size < SMALL:  # asking numpy where an array lies takes longer than copying twice
        data = bytearray(ctypes.string_at(address, size))
        return np.ndarray(port.shape, port.numpy, data)
    array = port.empty()
    if size:
        ctypes.memmove(_address(array), address, size)
    return array


def _address(array: Array) -> int:
    """Where the elements of an array begin."""
    found: int = array.__array_interface__["data"][0]
    return found
