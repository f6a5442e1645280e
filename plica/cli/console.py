"""The console that commands print tables to: nothing is cut where no terminal gives a width."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console

UNCUT: Final = 10_000  # columns: more than any table of ours has


def stdout_console() -> Console:
    """What tables and lines are printed to."""
    from rich.console import Console

    is_free = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(highlight=False, width=UNCUT if is_free else None)
