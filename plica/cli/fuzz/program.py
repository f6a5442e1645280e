"""`plica fuzz gradient`, `open`, `mesh` and `prove`: random programs and rules, held to what
follows from their meaning."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from plica.cli.fuzz.kind import FuzzKind, Say, by_template, check_names, option
from plica.cli.named_pack import named_packs
from plica.cli.option import positive
from plica.cli.rules import count

if TYPE_CHECKING:
    from plica.cli.fuzz.kind import Report
    from plica.ir.graph.module import Module
    from plica.rewrite.rule import Rule
    from plica.runtime.executable import Executable


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


def check_operators(arguments: argparse.Namespace) -> None:
    """Refuse operators that have no gradient."""
    check_names(arguments.operator, every_operator()["operators"], "differentiable operator")


def every_operator() -> Mapping[str, tuple[str, ...]]:
    """All differentiable operators."""
    from plica.rewrite.fuzz.gradient.case import differentiable

    return {"operators": differentiable()}


def gradient_summary(report: Report, arguments: argparse.Namespace) -> Iterable[object]:
    """How often each operator was in a program."""
    operators = report["operators"]
    rarest = min(report.settings["ops"], key=lambda name: operators.get(name, 0))
    return by_template(
        "{examples} programs, seed {seed}, of {operators:kinds} operators, "
        f"each in {operators.get(rarest, 0)} or more ({rarest}); "
        "{forward} in forward mode too, {compiled} compiled; {skipped:times} drawn without a slope."
    )(report, arguments)


GRADIENT: Final = FuzzKind(
    "gradient",
    "programs",
    "gradients of programs of differentiable operators, against finite differences",
    ("--examples 3000", "--operator nn.conv --operator sort --native 1"),
    fuzz_gradient,
    gradient_summary,
    "All slopes are what differences say.",
    goal=6_000,
    together=40,
    options=(
        option("--operator", action="append", default=[], metavar="NAME",
               help="try this operator; repeatable (all, in turn)"),
        option("--native", type=int, default=5, metavar="K",
               help="compile and run every K-th gradient too (5; 0: none)"),
    ),
    check=check_operators,
    asked=lambda arguments: [("operators", name) for name in arguments.operator],
    every=every_operator,
    numbers=1,
)  # fmt: skip


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


OPEN: Final = FuzzKind(
    "open",
    "programs",
    "programs with open sizes, compiled once, run at several sizes",
    ("--examples 500",
     "--seed 7 --findings 5",
     "--seed 7 --first 318 --examples 1      one case again"),
    fuzz_open,
    by_template(
        "{examples} programs, seed {seed} ({dims:with each dims}): {operators:times} operators of "
        "{operators:kinds} kinds; {compiled} have one code, which was compared at {runs} sizes; "
        "{without_value} sizes have no value.",
        refused="No one code",
    ),
    "All compute what they mean.",
    goal=500,
    together=4,
    options=(
        option("--length", type=count, default=6, help="operators of each, at most (6)"),
        option("--findings", type=count, default=1, help="stop after this number of findings (1)"),
    ),
    remarks=(
        "Programs run in processes of their own: one that dies is a finding, the rest goes on.",
    ),
)  # fmt: skip


def fuzz_mesh(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> Report:
    """Programs under plans, simulated."""
    from plica.mesh.fuzz import fuzz

    return fuzz(examples, arguments.seed, first=first, ops=tuple(arguments.operator), say=say)


def mesh_summary(report: Report, arguments: argparse.Namespace) -> list[str]:
    """How many programs were split, and by which collectives."""
    counts = ", ".join(f"{count} {name}" for name, count in report["collectives"].items())
    return [
        f"{report.examples} programs, seed {report.seed}, of {len(report['operators'])} operators; "
        f"{report.number('split')} hold something in blocks; {counts or 'nothing exchanged'}."
    ]


MESH: Final = FuzzKind(
    "mesh",
    "programs",
    "programs under random plans, on simulated devices",
    ("--examples 2000", "--operator nn.conv --operator matmul"),
    fuzz_mesh,
    mesh_summary,
    "All compute what they mean.",
    goal=2_000,
    together=20,
    options=(
        option("--operator", action="append", default=[], metavar="NAME",
               help="draw these operators only; repeatable"),
    ),
    check=check_operators,
    every=lambda: {
        "collectives": ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "own_block")
    },
)  # fmt: skip


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


PROVE: Final = FuzzKind(
    "prove",
    "mutants",
    "wrong rules made of proved ones, none of which may be proved",
    ("--examples 100 --pack logic --pack motion", "--examples 2000 --jobs 16 --keep-going --json"),
    fuzz_prover,
    by_template(
        "{examples} mutants of {rules:kinds} rules, seed {seed}: {refuted} refuted, {still right} "
        "still right, {right of reals} right of reals, {open} open, {error} error."
    ),
    "No wrong rule is proved.",
    goal=2_000,
    together=5,
    options=(
        option("--instances", type=positive, default=60,
               help="instances that a mutant is tried on (60)"),
        option("--pack", action="append", metavar="PACK",
               help="mutate this pack; repeatable (all that Plica ships)"),
    ),
    every=lambda: {"mistakes": ("term", "guard", "contract")},
    listed=("still right", "right of reals", "open"),
    needs=("z3",),
    numbers=4,
)  # fmt: skip
