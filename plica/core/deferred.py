"""Deferred bytes: the data of a constant, computed when it is first read.

An origin identifies the bytes; two deferred values of one origin are equal.  Different origins are
not compared, since that would compute the bytes: terms that hold deferred bytes are identical if
their origins are, and otherwise have equal digests if their bytes are equal.

>>> late = DeferredBytes("two spaces", 2, lambda: memoryview(b"  "))
>>> len(late), late == DeferredBytes("two spaces", 2, lambda: memoryview(b"  ")), bytes(late.read())
(2, True, b'  ')

Stored bytes of a model are identified by their digest, so compiled code can be reused for models
that differ only in bytes the compiler never read.  What it did read, and what it only asked about,
is recorded (`OBSERVED`).  Reads that only produce other deferred bytes, whose origin names their
source, are not recorded (`unobserved`).

>>> weight = StoredBytes(b"1234")
>>> with unobserved():
...     bytes(weight.read()), sorted(OBSERVED.looked_among({weight.digest}))
(b'1234', [])
>>> bytes(weight.read()), OBSERVED.looked_among({weight.digest}) == {weight.digest}
(b'1234', True)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Set
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeAlias

Asked: TypeAlias = tuple[str, tuple[str, ...]]
"""A question and the recipes of what it is asked about."""

_UNOBSERVED: Final[ContextVar[bool]] = ContextVar("unobserved", default=False)


class Observations:
    """Which stored bytes results may depend on, by their digests, and the answers to questions
    about others.

    They live as long as what caches such results.  More than `max_answers` are forgotten, and what
    they are about counts as looked at; after more than `max_looks`, everything does.

    >>> few = Observations(max_looks=2, max_answers=1)
    >>> few.answer(("is-even", ("a",)), True, frozenset("a"))
    >>> few.dependence({"a", "b"})
    (frozenset(), [('is-even', ('a',), True)])
    >>> few.answer(("is-even", ("b",)), False, frozenset("b"))
    >>> few.dependence({"a", "c"})
    (frozenset({'a'}), [])
    >>> few.look_at("d"), few.dependence({"c"})
    (None, (frozenset({'c'}), []))
    """

    def __init__(self, max_looks: int, max_answers: int) -> None:
        self.max_looks, self.max_answers = max_looks, max_answers
        self._looked: set[str] | None = set()  # None: everything
        self._answers: dict[Asked, tuple[bool, frozenset[str]]] = {}

    def look_at(self, leaves: Iterable[str]) -> None:
        """Record that a result depends on stored bytes."""
        if (looked := self._looked) is not None:
            looked.update(leaves)
            if len(looked) > self.max_looks:
                self._looked = None

    def answer(self, asked: Asked, answer: bool, leaves: frozenset[str]) -> None:
        """Record that a result depends on an answer about what is made of stored bytes."""
        self._answers[asked] = answer, leaves
        if len(self._answers) > self.max_answers:
            self.look_at([leaf for _, leaves in self._answers.values() for leaf in leaves])
            self._answers.clear()

    def looked_among(self, among: Set[str]) -> frozenset[str]:
        """Those that a result may depend on."""
        return frozenset(among if self._looked is None else among & self._looked)

    def dependence(
        self, among: Set[str]
    ) -> tuple[frozenset[str], list[tuple[str, tuple[str, ...], bool]]]:
        """Which of some tensors something may depend on, and the answers to questions about the
        others.

        An answer about something else, too, cannot be found again: it counts as looking at them.
        """
        looked = self.looked_among(among)
        answers: list[tuple[str, tuple[str, ...], bool]] = []
        for (question, recipes), (answer, leaves) in self._answers.items():
            if leaves <= among:
                answers.append((question, recipes, answer))
            else:
                looked |= leaves & among
        return looked, answers


OBSERVED: Final = Observations(max_looks=1 << 18, max_answers=1 << 14)
"""Those of this process: its caches of compiled parts end with it."""


@contextmanager
def unobserved() -> Iterator[None]:
    """Reads inside are not recorded: whatever they produce names its source."""
    token = _UNOBSERVED.set(True)
    try:
        yield
    finally:
        _UNOBSERVED.reset(token)


def look_at(leaves: Iterable[str]) -> None:
    """Record that a result depends on stored bytes, by their digests."""
    if not _UNOBSERVED.get():
        OBSERVED.look_at(leaves)


class DeferredBytes:
    """`count` bytes of an origin, computed by `make` on demand; `leaves` are the digests of the
    stored bytes that they are computed from."""

    __slots__ = ("_data", "_make", "count", "leaves", "origin")

    def __init__(
        self,
        origin: Hashable,
        count: int,
        make: Callable[[], memoryview],
        leaves: frozenset[str] = frozenset(),
    ) -> None:
        self.origin = origin
        self.count = count
        self.leaves = leaves
        self._make = make
        self._data: memoryview | None = None

    def __len__(self) -> int:
        return self.count

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeferredBytes):
            return False
        return self.origin == other.origin and self.count == other.count

    def __hash__(self) -> int:
        return hash((self.origin, self.count))

    @property
    def is_read(self) -> bool:
        """Whether they are made already."""
        return self._data is not None

    def read(self) -> memoryview:
        """The bytes; two threads at once may both compute them, with equal results."""
        look_at(self.leaves)
        if self._data is None:
            with unobserved():
                self._data = self._make()
        return self._data


class StoredBytes(DeferredBytes):
    """Bytes stored in a model; their origin is their digest."""

    __slots__ = ()

    def __init__(self, data: bytes) -> None:
        found = hashlib.sha256(data).hexdigest()
        super().__init__(found, len(data), lambda: memoryview(data), frozenset((found,)))

    @property
    def digest(self) -> str:
        """Their SHA-256."""
        (found,) = self.leaves
        return found
