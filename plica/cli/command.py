"""A command of the command line, as data.

>>> hello = Command("hello", "Say hello", run=lambda arguments: 0)
>>> hello.run(argparse.Namespace())
0
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

DIFFERS: Final = 3  # the exit code of a command that ran, and found that results or traces differ


def json_text(data: object) -> str:
    """Data as JSON, which has no word for nan and infinite numbers: they are null.

    >>> json_text({"difference": math.inf, "agrees": False}).split()
    ['{', '"difference":', 'null,', '"agrees":', 'false', '}']
    """
    return json.dumps(_plain(data), indent=2, allow_nan=False)


def _plain(data: object) -> object:
    """Data without nan and infinite numbers; it is as deep as we made it."""
    if isinstance(data, Mapping):
        return {name: _plain(each) for name, each in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(each) for each in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "kernel"), counted(0, "kernel")
    ('1 kernel', '0 kernels')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def no_options(parser: argparse.ArgumentParser) -> None:
    """A command without options."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: name, summary, action, options and examples.

    `run` returns the exit code.
    """

    name: str
    summary: str
    run: Callable[[argparse.Namespace], int]
    configure: Callable[[argparse.ArgumentParser], None] = no_options
    examples: tuple[str, ...] = ()


_MODULES: Final = (
    "bench", "budget", "certify", "check", "compile_", "debug", "demo", "doctor", "explain",
    "explore", "fuzz", "history", "impact", "new", "pool", "prove", "quantise", "records", "rules",
    "run", "shard", "targets", "trace", "tune", "verify",
)  # fmt: skip

OWN_COMMANDS: Final[Mapping[str, str]] = {
    **{name.rstrip("_"): f"plica.cli.{name}:COMMAND" for name in _MODULES},
    **{name: f"plica_lm.command:{name.upper()}" for name in ("chat", "generate", "serve")},
}
"""The modules of Plica's own commands."""
