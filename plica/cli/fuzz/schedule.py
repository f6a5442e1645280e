"""`plica fuzz schedule`: kernels through random traces of every kind of instruction, and default
traces of random stages with other numbers than they decided."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from plica.cli.fuzz.share import FoundCase, FuzzKind, FuzzShare, Say
from plica.cli.fuzz.verb import ToldCase, add_verb, check_names, drive, tell

if TYPE_CHECKING:
    from plica.codegen.form_fuzz import DecisionReport
    from plica.schedule.fuzz import ScheduleFuzzReport as ScheduleReport
    from plica.schedule.fuzz import TraceFinding

EPILOG: Final = """\
examples:
  plica fuzz schedule --examples 3000
  plica fuzz schedule --focus split --focus fuse --length 12
  plica fuzz schedule --decisions --examples 1000
"""


# Any: what argparse's subparsers are has no public name.
def configure(verbs: Any) -> None:
    """The options of the verb."""
    about = "kernels through random traces of every kind of instruction"
    parser = add_verb(verbs, "schedule", "kernels", about, EPILOG, fuzz_schedule)
    parser.add_argument("--length", type=int, default=8, help="steps tried for each (8)")
    parser.add_argument("--focus", action="append", default=[], metavar="KIND",
                        help="try this kind of instruction more often; repeatable")  # fmt: skip
    parser.add_argument("--decisions", action="store_true",
                        help="default traces of random stages, with their numbers changed: right "
                             "before and after lowering, or refused")  # fmt: skip


def fuzz_schedule(arguments: argparse.Namespace) -> int:
    """Exit code 1 where a trace changes what a kernel means, crashes, or is refused in silence."""
    from plica.schedule.instruction import kinds

    check_names(arguments.focus, kinds(), "instruction")
    if arguments.decisions:
        return drive("schedule", "default traces", arguments, _decided, _print_decided)
    return drive("schedule", "kernels", arguments, _fuzzed, _print)


def _fuzzed(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> ScheduleReport:
    from plica.schedule.fuzz import fuzz

    return fuzz(examples, arguments.seed, first=first, length=arguments.length,
                focus=arguments.focus, say=say)  # fmt: skip


def _decided(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> DecisionReport:
    from plica.codegen.form_fuzz import fuzz_decisions

    return fuzz_decisions(examples, arguments.seed, first=first, say=say)


def share(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> FuzzShare:
    """So many kernels, and the steps that were taken."""
    if arguments.decisions:
        decided = _decided(arguments, first, examples, say)
        groups = {"taken": decided.taken, "templates": decided.templates}
        return _shared(decided.examples, groups, decided.finding)
    report = _fuzzed(arguments, first, examples, say)
    refused = {kind: sum(words.values()) for kind, words in report.refused.items()}
    return _shared(report.examples, {"taken": report.taken, "refused": refused}, report.finding)


def _shared(
    examples: int, counts: Mapping[str, Mapping[str, int]], found: TraceFinding | None
) -> FuzzShare:
    if found is None:
        return FuzzShare(examples, counts)
    kept = FoundCase(found.step, found.reason, found.case, found.pytest)
    return FuzzShare(examples, counts, (kept,))


def asked(arguments: argparse.Namespace) -> Iterable[tuple[str, str]]:
    """The kinds of steps in focus."""
    return [("taken", each) for each in arguments.focus]


def every() -> Mapping[str, Iterable[str]]:
    """All kinds of steps that a walk can take."""
    from plica.schedule.generate.step import untried
    from plica.schedule.instruction import kinds

    return {"taken": [each for each in kinds() if each not in untried()]}


KIND: Final = FuzzKind(
    "schedule", "kernels", 10_000, 50, share, asked, every,
    ways=((), (), (), ("--decisions",)),
)  # fmt: skip


def _print_decided(report: DecisionReport) -> None:
    done = sum(report.taken.values())
    told = ", ".join(f"{word} {count}" for word, count in report.refused.items())
    refusals = sum(report.refused.values())
    counted = (
        f"{report.examples} default traces of {len(report.templates)} templates, seed "
        f"{report.seed}: {done} changed steps kept their meaning, {refusals} "
        f"changed traces were refused ({told or 'none'})."
    )
    each, wrong = report.finding, None
    if each is not None:
        reason = "\n".join((each.reason, *each.trace))
        wrong = ToldCase(f"{each.step} in case {each.case}", reason, each.pytest)
    tell([counted], "All give what their stages give, or are refused.", wrong)


def _print(report: ScheduleReport) -> None:
    from rich.table import Table
    from rich.text import Text

    done = sum(report.taken.values())
    words = sum(map(len, report.refused.values()))
    counted = (
        f"{report.examples} kernels, seed {report.seed}: {done} steps of {len(report.taken)} kinds "
        f"taken, {sum(sum(each.values()) for each in report.refused.values())} refused "
        f"for {words} preconditions."
    )
    table = Table("instruction", "taken", "refused", box=None)
    for kind in sorted({*report.taken, *report.refused}):
        why = ", ".join(f"{word} {n}" for word, n in report.refused.get(kind, {}).items())
        table.add_row(kind, str(report.taken.get(kind, 0)), why)
    never = [Text(f"Never tried: {', '.join(report.untried)}", "yellow")] if report.untried else []
    each, wrong = report.finding, None
    if each is not None:
        reason = "\n".join((each.reason, *each.trace))
        wrong = ToldCase(f"{each.step} in case {each.case}", reason, each.pytest)
    tell([counted, table, *never], "All mean afterwards what they meant before.", wrong)
