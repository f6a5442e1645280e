"""Background compilation: an executable that answers with fast code while better code is made.

    exe = plica.compile(model, background=True)
    exe(x)              code of the effort `fast`, soon
    exe.tier            "fast"; then "default"
    exe.wait()          until the better code is there

The better code takes the place of the other in one step: a call is answered by the one or by the
other.  What goes wrong meanwhile is warned of, raised by `wait`, and changes nothing else.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from plica.runtime.artefact import Artefact
from plica.runtime.executable import Executable
from plica.runtime.port import Array
from plica.runtime.profile import Profile
from plica.runtime.record import KernelTrace
from plica.runtime.stats import Stats


class BackgroundExecutable(Executable):
    """Answers with the first code until the better one is made."""

    def __init__(self, first: Executable, better: Callable[[], Executable]) -> None:
        super().__init__(0, first._interface)  # the code is that of another
        self._now, self._before = first, 0
        worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plica-background")
        self._later: Future[Executable] = worker.submit(self._improve, better)
        self._later.add_done_callback(_warn)
        worker.shutdown(wait=False)  # the thread ends with its work, and Python waits for that

    def _improve(self, better: Callable[[], Executable]) -> Executable:
        made = better()
        self._before = self._now.stats.compilations
        self._now = made  # one step for all threads
        return made

    def wait(self, timeout: float | None = None) -> Executable:
        """This executable, once the better code answers; raises what went wrong with it, and
        `TimeoutError` where it takes longer than so many seconds."""
        self._later.result(timeout)
        return self

    @property
    def tier(self) -> str:
        """The effort that the code was made with which answers now."""
        return self._now.tier

    @property
    def stats(self) -> Stats:
        """Calls of this executable, and the compilations of both codes."""
        now = self._now.stats
        return Stats(self._calls.count, self._before + now.compilations, now.bytes, now.at_call)

    @property
    def derivation(self) -> object:
        """How the code that answers now came about."""
        return self._now.derivation

    @property
    def workspace(self) -> int:
        """Bytes of memory a call needs beside its inputs, outputs and constants."""
        return self._now.workspace

    @property
    def target(self) -> str:
        """What the code was made for."""
        return self._now.target

    @property
    def tuning(self) -> str:
        """Which kernels have a tuned schedule and which the default, and why; a table."""
        return self._now.tuning

    @property
    def artefact(self) -> Artefact:
        """All that the better code is made of, as data: it is waited for."""
        return self._later.result().artefact

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artefact of the better code, which is waited for."""
        self._later.result().save(path)

    def export(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        """A shared library of the better code, which is waited for."""
        self._later.result().export(path, name)

    def source(self, kind: str | None = None) -> str:
        """The code that answers now, at one stage."""
        return self._now.source(kind)

    def trace(self, kernel: str) -> KernelTrace:
        """How a kernel of the code that answers now was scheduled."""
        return self._now.trace(kernel)

    def profile(
        self,
        *args: object,
        runs: int = 10,
        peak: float | None = None,
        bandwidth: float | None = None,
        **named: object,
    ) -> Profile:
        """Where the time of a call goes, launch by launch, in the code that answers now."""
        return self._now.profile(*args, runs=runs, peak=peak, bandwidth=bandwidth, **named)

    def __call__(self, *args: object, **named: object) -> Array | tuple[Array, ...]:
        """Run the model; inputs by position or by name."""
        self._calls.add()
        return self._now(*args, **named)

    def at(self, *args: object, **named: object) -> Executable:
        """The executable for inputs of these sizes, by the better code, which is waited for."""
        return self._later.result().at(*args, **named)

    def __repr__(self) -> str:
        return repr(self._now).replace("<", f"<{self.tier} ", 1)


def _warn(done: Future[Executable]) -> None:
    if (failed := done.exception()) is not None:
        message = f"No better code was made in the background: {failed}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
