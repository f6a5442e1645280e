"""`plica fuzz open`: random programs with open sizes, one code for each, at many sizes."""

from __future__ import annotations

import argparse
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from plica.cli.fuzz.share import FoundCase, FuzzKind, FuzzShare, Say
from plica.cli.fuzz.verb import ToldCase, add_verb, drive, tell
from plica.cli.rules import count

if TYPE_CHECKING:
    from plica.codegen.open_fuzz import Report
    from plica.ir.graph.module import Module
    from plica.runtime.executable import Executable

EPILOG: Final = """\
examples:
  plica fuzz open --examples 500
  plica fuzz open --seed 7 --findings 5
  plica fuzz open --seed 7 --first 318 --examples 1      one case again

Programs run in processes of their own: one that dies is a finding, and the rest goes on.
"""


# Any: what argparse's subparsers are has no public name.
def configure(verbs: Any) -> None:
    """The options of the verb."""
    about = "programs with open sizes, compiled once, at several sizes and under other names"
    parser = add_verb(verbs, "open", "programs", about, EPILOG, fuzz_open)
    parser.add_argument("--length", type=count, default=6, help="operators of each, at most (6)")
    parser.add_argument("--findings", type=count, default=1, help="stop after so many (1)")


def open_code(module: Module, threads: int, contract: str | None) -> Executable:
    """The one code of a module for all sizes; refused where there is none."""
    from plica.codegen.llvm.toolchain import host
    from plica.pipeline import compile
    from plica.pipeline.lowered import lower
    from plica.pipeline.option import contract_of
    from plica.pipeline.shape_specialisation import Specialised

    made = compile(module, threads=threads, contract=contract)
    if isinstance(made, Specialised) and made.whole is not None:
        lower(made.whole, contract_of(contract), target=host())  # says why
    return made


def fuzz_open(arguments: argparse.Namespace) -> int:
    """Exit code 1 where the code of a program gives another result than its meaning, or dies."""
    return drive("open", "programs", arguments, _fuzzed, _print, wrong=attrgetter("findings"))


def _fuzzed(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> Report:
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


def share(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> FuzzShare:
    """So many programs, and the operators in them."""
    report = _fuzzed(arguments, first, examples, say)
    counts = {
        "operators": report.operators,
        "programs": {"compiled": report.compiled, "sizes compared": report.runs,
                     "sizes without a value": report.without_value},
        "refused": report.refused,
    }  # fmt: skip
    found = tuple([
        FoundCase(each.kind, each.reason, each.case, as_pytest(each.script) if each.script else "")
        for each in report.findings
    ])  # fmt: skip
    return FuzzShare(report.examples, counts, found)


def as_pytest(script: str) -> str:
    """The script of a finding as a test."""
    head, _, body = script.partition("module = ")
    lines = "\n".join(f"    {line}" if line else "" for line in f"module = {body}".splitlines())
    return f"{head}\ndef test_open_sizes() -> None:\n{lines}\n"


KIND: Final = FuzzKind("open", "programs", 500, 4, share)


def _print(report: Report) -> None:
    dims = ", ".join(f"{report.dims[n]} with {n} dims" for n in sorted(report.dims))
    counted = (
        f"{report.examples} programs, seed {report.seed} ({dims}): {report.operators.total()} "
        f"operators of {len(report.operators)} kinds; {report.compiled} have one code, which was "
        f"compared at {report.runs} sizes; {report.without_value} sizes have no value."
    )
    refused = [f"No one code: {why} ({times})" for why, times in report.refused.most_common()]
    title = "A smallest case, as a script:\n"
    wrong = [
        ToldCase(f"case {each.case}", each.reason, each.script, title, each.kind)
        for each in report.findings
    ]
    tell([counted, *refused], "All compute what they mean.", *wrong)
