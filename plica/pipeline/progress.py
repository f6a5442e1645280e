"""A progress bar for long work, shown only on terminals."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from time import monotonic
from typing import Any, Final

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
