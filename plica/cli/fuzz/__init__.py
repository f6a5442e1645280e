"""`plica fuzz`: random programs through passes, packs, schedules and code, compared with their
meaning.

One verb for each kind of program (`plica.cli.fuzz.table`), and `all` for all of them.
"""

from __future__ import annotations

import argparse
from typing import Final

from plica.cli.command import Command
from plica.cli.fuzz.kind import add_jobs
from plica.cli.fuzz.table import KINDS
from plica.cli.named_pack import run_verb
from plica.runtime.late import late

__all__ = ["COMMAND"]

EPILOG: Final = """\
examples:
  plica fuzz all --seconds 600 --corpus found/
  plica fuzz all --seconds 60 --jobs 2 --only gradient --only torch --seed 7

Every kind gets its share of the time: cases of each in the proportion of the targets.  Findings are
kept, each once, as files of tests; the seed is drawn anew unless it is given.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """A verb for each kind of program, and one for all of them."""
    verbs = parser.add_subparsers(metavar="WHAT", required=True)
    for kind in KINDS:
        kind.configure(verbs)
    every = verbs.add_parser(
        "all",
        help="every kind for a given time on all cores",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    every.add_argument("--only", action="append", default=[], metavar="KIND",
                       help="only this kind; repeatable (all)")  # fmt: skip
    every.add_argument("--seed", type=int, help="random seed (a fresh one, which is printed)")
    add_jobs(every)
    every.set_defaults(verb=fuzz_all, seconds=60.0, keep_going=True)


def fuzz_all(arguments: argparse.Namespace) -> int:
    """Exit code 1 where anything was found, or a kind that could run did not."""
    code: int = late("plica.cli.fuzz.campaign:campaign_of_all")(arguments)
    return code


COMMAND: Final = Command(
    "fuzz", "Compare random programs with the interpreter", run_verb, configure
)
