"""`plica fuzz mesh`: random programs under random plans on simulated devices."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from plica.cli.fuzz.gradient import every
from plica.cli.fuzz.kind import FuzzKind, Say, check_names, option

if TYPE_CHECKING:
    from plica.cli.fuzz.kind import Report

EPILOG: Final = """\
examples:
  plica fuzz mesh --examples 2000
  plica fuzz mesh --operator nn.conv --operator matmul
"""


def fuzz_mesh(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> Report:
    """Programs under plans, simulated."""
    from plica.mesh.fuzz import fuzz

    return fuzz(examples, arguments.seed, first=first, ops=tuple(arguments.operator), say=say)


def check(arguments: argparse.Namespace) -> None:
    """Refuse operators that are not drawn."""
    check_names(arguments.operator, every()["operators"], "differentiable operator")


def drawn() -> Mapping[str, Iterable[str]]:
    """The collectives that inference writes."""
    return {
        "collectives": ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "own_block")
    }


def summary(report: Report, arguments: argparse.Namespace) -> list[str]:
    """How many programs were split, and by which collectives."""
    counts = ", ".join(f"{count} {name}" for name, count in report["collectives"].items())
    return [
        f"{report.examples} programs, seed {report.seed}, of {len(report['operators'])} operators; "
        f"{report.number('split')} hold something in blocks; {counts or 'nothing exchanged'}."
    ]


KIND: Final = FuzzKind(
    "mesh",
    "programs",
    "programs under random plans, on simulated devices",
    EPILOG,
    fuzz_mesh,
    summary,
    "All compute what they mean.",
    goal=2_000,
    together=20,
    options=(
        option("--operator", action="append", default=[], metavar="NAME",
               help="draw these operators only; repeatable"),
    ),
    check=check,
    every=drawn,
)  # fmt: skip
