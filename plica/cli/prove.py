"""`plica prove [PACK]`: which rules of a pack hold for every rank and every size, and given what.

Exit codes: 0 where no rule is refuted, 1 where one is or the prover refuses, 2 where there is no
such pack, rule or file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from plica.cli.command import Command
from plica.cli.named_pack import WrongUsage, named_packs, run_verb
from plica.cli.option import positive
from plica.runtime.error import Diagnostic, PlicaError

if TYPE_CHECKING:
    from plica.rewrite.prove import GraphVerdict
    from plica.rewrite.rule import Rule


def configure(parser: argparse.ArgumentParser) -> None:
    """The pack, and what is printed and written."""
    parser.add_argument(
        "pack", nargs="?", default="", help="a pack, or a Python file with packs (all of Plica's)"
    )
    parser.add_argument("--rule", action="append", help="only this rule; may be given again")
    parser.add_argument("--examples", type=int, default=50,
                        help="instances to refute what has no proof (50; 0: none)")  # fmt: skip
    parser.add_argument("--smt", type=Path, metavar="DIR", help="write the certificates there")
    parser.add_argument("--both", action="store_true", help="ask cvc5 for every certificate, too")
    parser.add_argument("--jobs", type=positive, default=1, help="number of processes (1)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(verb=_proved)


def _proved(arguments: argparse.Namespace) -> int:
    from plica.rewrite.check.verdict import Proved, Refuted

    rules = _rules(arguments.pack, arguments.rule)
    width = max(len(name) for name in rules)
    rows: list[dict[str, object]] = []
    refuted: list[Refuted] = []
    count, begun = 0, perf_counter()
    for verdict, solver, seconds in _verdicts(rules, arguments):
        contract = str(rules[verdict.rule].contract)
        row = {**verdict.to_data(), "contract": contract, "seconds": round(seconds, 3)}
        if isinstance(verdict, Proved):
            count += 1
            row["solver"] = solver
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
    took = f"{perf_counter() - begun:.0f} s"
    print(f"\n{count} of {len(rules)} proved, {len(refuted)} refuted, in {took}")
    for each in refuted:
        print(f"\n{each.rule}: a smallest counterexample, as a test")
        print(each.counterexample.pytest)
    return 1 if refuted else 0


def _verdicts(
    rules: Mapping[str, Rule], given: argparse.Namespace
) -> Iterator[tuple[GraphVerdict, str, float]]:
    """The verdict of each rule in order, who accepts its certificate, and how long that took.

    With several jobs rules are found again by their names, in processes.
    """
    if given.jobs == 1:
        yield from (_timed(rule, given.examples, given.both) for rule in rules.values())
        return
    with ProcessPoolExecutor(given.jobs) as pool:
        yield from pool.map(partial(_there, given.pack, given.examples, given.both), rules)


def _there(pack: str, examples: int, both: bool, name: str) -> tuple[GraphVerdict, str, float]:
    return _timed(_kept(pack)[name], examples, both)


def _timed(rule: Rule, examples: int, both: bool) -> tuple[GraphVerdict, str, float]:
    from plica.rewrite.check.verdict import Proved
    from plica.rewrite.prove import prove

    start = perf_counter()
    verdict = prove(rule, examples=examples)
    seconds = perf_counter() - start
    return verdict, _solvers(verdict, both) if isinstance(verdict, Proved) else "", seconds


def _known(pack: str) -> dict[str, Rule]:
    """The rules of a pack or file by their names; of none, all that Plica ships."""
    from plica.rewrite.packs import OWN

    packs = named_packs(pack) if pack else [it for name in sorted(OWN) for it in named_packs(name)]
    return {rule.name: rule for each in packs for rule in each}


_kept: Final = lru_cache(maxsize=1)(_known)  # of a process that is given one rule after another


def _rules(pack: str, names: list[str] | None) -> dict[str, Rule]:
    from plica.core.diagnostic import did_you_mean

    rules = _known(pack)
    for name in names or ():
        if name not in rules:
            message = f"There is no rule {name!r} in {pack or 'any pack'}."
            hint = did_you_mean(name, rules)
            raise WrongUsage(Diagnostic("unknown-rule", message, None, "a rule", name, hint))
    return {name: rules[name] for name in names or rules}


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
        text = f"; {verdict.rule}: unsat proves it\n{script}"
        (folder / f"{verdict.rule}-{number}.smt2").write_text(text, encoding="utf-8")


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
        "plica prove --jobs 2",
        "plica prove my_rules.py --rule fast-silu",
        "plica prove algebra --smt certificates --both",
    ),
)
