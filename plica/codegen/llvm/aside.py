"""Aside: a process that runs LLVM for this one, since some failures of LLVM end the process."""

from __future__ import annotations

import atexit
import os
import struct
import subprocess
import tempfile
from threading import Lock, Timer
from typing import IO, Final

from attrs import frozen

from plica.runtime.late import python_here

_SERVE: Final = "from plica.codegen.llvm.toolchain import serve; serve()"
_LONGEST: Final = 300.0  # seconds
_LENGTH: Final = struct.Struct("<Q")


@frozen
class AsideAnswer:
    """The exit code where the process ended (0: it did not), what it said, and what it made."""

    code: int
    said: str
    made: bytes


class LlvmProcess:
    """A process to which requests are sent, one at a time."""

    def __init__(self) -> None:
        self._busy = Lock()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        command, environment = python_here("-c", _SERVE)
        self._process = subprocess.Popen(
            command, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said,
            start_new_session=True,  # Ctrl-C is this process's to handle
        )  # fmt: skip

    def is_there(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: bytes) -> AsideAnswer:
        """The answer to a request; a process that does not answer in time is killed."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        with self._busy:
            begin = os.fstat(self._said.fileno()).st_size
            clock = Timer(_LONGEST, self._process.kill)
            clock.daemon = True
            clock.start()
            try:
                send(asked, request)
                made = receive(answers)
            except BrokenPipeError:
                made = None
            finally:
                clock.cancel()
            code = 0 if made is not None else self._process.wait() or 1
            # By its own place: the position of an open file is the other process's, too.
            size = os.fstat(self._said.fileno()).st_size - begin
            said = os.pread(self._said.fileno(), size, begin)
            return AsideAnswer(code, said.decode("utf-8", "replace"), made or b"")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for each in (self._process.stdin, self._process.stdout, self._said):
            if each is not None:
                each.close()


def send(to: IO[bytes], data: bytes) -> None:
    """Write a given number of bytes behind their number."""
    to.write(_LENGTH.pack(len(data)) + data)
    to.flush()


def receive(of: IO[bytes]) -> bytes | None:
    """The message of the other side, empty if it ended before it was complete."""
    head = of.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    data = of.read(size)
    return data if len(data) == size else None


_PROCESSES: Final[dict[int, LlvmProcess]] = {}
"""The process aside by this one's number: a fork begins with none."""
_STARTING: Final = Lock()


def aside(request: bytes) -> AsideAnswer:
    """What LLVM makes of a request in the other process."""
    with _STARTING:
        owner = os.getpid()
        llvm_process = _PROCESSES.get(owner)
        if llvm_process is None:
            atexit.register(_end, owner)
        if llvm_process is None or not llvm_process.is_there():
            if llvm_process is not None:
                llvm_process.end()
            llvm_process = _PROCESSES[owner] = LlvmProcess()
    return llvm_process.ask(request)


def alone(request: bytes) -> AsideAnswer:
    """The same in a fresh process: LLVM reports some things only once."""
    process = LlvmProcess()
    try:
        return process.ask(request)
    finally:
        process.end()


def _end(owner: int) -> None:
    """End the process aside; that of the one this was forked from is not its own."""
    if os.getpid() == owner and (llvm_process := _PROCESSES.pop(owner, None)) is not None:
        llvm_process.end()
