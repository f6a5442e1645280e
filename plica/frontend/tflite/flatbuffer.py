"""Flatbuffers: tables of fields by number, read in place.

>>> data = bytes([8, 0, 0, 0, 6, 0, 8, 0, 4, 0, 0, 0, 42, 0, 0, 0])
>>> FlatTable(data, 8, 4).number(0), FlatTable(data, 8, 4).number(1, 7)
(42, 7)
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from attrs import frozen


@frozen
class FlatTable:
    """A table at an offset of a buffer; its layout is at another, and absent fields have
    defaults."""

    data: bytes
    at: int
    layout: int

    @classmethod
    def root(cls, data: bytes, at: int = 0) -> FlatTable:
        """The table that an offset points to."""
        place = at + _read("<I", data, at)
        return cls(data, place, place - _read("<i", data, place))

    def _field(self, number: int) -> int | None:
        if 4 + 2 * number >= _read("<H", self.data, self.layout):
            return None
        offset: int = _read("<H", self.data, self.layout + 4 + 2 * number)
        return self.at + offset if offset else None

    def number(self, field: int, default: int = 0, form: str = "<i") -> int:
        """An integer; `form` is its layout for struct."""
        place = self._field(field)
        return default if place is None else int(_read(form, self.data, place))

    def real(self, field: int, default: float = 0.0) -> float:
        """A float."""
        place = self._field(field)
        return default if place is None else float(_read("<f", self.data, place))

    def byte(self, field: int, default: int = 0) -> int:
        """An integer of eight bits."""
        return self.number(field, default, "<b")

    def table(self, field: int) -> FlatTable | None:
        """A table inside, None where it is absent."""
        place = self._field(field)
        return None if place is None else FlatTable.root(self.data, place)

    def array(self, field: int, dtype: str) -> np.ndarray[Any, Any]:
        """A vector of numbers, empty where it is absent."""
        place, element = self._field(field), np.dtype(dtype)
        if place is None:
            return np.zeros(0, element)
        start = place + _read("<I", self.data, place)
        count = _read("<I", self.data, start)
        if start + 4 + count * element.itemsize > len(self.data):
            raise struct.error("a vector ends outside of the file")
        return np.frombuffer(self.data, element, count, start + 4)

    def numbers(self, field: int) -> tuple[int, ...]:
        """A vector of 32-bit integers."""
        return tuple(map(int, self.array(field, "<i4")))

    def tables(self, field: int) -> list[FlatTable]:
        """A vector of tables."""
        place = self._field(field)
        if place is None:
            return []
        start = place + _read("<I", self.data, place) + 4
        return [
            FlatTable.root(self.data, start + 4 * at) for at in range(len(self.array(field, "<u4")))
        ]

    def text(self, field: int) -> str:
        """A string."""
        return self.array(field, "u1").tobytes().decode("utf-8", "replace")


def _read(form: str, data: bytes, at: int) -> Any:  # Any: a number, as the form says
    if at < 0:
        raise struct.error("an offset points before the file")
    return struct.unpack_from(form, data, at)[0]
