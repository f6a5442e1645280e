"""`plica fuzz prove`: mutants of proved rules, none of which may be proved if it is wrong."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from plica.cli.fuzz.kind import FuzzKind, Say, option
from plica.cli.named_pack import named_packs
from plica.cli.option import positive

if TYPE_CHECKING:
    from plica.cli.fuzz.kind import Report
    from plica.rewrite.rule import Rule

EPILOG: Final = """\
examples:
  plica fuzz prove --examples 100 --pack logic --pack motion
  plica fuzz prove --examples 2000 --jobs 16 --keep-going --json
"""


@lru_cache(maxsize=8)
def rules_of(packs: tuple[str, ...]) -> Sequence[Rule]:
    """The rules of some packs, each once; of none, all that Plica ships."""
    from plica.rewrite.packs import OWN

    names = packs or tuple(sorted(OWN))
    return tuple(dict.fromkeys(r for name in names for pack in named_packs(name) for r in pack))


def fuzz_prover(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> Report:
    """Mutants of the packs' rules: instances and the prover tried on each."""
    from plica.rewrite.prove.fuzz import fuzz

    rules, seed = rules_of(tuple(arguments.pack or ())), arguments.seed
    return fuzz(rules, examples, seed, first=first, instances=arguments.instances, say=say)


def every() -> Mapping[str, Iterable[str]]:
    """The kinds of mistakes."""
    return {"mistakes": ("term", "guard", "contract")}


def summary(report: Report, arguments: argparse.Namespace) -> list[str]:
    """What became of mutants."""
    words = ("refuted", "still right", "right of reals", "open", "error")
    counted = ", ".join(f"{report.number(word)} {word}" for word in words)
    rules = len(report["rules"])
    return [f"{report.examples} mutants of {rules} rules, seed {report.seed}: {counted}."]


KIND: Final = FuzzKind(
    "prove",
    "mutants",
    "wrong rules made of proved ones, none of which may be proved",
    EPILOG,
    fuzz_prover,
    summary,
    "No wrong rule is proved.",
    goal=2_000,
    together=5,
    options=(
        option("--instances", type=positive, default=60,
               help="instances that a mutant is tried on (60)"),
        option("--pack", action="append", metavar="PACK",
               help="mutate this pack; repeatable (all that Plica ships)"),
    ),
    every=every,
    listed=("still right", "right of reals", "open"),
    needs=("z3",),
    numbers=4,
)  # fmt: skip
