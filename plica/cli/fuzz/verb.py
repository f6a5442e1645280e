"""Verbs of fuzzers: the options of a kind, how its cases are run here, and what is said at the end.

>>> tell(["2 kernels, seed 0."], "All compute what they mean.", None)
2 kernels, seed 0.
All compute what they mean.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from operator import attrgetter, methodcaller
from typing import Any, Protocol, TypeVar

from plica.cli.fuzz.every import add_campaign, begin, examples_of, in_jobs
from plica.cli.fuzz.share import Say
from plica.cli.progress import progress


class FuzzReport(Protocol):
    """What a fuzzer has counted and found."""

    def to_data(self) -> dict[str, Any]:
        """The report as JSON holds it."""


R = TypeVar("R", bound=FuzzReport)
Fuzzed = Callable[[argparse.Namespace, int, int, Say], R]
"""So many cases from a number on, as options say."""


@dataclass(frozen=True, slots=True)
class ToldCase:
    """A finding as it is said: where, what, and the smallest text that shows it."""

    place: str
    reason: str
    text: str
    title: str = "A smallest case, as a test:\n"
    kind: str = ""


# Any: what argparse's subparsers are has no public name.
def add_verb(  # noqa: PLR0917  # what argparse asks of a verb
    verbs: Any,
    name: str,
    cases: str,
    about: str,
    epilog: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    """The parser of a kind of fuzzer, with the options that every kind takes."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=about, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_campaign(parser, cases)
    parser.set_defaults(verb=run)
    return parser


def check_names(given: Iterable[str], known: Collection[str], what: str) -> None:
    """Refuse a name that is not known."""
    from plica.core.diagnostic import did_you_mean
    from plica.runtime.error import Diagnostic, InputError

    for each in given:
        if each not in known:
            message, hint = f"There is no {what} {each!r}.", did_you_mean(each, known)
            raise InputError(Diagnostic("unbound-name", message, suggestion=hint))


def drive(  # noqa: PLR0917  # the parts of a verb
    kind: str,
    cases: str,
    arguments: argparse.Namespace,
    fuzzed: Fuzzed[R],
    show: Callable[[R], object],
    data: Callable[[R], object] = methodcaller("to_data"),
    wrong: Callable[[R], object] = attrgetter("finding"),
) -> int:
    """Run a kind here, or as a campaign; exit code 1 where something is wrong."""
    if in_jobs(arguments):
        return begin(kind, arguments)
    with progress(cases, examples_of(arguments)) as say:
        report = fuzzed(arguments, arguments.first, examples_of(arguments), say)
    if arguments.json:
        print(json.dumps(data(report), indent=2))
    else:
        show(report)
    return 1 if wrong(report) else 0


def tell(lines: Iterable[object], good: str, *given: ToldCase | None) -> None:
    """Print what was counted, and what was found or that all is well."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for each in lines:
        console.print(each, markup=False)
    if not (found := [each for each in given if each is not None]):
        console.print(good, style="green")
    for wrong in found:
        console.print(f"Wrong ({wrong.kind}): " if wrong.kind else "Wrong: ", style="red", end="")
        print(f"{wrong.place}: {wrong.reason}")
        print(wrong.title)
        print(wrong.text)
