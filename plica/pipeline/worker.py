"""A worker process that runs parts of compilations for another process until it becomes idle."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from time import monotonic
from typing import Any, Final, TypeAlias

from plica.analysis.statement import LoweringRefused
from plica.core import CompilerBug
from plica.core.collector import paused
from plica.runtime.error import PlicaError
from plica.runtime.late import load_all

IDLE_SECONDS = 20.0  # a worker that is not asked for so long ends
TASKS: Final = ("plica.codegen.lower.group", "plica.codegen.backend")  # what most tasks are done by
LATER: Final = ("plica.schedule.primitive", "plica.codegen.lower.passes")
"""What imports when it is used what nearly every task uses."""

Wish: TypeAlias = str | tuple[str, ...] | int | None
"""A request to the forking process: load a backend by name, load modules, report the exit code of a
worker, or (None) fork a worker."""


def serve(handle: int) -> None:
    """Loads modules and forks workers, each with the socket that follows the request; reports exit
    codes."""
    asker = Connection(handle)
    workers: list[int] = []
    codes: dict[int, int] = {}
    while asker.poll(IDLE_SECONDS) or _ended(workers, codes) < len(workers):
        if not asker.poll():
            continue
        try:
            wish: Wish = asker.recv()
            if isinstance(wish, int):
                asker.send(_code(workers[wish], codes))
            elif wish is not None:
                _load(wish)
            else:
                workers.append(_forked(asker))
        except (EOFError, OSError):
            return  # nobody is there any more


def _load(wish: str | tuple[str, ...]) -> None:
    """Load modules, or what tasks for a backend are done by, with the tools it needs."""
    with paused():
        for each in TASKS if isinstance(wish, str) else wish:
            import_module(each)
        if isinstance(wish, str):
            for each in LATER:
                load_all(each)
            backends = import_module("plica.codegen.backend")
            if wish in backends.OWN:
                backends.backend_named(wish).facts()
    gc.freeze()  # what workers share is not written to by a collection


def _forked(asker: Connection) -> int:
    """Forks a worker that serves the other end of the socket; returns its process id."""
    line = recv_handle(asker)
    if (number := os.fork()) == 0:
        asker.close()
        _work_and_end(line)
    os.close(line)
    return number


def _ended(workers: Sequence[int], codes: dict[int, int]) -> int:
    """The number of workers that have ended; adds their exit codes to `codes`."""
    for worker in workers:
        if worker not in codes:
            number, status = os.waitpid(worker, os.WNOHANG)
            if number == worker:
                codes[worker] = os.waitstatus_to_exitcode(status)
    return len(codes)


def _code(number: int, codes: dict[int, int]) -> int:
    """The exit code of a worker that ends."""
    if number not in codes:
        codes[number] = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    return codes[number]


def _work_and_end(handle: int) -> None:
    """Runs a worker and exits without the parent's exit handlers."""
    code = 1
    try:
        work(handle)
        code = 0
    finally:
        os._exit(code)


def work(handle: int) -> None:
    """Answers the tasks that arrive through a socket; refusals are left to the requester."""
    asker = Connection(handle)
    while asker.poll(IDLE_SECONDS):
        try:
            function, args = asker.recv()
        except EOFError:
            return  # nobody is there any more
        try:
            with paused():  # nothing the compiler makes is cyclic
                answer: bytes | None = function(*args)
        except (PlicaError, LoweringRefused, CompilerBug):
            answer = None
        asker.send_bytes(b"" if answer is None else answer)


if __name__ == "__main__":
    serve(int(sys.argv[1]))


# --- a progress bar for long work, shown only on terminals -------------------------------------


PATIENCE_SECONDS: Final = 2.0  # shorter work shows no bar


@contextmanager
def progress(total: int) -> Iterator[Callable[[], None]]:
    """Yields a function to call after each of `total` kernels."""
    if not sys.stderr.isatty() or find_spec("rich") is None:
        yield lambda: None
        return
    began, made = monotonic(), 0
    bar: Any = None  # Any: rich is imported where it is used

    def done() -> None:
        nonlocal bar, made
        made += 1
        if bar is None and monotonic() - began > PATIENCE_SECONDS:
            bar = _bar()
            bar.start()
            bar.add_task("kernels", total=total)
        if bar is not None:
            bar.update(bar.task_ids[0], completed=made)

    try:
        yield done
    finally:
        if bar is not None:
            bar.stop()


def _bar() -> Any:  # as above
    from rich.console import Console
    from rich.progress import Progress

    return Progress(console=Console(stderr=True), transient=True)
