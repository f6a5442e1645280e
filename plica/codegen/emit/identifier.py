"""Identifiers: a word of the text for each name of a term, none of them twice.

>>> names = Identifiers(frozenset({"for"}))
>>> names.of(Name("sum", 2)), names.of(Name("for")), names.of(Name("sum", 2))
('sum_2', 'for_', 'sum_2')
"""

from __future__ import annotations

import re

from plica.core import Name


class Identifiers:
    """Identifiers for names, each its own; words that are reserved are none."""

    def __init__(self, reserved: frozenset[str] = frozenset()) -> None:
        self._given: dict[object, str] = {}
        self._used: set[str] = set(reserved)

    def of(self, name: Name, key: object = None) -> str:
        """The identifier of a named object; `key` distinguishes objects with equal names."""
        if (found := self._given.get(key if key is not None else name)) is None:
            hint = re.sub(r"\W", "_", str(name), flags=re.ASCII)
            found = self.fresh(f"_{hint}" if hint[:1].isdigit() else hint or "v")
            self._given[key if key is not None else name] = found
        return found

    def fresh(self, like: str) -> str:
        """An identifier that nothing has yet."""
        found, count = like, 0
        while found in self._used:
            count += 1
            found = f"{like}_" if count == 1 else f"{like}_{count}"
        self._used.add(found)
        return found
