"""`plica rules`: which rule packs there are, and what is known of their rules."""

from __future__ import annotations

import argparse
import json
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plica.cli.command import Command
from plica.runtime.error import Diagnostic, Place, PlicaError

if TYPE_CHECKING:
    from plica.rewrite.check.verdict import Verdict
    from plica.rewrite.pack import Pack

LEAST: Final = 1
"""A rule that no instance was found for has not been tested."""


def configure(parser: argparse.ArgumentParser) -> None:
    """`plica rules list` and `plica rules check PACK|FILE.py`."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="the packs of Plica and of installed libraries")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(verb=show_packs)
    checking = verbs.add_parser(
        "check",
        help="test or prove every rule of a pack",
        epilog="example: plica rules check algebra --examples 500",
    )
    checking.add_argument("pack", help="the name of a pack, or a Python file that makes some")
    checking.add_argument("--examples", type=count, default=200, help="instances a rule (200)")
    checking.add_argument("--seed", type=int, default=0, help="the same seed, the same instances")
    checking.add_argument("--json", action="store_true", help="print JSON")
    checking.set_defaults(verb=check_packs)


def count(text: str) -> int:
    """A number of examples: at least one."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least one example is needed")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Run the verb."""
    code: int = arguments.verb(arguments)
    return code


def show_packs(arguments: argparse.Namespace) -> int:
    """Print every pack with its version, its contract and the number of its rules."""
    from plica.rewrite.packs import all_packs

    packs = all_packs()
    if arguments.json:
        rows = [
            {
                "name": name,
                "version": pack.version,
                "contract": str(pack.contract),
                "rules": [rule.name for rule in pack],
                "doc": pack.doc,
            }
            for name, pack in packs.items()
        ]
        print(json.dumps(rows, indent=2))
        return 0
    from rich.console import Console
    from rich.table import Table

    table = Table("pack", "version", "rules", "contract", "what it is for")
    for name, pack in packs.items():
        table.add_row(name, pack.version, str(len(pack)), str(pack.contract), pack.doc)
    Console().print(table)
    return 0


def check_packs(arguments: argparse.Namespace) -> int:
    """Check every rule; exit code 1 where one is refuted or could not be tested."""
    from plica.rewrite.check.run import check
    from plica.rewrite.check.verdict import Proved, Tested

    verdicts: list[Verdict] = []
    for pack in named_packs(arguments.pack):
        verdicts.extend(check(pack, arguments.examples, arguments.seed))
    good = all(
        isinstance(each, Proved) or (isinstance(each, Tested) and each.cases >= LEAST)
        for each in verdicts
    )
    if arguments.json:
        print(json.dumps([each.to_data() for each in verdicts], indent=2))
    else:
        _print(verdicts)
    return 0 if good else 1


def named_packs(name: str) -> tuple[Pack, ...]:
    """The pack of a name, or those that a Python file makes."""
    from plica.rewrite.pack import Pack, pack
    from plica.rewrite.packs import find_pack
    from plica.rewrite.rule import Rule

    if not name.endswith(".py"):
        return (find_pack(name),)
    path = Path(name)
    if not path.is_file():
        raise PlicaError(Diagnostic("unknown-pack", "There is no such file.", Place(file=name)))
    # The user's own file, named on the user's command line, is run as Python runs it.
    found = runpy.run_path(name)
    packs = [value for value in found.values() if isinstance(value, Pack)]
    loose = [value for value in found.values() if isinstance(value, Rule)]
    if loose:
        packs.append(pack(path.stem, *loose, version="0"))
    if not packs:
        message = "The file makes no pack and no rule."
        raise PlicaError(Diagnostic("unknown-pack", message, Place(file=name)))
    return tuple(packs)


def _print(verdicts: list[Verdict]) -> None:
    from rich.console import Console
    from rich.table import Table

    from plica.rewrite.check.verdict import Proved, Refuted, Tested

    console = Console()
    table = Table("rule", "verdict", "detail")
    for verdict in verdicts:
        match verdict:
            case Proved(name, how):
                table.add_row(name, "[green]proved[/]", how)
            case Tested(name, cases, overflowed, note):
                word = "[green]tested[/]" if cases >= LEAST else "[red]untested[/]"
                apart = f", {overflowed} overflowed" if overflowed else ""
                table.add_row(name, word, f"{cases} instances{apart} {note}".strip())
            case Refuted(name, example):
                table.add_row(name, "[red]refuted[/]", example.reason)
    console.print(table)
    for verdict in verdicts:
        if isinstance(verdict, Refuted):
            console.print(f"\n[bold]{verdict.rule}[/]: a smallest counterexample, as a test")
            print(verdict.counterexample.pytest)


COMMAND: Final = Command("rules", "Rule packs: list them, check their rules", run, configure)
