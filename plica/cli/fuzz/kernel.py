"""`plica fuzz kernel`: kernels through random traces, lowering and LLVM, run natively."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NoReturn

from plica.cli.fuzz.kind import FuzzKind, Say, option

if TYPE_CHECKING:
    from plica.cli.fuzz.kind import Report

EPILOG: Final = """\
examples:
  plica fuzz kernel --examples 3000 --guard
  plica fuzz kernel --plant bound       plant a wrong bound, which must be found
  plica fuzz kernel --plant emitter     plant a mistake in the LLVM IR

Kernels run in processes of their own; a crash is a finding, and the others continue.
"""


def fuzz_kernel(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> Report:
    """Kernels by the code of a target; on a GPU every array has an edge that is looked at."""
    if arguments.target == "cuda":
        from plica.codegen.cuda.fuzz import fuzz as fuzz_on_gpu

        length = arguments.length
        return fuzz_on_gpu(examples, arguments.seed, first=first, length=length, say=say)
    from plica.codegen.fuzz import fuzz
    from plica.codegen.plant import PASSES, wrong_entry
    from plica.codegen.subject import CPU

    return fuzz(
        examples,
        arguments.seed,
        first=first,
        length=arguments.length,
        guard=arguments.guard,
        passes=PASSES.get(arguments.plant, CPU),
        target=arguments.target,
        entry=wrong_entry if arguments.plant == "emitter" else None,
        say=say,
    )


def check(arguments: argparse.Namespace) -> None:
    """Refuse mistakes and guards that a target has not."""
    if arguments.target == "cuda" and (arguments.plant or arguments.guard):
        message = "--plant and --guard need a CPU target."
        _refuse_plant(message, "--plant" if arguments.plant else "--guard")
    if arguments.plant == "emitter" and arguments.target != "cpu":
        _refuse_plant("A mistake is planted in the emitter of LLVM.", arguments.target)


def _refuse_plant(message: str, found: str) -> NoReturn:
    from plica.runtime.error import Diagnostic, UnsupportedError

    raise UnsupportedError(Diagnostic("unsupported", message, None, "--target cpu", found))


def every() -> Mapping[str, Iterable[str]]:
    """The kinds of loops that code for processors has."""
    return {"loops": ("parallel", "serial", "unrolled", "vectorized")}


def summary(report: Report, arguments: argparse.Namespace) -> list[str]:
    """The exercised steps and loops, and those that were not."""
    steps, guarded = report["steps"], ""
    if arguments.guard:
        guarded = ", every array guarded at its end and at its start"
    loops = report["loops"] or report["kinds"]
    told = ", ".join(f"{count} {kind}" for kind, count in loops.items())
    return [
        f"{report.examples} kernels, seed {report.seed}, run natively after "
        f"{sum(steps.values())} steps of {len(steps)} kinds{guarded}.",
        f"{'Kinds' if report['kinds'] else 'Loops'}: {told or 'none'}.",
        *[f"Not run: {reason} ({times})." for reason, times in report["skipped"].items()],
    ]


KIND: Final = FuzzKind(
    "kernel",
    "kernels",
    "kernels through random traces, lowering and LLVM, run natively",
    EPILOG,
    fuzz_kernel,
    summary,
    "All compute what they mean.",
    goal=20_000,
    together=30,
    options=(
        option("--length", type=int, default=6, help="schedule steps per kernel (6)"),
        option("--guard", action="store_true",
               help="put every array next to unmapped memory, first its end, then its start"),
        option("--plant", choices=("bound", "order", "race", "emitter"),
               help="plant a mistake in a lowering pass or the emitter; it must be found"),
        option("--target", default="cpu",
               help="the target: cpu, c, or cuda on the GPU of this machine (cpu)"),
    ),
    check=check,
    every=every,
    ways=((), ("--guard",)),
)  # fmt: skip
