"""The pool of workers: other processes that do a share of a compilation.

    PLICA_JOBS=4      so many processes in all; 1 for this one alone; as many as cores if not said

Workers start when there is enough to do, serve later compilations too, and end when they are not
asked for a while, when this process ends, or when a compilation is interrupted.  What comes out is
the same whoever did it.  A worker that dies is told of, and what it was doing is done here.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import Pipe, parent_process
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

from plica.codegen.workers import GroupTask
from plica.runtime.error import Diagnostic, Place, UnsupportedError, setting
from plica.runtime.host import cores
from plica.runtime.late import late

if TYPE_CHECKING:
    from plica.pipeline.progress import progress
else:
    progress = late("plica.pipeline.progress:progress")

ENOUGH: Final = 16
"""For fewer tasks no process is started: it would be ready when they are done."""

ROOMS: Final = ("plica.core.", "plica.ir.", "plica.rewrite.", "plica.schedule.", "plica.codegen.")
"""What tasks are done by."""

OPERATORS_OF_TASK: Final = 3
"""Operators that are one task, about: a convolution with what follows it."""

MOST: Final = 64
"""So many processes are started at most."""

Answer: TypeAlias = tuple[int, bytes | None]
"""The number of a task and what a worker made of it; None where it has to be done here."""


class _Worker:
    """A process, and the socket it is asked through."""

    def __init__(self) -> None:
        self.is_wanted = True
        self.line, other = Pipe()
        given = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "plica.pipeline.worker", str(other.fileno()), *_loaded()],
            env=given,
            pass_fds=(other.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is this process's to handle
        )
        other.close()

    def is_there(self) -> bool:
        return self.process.poll() is None

    def ask(self, task: GroupTask) -> bytes | None:
        """What it makes of a task; None where it refuses, has ended for want of work, or was ended
        since what it made would not be needed."""
        try:
            self.line.send((task.work, task.args))
            return self.line.recv_bytes() or None
        except (EOFError, OSError) as error:
            code = self.process.wait()
            if code == 0 or not self.is_wanted:
                return None
            raise _Died(code) from error

    def end(self) -> None:
        self.is_wanted = False
        self.line.close()
        self.process.kill()
        self.process.wait()


def _loaded() -> list[str]:
    """The modules of the compiler that are loaded here: a worker will need most of them."""
    return sorted([
        name for name, each in list(sys.modules.items())
        if name.startswith(ROOMS) and getattr(each, "__spec__", None) is not None
    ])  # fmt: skip


class _Died(ConnectionError):
    """A worker ended in the middle of its work, with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")


class WorkerPool:
    """Some workers beside this process, which does its share, too."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._workers: list[_Worker] = []
        self._busy = threading.Lock()

    def serves(self, count: int) -> bool:
        """Whether so many tasks are worth another process: one that is there, or a new one."""
        return count >= ENOUGH or (count > 1 and any(each.is_there() for each in self._workers))

    def share(
        self,
        tasks: Sequence[GroupTask],
        here: Callable[[int], None],
        there: Callable[[int, bytes], None],
    ) -> None:
        """Do all tasks, from both ends of what is left; see `plica.codegen.workers.together`."""
        with progress(len(tasks)) as done, self._taken(len(tasks)) as workers:
            left = deque(range(len(tasks)))
            answers: SimpleQueue[Answer] = SimpleQueue()
            feeders = [
                threading.Thread(target=_feed, args=(each, tasks, left, answers), daemon=True)
                for each in workers
            ]
            for each in feeders:
                each.start()
            while True:
                for number, data in _said(answers):
                    done()
                    if data is None:
                        here(number)
                    else:
                        there(number, data)
                try:
                    mine = left.popleft()
                except IndexError:
                    if not any(each.is_alive() for each in feeders) and answers.empty():
                        return
                    for each in feeders:
                        each.join(0.005)
                    continue
                here(mine)
                done()

    @contextmanager
    def _taken(self, count: int) -> Iterator[Sequence[_Worker]]:
        """The workers for so many tasks; none where there are few, or another thread has them."""
        if not self._busy.acquire(blocking=False):
            yield ()
            return
        try:
            self._start(count)
            yield self._workers if count > 1 else ()
        except BaseException:
            self.end()
            raise
        finally:
            self._busy.release()

    def expect(self, operators: int) -> None:
        """Start workers now if a module of so many operators will have enough tasks: they load the
        compiler while it becomes kernels here."""
        if operators >= ENOUGH * OPERATORS_OF_TASK and self._busy.acquire(blocking=False):
            try:
                self._start(ENOUGH)
            finally:
                self._busy.release()

    def _start(self, count: int) -> None:
        """As many workers as so many tasks are worth, besides those that are there."""
        self._workers = [each for each in self._workers if each.is_there()]
        wanted = min(self.jobs, MOST) - 1 if count >= ENOUGH else 0
        while len(self._workers) < wanted:
            self._workers.append(_Worker())

    def end(self) -> None:
        """End all workers, whatever they are doing."""
        while self._workers:
            self._workers.pop().end()


def _feed(
    worker: _Worker, tasks: Sequence[GroupTask], left: deque[int], answers: SimpleQueue[Answer]
) -> None:
    """Give a worker what is left, one by one, until nothing is."""
    while True:
        try:
            number = left.popleft()
        except IndexError:
            return
        try:
            answers.put((number, worker.ask(tasks[number])))
        except _Died as died:
            _tell(tasks[number], died)
            answers.put((number, None))
            return


def _said(answers: SimpleQueue[Answer]) -> Iterator[Answer]:
    while True:
        try:
            yield answers.get_nowait()
        except Empty:
            return


def _tell(task: GroupTask, died: _Died) -> None:
    message = f"A process that was making the kernel {task.name!r} ended; it is made here."
    hint = "Set PLICA_JOBS=1 to compile in one process."
    place = Place(node=task.name)
    told = Diagnostic("worker-died", message, place, "an answer", str(died), hint)
    warnings.warn(str(UnsupportedError(told)), RuntimeWarning, stacklevel=2)


# --- the pool of this process ---------------------------------------------------------------------

_POOLS: Final[dict[tuple[int, int], WorkerPool]] = {}
"""The pool by this process's number and how many there are to be: a fork begins with none."""


def workers() -> WorkerPool | None:
    """The workers that compilations of this process share, None where it works alone."""
    jobs = jobs_wanted()
    if jobs < 2 or sys.platform == "win32":
        return None
    key = os.getpid(), jobs
    if key not in _POOLS:
        _POOLS[key] = WorkerPool(jobs)
        atexit.register(_end, _POOLS[key], os.getpid())
    return _POOLS[key]


def _end(pool: WorkerPool, owner: int) -> None:
    """End the workers of this process; those of the one it was forked from are not its own."""
    if os.getpid() == owner:
        pool.end()


def jobs_wanted() -> int:
    """How many processes compile at once."""
    meaning = "how many processes compile at once"
    if said := setting("PLICA_JOBS", "0*[1-9][0-9]{0,5}", meaning, "1 to 999999"):
        return int(said)
    return 1 if parent_process() else cores()  # others of its kind have the other cores
