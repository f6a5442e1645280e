"""`plica explain MODEL -o report.html`: what compiling did to a model, as one page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from plica.cli.command import Command, json_text
from plica.cli.model import add_model, compile_model
from plica.cli.option import read_arrays
from plica.cli.progress import progress

if TYPE_CHECKING:
    from plica.report.study import Study


def run(arguments: argparse.Namespace) -> int:
    """Compile, run, and write the page, or print what it would say as JSON."""
    from plica.report import examine, page
    from plica.runtime import archive

    if arguments.output is not None:
        archive.destination(arguments.output)  # before the work rather than after it
    with progress(arguments.model.name, total=4) as say:
        say("compiling")
        given = read_arrays(arguments.input)
        study = examine(compile_model(arguments, given), given, say)
        say("drawing")
        text = page(study)
    if arguments.output is not None:
        archive.write(arguments.output, text.encode())
    if arguments.json:
        print(json_text(to_data(study)))
    elif arguments.output is not None:
        fused = sum(each.fused for each in study.decisions)
        print(
            f"{arguments.output}: {len(study.rows)} kernels, {len(study.stages)} stages, "
            f"{fused} of {len(study.decisions)} edges fused, {study.run * 1e3:.3f} ms a call"
        )
    else:
        show(study)
    return 0


def to_data(of: Study) -> dict[str, Any]:
    """The study as JSON holds it, pictures left out."""
    return {
        "model": of.name,
        "target": of.target,
        "threads": of.threads,
        "contract": of.contract,
        "seconds": {"lowering": of.lowering, "building": of.building, "run": of.run},
        "constants": of.constants,
        "workspace": of.workspace,
        "roof": {"gflops": of.roof.gflops, "levels": of.roof.levels},
        "stages": [
            {"name": each.name, "operators": dict(each.operators), "rules": dict(each.rules)}
            for each in of.stages
        ],
        "fusion": [
            {
                "from": str(each.producer),
                "to": str(each.consumer),
                "fused": each.fused,
                "reason": each.reason,
                "because": each.because,
            }
            for each in of.decisions
        ],
        "kernels": [row.to_data() for row in of.rows],
    }


def show(of: Study) -> None:
    """The study in a few tables, where no page was asked for."""
    from rich.console import Console
    from rich.table import Table

    from plica.cli.bench import SHOWN, show_rows

    console = Console(highlight=False)
    stages = Table("stage", "operators", "rules", title=of.name, title_justify="left")
    for each in of.stages:
        stages.add_row(
            each.name,
            ", ".join(f"{count} {name}" for name, count in each.operators[:6]),
            ", ".join(f"{name} ({count})" for name, count in each.rules[:4]),
        )
    console.print(stages)
    show_rows(console, of.rows, SHOWN)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_model(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.html", help="the page to write")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")


COMMAND: Final = Command(
    "explain",
    "Show what compiling did: stages, fusion, kernels, memory, as one page",
    run,
    configure,
    (
        "plica explain M.onnx -o report.html",
        "plica explain M.onnx --threads 2 --packs algebra",
        "plica explain M.onnx --json",
    ),
)
