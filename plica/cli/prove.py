"""`plica prove PACK`: which rules of a pack hold for every rank and every size, and given what.

Exit codes: 0 where no rule is refuted, 1 where one is or the prover refuses, 2 where there is no
such pack, rule or file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from plica.cli.command import Command
from plica.cli.named_pack import WrongUsage, named_packs, run_verb
from plica.runtime.error import Diagnostic, PlicaError

if TYPE_CHECKING:
    from plica.rewrite.prove import GraphVerdict
    from plica.rewrite.rule import Rule


def configure(parser: argparse.ArgumentParser) -> None:
    """The pack, and what is printed and written."""
    parser.add_argument("pack", help="the name of a pack, or a Python file with packs")
    parser.add_argument("--rule", action="append", help="only this rule; may be given again")
    parser.add_argument("--examples", type=int, default=50,
                        help="instances to refute what has no proof (50; 0: none)")  # fmt: skip
    parser.add_argument("--smt", type=Path, metavar="DIR", help="write the certificates there")
    parser.add_argument("--both", action="store_true", help="ask cvc5 for every certificate, too")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(verb=_proved)


def _proved(arguments: argparse.Namespace) -> int:
    from plica.rewrite.check.verdict import Proved, Refuted
    from plica.rewrite.prove import prove

    rules = _rules(arguments.pack, arguments.rule)
    width = max(len(rule.name) for rule in rules)
    rows: list[dict[str, object]] = []
    refuted: list[Refuted] = []
    count = 0
    for rule in rules:
        start = perf_counter()
        verdict = prove(rule, examples=arguments.examples)
        seconds = perf_counter() - start
        row = {**verdict.to_data(), "contract": str(rule.contract), "seconds": round(seconds, 3)}
        if isinstance(verdict, Proved):
            count += 1
            row["solver"] = _solvers(verdict, arguments.both)
            if arguments.smt is not None:
                _write(arguments.smt, verdict)
        elif isinstance(verdict, Refuted):
            refuted.append(verdict)
        rows.append(row)
        if not arguments.json:
            print(line(verdict, str(row.get("solver", "")), seconds, width), flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return 1 if refuted else 0
    print(f"\n{count} of {len(rules)} proved, {len(refuted)} refuted")
    for each in refuted:
        print(f"\n{each.rule}: a smallest counterexample, as a test")
        print(each.counterexample.pytest)
    return 1 if refuted else 0


def _rules(pack: str, names: list[str] | None) -> list[Rule]:
    from plica.core.diagnostic import did_you_mean

    rules = {rule.name: rule for each in named_packs(pack) for rule in each}
    for name in names or ():
        if name not in rules:
            message, near = f"There is no rule {name!r} in {pack}.", did_you_mean(name, rules)
            raise WrongUsage(Diagnostic("unknown-rule", message, None, "a rule", name, near))
    return [rules[name] for name in dict.fromkeys(names or rules)]


def _solvers(verdict: GraphVerdict, both: bool) -> str:
    """Who accepts the scripts of a certificate; cvc5 is asked only where that is wanted."""
    from plica.rewrite.check.verdict import Proved
    from plica.rewrite.prove.solver import MISSING, answer, is_available

    assert isinstance(verdict, Proved)
    if not verdict.certificate:
        return "none needed"
    if not both:
        return "z3"
    if not is_available("cvc5"):
        raise PlicaError(Diagnostic("unsupported", MISSING["cvc5"]))
    said = {answer(script, "cvc5") for script in verdict.certificate}
    return "z3 and cvc5" if said == {"unsat"} else f"z3; cvc5 says {', '.join(sorted(said))}"


def _write(folder: Path, verdict: GraphVerdict) -> None:
    from plica.rewrite.check.verdict import Proved

    assert isinstance(verdict, Proved)
    folder.mkdir(parents=True, exist_ok=True)
    for number, script in enumerate(verdict.certificate):
        name = f"{verdict.rule}-{number}.smt2"
        (folder / name).write_text(f"; {verdict.rule}: unsat proves it\n{script}", encoding="utf-8")


def line(verdict: GraphVerdict, solver: str, seconds: float, width: int) -> str:
    """A verdict as one line of a table."""
    said = str(verdict).removeprefix(f"{verdict.rule}: ")
    by = f" ({solver})" if solver else ""
    return f"{verdict.rule:<{width}}  {seconds:6.2f} s  {said}{by}"


COMMAND = Command(
    "prove",
    "Prove the rules of a pack for every rank and size",
    run_verb,
    configure,
    (
        "plica prove logic",
        "plica prove my_rules.py --rule fast-silu",
        "plica prove algebra --smt certificates --both",
    ),
)
