"""`plica check PACKAGE`: tests everything that a package provides.

Exit codes: 0 where every verdict is good, 1 where something is refuted, broken or was never tried.
"""

from __future__ import annotations

import argparse
from typing import Final

from plica.cli.command import Command, json_text
from plica.cli.option import positive


def run(arguments: argparse.Namespace) -> int:
    """Prints each verdict as it comes, then the smallest counterexamples."""
    from plica.extending import ExtensionVerdict, check_package, find_package

    package = find_package(arguments.package)
    verdicts: list[ExtensionVerdict] = []
    if not arguments.json:
        print(f"{package.name} {package.version}: {len(package.points)} entry points")
    for verdict in check_package(package, arguments.examples, arguments.seed):
        verdicts.append(verdict)
        if not arguments.json:
            print(verdict, flush=True)
    if arguments.json:
        rows = [each.to_data() for each in verdicts]
        print(json_text({"package": package.name, "version": package.version, "verdicts": rows}))
    else:
        for verdict in verdicts:
            if verdict.example:
                print(f"\n{verdict.name}: a minimal case\n{verdict.example}")
    return 0 if verdicts and all(each.good for each in verdicts) else 1


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("package", metavar="PACKAGE",
                        help="an installed package, or a folder with a pyproject.toml")  # fmt: skip
    parser.add_argument("--examples", type=positive, default=100, help="cases per record (100)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (0)")
    parser.add_argument("--json", action="store_true", help="print JSON")


COMMAND: Final = Command(
    "check",
    "Check everything that a package adds to Plica",
    run,
    configure,
    ("plica check ./acme-rules", "plica check acme-rules --examples 500 --json"),
)
