"""`plica fuzz kernel`: kernels through random traces, lowering and LLVM, run natively."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from plica.cli.fuzz.every import examples_of
from plica.cli.fuzz.share import FoundCase, FuzzKind, FuzzShare, Say
from plica.cli.fuzz.verb import ToldCase, add_verb, drive, tell

if TYPE_CHECKING:
    from plica.codegen.fuzz import KernelFuzzReport as KernelReport

EPILOG: Final = """\
examples:
  plica fuzz kernel --examples 3000 --guard
  plica fuzz kernel --plant bound       a wrong bound is planted, and must be found
  plica fuzz kernel --plant emitter     as is one in the text of LLVM

Kernels run in processes of their own: one that dies is a finding, and the rest goes on.
"""


# Any: what argparse's subparsers are has no public name.
def configure(verbs: Any) -> None:
    """The options of the verb."""
    about = "kernels through random traces, lowering and LLVM, run natively"
    parser = add_verb(verbs, "kernel", "kernels", about, EPILOG, fuzz_kernel)
    parser.add_argument("--length", type=int, default=6, help="steps tried for each (6)")
    parser.add_argument("--guard", action="store_true",
                        help="put every array next to memory that is not there, "
                             "first its end, then its start")  # fmt: skip
    parser.add_argument("--plant", choices=("bound", "order", "race", "emitter"),
                        help="plant a mistake in a lowering pass or in the emitter: "
                             "it must be found and blamed")  # fmt: skip
    parser.add_argument("--target", default="cpu",
                        help="the target whose code runs: cpu, c, or cuda on the GPU of "
                             "this machine (cpu)")  # fmt: skip


def fuzz_kernel(arguments: argparse.Namespace) -> int:
    """Exit code 1 where native code gives another result, leaves an array, or dies."""
    if arguments.target == "cuda":
        return _fuzz_on_gpu(arguments)
    if arguments.plant == "emitter" and arguments.target != "cpu":
        _refuse_plant("A mistake is planted in the emitter of LLVM.", arguments.target)
    return drive("kernel", "kernels", arguments, _fuzzed, _print)


def _fuzzed(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> KernelReport:
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


def share(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> FuzzShare:
    """So many kernels that run, the steps of their traces and the loops of their code."""
    report = _fuzzed(arguments, first, examples, say)
    counts = {"taken": report.steps, "loops": report.loops, "not run": report.skipped}
    if (found := report.finding) is None:
        return FuzzShare(report.examples, counts)
    kept = FoundCase(found.guilty, found.reason, found.case, found.pytest)
    return FuzzShare(report.examples, counts, (kept,))


def every() -> Mapping[str, Iterable[str]]:
    """The kinds of loops that code for processors has."""
    return {"loops": ("parallel", "serial", "unrolled", "vectorized")}


KIND: Final = FuzzKind("kernel", "kernels", 20_000, 30, share, every=every, ways=((), ("--guard",)))


def _fuzz_on_gpu(arguments: argparse.Namespace) -> int:
    """The same on a GPU, where every array has an edge that is looked at."""
    from plica.codegen.cuda.fuzz import fuzz

    if arguments.plant or arguments.guard:
        message = "Mistakes are planted, and arrays guarded by pages, on processors."
        _refuse_plant(message, "--plant" if arguments.plant else "--guard")
    report = fuzz(examples_of(arguments), arguments.seed, length=arguments.length)
    if arguments.json:
        print(json.dumps(report.to_data(), indent=2))
        return 1 if report.findings else 0
    ran = ", ".join(f"{count} {kind}" for kind, count in report.kinds.items())
    print(f"{report.examples} kernels, seed {report.seed}, run on the GPU: {ran}.")
    for reason, times in report.skipped.items():
        print(f"Not run: {reason} ({times}).")
    print("\n".join(report.findings) or "All compute what they mean.")
    return 1 if report.findings else 0


def _refuse_plant(message: str, found: str) -> NoReturn:
    from plica.runtime.error import Diagnostic, UnsupportedError

    raise UnsupportedError(Diagnostic("unsupported", message, None, "--target cpu", found))


def _print(report: KernelReport) -> None:
    loops = ", ".join(f"{n} {kind}" for kind, n in report.loops.items())
    guarded = ", every array guarded at its end and at its start" if report.guard else ""
    counted = (
        f"{report.examples} kernels, seed {report.seed}, run natively after "
        f"{sum(report.steps.values())} steps of {len(report.steps)} kinds{guarded}."
    )
    skipped = [f"Not run: {reason} ({times})." for reason, times in report.skipped.items()]
    each, wrong = report.finding, None
    if each is not None:
        place = f"case {each.case}: {each.guilty}"
        wrong = ToldCase(place, each.reason, each.pytest, kind=each.kind)
    lines = [counted, f"Loops: {loops or 'none'}.", *skipped]
    tell(lines, "All compute what they mean.", wrong)
