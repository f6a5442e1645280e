"""The pool of workers: other processes that do a share of a compilation.

    PLICA_JOBS=4      processes in all; 1 for this one alone; as many as cores if not said

Workers start when there is enough work, serve later compilations, and end when they are idle, when
this process ends, or when a compilation is interrupted. The result does not depend on who computes
it. If a worker dies, a warning says so and its task runs here.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from heapq import heappop, heappush
from multiprocessing import Pipe, parent_process
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from queue import Empty, SimpleQueue
from typing import Final, TypeAlias

from plica.analysis.statement import LoweringRefused
from plica.codegen.workers import Following, GroupTask
from plica.core import post_order
from plica.ir.graph import Apply, Module
from plica.runtime.error import Diagnostic, Place, PlicaError, UnsupportedError, setting
from plica.runtime.host import cores
from plica.runtime.late import lazy_imports, python_here

with lazy_imports(__name__):
    from plica.pipeline.worker import progress

MIN_TASKS: Final = 16  # for fewer tasks no process is started: it would be ready when they are done

COMPILER_PACKAGES: Final = (
    "plica.core.",
    "plica.ir.",
    "plica.rewrite.",
    "plica.schedule.",
    "plica.codegen.",
)
"""The modules that run tasks."""

OPERATORS_OF_TASK: Final = 3
"""The approximate number of operators per task: a convolution with its epilogue."""

MAX_WORKERS: Final = 64  # this many processes are started at most

Item: TypeAlias = "int | Following"  # the number of a task, or what follows one

Answer: TypeAlias = "tuple[Item, bytes | None]"
"""A task and a worker's answer; None if it must run here."""


