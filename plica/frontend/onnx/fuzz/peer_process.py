"""A process for the peer: some models end the process that onnxruntime runs in."""

from __future__ import annotations

import atexit
import os
import subprocess
from collections.abc import Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any, Final

import numpy as np

from plica.runtime.late import late, python_here

Array = np.ndarray[Any, Any]
_MAIN: Final = "from plica.frontend.onnx.fuzz.peer_process import serve; serve({})"
_LONGEST: Final = 60.0  # seconds, for models of a few small operators


class PeerProcess:
    """A process that evaluates models."""

    def __init__(self) -> None:
        self._line, other = Pipe()
        command, environment = python_here("-c", _MAIN.format(other.fileno()))
        self._process = subprocess.Popen(
            command,
            env=environment,
            pass_fds=(other.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is this process's to handle
        )
        other.close()

    def ask(self, model: bytes, given: Mapping[str, Array]) -> list[Array] | None:
        """The results of a model, or None if refused. Raises EOFError if it killed the process."""
        try:
            self._line.send((model, dict(given)))
            if not self._line.poll(_LONGEST):
                raise EOFError
            arrays: list[Array] | None = self._line.recv()
        except (ConnectionError, EOFError) as error:
            raise EOFError from error
        return arrays

    def end(self) -> None:
        self._line.close()
        self._process.kill()
        self._process.wait()


_PROCESSES: Final[dict[int, PeerProcess]] = {}
"""The process of the peer by this one's number: a fork begins with none."""
_ASKING: Final = Lock()


def ask(model: bytes, given: Mapping[str, Array]) -> list[Array] | None:
    """The peer's results for a model, or None if it refuses or dies."""
    owner = os.getpid()
    with _ASKING:
        if owner not in _PROCESSES:
            _PROCESSES[owner] = PeerProcess()
            atexit.register(_end, owner)
        try:
            return _PROCESSES[owner].ask(model, given)
        except EOFError:
            _end(owner)
            return None


def _end(owner: int) -> None:
    """End the process of the peer; that of the one this was forked from is not its own."""
    if os.getpid() == owner and (peer_process := _PROCESSES.pop(owner, None)) is not None:
        peer_process.end()


def serve(file: int) -> None:
    """The main loop of the process."""
    line: Connection[Any, Any] = Connection(file)
    here = late("plica.frontend.onnx.fuzz.peer:in_this_process")
    while True:
        try:
            model, given = line.recv()
        except EOFError:
            return
        line.send(here(model, given))
