"""Races: who touched which element, and whether anything orders them.

A `Strand` is an active parallel or vectorized loop: its iterations are unordered, so an element
written by one must not be accessed by another.

A `ThreadGrid` is an active grid of threads. The threads of a block run in *phases* separated by
barriers: earlier phases happen before later ones. Two threads that access one element in one phase
race if one of them writes. Blocks are unordered. Threads are identified by their coordinates, so
two consecutive thread loops have the same threads, ordered only within each thread.

>>> from plica.core.diagnostic import EvaluationError
>>> from plica.ir.type.dtype import i32
>>> from plica.ir.loop.tensor import buffer
>>> loop = Strand()
>>> memory = Storage.blank(buffer("x", (2,), i32), (2,), [loop])
>>> memory.store((0,), 7)
>>> loop.iteration = 1
>>> try:
...     memory.load((0,))
... except EvaluationError as error:
...     print(error.code)
data-race
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

from attrs import define, field

from plica.core import Term
from plica.ir.interpret.storage import Storage, Watcher
from plica.ir.loop.memory_scope import WARP, MemoryScope
from plica.ir.loop.scalar import Scalar
from plica.ir.loop.statement import Barrier, Stmt

_MANY: Final = -1  # read by more than one iteration
_CROWD: Final = ("many",)  # more than one thread, or more than one block
_AXES: Final = ("x", "y", "z")


@define(eq=False)
class Strand:
    """A parallel loop under way: its present iteration, and who touched what during it."""

    iteration: int = 0
    seen: dict[tuple[Storage, int], int] = field(factory=dict)
    written: dict[tuple[Storage, int], int] = field(factory=dict)

    def read(self, storage: Storage, at: int) -> None:
        """A read races with a write of another iteration."""
        key, now = (storage.root, at), self.iteration
        if self.written.get(key, now) != now:
            self.race(storage, at, self.written[key], "reads it")
        if self.seen.setdefault(key, now) != now:
            self.seen[key] = _MANY

    def write(self, storage: Storage, at: int) -> None:
        """A write races with any access of another iteration."""
        key, now = (storage.root, at), self.iteration
        for before in (self.written.get(key, now), self.seen.get(key, now)):
            if before != now:
                self.race(storage, at, before, "writes it")
        self.written[key] = now

    def doubts(self, storage: Storage, indices: Sequence[int]) -> bool:
        """Iterations are simulated in order, so an undefined read may be one that only came too
        early."""
        return False

    def race(self, storage: Storage, at: int, before: int, how: str) -> None:
        other = "others" if before == _MANY else f"iteration {before}"
        storage.refuse(
            "data-race",
            f"Iterations of a parallel loop race for an element of {str(storage.buffer.name)!r}.",
            "elements that one iteration has for itself, or that all only read",
            f"{storage.indices(at)}: iteration {self.iteration} {how}, and {other} used it before",
        )


@define(eq=False)
class _Touched:
    """The writers and readers of one element in a launch, and the times of their last accesses."""

    write_block: Any = None
    write_thread: Any = None
    write_phase: int = -1
    read_block: Any = None
    read_thread: Any = None
    read_phase: int = -1


class ThreadGrid:
    """A grid of threads under way, the coordinates of the running one, and who touched what."""

    def __init__(self) -> None:
        self.phase = 0
        self.coordinates: dict[str, int] = {}
        self.extents: dict[str, int] = {}
        self.block: Any = ()
        self.thread: Any = ()
        self.variables: dict[Term, str] = {}
        self.met: dict[str, int] = {}  # the least extent of a thread loop with a barrier inside
        self.held: set[Storage] = set()  # what was there before it
        self.instances: dict[Any, Storage] = {}
        self.turns: dict[Any, int] = {}
        self.touched: dict[tuple[Storage, int], _Touched] = {}
        self.suspect: tuple[Storage, tuple[int, ...]] | None = None

    def place(self) -> None:
        """Say who runs now, after a change of the coordinates."""
        here = self.coordinates
        self.block = tuple([here.get(f"blockIdx.{axis}") for axis in _AXES])
        self.thread = tuple([here.get(f"threadIdx.{axis}") for axis in _AXES])

    @property
    def has_threads(self) -> bool:
        """Whether some thread loop is under way."""
        return any(each is not None for each in self.thread)

    def owner(self, scope: MemoryScope) -> Any:
        """Those who have one memory of the scope together with the running thread."""
        if scope.reach == "thread":
            return self.block, self.thread
        return (self.block, self.warp) if scope.reach == "warp" else (self.block,)

    @property
    def warp(self) -> int:
        """The number of the running thread's warp in its block."""
        linear = 0
        for axis, place in zip(reversed(_AXES), reversed(self.thread), strict=True):
            linear = linear * self.extents.get(f"threadIdx.{axis}", 1) + (place or 0)
        return linear // WARP

    def instance(self, key: Any, scope: MemoryScope, like: Storage) -> Storage:
        """The running thread's memory for a buffer that lives beyond it."""
        whole = key, self.owner(scope)
        if whole not in self.instances:
            self.instances[whole] = like.fresh()
        return self.instances[whole]

    def turn(self, key: Any) -> int:
        """How often the running thread has reached this point."""
        whole = key, self.block, self.thread
        self.turns[whole] = self.turns.get(whole, 0) + 1
        return self.turns[whole]

    def read(self, storage: Storage, at: int) -> None:
        """A read races with a write that nothing orders before it."""
        if storage.private:
            return
        of = self._of(storage, at)
        if of.write_block is not None:
            if of.write_block != self.block:
                self.race(storage, at, of.write_block, of.write_thread, "reads it")
            if of.write_phase == self.phase and of.write_thread != self.thread:
                self.race(storage, at, of.write_block, of.write_thread, "reads it")
        if of.read_block is None:
            of.read_block = self.block
        elif of.read_block != self.block:
            of.read_block = _CROWD
        if of.read_phase != self.phase:
            of.read_phase, of.read_thread = self.phase, self.thread
        elif of.read_thread != self.thread:
            of.read_thread = _CROWD

    def write(self, storage: Storage, at: int) -> None:
        """A write races with any access that nothing orders before it."""
        if storage.private:
            return
        of = self._of(storage, at)
        for block, thread, phase in (
            (of.write_block, of.write_thread, of.write_phase),
            (of.read_block, of.read_thread, of.read_phase),
        ):
            if block is not None and (
                block != self.block or (phase == self.phase and thread != self.thread)
            ):
                self.race(storage, at, block, thread, "writes it")
        of.write_block, of.write_thread, of.write_phase = self.block, self.thread, self.phase

    def doubts(self, storage: Storage, indices: Sequence[int]) -> bool:
        """An undefined element may be one that a later thread of this phase writes: a race.

        Until the launch ends the first such read is remembered.
        """
        if self.suspect is None:
            self.suspect = storage, tuple(indices)
        return True

    def _of(self, storage: Storage, at: int) -> _Touched:
        key = storage.root, at
        if (touched := self.touched.get(key)) is None:
            touched = self.touched[key] = _Touched()
        return touched

    def race(self, storage: Storage, at: int, block: Any, thread: Any, how: str) -> None:
        storage.refuse(
            "data-race",
            f"Threads race for an element of {str(storage.buffer.name)!r}.",
            "a barrier between the accesses of two threads of a block, no meeting of blocks",
            f"{storage.indices(at)}: {_who(self.block, self.thread)} {how}, and "
            f"{_who(block, thread)} used it before",
        )


def _who(block: Any, thread: Any) -> str:
    parts = []
    for word, place in (("block", block), ("thread", thread)):
        if place is _CROWD:
            parts.append(f"several {word}s")
        elif any(each is not None for each in place):
            shown = ", ".join("all" if each is None else str(each) for each in place)
            parts.append(f"{word} ({shown})")
    return " ".join(parts) or "what all threads do"


class KernelRun(Protocol):
    """A run of a loop program, as those see it who run some of its loops otherwise
    (`plica.ir.interpret.thread_block`, `plica.ir.interpret.vectorised`)."""

    env: dict[Term, Any]
    watchers: list[Watcher]
    launch: ThreadGrid | None

    def steps(self, body: Stmt) -> Iterator[Barrier]: ...

    def values(self, owner: Term, scalars: tuple[Scalar, ...]) -> list[Any]: ...

    def settle(self) -> None: ...
