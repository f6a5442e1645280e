"""Progress: shows what a command is doing, on stderr if it is a terminal.

>>> with progress("read", total=2) as say:
...     say("reading")
...     say("compiling")
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console


Say = Callable[[str], None]


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Say]:
    """What tells of each step as it begins: a bar on a terminal, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(title, total=total)
        begun = False

        def say(word: str) -> None:
            nonlocal begun
            bar.update(task, description=f"{title}: {word}", advance=1 if begun else 0)
            begun = True

        yield say


# --- the console that commands print tables to -------------------------------------------------


UNCUT: Final = 10_000  # columns: more than any table of ours has


def stdout_console() -> Console:
    """What tables and lines are printed to."""
    from rich.console import Console

    is_free = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(highlight=False, width=UNCUT if is_free else None)
