"""`plica fuzz stablehlo`: random programs as StableHLO, compared with XLA and read back."""

from __future__ import annotations

import argparse
import importlib.util
from typing import TYPE_CHECKING, Final

from plica.cli.fuzz.kind import FuzzKind, Say, option
from plica.cli.rules import count

if TYPE_CHECKING:
    from plica.cli.fuzz.kind import Report

EPILOG: Final = """\
examples:
  plica fuzz stablehlo --examples 500
  plica fuzz stablehlo --length 2 --seed 7
"""


def check(arguments: argparse.Namespace) -> None:
    """Refuse to compare with XLA where it is not installed."""
    from plica.runtime.error import Diagnostic, UnsupportedError

    if importlib.util.find_spec("jax") is None:
        message = "Programs are compared with XLA, which comes with jax and is not installed."
        hint = "Install it: pip install jax."
        raise UnsupportedError(Diagnostic("missing-tool", message, None, "jax", None, hint))


def fuzz_stablehlo(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> Report:
    """Programs that are written, run by XLA, and read back."""
    from plica.frontend.stablehlo.fuzz import fuzz
    from plica.frontend.stablehlo.fuzz.xla import run

    return fuzz(run, examples, arguments.seed, first=first, most=arguments.length, say=say)


def summary(report: Report, arguments: argparse.Namespace) -> list[str]:
    """Which operators were written, and why programs were refused."""
    operators, refused, skipped = report["operators"], report["refused"], report["skipped"]
    counted = (
        f"{report.examples} programs, seed {report.seed}: {sum(operators.values())} operators of "
        f"{len(operators)} kinds; {sum(refused.values())} refused, {sum(skipped.values())} drawn "
        "without a value."
    )
    return [counted, *[f"Refused: {why} ({times})" for why, times in refused.items()]]


KIND: Final = FuzzKind(
    "stablehlo",
    "programs",
    "programs written as StableHLO, against XLA, and read back",
    EPILOG,
    fuzz_stablehlo,
    summary,
    "XLA and the reader compute what all mean.",
    goal=1_000,
    together=10,
    options=(
        option("--length", type=count, default=6, help="operators of each, at most (6)"),
    ),
    check=check,
    needs=("jax",),
)  # fmt: skip
