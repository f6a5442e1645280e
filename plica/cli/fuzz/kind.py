"""Kinds of fuzzing as the command line has them: one declaration each, all else written once.

FuzzKind(name, cases, about, examples, run, summary, good, goal=…, together=…, options=(…), ...)
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
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
Summary: TypeAlias = "Callable[[Report, argparse.Namespace], Iterable[object]]"

EXAMPLES: Final = 200

Option: TypeAlias = "tuple[str, Mapping[str, Any]]"


def option(name: str, **settings: Any) -> Option:
    """An option of a verb, with argparse's settings."""
    return name, settings


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure of a report in a template: of a group (`kinds`, `times`, `each`) or of cases."""

    report: Report
    name: str

    def __format__(self, form: str) -> str:
        counts = self.report[self.name]
        match form:
            case "kinds":
                return str(len(counts))
            case "times":
                return str(sum(counts.values()))
            case "":
                return str(self.report.settings.get(self.name, self.report.number(self.name)))
        return ", ".join(f"{count} {form.replace('each', name)}" for name, count in counts.items())


class _Figures(dict[str, object]):
    """The figures of a report by their names."""

    def __init__(self, report: Report) -> None:
        super().__init__(examples=report.examples, seed=report.seed)
        self._report = report

    def __missing__(self, name: str) -> _Figure:
        return _Figure(self._report, name)


def by_template(template: str, **reasons: str) -> Summary:
    """A summary by a template of figures; then a line for each count of a group, begun as given.

    >>> from plica.rewrite.fuzz.report import FuzzReport
    >>> report = FuzzReport(5, 7, {"ops": {"exp": 3, "tan": 1}, "refused": {"too large": 2}})
    >>> by_template("{examples} of {ops:kinds}: {ops:each}.", refused="No")(report, None)
    ['5 of 2: 3 exp, 1 tan.', 'No: too large (2)']
    """

    def summary(report: Report, arguments: argparse.Namespace) -> list[str]:
        lines = [template.format_map(_Figures(report))]
        for group, begun in reasons.items():
            lines += [f"{begun}: {why} ({times})" for why, times in report[group].items()]
        return lines

    return summary


def requires(package: str, message: str) -> Callable[[argparse.Namespace], None]:
    """A check that refuses to compare with what is not installed."""

    def check(arguments: argparse.Namespace) -> None:
        from plica.runtime.error import Diagnostic, UnsupportedError

        if find_spec(package) is None:
            hint = f"Install it: pip install {package}."
            raise UnsupportedError(Diagnostic("missing-tool", message, None, package, None, hint))

    return check


def _nothing(arguments: argparse.Namespace) -> Sequence[Any]:
    return ()


@dataclass(frozen=True, eq=False)
class FuzzKind:
    """A kind of fuzzing: its name, how cases run, and how results are shown."""

    name: str
    cases: str
    """The plural noun for cases."""
    about: str
    examples: Sequence[str]
    """Arguments of command lines that the help shows."""
    run: Callable[[argparse.Namespace, int, int, Say], Report]
    """This many cases from a number on, as options say; it may end with its first finding."""
    summary: Summary
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
    remarks: tuple[str, ...] = ()
    """Lines of the help after the examples."""
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
        lines = [f"  plica fuzz {self.name} {example}" for example in self.examples]
        parser = verbs.add_parser(
            self.name, help=self.about, epilog="\n".join(("examples:", *lines, "", *self.remarks)),
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
    fuzz_kind: FuzzKind = late("plica.cli.fuzz.table:kind_named")(name)
    return fuzz_kind


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
