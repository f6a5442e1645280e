"""`plica targets`: all targets, how each target is written, and its options."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from plica.cli.command import Command, json_text

if TYPE_CHECKING:
    from plica.codegen.backend import Backend


def run(arguments: argparse.Namespace) -> int:
    """Print a row for each target, Plica's own first."""
    from plica.codegen.backend import TARGETS, registered

    points = TARGETS.points()
    rows = [row(backend, str(points[backend.name])) for backend in registered()]
    if arguments.json:
        print(json_text(rows))
        return 0
    for each in rows:
        print(f"{each['name']}  {each['about']}  ({each['package']})")
        print(f"    written  {', '.join(each['spellings'])}")
        print(f"    efforts  {', '.join(each['efforts'])}")
        print(f"    options  {', '.join(each['options'])}")
        if each["missing"]:
            print(f"    missing  {each['missing']}")
    return 0


def row(of: Backend, package: str) -> dict[str, Any]:  # Any: words and lists of words
    """The properties of a target, without building code for it."""
    said = {
        "threads": of.threaded,
        "schedules are tuned": bool(of.tuning),
        "sizes may be open": of.name == "cpu" or bool(of.objects),
        "libraries for C": not of.library,
        "data and recursion": bool(of.objects),
        "kernels are fuzzed": of.entry is not None,
    }
    return {
        "name": of.name,
        "about": of.about,
        "package": package,
        "spellings": list(of.spellings or (of.name,)),
        "efforts": list(of.pipelines),
        "missing": of.missing(),
        "options": [word for word, holds in said.items() if holds],
    }


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--json", action="store_true", help="print JSON")


COMMAND: Final = Command(
    "targets", "List targets, their spelling and options", run, configure, ("plica targets",)
)
