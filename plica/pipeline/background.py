"""Background compilation: an executable that answers with fast code while better code is made.

exe = plica.compile(model, background=True)
exe(x)              code of the effort `fast`, soon
exe.tier            "fast"; then "default"
exe.wait()          until the better code is there
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from plica.runtime.executable import Executable
from plica.runtime.selecting_executable import Args, Named, Selected, SelectingExecutable, Selector
from plica.runtime.stats import Stats


class BetterCode(Selector):
    """Selects the first code until the optimised code is ready."""

    def __init__(self, first: Executable, better: Callable[[], Executable]) -> None:
        self.interface = first._interface
        self._now, self._before = first, 0
        worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plica-background")
        self.later: Future[Executable] = worker.submit(self._improve, better)
        """The better code."""
        self.later.add_done_callback(_warn)
        worker.shutdown(wait=False)  # the thread ends with its work, and Python waits for that

    def _improve(self, better: Callable[[], Executable]) -> Executable:
        executable = better()
        self._before = self._now.stats.compilations
        self._now = executable  # one step for all threads
        return executable

    def select(self, of: Executable, args: Args, named: Named) -> Selected:
        """The current code, with the same inputs."""
        return self._now, args, named

    def at(self, of: Executable, args: Args, named: Named) -> Executable:
        """The executable for inputs of these sizes, by the better code, which is waited for."""
        return self.best().at(*args, **named)

    @property
    def code(self) -> Executable:
        """The code that answers now."""
        return self._now

    def best(self, timeout: float | None = None) -> Executable:
        """The better code, which is waited for."""
        return self.later.result(timeout)

    def stats(self, calls: int) -> Stats:
        """The compilations of both codes, and the memory of the current one."""
        now = self._now.stats
        return Stats(calls, self._before + now.compilations, now.bytes, now.at_call)

    def show(self, of: Executable) -> str:
        """The code that answers now, and its effort."""
        return repr(self._now).replace("<", f"<{self._now.tier} ", 1)


def in_background(
    first: Executable, better: Callable[[], Executable]
) -> SelectingExecutable[BetterCode]:
    """Answer with the first code until the better one is made."""
    return SelectingExecutable(BetterCode(first, better))


def _warn(done: Future[Executable]) -> None:
    if (failed := done.exception()) is not None:
        message = f"No better code was made in the background: {failed}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
