"""`plica bench MODEL --against onnxruntime`: times a model against others and by kernel."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from plica.cli.command import DIFFERS, Command, json_text
from plica.cli.model import add_model, compile_reading, read
from plica.cli.option import positive, read_arrays, seconds
from plica.cli.progress import progress, stdout_console
from plica.runtime.error import Diagnostic, Place, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from plica.bench import Roof, SystemComparison
    from plica.report.study import LaunchRow

PEERS: Final = ("onnxruntime", "openvino", "torch")
SHOWN: Final = 20


def run(arguments: argparse.Namespace) -> int:
    """Times the model, its peers and its kernels; returns 3 if the numbers differ."""
    from plica.bench import PeerOptions, compare_systems
    from plica.bench.sample import sample
    from plica.report.study import measured
    from plica.runtime.timing import busy, load

    asked, before = peers_of(arguments), load()
    rounds: int = arguments.rounds
    total = 2 + (1 + len(asked)) * (1 + rounds)
    with progress(arguments.model.name, total) as say:
        say("compiling")
        given = read_arrays(arguments.input)
        model = read(arguments.model, arguments.dim, given)
        made = compile_reading(arguments, model)
        arrays = sample(made.executable.inputs, given)
        say("timing every kernel")
        rows, _, roof = measured(made, arrays)
        how = PeerOptions(arguments.threads, arguments.contract, arguments.dim, tuple(model.fixed),
                          tuple(arguments.packs))  # fmt: skip
        drawn = {port.name: each for port, each in zip(made.executable.inputs, arrays, strict=True)}
        comparison = compare_systems(
            arguments.model,
            [model.fixed.get(name, drawn.get(name)) for name in model.inputs],
            asked,
            how=how,
            rounds=rounds,
            seconds=arguments.seconds,
            progress=say,
        )
    contract = str(made.contract)
    ours = comparison.find("plica")
    agrees = ours is not None and ours.difference <= arguments.tolerance
    if arguments.json:
        data = to_data(comparison, rows, roof, contract, arguments.threads)
        print(json_text({"agrees": agrees, **data}))
    else:
        show(comparison, rows, contract, arguments, busy(before))
    lost = [each for each in comparison.absent if each.name in asked or each.name == "plica"]
    if lost and len(lost) >= len(asked):
        return 1
    return 0 if agrees else DIFFERS


def peers_of(arguments: argparse.Namespace) -> list[str]:
    """The peers to run; they read ONNX files only."""
    from plica.core import did_you_mean

    words = [word for each in arguments.against for word in each.split(",") if word]
    if unknown := [word for word in words if word not in PEERS]:
        message = f"There is no system {unknown[0]!r} to compare with."
        near = did_you_mean(unknown[0], PEERS)
        raise UnsupportedError(
            Diagnostic("unsupported", message, None, ", ".join(PEERS), unknown[0], near)
        )
    if arguments.model.suffix != ".onnx":
        message, place = "bench times ONNX files.", Place(file=str(arguments.model))
        hint = f"plica explain {shlex.quote(str(arguments.model))} shows the times of its kernels."
        raise UnsupportedError(Diagnostic("unsupported", message, place, "M.onnx", None, hint))
    return list(dict.fromkeys(words))


def to_data(
    comparison: SystemComparison, rows: Sequence[LaunchRow], roof: Roof, contract: str, threads: int
) -> dict[str, Any]:
    """All measurements as JSON data; times in seconds."""
    entries = []
    for timing in comparison.timings:
        found = asdict(timing)
        found.pop("times")
        found |= {"calls": len(timing.times), "min": timing.least, "median": timing.median}
        if timing.name != "plica" and comparison.find("plica") is not None:
            found["ratio"] = comparison.ratio(timing.name)
        entries.append(found)
    return {
        "contract": contract,
        "threads": threads,
        "entries": entries,
        "missing": [asdict(system) for system in comparison.absent],
        "roof": asdict(roof),
        "kernels": [row.to_data() for row in rows],
    }


def show(
    comparison: SystemComparison,
    rows: Sequence[LaunchRow],
    contract: str,
    arguments: argparse.Namespace,
    warning: str,
) -> None:
    """The tables."""
    from rich.table import Table

    console = stdout_console()
    threads = "1 thread" if arguments.threads == 1 else f"{arguments.threads} threads"
    title = f"{arguments.model.name}: {threads}, contract {contract}"
    table = Table(title=title, title_justify="left")
    for column in ("system", "version", "ready s", "min ms", "median ms", "spread", "Plica is",
                   "difference"):  # fmt: skip
        table.add_column(column, justify="left" if column in ("system", "version") else "right")
    for timing in comparison.timings:
        ours = timing.name == "plica"
        compared = ours or comparison.find("plica") is None
        table.add_row(
            timing.name,
            timing.version,
            f"{timing.ready:.2f}",
            f"{timing.least * 1e3:.3f}",
            f"{timing.median * 1e3:.3f}",
            f"{timing.spread:.0%}",
            "" if compared else f"{comparison.ratio(timing.name):.2f} x",
            f"{timing.difference:.1e}" if len(comparison.timings) > 1 else "",
        )
    console.print(table)
    for absent in comparison.absent:
        console.print(f"{absent.name} was not timed. {absent.reason}")
    show_rows(console, rows, SHOWN, warning)


def show_rows(console: Console, rows: Sequence[LaunchRow], most: int, warning: str = "") -> None:
    """The kernels that take most of the time, and why the times are not to be trusted, if so."""
    from rich.table import Table

    whole = sum(row.seconds for row in rows)
    longest = sorted(rows, key=lambda row: -row.seconds)[:most]
    title = f"The {len(longest)} longest of {len(rows)} kernels, {whole * 1e3:.3f} ms in all"
    table = Table(title=title, title_justify="left")
    figures = (("µs", 8), ("spread", 6), ("share", 5), ("GFLOP/s", 7), ("roof", 5))
    # Names get the width that figures and borders leave: columns that may not wrap would be cut off
    # at the right.
    room = console.width - sum(width for _, width in figures) - 3 * (len(figures) + 2) - 1
    for column, part in (("kernel", 3), ("nodes", 2)):
        most = max(8, room * part // 5)
        table.add_column(column, overflow="ellipsis", no_wrap=True, max_width=most)
    for column, width in figures:
        table.add_column(column, justify="right", no_wrap=True, min_width=width)
    for row in longest:
        table.add_row(
            row.kernel,
            ", ".join(row.nodes or row.operators),
            f"{row.seconds * 1e6:.1f}",
            f"{row.spread:.0%}",
            f"{row.seconds / (whole or 1.0):.0%}",
            f"{row.gflops:.2f}",
            "-" if row.roof is None else f"{row.roof:.0%}",
        )
    console.print(table)
    if any(row.roof is None for row in longest):
        warning = f"{warning or 'The machine was busy.'} No share of the roof is shown."
    if warning:
        console.print(warning)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_model(parser)
    known = ", ".join(PEERS)
    parser.add_argument("--against", action="append", default=[], metavar="NAMES",
                        help=f"systems to compare with, separated by commas: {known}")  # fmt: skip
    parser.add_argument("--rounds", type=positive, default=5, help="alternating rounds (5)")
    parser.add_argument("--seconds", type=seconds, default=0.3, help="seconds per round (0.3)")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-4,
        help="the largest allowed difference, relative to the largest value",
    )
    parser.add_argument("--json", action="store_true", help="print all measurements as JSON")


COMMAND: Final = Command(
    "bench",
    "Time a model and its kernels, and compare with other systems",
    run,
    configure,
    (
        "plica bench M.onnx",
        "plica bench M.onnx --against onnxruntime,openvino --threads 2",
        "plica bench M.onnx --dim batch=1 --input x=x.npy --json",
    ),
)
