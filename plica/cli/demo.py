"""`plica demo`: the main job in one go: compile, check and time two networks."""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from plica.cli.command import DIFFERS, Command, json_text
from plica.cli.option import ending, positive
from plica.cli.progress import progress, stdout_console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plica.demo import Shown

KERNELS: Final = 8
FILMS: Final = 4  # kernels of each network that the report shows at every step, and as assembly


def run(arguments: argparse.Namespace) -> int:
    """Run the demonstration; 3 where a compiled network does not compute what it means."""
    from plica.demo import NETWORKS, SMALL, STEPS, show_network
    from plica.report import model_view, page
    from plica.runtime import archive
    from plica.runtime.timing import busy, load

    archive.destination(arguments.output)  # before the work rather than after it
    start, before = perf_counter(), load()
    showns: list[Shown] = []
    for name, make in (SMALL if arguments.small else NETWORKS).items():
        with progress(name, total=STEPS) as say:
            showns.append(show_network(name, make, arguments.threads, say))
    views = [model_view(shown.study, costs=False, films=FILMS) for shown in showns]
    archive.write(arguments.output, page(views).encode())
    if arguments.json:
        print(json_text([to_data(shown) for shown in showns]))
    else:
        show(showns, arguments.output, perf_counter() - start, busy(before))
    return 0 if all(shown.agrees for shown in showns) else DIFFERS


def to_data(of: Shown) -> dict[str, Any]:
    """One network as JSON data."""
    from plica.cli.explain import to_data

    return {
        **to_data(of.study),
        "reference": of.reference,
        "difference": of.difference,
        "agrees": of.agrees,
        "least": of.least,
        "peer": of.peer,
    }


NEXT_STEPS: Final = {
    "Compile a model": "plica compile MODEL.onnx -o model.plica",
    "See each step of it": "plica explore MODEL.onnx",
    "Compare with a peer": "plica bench MODEL.onnx --against onnxruntime",
    "Write a checked rule": "plica new rule-pack my-rules",
    "Read the tutorials": "docs/index.md",
}
"""Next steps for a new user."""


def show(found: Sequence[Shown], report: Path, took: float, warning: str) -> None:
    """Print what happened."""
    from rich.table import Table

    from plica.cli.bench import show_rows

    console = stdout_console()
    title = f"Compiled for {found[0].study.target}, held against {found[0].reference}"
    table = Table(title=title, title_justify="left")
    table.add_column("network", no_wrap=True)
    compared = any(shown.peer is not None for shown in found)
    columns = ["compile s", "kernels", "weights MB", "memory MB", "ms"]
    for column in (*columns, "reference ms") if compared else columns:
        table.add_column(column, justify="right")
    table.add_column("difference", no_wrap=True)
    for shown in found:
        study = shown.study
        verdict = "agrees" if shown.agrees else "DIFFERS"
        table.add_row(
            study.name,
            f"{study.lowering + study.building:.1f}",
            str(len(study.rows)),
            f"{study.constants / 1e6:.1f}",
            f"{study.workspace / 1e6:.1f}",
            f"{shown.least * 1e3:.2f}",
            *([] if shown.peer is None else [f"{shown.peer * 1e3:.2f}"]),
            f"{shown.difference:.0e}: {verdict}",
        )
    console.print(table)
    for shown in found:
        console.print(f"\n{shown.study.name}")
        show_rows(console, shown.study.rows, KERNELS, warning)
    console.print(
        f"\nOpen {report}: kernels, loops and every rewrite step. Total time: {took:.0f} s."
    )
    for purpose, command in NEXT_STEPS.items():
        console.print(f"  {purpose:<24}{command}")


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("-o", "--output", type=ending(".html"), default=Path("report.html"),
                        metavar="FILE.html", help="the page to write (report.html)")  # fmt: skip
    parser.add_argument("--threads", type=positive, default=1, help="number of threads (1)")
    parser.add_argument("--small", action="store_true", help="narrow networks, small images")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


COMMAND: Final = Command(
    "demo",
    "Compile two networks, check them, time them, write a report",
    run,
    configure,
    ("plica demo", "plica demo --threads 2 -o /tmp/report.html", "plica demo --small --json"),
)
