"""Worker processes: started when needed, and again after they died."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import threading
from io import RawIOBase
from math import inf
from time import monotonic
from typing import IO, Any, Final

from attrs import frozen

from plica.runtime.late import python_here
from plica.runtime.process import MEANINGS
from plica.search.measure import frame
from plica.search.measure.frame import MessageFrame
from plica.search.measure.outcome import TrialLimits

MAIN: Final = "from plica.search.measure.worker import main; main()"

GRACE: Final = 30.0  # seconds beyond those a worker has for itself: it may have to start first

WAITING: Final = 10.0
"""How many times as long a worker may take that has this many seconds of the processor: it lets
others go first, and is stopped while something is timed."""

PATIENT: Final = 10  # by how much a worker that is not timed lets others go first

OVER: Final = tuple(
    [getattr(signal, name) for name in ("SIGALRM", "SIGPROF") if hasattr(signal, name)]
)
"""What ends a worker whose time is over."""

ONE_THREAD: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@frozen
class Lost:
    """How a worker ended that gave no answer."""

    late: bool
    how: str


class Worker:
    """A process that answers, or is lost and started again; a patient one lets others go first."""

    def __init__(self, limits: TrialLimits, patient: bool = False, main: str = MAIN) -> None:
        self._limits, self._main = limits, main
        self._nice = PATIENT if patient else 0
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None
        self._asking = threading.Lock()
        self.started = 0
        """How often it was started."""

    @property
    def number(self) -> int | None:
        """The process id, if there is one."""
        return None if self._process is None else self._process.pid

    def begin(self) -> None:
        """Starts the process if necessary, without waiting for it."""
        with self._asking:
            if self._process is None:
                self._start()

    def ask(
        self, what: MessageFrame, seconds: float, of_processor: bool = False, until: float = inf
    ) -> MessageFrame | Lost:
        """The answer to a frame, or how the worker was lost after a given number of seconds, of the
        clock or of the processor, or at a time of the monotonic clock."""
        with self._asking:
            process = self._process or self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            given = {"seconds": seconds, "of_processor": of_processor}
            whole = MessageFrame({**what.head, **given}, what.blobs)
            longest = seconds * (WAITING if of_processor else 1.0) + GRACE
            try:
                process.stdin.write(frame.to_bytes(whole))
                process.stdin.flush()
            except BrokenPipeError:
                return self._lost(late=False)
            source = _Until(process.stdout.fileno(), min(monotonic() + longest, until))
            answer = frame.read(source)
            return self._lost(late=source.late) if answer is None else answer

    def close(self) -> None:
        """End the process, whatever it is doing."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for each in (process.stdin, process.stdout, self._said):
                if each is not None:
                    _close(each)

    def _start(self) -> subprocess.Popen[bytes]:
        self.started += 1
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        given = (self._main, self._limits.to_json(), str(self._nice))
        command, environment = python_here("-c", *given)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**environment, **dict.fromkeys(ONE_THREAD, "1")},
        )
        return self._process

    def _lost(self, late: bool) -> Lost:
        """How the process ended; afterwards there is none."""
        process = self._process
        assert process is not None
        assert self._said is not None
        if late:
            process.kill()
        code = process.wait()
        self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, self._said.tell() - 4000))
        lines = self._said.read().decode("utf-8", "replace").strip().splitlines()
        self.close()
        if late or -code in OVER:
            return Lost(True, "It took longer than it may.")
        if code < 0:
            name = signal.Signals(-code).name
            return Lost(False, f"{name}: {MEANINGS.get(name, 'the process was ended')}")
        return Lost(False, lines[-1] if lines else f"The process ended with code {code}.")


def _close(stream: IO[bytes]) -> None:
    try:
        stream.close()
    except BrokenPipeError:
        return  # what was still to be sent goes nowhere


class _Until(RawIOBase, IO[bytes]):
    """A stream that ends when its time is over."""

    def __init__(self, file: int, end: float) -> None:
        super().__init__()
        self._file, self._end = file, end
        self.late = False

    def read(self, size: int = -1, /) -> Any:  # bytes, as both parents say in different words
        left = self._end - monotonic()
        ready, _, _ = select.select([self._file], [], [], max(0.0, left))
        if not ready:
            self.late = True
            return b""
        return os.read(self._file, min(size, 1 << 20))
