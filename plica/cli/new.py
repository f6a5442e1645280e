"""`plica new KIND NAME`: creates a package that extends Plica, with passing tests."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from plica.cli.command import Command


def run(arguments: argparse.Namespace) -> int:
    """Write the package, and say what to do next."""
    from plica.extending import new_package

    folder = new_package(arguments.kind, arguments.name, arguments.into)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            print(path)
    print(f"Next: plica check {folder}, then pip install -e {folder}.")
    return 0


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    kinds = "rule-pack, operator, pass, primitive, form, target or accelerator"
    parser.add_argument("kind", metavar="KIND", help=kinds)
    parser.add_argument("name", metavar="NAME", help="lower-case letters and dashes: acme-rules")
    parser.add_argument("--into", type=Path, default=Path(), metavar="FOLDER",
                        help="the parent folder of the package (here)")  # fmt: skip


COMMAND: Final = Command(
    "new",
    "Write a package that extends Plica",
    run,
    configure,
    ("plica new rule-pack acme-rules", "plica new operator acme --into packages"),
)
