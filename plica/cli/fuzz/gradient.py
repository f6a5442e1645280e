"""`plica fuzz gradient`: programs of differentiable operators, gradients compared with finite
differences."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from plica.cli.fuzz.kind import FuzzKind, Say, check_names, option

if TYPE_CHECKING:
    from plica.cli.fuzz.kind import Report

EPILOG: Final = """\
examples:
  plica fuzz gradient --examples 3000
  plica fuzz gradient --operator nn.conv --operator sort --native 1
"""


def fuzz_gradient(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> Report:
    """Programs of the requested operators, some of them compiled."""
    from plica.cli.fuzz.graph import native
    from plica.rewrite.fuzz.gradient import fuzz

    return fuzz(
        examples,
        arguments.seed,
        first=first,
        native=native if arguments.native > 0 else None,
        every=arguments.native,
        ops=tuple(arguments.operator),
        say=say,
    )


def check(arguments: argparse.Namespace) -> None:
    """Refuse operators that have no gradient."""
    check_names(arguments.operator, every()["operators"], "differentiable operator")


def asked(arguments: argparse.Namespace) -> Iterable[tuple[str, str]]:
    """The requested operators."""
    return [("operators", name) for name in arguments.operator]


def every() -> Mapping[str, tuple[str, ...]]:
    """All differentiable operators."""
    from plica.rewrite.fuzz.gradient.case import differentiable

    return {"operators": differentiable()}


def summary(report: Report, arguments: argparse.Namespace) -> list[str]:
    """How often each operator was in a program."""
    operators = report["operators"]
    rarest = min(report.settings["ops"], key=lambda name: operators.get(name, 0))
    return [
        f"{report.examples} programs, seed {report.seed}, of {len(operators)} operators, "
        f"each in {operators.get(rarest, 0)} or more ({rarest}); "
        f"{report.number('forward')} in forward mode too, {report.number('compiled')} compiled; "
        f"{sum(report['skipped'].values())} drawn without a slope."
    ]


KIND: Final = FuzzKind(
    "gradient",
    "programs",
    "gradients of programs of differentiable operators, against finite differences",
    EPILOG,
    fuzz_gradient,
    summary,
    "All slopes are what differences say.",
    goal=6_000,
    together=40,
    options=(
        option("--operator", action="append", default=[], metavar="NAME",
               help="try this operator; repeatable (all, in turn)"),
        option("--native", type=int, default=5, metavar="K",
               help="compile and run every K-th gradient too (5; 0: none)"),
    ),
    check=check,
    asked=asked,
    every=every,
    numbers=1,
)  # fmt: skip
