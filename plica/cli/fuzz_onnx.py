"""`plica fuzz onnx`: random ONNX models, held against onnxruntime."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from plica.cli.rules import count

if TYPE_CHECKING:
    from onnx import ModelProto

    from plica.frontend.onnx.fuzz import OnnxFuzzReport
    from plica.runtime.executable import Executable

EPILOG: Final = """\
examples:
  plica fuzz onnx --examples 500
  plica fuzz onnx --seed 7 --native 4          every fourth model is compiled as well
  plica fuzz onnx --save found/                a model that goes wrong is written there
"""


# Any: what argparse's subparsers are has no public name.
def configure(verbs: Any) -> None:
    """The options of the verb."""
    parser = verbs.add_parser(
        "onnx",
        help="ONNX models of random operators, interpreted and compiled, beside onnxruntime",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--examples", type=count, default=200, help="how many models (200)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed, the same models")
    parser.add_argument("--native", type=int, default=1, metavar="K",
                        help="compile and run every K-th model too (1; 0: none)")  # fmt: skip
    parser.add_argument("--save", type=Path, default=Path(), metavar="FOLDER",
                        help="where a model that goes wrong is written (.)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(verb=fuzz_onnx)


def native(model: ModelProto) -> Executable:
    """The model compiled anew."""
    from plica.pipeline import compile

    return compile(model, threads=1, cache=False)


def fuzz_onnx(arguments: argparse.Namespace) -> int:
    """Exit code 1 where a model gives another result than onnxruntime, or crashes."""
    from plica.frontend.onnx.fuzz import fuzz

    compiled = native if arguments.native > 0 else None
    report = fuzz(arguments.examples, arguments.seed, compiled, max(1, arguments.native))
    written = None if report.finding is None else report.finding.save(arguments.save)
    if arguments.json:
        data = report.to_data()
        print(json.dumps(data | {"saved": None if written is None else str(written)}, indent=2))
    else:
        _print(report, written)
    return 0 if report.finding is None else 1


def _print(report: OnnxFuzzReport, written: Path | None) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    versions = f"{min(report.opsets)} to {max(report.opsets)}" if report.opsets else "none"
    console.print(
        f"{report.examples} models, seed {report.seed}: {report.operators.total()} nodes of "
        f"{len(report.operators)} operators, versions {versions}, {report.batches} with an open "
        f"batch; {report.compiled} compiled, {report.runs} runs compared, {report.rounded} "
        f"differ by rounding alone, {report.refused.total()} refused."
    )
    found = report.finding
    if found is None:
        console.print("[green]All give what onnxruntime gives.[/]")
        return
    console.print(f"[red]Wrong:[/] {found.way}, {' '.join(found.nodes)}: ", end="")
    print(found.reason)
    print(f"The smallest model that shows it: {written}")