class _Server:
    """The process that forks workers: it loads the compiler once for all of them."""

    def __init__(self) -> None:
        self._line, other = Pipe()
        self._asking = threading.Lock()
        self._count = 0
        command, given = python_here("-m", "plica.pipeline.worker", str(other.fileno()))
        self.process = subprocess.Popen(
            command,
            env=given,
            pass_fds=(other.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is this process's to handle, and its workers' group
        )
        other.close()

    def is_there(self) -> bool:
        return self.process.poll() is None

    def load(self, wish: str | tuple[str, ...]) -> None:
        """Let it load the backend of a name, or modules, before it forks."""
        with suppress(OSError):  # it has ended, which who asks a worker is told
            self._line.send(wish)

    def fork(self) -> _Worker:
        """Another worker, as soon as all is loaded."""
        line, other = Pipe()
        with suppress(OSError):  # as above
            self._line.send(None)
            send_handle(self._line, other.fileno(), self.process.pid)
        other.close()
        self._count += 1
        return _Worker(self, self._count - 1, line)

    def code_of(self, number: int) -> int:
        """The exit code of a worker that ends; its own where it has ended itself."""
        with self._asking:
            try:
                self._line.send(number)
                return int(self._line.recv())
            except (EOFError, OSError):
                return self.process.wait()

    def end(self) -> None:
        """End it and all workers, whatever they are doing."""
        self._line.close()
        if self.is_there():  # as long as nobody has waited for it, the group is its own
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class _Worker:
    """A worker process and its socket."""

    def __init__(self, server: _Server, number: int, line: Connection) -> None:
        self._server, self._number, self._line = server, number, line
        self.is_wanted = True

    def is_there(self) -> bool:
        """Whether it waits for tasks: one that has ended has closed its end."""
        return not self._line.closed and not self._line.poll()

    def ask(self, task: GroupTask) -> bytes | None:
        """The worker's answer to a task; None if it refuses, has exited as idle, or was terminated
        because the result was no longer needed."""
        try:
            self._line.send((task.work, task.args))
            return self._line.recv_bytes() or None
        except (EOFError, OSError) as error:
            if not self.is_wanted:
                return None  # `end` closes the socket: its number may be another file's by now
            self._line.close()
            if (code := self._server.code_of(self._number)) == 0:
                return None
            raise _Died(code) from error

    def end(self) -> None:
        self.is_wanted = False
        self._line.close()


def _loaded() -> tuple[str, ...]:
    """The modules of the compiler that are loaded here: a worker will need most of them."""
    return tuple(sorted([
        name for name, each in list(sys.modules.items())
        if name.startswith(COMPILER_PACKAGES) and getattr(each, "__spec__", None) is not None
    ]))  # fmt: skip


class _Died(ConnectionError):
    """A worker ended in the middle of its work, with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")


class WorkerPool:
    """Worker processes that share tasks with this process."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._server: _Server | None = None
        self._workers: list[_Worker] = []
        self._busy = threading.Lock()

    def serves(self, count: int) -> bool:
        """Whether a number of tasks justifies another process, running or new."""
        return count >= MIN_TASKS or (count > 1 and any(each.is_there() for each in self._workers))

    def share(
        self,
        tasks: Sequence[GroupTask],
        here: Callable[[int], bytes | None],
        there: Callable[[int, bytes], None],
    ) -> None:
        """Do all tasks and what follows them; see `plica.codegen.workers.together`."""
        with progress(len(tasks)) as done, self._taken(len(tasks)) as workers:
            line = _Line(tasks, follows=bool(workers))

            def take(item: Item, data: bytes | None) -> None:
                if not isinstance(item, Following):
                    if data is None:
                        line.follow(item, here(item))
                    else:
                        there(item, data)
                    done()
                elif data is not None:
                    item.tell(data)
                line.finish()

            for worker in workers:
                threading.Thread(target=_feed, args=(worker, line), daemon=True).start()
            try:
                while not line.is_done():
                    if (answer := line.answered()) is not None:
                        take(*answer)
                    elif (item := line.taken()) is not None:
                        take(item, _tried(item.task) if isinstance(item, Following) else None)
                    else:
                        take(*line.awaited_answer())
            finally:
                line.close()

    @contextmanager
    def _taken(self, count: int) -> Iterator[Sequence[_Worker]]:
        """The workers for a number of tasks; none if there are few tasks or another thread holds
        the workers."""
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

    def begin(self, backend: str) -> None:
        """Let the process that forks load the compiler now: this one loads it, too, meanwhile."""
        if self._busy.acquire(blocking=False):
            try:
                self._forking().load(backend)
            finally:
                self._busy.release()

    def unneeded(self) -> None:
        """Nothing is to be made after all: end the process that forks if it has not done so."""
        if self._busy.acquire(blocking=False):
            try:
                if not self._workers:
                    self.end()
            finally:
                self._busy.release()

    def expect(self, operators: int) -> None:
        """Starts workers now if a module with this many operators will have enough tasks, so that
        they are ready after grouping."""
        if operators >= MIN_TASKS * OPERATORS_OF_TASK and self._busy.acquire(blocking=False):
            try:
                self._start(MIN_TASKS)
            finally:
                self._busy.release()

    def _start(self, count: int) -> None:
        """Starts the additional workers that a number of tasks justifies."""
        self._workers = [worker for worker in self._workers if worker.is_there()]
        wanted = min(self.jobs, MAX_WORKERS) - 1 if count >= MIN_TASKS else 0
        if len(self._workers) < wanted:
            server = self._forking()
            server.load(_loaded())
            self._workers += [server.fork() for _ in range(wanted - len(self._workers))]

    def _forking(self) -> _Server:
        """The process that forks; a new one where it has ended."""
        if self._server is None or not self._server.is_there():
            self._server = _Server()
        return self._server

    def end(self) -> None:
        """End all workers, whatever they are doing."""
        for worker in self._workers:
            worker.end()
        self._workers = []
        if self._server is not None:
            self._server.end()
            self._server = None


class _Line:
    """A queue of tasks, longest first, with the tasks that depend on them, and the answers."""

    def __init__(self, tasks: Sequence[GroupTask], *, follows: bool) -> None:
        self._tasks = tasks
        self._follows = follows  # whether what follows tasks is done at once
        self._left = deque(range(len(tasks)))
        self._behind: list[tuple[int, int, Following]] = []  # a heap, by weight and when it came
        self._came = 0
        self._open = len(tasks)  # what is in line or under way
        self._changed = threading.Condition()
        self._answers: SimpleQueue[Answer] = SimpleQueue()

    def is_done(self) -> bool:
        return self._open == 0

    def task(self, item: Item) -> GroupTask:
        return item.task if isinstance(item, Following) else self._tasks[item]

    def taken(self) -> Item | None:
        """The first queued task, or None if the queue is empty now."""
        with self._changed:
            return self._first()

    def awaited(self) -> Item | None:
        """The next task, waiting for one; None if no more will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._left or self._behind or self.is_done())
            return self._first()

    def _first(self) -> Item | None:
        if self._left:
            return self._left.popleft()
        return heappop(self._behind)[-1] if self._behind else None

    def follow(self, item: Item, data: bytes | None) -> None:
        """Queues the tasks that follow from an answer."""
        then = self.task(item).then
        with self._changed:
            if self._follows and then is not None and data is not None:
                following = then(data)
                heappush(self._behind, (-following.weight, self._came, following))
                self._came += 1
                self._open += 1
                self._changed.notify()

    def say(self, item: Item, data: bytes | None) -> None:
        """Records an answer and queues its follow-up tasks."""
        self.follow(item, data)
        self._answers.put((item, data))

    def answered(self) -> Answer | None:
        """The next answer, or None if there is none yet."""
        try:
            return self._answers.get_nowait()
        except Empty:
            return None

    def awaited_answer(self) -> Answer:
        """The next answer of the tasks in progress, waiting for it."""
        return self._answers.get()

    def finish(self) -> None:
        """Something is done, here or there."""
        with self._changed:
            self._open -= 1
            if self.is_done():
                self._changed.notify_all()

    def close(self) -> None:
        """Wakes all waiting threads."""
        with self._changed:
            self._follows = False
            self._left.clear()
            self._behind.clear()
            self._open = 0
            self._changed.notify_all()


def _tried(task: GroupTask) -> bytes | None:
    """The answer to a follow-up task; None if it is empty or refused: the consumer finds out."""
    try:
        return task.work(*task.args) or None
    except (PlicaError, LoweringRefused):
        return None


def _feed(worker: _Worker, line: _Line) -> None:
    """Feeds queued tasks to a worker until the queue closes."""
    while (item := line.awaited()) is not None:
        task = line.task(item)
        try:
            line.say(item, worker.ask(task))
        except _Died as died:
            _tell(task, died)
            line.say(item, None)
            return


def _tell(task: GroupTask, died: _Died) -> None:
    message = f"A process that was making the kernel {task.name!r} ended; it is made here."
    hint = "Set PLICA_JOBS=1 to compile in one process."
    place = Place(node=task.name)
    told = Diagnostic("worker-died", message, place, "an answer", str(died), hint)
    warnings.warn(str(UnsupportedError(told)), RuntimeWarning, stacklevel=2)


# --- the pool of this process ---------------------------------------------------------------------

_POOLS: Final[dict[tuple[int, int], WorkerPool]] = {}
"""Pools by process id and size: a forked process starts without one."""


def workers() -> WorkerPool | None:
    """The workers shared by compilations of this process, or None if it works alone."""
    jobs = jobs_wanted()
    if jobs < 2 or sys.platform == "win32":
        return None
    key = os.getpid(), jobs
    if key not in _POOLS:
        _POOLS[key] = WorkerPool(jobs)
        atexit.register(_end, _POOLS[key], os.getpid())
    return _POOLS[key]


def begin(mod: object, target: object) -> None:
    """Let the process that forks load the compiler, if a model will have enough tasks."""
    operators = operators_of(mod)
    if operators >= MIN_TASKS * OPERATORS_OF_TASK and (pool := workers()) is not None:
        word = target if isinstance(target, str) else getattr(target, "backend", "")
        pool.begin(str(word).partition(":")[0])


def operators_of(mod: object) -> int:
    """How many operators a model has: a module, or what torch or ONNX have of one; 0 of others."""
    if isinstance(mod, Module):
        return sum(isinstance(term, Apply) for term in post_order(mod))
    graph = getattr(mod, "graph", None)
    return len(getattr(graph, "nodes", getattr(graph, "node", ())))


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
