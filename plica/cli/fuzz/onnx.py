"""`plica fuzz onnx`: random ONNX models, compared with onnxruntime."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plica.cli.fuzz.kind import FuzzKind, Say, option
from plica.cli.option import natural

if TYPE_CHECKING:
    from onnx import ModelProto

    from plica.cli.fuzz.kind import Report
    from plica.runtime.executable import Executable

EPILOG: Final = """\
examples:
  plica fuzz onnx --examples 500
  plica fuzz onnx --seed 7 --native 4          compile every fourth model too
  plica fuzz onnx --save found/                write failing models there
"""


def native(model: ModelProto, contract: str | None, threads: int) -> Executable:
    """The freshly compiled model."""
    from plica.pipeline import compile

    return compile(model, threads=threads, contract=contract, cache=False)


def fuzz_onnx(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> Report:
    """Models compared with onnxruntime, some of them compiled."""
    from plica.frontend.onnx.fuzz import fuzz

    compiled = native if arguments.native > 0 else None
    every = max(1, arguments.native)
    return fuzz(examples, arguments.seed, compiled, every, first=first, say=say)


def save(arguments: argparse.Namespace, report: Report) -> dict[str, str | None]:
    """Writes the failing model."""
    found = report.finding
    return {"saved": str(found.save(arguments.save)) if found and found.files else None}


def summary(report: Report, arguments: argparse.Namespace) -> list[str]:
    """Which operators there were, and what became of models."""
    opsets, operators, number = (
        sorted(map(int, report["opsets"])),
        report["operators"],
        report.number,
    )
    versions = f"{opsets[0]} to {opsets[-1]}" if opsets else "none"
    return [
        f"{report.examples} models, seed {report.seed}: {sum(operators.values())} nodes of "
        f"{len(operators)} operators, versions {versions}, {number('batches')} with an open "
        f"batch, {number('late')} with sizes that are known when they run; {number('compiled')} "
        f"compiled, {number('runs')} runs compared, {number('rounded')} "
        f"differ by rounding alone, {sum(report['refused'].values())} refused."
    ]


KIND: Final = FuzzKind(
    "onnx",
    "models",
    "random ONNX models, interpreted and compiled, against onnxruntime",
    EPILOG,
    fuzz_onnx,
    summary,
    "All give what onnxruntime gives.",
    goal=10_000,
    together=15,
    options=(
        option("--native", type=natural, default=1, metavar="K",
               help="compile and run every K-th model too (1; 0: none)"),
        option("--save", type=Path, default=Path(), metavar="FOLDER",
               help="where to write failing models (.)"),
    ),
    after=save,
    needs=("onnx", "onnxruntime"),
)  # fmt: skip
