"""`plica fuzz schedule`: kernels through random traces of every kind of instruction, and default
traces of random stages with other numbers than they decided."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from plica.cli.fuzz.kind import FuzzKind, Say, check_names, option

if TYPE_CHECKING:
    from plica.cli.fuzz.kind import Report

EPILOG: Final = """\
examples:
  plica fuzz schedule --examples 3000
  plica fuzz schedule --focus split --focus fuse --length 12
  plica fuzz schedule --decisions --examples 1000
"""


def fuzz_schedule(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> Report:
    """Kernels through random traces, or default traces with changed numbers."""
    if arguments.decisions:
        from plica.codegen.form_fuzz import fuzz_decisions

        return fuzz_decisions(examples, arguments.seed, first=first, say=say)
    from plica.schedule.fuzz import fuzz

    return fuzz(examples, arguments.seed, first=first, length=arguments.length,
                focus=arguments.focus, say=say)  # fmt: skip


def check(arguments: argparse.Namespace) -> None:
    """Refuse kinds of instructions that are not known."""
    from plica.schedule.instruction import kinds

    check_names(arguments.focus, kinds(), "instruction")


def asked(arguments: argparse.Namespace) -> Iterable[tuple[str, str]]:
    """The kinds of steps in focus."""
    return [("taken", kind) for kind in arguments.focus]


def every() -> Mapping[str, Iterable[str]]:
    """All kinds of steps that a walk can take."""
    from plica.schedule.generate.step import untried
    from plica.schedule.instruction import kinds

    return {"taken": [kind for kind in kinds() if kind not in untried()]}


def summary(report: Report, arguments: argparse.Namespace) -> list[object]:
    """The steps taken, and those refused, by precondition."""
    from rich.table import Table
    from rich.text import Text

    taken, refused = report["taken"], report["refused"]
    done, refusals = sum(taken.values()), sum(refused.values())
    if arguments.decisions:
        told = ", ".join(f"{word} {count}" for word, count in refused.items())
        return [
            f"{report.examples} default traces of {len(report['templates'])} templates, seed "
            f"{report.seed}: {done} changed steps kept their meaning, {refusals} changed traces "
            f"were refused ({told or 'none'})."
        ]
    counted = (
        f"{report.examples} kernels, seed {report.seed}: {done} steps of {len(taken)} kinds taken, "
        f"{refusals} refused for {len(refused)} preconditions."
    )
    words: dict[str, Counter[str]] = {kind: Counter() for kind in taken}
    for each, times in refused.items():
        kind, _, word = each.partition(": ")
        words.setdefault(kind, Counter())[word] = times
    table = Table("instruction", "taken", "refused", box=None)
    for kind, why in sorted(words.items()):
        told = ", ".join(f"{word} {times}" for word, times in why.items())
        table.add_row(kind, str(taken.get(kind, 0)), told)
    untried = report.settings["untried"]
    return [
        counted,
        table,
        *([Text(f"Never tried: {', '.join(untried)}", "yellow")] * bool(untried)),
    ]


KIND: Final = FuzzKind(
    "schedule",
    "kernels",
    "kernels through random traces of every kind of instruction",
    EPILOG,
    fuzz_schedule,
    summary,
    "All mean afterwards what they meant before.",
    goal=10_000,
    together=50,
    options=(
        option("--length", type=int, default=8, help="schedule steps per kernel (8)"),
        option("--focus", action="append", default=[], metavar="KIND",
               help="try this kind of step more often; repeatable"),
        option("--decisions", action="store_true",
               help="change the decisions of default traces of random stages; the result "
                    "must be right or refused"),
    ),
    check=check,
    asked=asked,
    every=every,
    ways=((), (), (), ("--decisions",)),
)  # fmt: skip
