"""A command of the command line, as data.

>>> hello = Command("hello", "Say hello", run=lambda arguments: 0)
>>> hello.run(argparse.Namespace())
0
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

DIFFERS: Final = 3
"""The exit code of a command that ran, and found that numbers differ."""


def no_options(parser: argparse.ArgumentParser) -> None:
    """A command without options of its own."""


@dataclass(frozen=True, slots=True)
class Command:
    """A name, one line about it, what it does, the options it takes, and lines one might type.

    `run` returns the exit code.
    """

    name: str
    summary: str
    run: Callable[[argparse.Namespace], int]
    configure: Callable[[argparse.ArgumentParser], None] = no_options
    examples: tuple[str, ...] = ()
