"""Kinds of fuzzing as the command line has them: one declaration each, all else written once.

FuzzKind(name, cases, about, epilog, options, run, summary, good, ...)
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from plica.cli.option import natural, positive, seconds
from plica.cli.progress import progress
from plica.cli.rules import count
from plica.runtime.late import late

if TYPE_CHECKING:
    from plica.rewrite.fuzz.report import Finding, FuzzReport

    Report: TypeAlias = FuzzReport[Finding]

Say: TypeAlias = Callable[[str], None]

EXAMPLES: Final = 200

Option: TypeAlias = "tuple[str, Mapping[str, Any]]"


def option(name: str, **settings: Any) -> Option:
    """An option of a verb, with argparse's settings."""
    return name, settings


def _nothing(arguments: argparse.Namespace) -> Sequence[Any]:
    return ()


@dataclass(frozen=True, eq=False)
class FuzzKind:
    """A kind of fuzzing: its name, how cases run, and how results are shown."""

    name: str
    cases: str
    """The plural noun for cases."""
    about: str
    epilog: str
    run: Callable[[argparse.Namespace, int, int, Say], Report]
    """This many cases from a number on, as options say; it may end with its first finding."""
    summary: Callable[[Report, argparse.Namespace], Iterable[object]]
    """The text printed before findings."""
    good: str
    """The text printed if there are no findings."""
    goal: int
    """How many cases belong to a whole campaign over all kinds."""
    together: int
    """Cases of a share: some seconds of work."""
    options: tuple[Option, ...] = ()
    check: Callable[[argparse.Namespace], object] = _nothing
    """Refuses options that do not fit."""
    asked: Callable[[argparse.Namespace], Iterable[tuple[str, str]]] = _nothing
    """Requested items: groups and names of counts that must not stay zero."""
    idle: Callable[[argparse.Namespace, Report], Sequence[str]] = lambda *_: ()
    """The failure message for requested items that were not exercised in a local run."""
    after: Callable[[argparse.Namespace, Report], Mapping[str, str | None]] = lambda *_: {}
    """What follows a local run, as JSON data and as text."""
    every: Callable[[], Mapping[str, Iterable[str]]] = dict
    """All that can fire, by group; what never did is listed."""
    listed: tuple[str, ...] = ()
    """Groups of counts whose names are printed."""
    needs: tuple[str, ...] = ()
    """Packages without which it is left out."""
    ways: tuple[tuple[str, ...], ...] = ((),)
    """Options of shares in a campaign over all kinds, in rotation."""
    numbers: int = 8
    """How many numbers of cases a share may use up for each that runs: some cases say nothing."""

    def __reduce__(self) -> tuple[Callable[[str], FuzzKind], tuple[str]]:
        """By its name, when options are given to another process."""
        return _by_name, (self.name,)

    # Any: what argparse's subparsers are has no public name.
    def configure(self, verbs: Any) -> None:
        """Adds the verb, with the common options and its own."""
        parser = verbs.add_parser(
            self.name, help=self.about, epilog=self.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        add, cases = parser.add_argument, self.cases
        add("--examples", type=count, metavar="N",
            help=f"number of {cases} ({EXAMPLES}, or as time allows)")  # fmt: skip
        add(
            "--seed",
            type=int,
            default=0,
            help=f"random seed; the same seed gives the same {cases} (0)",
        )
        add("--first", type=natural, default=0, help="number of the first case (0)")
        add_jobs(parser)
        for name, settings in self.options:
            add(name, **settings)
        parser.set_defaults(verb=self.verb)

    def verb(self, arguments: argparse.Namespace) -> int:
        """Run cases here, or as a campaign; exit code 1 where something is wrong."""
        self.check(arguments)
        if arguments.seconds or arguments.jobs or arguments.corpus or arguments.keep_going:
            code: int = late("plica.cli.fuzz.campaign:campaign")(self, arguments)
            return code
        examples = examples_of(arguments)
        with progress(self.cases, examples) as say:
            report = self.run(arguments, arguments.first, examples, say)
        idle = [] if report.findings else self.idle(arguments, report)
        if arguments.json:
            print(json.dumps({**report.to_data(), **self.after(arguments, report)}, indent=2))
        else:
            self.show(report, arguments)
            done = self.after(arguments, report).items()
            lines = [f"{word}: {value}" for word, value in done if value is not None]
            print("\n".join([*idle, *lines]), end="\n" if idle or lines else "")
        return 1 if report.findings or idle else 0

    def lists(self, report: Report) -> list[str]:
        """A line for each name in the groups that are listed."""
        return [f"{group}: {name}" for group in self.listed for name in report[group]]

    def show(self, report: Report, arguments: argparse.Namespace) -> None:
        """Prints the counts, and the findings or success."""
        from rich.console import Console

        from plica.rewrite.fuzz.report import FILES

        console = Console(highlight=False, soft_wrap=True)
        for line in self.summary(report, arguments):
            console.print(line, markup=False)
        print("".join(f"{line}\n" for line in self.lists(report)), end="")
        if not report.findings:
            console.print(self.good, style="green")
        for wrong in report.findings:
            console.print(f"Wrong ({wrong.kind}): ", style="red", end="")
            print(f"case {wrong.case}, {wrong.guilty}: {wrong.reason}")
            for part in wrong.parts:
                print(part)
            print("A minimal case, as a test:\n")
            print(wrong.pytest.replace(FILES, wrong.stem))


def _by_name(name: str) -> FuzzKind:
    found: FuzzKind = late("plica.cli.fuzz.table:kind_named")(name)
    return found


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """For how long, on how many cores, where findings go and whether to go on after one."""
    parser.add_argument("--seconds", type=seconds, help="time limit in seconds")
    parser.add_argument("--jobs", type=positive, metavar="J", help="the number of processes")
    parser.add_argument("--corpus", type=Path, metavar="DIR",
                        help="write every finding there as a test file")  # fmt: skip
    parser.add_argument("--keep-going", action="store_true", help="continue after a finding")
    parser.add_argument("--json", action="store_true", help="print JSON")


def examples_of(arguments: argparse.Namespace) -> int:
    """The requested number of cases."""
    return EXAMPLES if arguments.examples is None else int(arguments.examples)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_names(given: Iterable[str], known: Collection[str], what: str) -> None:
    """Refuse a name that is not known."""
    from plica.core.diagnostic import did_you_mean
    from plica.runtime.error import Diagnostic, InputError

    for name in given:
        if name not in known:
            message, hint = f"There is no {what} {name!r}.", did_you_mean(name, known)
            found = ", ".join(known) if len(known) < 20 else None
            raise InputError(Diagnostic("unbound-name", message, None, found, name, hint))
