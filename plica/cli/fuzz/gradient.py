"""`plica fuzz gradient`: programs of differentiable operators, slopes held to differences."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from plica.cli.fuzz.share import FoundCase, FuzzKind, FuzzShare, Say
from plica.cli.fuzz.verb import ToldCase, add_verb, check_names, drive, tell

if TYPE_CHECKING:
    from plica.rewrite.fuzz.gradient import GradientFuzzReport

EPILOG: Final = """\
examples:
  plica fuzz gradient --examples 3000
  plica fuzz gradient --operator nn.conv --operator sort --native 1
"""


# Any: what argparse's subparsers are has no public name.
def configure(verbs: Any) -> None:
    """The options of the verb."""
    about = "programs of differentiable operators; gradients beside finite differences"
    parser = add_verb(verbs, "gradient", "programs", about, EPILOG, fuzz_gradient)
    parser.add_argument("--operator", action="append", default=[], metavar="NAME",
                        help="try this operator; repeatable (all, in turn)")  # fmt: skip
    parser.add_argument("--native", type=int, default=5, metavar="K",
                        help="compile and run every K-th gradient too (5; 0: none)")  # fmt: skip


def fuzz_gradient(arguments: argparse.Namespace) -> int:
    """Exit code 1 where a gradient is not what differences say, or its code gives another."""
    from plica.rewrite.fuzz.gradient.table import differentiable

    check_names(arguments.operator, differentiable(), "differentiable operator")
    return drive("gradient", "programs", arguments, _fuzzed, _print)


def _fuzzed(
    arguments: argparse.Namespace, first: int, examples: int, say: Say
) -> GradientFuzzReport:
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


def share(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> FuzzShare:
    """So many programs, and the operators in them."""
    report = _fuzzed(arguments, first, examples, say)
    counts = {
        "operators": report.operators,
        "programs": {"forward": report.forward, "compiled": report.compiled},
        "skipped": report.skipped,
    }
    if (found := report.finding) is None:
        return FuzzShare(report.examples, counts)
    kept = FoundCase(found.op, found.reason, found.case, found.pytest)
    return FuzzShare(report.examples, counts, (kept,))


def asked(arguments: argparse.Namespace) -> Iterable[tuple[str, str]]:
    """The operators that somebody asks about."""
    return [("operators", each) for each in arguments.operator]


def every() -> Mapping[str, Iterable[str]]:
    """All differentiable operators."""
    from plica.rewrite.fuzz.gradient.table import differentiable

    return {"operators": differentiable()}


KIND: Final = FuzzKind("gradient", "programs", 6_000, 40, share, asked, every, numbers=1)


def _print(report: GradientFuzzReport) -> None:
    rarest = min(report.ops, key=lambda name: report.operators.get(name, 0))
    counted = (
        f"{report.examples} programs, seed {report.seed}, of {len(report.operators)} operators, "
        f"each in {report.operators.get(rarest, 0)} or more ({rarest}); "
        f"{report.forward} in forward mode too, {report.compiled} compiled; "
        f"{sum(report.skipped.values())} drawn without a slope."
    )
    each, wrong = report.finding, None
    if each is not None:
        wrong = ToldCase(f"case {each.case}: {each.op}", each.reason, each.pytest)
    tell([counted], "All slopes are what differences say.", wrong)
