"""`plica fuzz`: random programs through passes, packs, schedules and code, held to what they mean.

One command for each kind of program, and `all` for all of them; what they share is in `every` and
`campaign`.
"""

from __future__ import annotations

import argparse
from typing import Final

from plica.cli.command import Command
from plica.cli.fuzz import every, form, gradient, graph, kernel, onnx, open, schedule, torch
from plica.cli.rules import run

__all__ = ["COMMAND"]


def configure(parser: argparse.ArgumentParser) -> None:
    """A verb for each kind of program, and one for all of them."""
    verbs = parser.add_subparsers(metavar="WHAT", required=True)
    for each in (graph, schedule, kernel, form, onnx, open, gradient, torch, every):
        each.configure(verbs)


COMMAND: Final = Command("fuzz", "Random programs, held against the interpreter", run, configure)
