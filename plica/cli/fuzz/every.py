"""Options that every fuzzer takes, and `plica fuzz all`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, Final

from plica.cli.option import natural, positive, seconds
from plica.cli.rules import count
from plica.runtime.late import late

EXAMPLES: Final = 200
EPILOG: Final = """\
examples:
  plica fuzz all --seconds 600 --corpus found/
  plica fuzz all --seconds 60 --jobs 2 --only gradient --only torch --seed 7

Every kind gets its share of the time: cases of each in the proportion of the targets.  Findings are
kept, each once, as files of tests; the seed is drawn anew unless it is given.
"""


def add_campaign(parser: argparse.ArgumentParser, cases: str) -> None:
    """How many cases, from which on, for how long, on how many cores; where findings go."""
    parser.add_argument("--examples", type=count, metavar="N",
                        help=f"how many {cases} ({EXAMPLES}, or as time allows)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0,
                        help=f"the same seed, the same {cases}, one after another")  # fmt: skip
    parser.add_argument("--first", type=natural, default=0, help="the number of the first (0)")
    add_jobs(parser)


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """For how long, on how many cores, where findings go and whether to go on after one."""
    parser.add_argument("--seconds", type=seconds, help="so long, whatever the number")
    parser.add_argument("--jobs", type=positive, metavar="J", help="in so many processes")
    parser.add_argument("--corpus", type=Path, metavar="DIR",
                        help="keep every finding there, as a file of tests")  # fmt: skip
    parser.add_argument("--keep-going", action="store_true", help="go on after a finding")
    parser.add_argument("--json", action="store_true", help="print JSON")


def in_jobs(arguments: argparse.Namespace) -> bool:
    """Whether cases run in processes of their own."""
    return bool(
        arguments.seconds or arguments.jobs or arguments.corpus or arguments.keep_going
    )  # fmt: skip


def examples_of(arguments: argparse.Namespace) -> int:
    """How many cases are asked for."""
    return EXAMPLES if arguments.examples is None else int(arguments.examples)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Any: what argparse's subparsers are has no public name.
def configure(verbs: Any) -> None:
    """The options of `plica fuzz all`."""
    parser = verbs.add_parser(
        "all",
        help="every kind in turn, for so long, on all cores",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", default=[], metavar="KIND",
                        help="this kind; repeatable (all)")  # fmt: skip
    parser.add_argument("--seed", type=int, help="the same seed, the same cases (drawn anew)")
    add_jobs(parser)
    parser.set_defaults(verb=fuzz_all, seconds=60.0, keep_going=True)


def fuzz_all(arguments: argparse.Namespace) -> int:
    """Exit code 1 where anything was found, or a kind that could run did not."""
    code: int = late("plica.cli.fuzz.campaign:campaign_of_all")(arguments)
    return code


def begin(kind: str, arguments: argparse.Namespace) -> int:
    """Begin a campaign of one kind, which knows all kinds."""
    code: int = late("plica.cli.fuzz.campaign:campaign")(kind, arguments)
    return code
