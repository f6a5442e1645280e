"""A worker: a process that does pieces of compilations for another, until nobody asks any more."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from multiprocessing.connection import Connection

from plica.analysis.statement import LoweringRefused
from plica.core.collector import paused
from plica.core.diagnostic import CompilerBug
from plica.runtime.error import PlicaError

IDLE_SECONDS = 20.0
"""A worker that is not asked for so long ends."""


def work(handle: int, modules: Sequence[str] = ()) -> None:
    """Answer tasks that come through a socket; what a task refuses is the asker's to find out.

    Modules that tasks will need are loaded before the first one comes.
    """
    asker = Connection(handle)
    for each in modules:
        import_module(each)
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
    work(int(sys.argv[1]), sys.argv[2:])
