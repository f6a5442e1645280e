"""`plica budget MODEL`: the float error a compile was granted, declares and used, by measuring.

Exit codes: 0 where all keep what they declare, 3 where something used more.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from plica.cli.command import DIFFERS, Command, json_text
from plica.cli.model import add_model, compile_model
from plica.cli.option import read_arrays
from plica.cli.progress import progress

if TYPE_CHECKING:
    from plica.report.budget import ErrorBudget


def run(arguments: argparse.Namespace) -> int:
    """Measure, and say what used how much."""
    from plica.bench.sample import sample
    from plica.report.budget import error_budget

    with progress(arguments.model.name, total=5) as say:
        say("compiling")
        given = read_arrays(arguments.input)
        model = compile_model(arguments, given)
        arrays = sample(model.executable.inputs, given, arguments.seed)
        budget = error_budget(model, arrays, progress=say)
    print(json_text(to_data(budget)) if arguments.json else budget)
    if budget.overspent and not arguments.json:
        print(f"used more than it declares: {', '.join(budget.overspent)}")
    return DIFFERS if budget.overspent else 0


def to_data(of: ErrorBudget) -> dict[str, Any]:
    """The budget as JSON holds it."""
    from attrs import asdict

    entries = [{**asdict(entry), "declared": str(entry.declared)} for entry in of.entries]
    return {"granted": str(of.granted), "declared": str(of.declared), "used": of.used,
            "share": of.share, "overspent": list(of.overspent), "entries": entries}  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_model(parser)
    parser.add_argument("--seed", type=int, default=0, help="seed of the random inputs")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


COMMAND: Final = Command(
    "budget",
    "Show how much float error a compile was granted and used, by measuring",
    run,
    configure,
    (
        "plica budget M.onnx",
        "plica budget M.onnx --contract reassociates",
        "plica budget M.onnx --input x=x.npy --json",
    ),
)
