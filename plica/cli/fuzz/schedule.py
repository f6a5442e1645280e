"""`plica fuzz schedule`: kernels through random traces of every kind of instruction."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from plica.cli.fuzz.every import add_campaign, begin, examples_of, in_jobs
from plica.cli.fuzz.share import FoundCase, FuzzKind, FuzzShare, Say
from plica.cli.progress import progress

if TYPE_CHECKING:
    from plica.schedule.fuzz import ScheduleFuzzReport as ScheduleReport

EPILOG: Final = """\
examples:
  plica fuzz schedule --examples 3000
  plica fuzz schedule --focus split --focus fuse --length 12
"""


# Any: what argparse's subparsers are has no public name.
def configure(verbs: Any) -> None:
    """The options of the verb."""
    parser = verbs.add_parser(
        "schedule",
        help="kernels through random traces of every kind of instruction",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_campaign(parser, "kernels")
    parser.add_argument("--length", type=int, default=8, help="steps tried for each (8)")
    parser.add_argument("--focus", action="append", default=[], metavar="KIND",
                        help="try this kind of instruction more often; repeatable")  # fmt: skip
    parser.set_defaults(verb=fuzz_schedule)


def fuzz_schedule(arguments: argparse.Namespace) -> int:
    """Exit code 1 where a trace changes what a kernel means, crashes, or is refused in silence."""
    from plica.core.diagnostic import did_you_mean
    from plica.runtime.error import Diagnostic, InputError
    from plica.schedule.instruction import kinds

    for each in arguments.focus:
        if each not in kinds():
            message = f"There is no instruction {each!r}."
            hint = did_you_mean(each, kinds())
            raise InputError(Diagnostic("unbound-name", message, suggestion=hint))
    if in_jobs(arguments):
        return begin("schedule", arguments)
    with progress("kernels", examples_of(arguments)) as say:
        report = _fuzzed(arguments, arguments.first, examples_of(arguments), say)
    if arguments.json:
        print(json.dumps(report.to_data(), indent=2))
    else:
        _print(report)
    return 0 if report.finding is None else 1


def _fuzzed(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> ScheduleReport:
    from plica.schedule.fuzz import fuzz

    return fuzz(examples, arguments.seed, first=first, length=arguments.length,
                focus=arguments.focus, say=say)  # fmt: skip


def share(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> FuzzShare:
    """So many kernels, and the steps that were taken."""
    report = _fuzzed(arguments, first, examples, say)
    refused = {kind: sum(words.values()) for kind, words in report.refused.items()}
    counts = {"taken": report.taken, "refused": refused}
    found = report.finding
    if found is None:
        return FuzzShare(report.examples, counts)
    kept = FoundCase(found.step, found.reason, found.case, found.pytest)
    return FuzzShare(report.examples, counts, (kept,))


def asked(arguments: argparse.Namespace) -> Iterable[tuple[str, str]]:
    """The kinds of steps in focus."""
    return [("taken", each) for each in arguments.focus]


def every() -> Mapping[str, Iterable[str]]:
    """All kinds of steps that a walk can take."""
    from plica.schedule.generate.step import untried
    from plica.schedule.instruction import kinds

    return {"taken": [each for each in kinds() if each not in untried()]}


KIND: Final = FuzzKind("schedule", "kernels", 10_000, 50, share, asked, every)


def _print(report: ScheduleReport) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    done = sum(report.taken.values())
    words = sum(map(len, report.refused.values()))
    console.print(
        f"{report.examples} kernels, seed {report.seed}: {done} steps of {len(report.taken)} kinds "
        f"taken, {sum(sum(each.values()) for each in report.refused.values())} refused "
        f"for {words} preconditions."
    )
    table = Table("instruction", "taken", "refused", box=None)
    for kind in sorted({*report.taken, *report.refused}):
        why = ", ".join(f"{word} {n}" for word, n in report.refused.get(kind, {}).items())
        table.add_row(kind, str(report.taken.get(kind, 0)), why)
    console.print(table)
    if report.untried:
        console.print(f"[yellow]Never tried:[/] {', '.join(report.untried)}")
    found = report.finding
    if found is None:
        console.print("[green]All mean afterwards what they meant before.[/]")
        return
    console.print(f"[red]Wrong:[/] {found.step} in case {found.case}: ", end="")
    print(found.reason)
    print("\n".join(found.trace))
    console.print("A smallest case, as a test:\n")
    print(found.pytest)
