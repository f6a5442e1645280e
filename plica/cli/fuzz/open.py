"""`plica fuzz open`: random programs with open sizes, one code for each, at many sizes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from plica.cli.fuzz.kind import FuzzKind, Say, option
from plica.cli.rules import count

if TYPE_CHECKING:
    from plica.cli.fuzz.kind import Report
    from plica.ir.graph.module import Module
    from plica.runtime.executable import Executable

EPILOG: Final = """\
examples:
  plica fuzz open --examples 500
  plica fuzz open --seed 7 --findings 5
  plica fuzz open --seed 7 --first 318 --examples 1      one case again

Programs run in processes of their own: one that dies is a finding, and the rest goes on.
"""


def open_code(module: Module, threads: int, contract: str | None) -> Executable:
    """A module's single code for all sizes; refused if there is none."""
    from plica.codegen.llvm.toolchain import host
    from plica.pipeline import compile
    from plica.pipeline.compiled import lower
    from plica.pipeline.option import contract_of
    from plica.runtime.selecting_executable import SelectingExecutable

    made = compile(module, threads=threads, contract=contract)
    if isinstance(made, SelectingExecutable) and made.selector.whole is not None:
        lower(made.selector.whole, contract_of(contract), target=host())  # says why
    return made


def fuzz_open(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> Report:
    """Programs of one code each, at several sizes."""
    from plica.codegen.open_fuzz import fuzz

    return fuzz(
        open_code,
        examples,
        arguments.seed,
        first=first,
        most=arguments.length,
        findings=arguments.findings,
        say=say,
    )


def summary(report: Report, arguments: argparse.Namespace) -> list[str]:
    """Which programs have one code, and why others have none."""
    dims = ", ".join(f"{count} with {dims} dims" for dims, count in report["dims"].items())
    operators, number = report["operators"], report.number
    counted = (
        f"{report.examples} programs, seed {report.seed} ({dims}): {sum(operators.values())} "
        f"operators of {len(operators)} kinds; {number('compiled')} have one code, which was "
        f"compared at {number('runs')} sizes; {number('without_value')} sizes have no value."
    )
    return [counted, *[f"No one code: {why} ({n})" for why, n in report["refused"].items()]]


KIND: Final = FuzzKind(
    "open",
    "programs",
    "programs with open sizes, compiled once, run at several sizes",
    EPILOG,
    fuzz_open,
    summary,
    "All compute what they mean.",
    goal=500,
    together=4,
    options=(
        option("--length", type=count, default=6, help="operators of each, at most (6)"),
        option("--findings", type=count, default=1, help="stop after this number of findings (1)"),
    ),
)
