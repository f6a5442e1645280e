"""Jobs: shares of fuzzing in separate processes, for a given time and number of cores."""

from __future__ import annotations

import argparse
import faulthandler
import math
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Final

import attrs

from plica.cli.fuzz.corpus import rerun
from plica.rewrite.fuzz.report import Finding, FuzzReport
from plica.runtime.late import late

HUNG_SECONDS: Final = 240.0  # the seconds after which a case, including shrinking, counts as hung
END_SECONDS: Final = 10.0  # how long a process may take to end by itself
GRACE_SECONDS: Final = 20.0  # for which shares under way are waited for when time is up
MAX_MEMORY_KB: Final = 3 << 20  # the kilobytes after which a process is replaced


@attrs.frozen(eq=False)
class FuzzTask:
    """A share to run: of which kind, with which options, from which number on."""

    kind: str
    arguments: argparse.Namespace
    words: tuple[str, ...]  # the options as typed
    first: int
    examples: int

    def command(self, case: int) -> list[str]:
        """What runs one case again."""
        return ["fuzz", self.kind, *self.words, "--first", str(case), "--examples", "1"]


Done = Callable[[FuzzTask, FuzzReport[Finding]], bool]
"""Called with a task's report; returns whether to continue."""


def work_through(tasks: Iterator[FuzzTask], jobs: int, seconds: float | None, done: Done) -> None:
    """Runs tasks in a number of processes until there are none, time is up or `done` says so."""
    ends = None if seconds is None else time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="plica-fuzz-") as folder:
        crew = [_Worker(Path(folder) / f"{number}.txt") for number in range(jobs)]
        try:
            _work(crew, tasks, ends, done)
        finally:
            for worker in crew:
                worker.end()


def _work(crew: list[_Worker], tasks: Iterator[FuzzTask], ends: float | None, done: Done) -> None:
    going = True
    while True:
        now = time.monotonic()
        going = going and (ends is None or now < ends)
        for each in crew:
            task = next(tasks, None) if going and each.task is None else None
            if task is not None:
                each.give(task)
        busy = {each.pipe: each for each in crew if each.task is not None}
        if not busy or (ends is not None and now > ends + GRACE_SECONDS):
            return
        for pipe in wait(list(busy), timeout=1.0):
            assert isinstance(pipe, Connection)
            worker, task = busy[pipe], busy[pipe].task
            assert task is not None
            if (share := worker.heard()) is not None:
                going = done(task, share) and going
        for each in busy.values():
            if each.task is not None and time.monotonic() - each.since > HUNG_SECONDS:
                going = done(each.task, each.lost("hangs", "It does not come to an end.")) and going


class _Worker:
    """A process, and the task that it is at."""

    def __init__(self, said: Path) -> None:
        self.said = said
        self.task: FuzzTask | None = None
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, str(self.said)), daemon=False)
        self._process.start()
        self._busy = False
        theirs.close()

    def give(self, task: FuzzTask) -> None:
        # Time is counted from its first case on: the process may have to start.
        self.task, self.at, self.since = task, task.first, math.inf
        self._busy = True
        self.pipe.send(task)

    def heard(self) -> FuzzReport[Finding] | None:
        """The task's report, or None while it is running."""
        try:
            said = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            lines = self.said.read_text(errors="replace").strip() if self.said.exists() else ""
            return self.lost(f"ends with {self._process.exitcode}", lines)
        self.since = time.monotonic()
        if isinstance(said, int):
            self.at = said
            return None
        share, memory = said
        assert isinstance(share, FuzzReport)
        self.task, self._busy = None, False
        if memory > MAX_MEMORY_KB:
            self.end()
            self._start()
        return share

    def lost(self, how: str, lines: str) -> FuzzReport[Finding]:
        """A share of which one case ended the process."""
        task, self.task = self.task, None
        assert task is not None
        self.end()
        self._start()
        last = lines.splitlines()[-1] if lines else "It says nothing."
        reason = f"the process {how}: {last}"
        test = rerun(task.command(self.at), "a case again", f"{reason}\n{lines[-3000:]}")
        finding = Finding("process", f"process {how}", reason, test, self.at)
        return FuzzReport(max(1, self.at - task.first + 1), findings=(finding,))

    def end(self) -> None:
        """Ends the process: by itself where it can, so that it gives back its folders and the
        semaphores of torch."""
        self.pipe.close()
        if self._process.is_alive() and self._process.pid is not None:
            if self._busy:
                os.kill(self._process.pid, signal.SIGINT)
            self._process.join(END_SECONDS)
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection, said: str) -> None:
    """The main loop of a process: shares, one after another, until the pipe closes."""
    with Path(said).open("w") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
        faulthandler.enable()
        with tempfile.TemporaryDirectory(prefix="plica-fuzz-store-") as store:
            os.environ.setdefault("PLICA_CACHE", store)  # nobody's store is filled with random code
            while True:
                try:
                    task = pipe.recv()
                    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                    pipe.send((whole(task, pipe.send), used))
                except (EOFError, BrokenPipeError, KeyboardInterrupt):
                    return  # nobody waits for an answer


def whole(task: FuzzTask, at: Callable[[int], None]) -> FuzzReport[Finding]:
    """All cases of a task, also those after a finding; `at` is called with each index."""
    kind = late("plica.cli.fuzz.table:kind_named")(task.kind)
    total = FuzzReport[Finding]()
    tried = 0

    def say(_: str) -> None:
        nonlocal tried
        at(task.first + tried)
        tried += 1

    while total.examples < task.examples:
        before = tried
        total += kind.run(task.arguments, task.first + tried, task.examples - total.examples, say)
        if tried == before or tried >= kind.numbers * task.examples:  # it has no more cases to try
            break
    return total
