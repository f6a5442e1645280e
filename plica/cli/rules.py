"""`plica rules`: lists rule packs, checks their rules, and explains why one does not apply.

Exit codes: 0 if every rule is good, 1 if one is refused, refuted or was never tried, 2 for an
unknown pack, rule, file or contract, or a file that cannot be run.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plica.cli.command import Command
from plica.cli.named_pack import named_contract, named_packs, named_rule, run_verb
from plica.cli.option import positive, seconds
from plica.cli.progress import stdout_console

if TYPE_CHECKING:
    from plica.core.term import Term
    from plica.rewrite.check.verdict import Verdict

WIDTH: Final = 100  # characters of a term that are shown


def configure(parser: argparse.ArgumentParser) -> None:
    """`plica rules list`, `plica rules check PACK|FILE.py` and `plica rules why RULE MODEL`."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="the packs of Plica and of installed libraries")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(verb=show_packs)
    checking = verbs.add_parser(
        "check",
        help="test or prove every rule of a pack",
        epilog="example: plica rules check algebra --examples 500 --jobs 2",
    )
    checking.add_argument("pack", help="the name of a pack, or a Python file with packs")
    checking.add_argument("--examples", type=count, default=200, help="instances per rule (200)")
    checking.add_argument("--seed", type=int, default=0, help="random seed (0)")
    checking.add_argument("--contract", help="only rules within this float contract")
    checking.add_argument("--seconds", type=seconds,
                          help="time limit; each rule is tried a little, then more")  # fmt: skip
    checking.add_argument("--jobs", type=positive, default=1, help="number of processes (1)")
    checking.add_argument("--json", action="store_true", help="print JSON")
    checking.set_defaults(verb=check_packs)
    asking = verbs.add_parser(
        "why",
        help="show where a rule applies in a model, and why not elsewhere",
        epilog="example: plica rules why my_rules.py:silu M.onnx",
    )
    asking.add_argument("rule", help="a rule: NAME, PACK:NAME or FILE.py:NAME")
    asking.add_argument("model", type=Path, metavar="MODEL", help="an ONNX file, or a script")
    asking.add_argument("--most", type=positive, default=5, help="near misses to show (5)")
    asking.add_argument("--json", action="store_true", help="print JSON")
    asking.set_defaults(verb=explain_rule)


def count(text: str) -> int:
    """A number of examples: at least one."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least one example is needed")
    return number


def show_packs(arguments: argparse.Namespace) -> int:
    """Print every pack with its version, its contract and the number of its rules."""
    from plica.rewrite.packs import PACKS, all_packs

    packs, points = all_packs(), PACKS.points()
    if arguments.json:
        rows = [
            {
                "name": name,
                "version": pack.version,
                "package": str(points[name]),
                "contract": str(pack.contract),
                "rules": [rule.name for rule in pack],
                "doc": pack.doc,
            }
            for name, pack in packs.items()
        ]
        print(json.dumps(rows, indent=2))
        return 0
    from rich.table import Table

    table = Table("pack", "version", "of", "rules", "contract", "what it is for")
    for name, pack in packs.items():
        table.add_row(name, pack.version, str(points[name]), str(len(pack)), str(pack.contract),
                      pack.doc)  # fmt: skip
    stdout_console().print(table)
    return 0


def check_packs(arguments: argparse.Namespace) -> int:
    """Checks every rule once, printing each verdict as it comes; exit code 1 if one is refuted or
    was never tried."""
    from plica.cli.check_rules import checked
    from plica.rewrite.check.verdict import Refuted, is_good

    within = None if arguments.contract is None else named_contract(arguments.contract)
    packs = named_packs(arguments.pack)
    kept = [pack if within is None else pack.within(within) for pack in packs]
    rules = list(dict.fromkeys(rule for pack in kept for rule in pack))
    width = max((len(rule.name) for rule in rules), default=0)
    verdicts: list[Verdict] = []
    for verdict in checked(arguments.pack, rules, arguments.examples, arguments.seed,
                           seconds=arguments.seconds, jobs=arguments.jobs):  # fmt: skip
        verdicts.append(verdict)
        if not arguments.json:
            print(line(verdict, width), flush=True)
    if arguments.json:
        print(json.dumps([each.to_data() for each in verdicts], indent=2))
        return 0 if all(map(is_good, verdicts)) else 1
    for verdict in verdicts:
        if isinstance(verdict, Refuted):
            print(f"\n{verdict.rule}: a smallest counterexample, as a test")
            print(verdict.counterexample.pytest)
    return 0 if all(map(is_good, verdicts)) else 1


def line(verdict: Verdict, width: int) -> str:
    """A verdict as one line of a table."""
    return f"{verdict.rule:<{width}}  {str(verdict).removeprefix(f'{verdict.rule}: ')}"


def explain_rule(arguments: argparse.Namespace) -> int:
    """Where a rule applies in a model, and its nearest misses elsewhere."""
    from plica.cli.model import read
    from plica.rewrite.near_miss import near_misses

    rule = named_rule(arguments.rule)
    module = read(arguments.model, {}, {}).module
    applied, missed = near_misses(rule, module)
    most = missed[: arguments.most]
    if arguments.json:
        rows = [{"term": shown(each.term), "why": str(each), "part": list(each.part),
                 "expected": each.expected, "found": each.found} for each in most]  # fmt: skip
        data = {"rule": rule.name, "applies": [shown(term) for term in applied], "misses": rows}
        print(json.dumps(data, indent=2))
        return 0
    places = "1 place" if len(applied) == 1 else f"{len(applied)} places"
    print(f"{rule.name} applies at {places} of {arguments.model}.")
    for term in applied[: arguments.most]:
        print(f"  {shown(term)}")
    if not missed:
        print("Nothing else in the model matches the root of its left side.")
    elif len(most) < len(missed):
        print(f"The {len(most)} nearest of {len(missed)} near misses:")
    else:
        print("1 near miss:" if len(missed) == 1 else f"{len(missed)} near misses:")
    for miss in most:
        print(f"  {shown(miss.term)}\n    {miss}")
    return 0


def shown(term: Term) -> str:
    """A term in one line, as a script says it where it can, of constants their types alone."""
    from plica.core.diagnostic import IllTyped
    from plica.ir.graph.expression import Expr
    from plica.rewrite.check.instance import Instance
    from plica.rewrite.check.probe import variables_of
    from plica.rewrite.check.report import in_one_line

    if not isinstance(term, Expr):
        return repr(term)[:WIDTH]
    try:
        line = in_one_line(term, Instance(term, (), variables_of(term)))
    except IllTyped:
        return repr(term)[:WIDTH]
    line = re.sub(r'\bdata\("[^"]*"', 'data("…"', line)
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"


COMMAND: Final = Command(
    "rules", "Rule packs: list, check, and explain why a rule does not apply", run_verb, configure
)
