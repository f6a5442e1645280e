"""`plica impact NAME MODEL`: the effect of a rule, a pass, a schedule primitive or a node on a
model.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from plica.cli.command import Command, counted, json_text
from plica.cli.model import add_model, compile_model
from plica.cli.option import read_arrays
from plica.cli.progress import progress

if TYPE_CHECKING:
    from plica.report.future import FutureDifference
    from plica.report.impact import KernelImpact


def run(arguments: argparse.Namespace) -> int:
    """Finds the affected places, and the model without the item."""
    from plica.report.future import compared, without_rule
    from plica.report.impact import assembly_of, impact, where

    given = read_arrays(arguments.input)
    with progress(arguments.model.name, total=3) as say:
        say("compiling")
        model = compile_model(arguments, given)
        say("following every loop")
        kernels = where(model, arguments.name)
        found = None if kernels else impact(model, arguments.name)
        kernels = kernels or (() if found is None else found.kernels)
        lines = {kernel.kernel: assembly_count(assembly_of(model, kernel), kernel)
                 for kernel in kernels if arguments.asm}  # fmt: skip
        other = None
        if arguments.without:
            say("compiling without it")
            other = compared(model, without_rule(model, arguments.name), given)
    steps = () if found is None else found.steps
    if arguments.json:
        rows = [to_data(kernel, lines.get(kernel.kernel)) for kernel in kernels]
        future = None if other is None else difference_data(other)
        whole = {"name": arguments.name, "steps": list(steps), "kernels": rows, "without": future}
        print(json_text(whole))
        return 0
    if steps:
        print(f"{arguments.name}: {counted(len(steps), 'step')} of the graph")
    for kernel in kernels:
        here = f"{counted(kernel.loops, 'loop')}, {counted(kernel.stores, 'store')}"
        if arguments.asm:
            here += f", {counted(lines[kernel.kernel], 'line')} of assembly"
        print(f"  {kernel.kernel}: {here}; nodes: {', '.join(kernel.nodes) or 'unnamed'}")
    if not kernels:
        print("  no kernel: what it made is no part of the compiled model")
    if other is not None:
        show_difference(other, f"without {arguments.name}")
    return 0


def assembly_count(lines: Any, of: KernelImpact) -> int:  # Any: lines of assembly
    """How many instructions were written for statements that are meant, or stand inside them."""
    from plica.ir.loop import statements

    meant = {inside for statement in of.statements for inside in statements(statement.statement)}
    return sum(line.statement in meant for line in lines)


def to_data(of: KernelImpact, lines: int | None) -> dict[str, Any]:
    """A kernel as JSON data."""
    return {"kernel": of.kernel, "nodes": list(of.nodes), "rules": list(of.rules),
            "loops": of.loops, "stores": of.stores, "instructions": lines}  # fmt: skip


def difference_data(of: FutureDifference) -> dict[str, Any]:
    """Two futures as JSON data."""
    from attrs import asdict

    return {**asdict(of), "gone": list(of.gone), "new": list(of.new)}


def show_difference(of: FutureDifference, title: str) -> None:
    """Two futures, side by side."""
    one, two = of.first, of.other
    print(f"{title}: {of.ratio:.2f} times the time, outputs differ by {of.output:.1e}")
    for label, a, b in (
        ("seconds of a call", f"{one.seconds:.3e}", f"{two.seconds:.3e}"),
        ("bytes of code", one.code, two.code),
        ("bytes of constants", one.constants, two.constants),
        ("bytes of workspace", one.workspace, two.workspace),
        ("steps of the graph", one.steps, two.steps),
        ("kernels", len(one.kernels), f"{len(two.kernels)} ({len(of.new)} others)"),
        ("digest of the code", one.digest, two.digest),
    ):
        print(f"  {label:20} {a!s:>18} {b!s:>18}")
    if of.warning:
        print(f"  {of.warning}")


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("name", metavar="NAME", help="a rule, pass, primitive or node")
    add_model(parser)
    parser.add_argument("--without", action="store_true",
                        help="compile without the rule or pass, and compare")  # fmt: skip
    parser.add_argument("--asm", action="store_true", help="count the lines of assembly, too")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


COMMAND: Final = Command(
    "impact",
    "Show where a rule, pass or node ended up, and the model without it",
    run,
    configure,
    (
        "plica impact conv-scale M.onnx --without",
        "plica impact vectorize M.onnx --asm",
        "plica impact conv_3 M.onnx --json",
    ),
)
