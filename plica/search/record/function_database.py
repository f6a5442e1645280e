"""Databases that are functions: records made when somebody asks for a work.

    FunctionDatabase(schedule, works)      schedule(key, target) gives records, or none

`works` says what may be asked for, so that the database can be listed; what is asked for otherwise
is asked of the function as well.  What it gives is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from plica.search.record.record import Record
from plica.search.record.source import RecordSource


class FunctionDatabase(RecordSource):
    """Records by a function of the key of the work and the machine."""

    def __init__(
        self,
        schedule: Callable[[str, str], Iterable[Record]],
        works: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.works = tuple(works)

        @cache
        def asked(key: str, target: str) -> tuple[Record, ...]:
            found = tuple(schedule(key, target))
            for each in found:
                if (each.key, each.target) != (key, target):
                    raise ValueError(f"A record of {each.key} was given for {key}.")
            return found

        self._asked = asked

    def all(self, key: str | None = None, target: str | None = None) -> tuple[Record, ...]:
        if key is not None and target is not None:
            return self._asked(key, target)
        named = [
            work for work in self.works if key in (None, work[0]) and target in (None, work[1])
        ]
        return tuple([each for work in named for each in self._asked(*work)])
