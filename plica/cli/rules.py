"""`plica rules`: which rule packs there are, and what is known of their rules.

Exit codes: 0 where every rule is good, 1 where one is refused, refuted or was never tried, 2 where
there is no such pack, file or contract, or the file cannot be run.
"""

from __future__ import annotations

import argparse
import json
import linecache
import runpy
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plica.cli.command import Command
from plica.runtime.error import Diagnostic, Place, PlicaError

if TYPE_CHECKING:
    from plica.rewrite.check.verdict import Verdict
    from plica.rewrite.contract import Contract
    from plica.rewrite.pack import Pack

FAILURES: Final = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, OSError,
    RuntimeError, SyntaxError, TypeError, ValueError,
)  # fmt: skip
"""What running somebody's file may end with."""


class WrongUsage(PlicaError):
    """What the command line names is not there, or cannot be read."""


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
    checking.add_argument("--contract", help="only rules within this float contract")
    checking.add_argument("--json", action="store_true", help="print JSON")
    checking.set_defaults(verb=check_packs)


def count(text: str) -> int:
    """A number of examples: at least one."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least one example is needed")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; errors are JSON too where JSON was asked for."""
    try:
        code: int = arguments.verb(arguments)
    except PlicaError as error:
        code = 2 if isinstance(error, WrongUsage) else 1
        if arguments.json:
            print(json.dumps(error.to_data(), indent=2))
        else:
            from rich.console import Console

            from plica.core.diagnostic import render

            render(error, Console(stderr=True), line_of=linecache.getline)
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
    """Check every rule; exit code 1 where one is refuted or was never tried."""
    from plica.rewrite.check.run import check
    from plica.rewrite.check.verdict import is_good

    within = None if arguments.contract is None else named_contract(arguments.contract)
    verdicts: list[Verdict] = []
    for pack in named_packs(arguments.pack):
        kept = pack if within is None else pack.within(within)
        verdicts.extend(check(kept, arguments.examples, arguments.seed))
    if arguments.json:
        print(json.dumps([each.to_data() for each in verdicts], indent=2))
    else:
        _print(verdicts)
    return 0 if all(map(is_good, verdicts)) else 1


def named_contract(word: str) -> Contract:
    """The float contract written so."""
    from plica.rewrite.contract import KNOWN, named

    found = named(word)
    if found is None:
        message = "This float contract is not known."
        raise WrongUsage(Diagnostic("unsupported", message, None, KNOWN, repr(word)))
    return found


def named_packs(name: str) -> tuple[Pack, ...]:
    """The pack of a name, or those that a Python file makes."""
    from plica.core.diagnostic import RuleRefused
    from plica.rewrite.pack import Pack, pack
    from plica.rewrite.packs import find_pack
    from plica.rewrite.rule import Rule

    if not name.endswith(".py"):
        try:
            return (find_pack(name),)
        except RuleRefused as refused:
            raise WrongUsage(*refused.diagnostics) from None
    path = Path(name)
    if not path.is_file():
        raise WrongUsage(Diagnostic("unknown-pack", "There is no such file.", Place(file=name)))
    # The user's own file, named on the user's command line, is run as Python runs it, and finds
    # what lies beside it.
    beside = str(path.parent.resolve())
    sys.path.insert(0, beside)
    try:
        found = runpy.run_path(name)
    except FAILURES as error:
        raise WrongUsage(_broken(name, error)) from error
    finally:
        sys.path.remove(beside)
    packs = [value for value in found.values() if isinstance(value, Pack)]
    loose = [value for value in found.values() if isinstance(value, Rule)]
    if loose:
        packs.append(pack(path.stem, *dict.fromkeys(loose), version="0"))
    if not packs:
        message = "The file makes no pack and no rule."
        raise WrongUsage(Diagnostic("unknown-pack", message, Place(file=name)))
    return tuple(dict.fromkeys(packs))


def _broken(name: str, error: BaseException) -> Diagnostic:
    """What is wrong with a file that cannot be run, and in which of its lines."""
    if isinstance(error, SyntaxError):
        at = Place(file=error.filename or name, line=error.lineno, column=error.offset)
        return Diagnostic("broken-file", "The file is no Python.", at, found=error.msg)
    frames = traceback.extract_tb(error.__traceback__)
    line = next((each.lineno for each in reversed(frames) if each.filename == name), None)
    found = f"{type(error).__name__}: {error}"
    message = "The file fails when it is run."
    return Diagnostic("broken-file", message, Place(file=name, line=line), found=found)


def _print(verdicts: list[Verdict]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from plica.rewrite.check.verdict import Proved, Refuted, Tested, Untested

    console = Console()
    table = Table("rule", "verdict", "detail")
    for verdict in verdicts:
        match verdict:
            case Proved(name, how):
                table.add_row(name, "[green]proved[/]", how)
            case Tested(name, cases, overflowed, note):
                apart = f", {overflowed} overflowed" if overflowed else ""
                detail = f"{cases} instances{apart} {note}".strip()
                table.add_row(name, "[green]tested[/]", escape(detail))
            case Untested(name, why):
                table.add_row(name, "[red]untested[/]", escape(why))
            case Refuted(name, example):
                table.add_row(name, "[red]refuted[/]", escape(example.reason))
    console.print(table)
    for verdict in verdicts:
        if isinstance(verdict, Refuted):
            console.print(
                f"\n[bold]{escape(verdict.rule)}[/]: a smallest counterexample, as a test"
            )
            print(verdict.counterexample.pytest)


COMMAND: Final = Command("rules", "Rule packs: list them, check their rules", run, configure)
