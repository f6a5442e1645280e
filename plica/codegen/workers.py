"""Workers: independent pieces of a compilation, some of which other processes may do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from attrs import frozen


@frozen(eq=False)
class GroupTask:
    """A piece of work: the kernel it is for, and the function and arguments that do it."""

    name: str
    work: Callable[..., bytes]
    args: tuple[Any, ...]  # Any: whatever the work takes, all of which can be sent
    then: Callable[[bytes], Following] | None = None
    """What can be done as soon as this is, with what came of it; any thread may ask."""


@frozen(eq=False)
class Following:
    """Work that follows a task, and who is told what came of it, by the thread that shares tasks;
    where it is refused nobody is."""

    task: GroupTask
    tell: Callable[[bytes], None]
    weight: int = 0
    """What grows with the time it takes: the longest is begun first, so that none ends alone."""


class Workers(Protocol):
    """Processes beside this one."""

    def expect(self, operators: int) -> None:
        """Be told that a module of a given number of operators is going to be compiled."""

    def unneeded(self) -> None:
        """Be told that what was to be compiled is there."""

    def serves(self, count: int) -> bool:
        """Whether a given number of tasks are worth another process."""

    def share(
        self,
        tasks: Sequence[GroupTask],
        here: Callable[[int], bytes | None],
        there: Callable[[int, bytes], None],
    ) -> None:
        """Do all tasks, some of them elsewhere; see `together`."""


def together(
    tasks: Sequence[GroupTask],
    here: Callable[[int], bytes | None],
    there: Callable[[int, bytes], None],
    workers: Workers | None = None,
) -> None:
    """Do all tasks: `here` does the one of that number in this process, `there` takes what another
    process made of it.  Both are called by this thread alone.  Where there are other processes,
    what follows a task is done, too, if `here` gives as bytes what was made."""
    if workers is None or not workers.serves(len(tasks)):
        for number in range(len(tasks)):
            here(number)
    else:
        workers.share(tasks, here, there)
