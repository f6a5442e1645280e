"""Whole networks beside onnxruntime, OpenVINO and torch: the zoo as ONNX files, float32.

    python benchmarks/models.py [mlp resnet18 ...] [--batch 1] [--threads 1] [--rounds 10]
                                [--seconds 0.2] [--contract fused] [--json FILE]
                                [--peers onnxruntime,openvino,torch]

Networks are Plica's own (`plica.frontend.zoo`, batch 1) and, where torch is installed, those of
`benchmarks/torch_zoo.py`; all of them where none is named.

Every system has a process of its own and gets the same file and the same numbers; bursts of calls
take turns.  Times are the shortest and the median of all calls, in ms.  A ratio is the other's time
over Plica's (above 1: Plica is faster), of the shortest times.  `error` is the greatest difference
to the first peer, relative to the greatest number.  Nothing is tuned.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.lstm_model import lstm_to_onnx
from plica.bench import PEERS, PeerOptions, SystemComparison, compare_systems
from plica.bench.comparison import OURS
from plica.frontend import zoo
from plica.frontend.onnx.writer import to_onnx
from plica.frontend.zoo.layer import sizes
from plica.rewrite.optimise import DEFAULT_CONTRACT

WORDS = 10_000


def names(batch: int) -> list[str]:
    """Every network that there is here at a batch."""
    ours = list(zoo.NETWORKS) if batch == 1 else []
    if find_spec("torch") is None:
        return ours
    from benchmarks.torch_zoo import TORCH_NETWORKS

    return [*ours, *TORCH_NETWORKS]


def write(name: str, batch: int, path: Path) -> list[np.ndarray[Any, Any]]:
    """Write a network as an ONNX file; gives inputs for it."""
    if name in zoo.NETWORKS:
        model, values = model_of(name)
        onnx.save(model, path)
        return [values]
    from benchmarks.torch_zoo import export

    return [each.numpy() for each in export(name, batch, path)]


def model_of(name: str) -> tuple[onnx.ModelProto, np.ndarray[Any, Any]]:
    """A network of Plica's zoo and an input for it."""
    network = zoo.NETWORKS[name]()
    (x,) = network.main_function().params
    random = np.random.default_rng(0)
    values: np.ndarray[Any, Any] = random.standard_normal(sizes(x), np.float32)
    if name in ("transformer", "lstm_lm"):
        values = random.integers(0, WORDS, sizes(x))
    model = (
        lstm_to_onnx(x, zoo.lstm_weights()) if name == "lstm_lm" else to_onnx(network, finite=True)
    )
    return model, values


def mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return statistics.geometric_mean(values) if values else float("nan")


def show(console: Console, found: dict[str, SystemComparison], given: argparse.Namespace) -> None:
    """The table, and the means below it."""
    peers: list[str] = given.peers
    contract = given.contract or DEFAULT_CONTRACT
    title = f"batch {given.batch}, f32, {given.threads} threads, contract {contract}"
    table = Table(title=f"{title}; ms, shortest (median)", title_justify="left")
    table.add_column("network")
    for column in ("ready s", OURS, *peers, "error"):
        table.add_column(column, justify="right")
    for name in peers:
        table.add_column(f"x {name}", justify="right")
    table.add_column("x best", justify="right")
    ratios: dict[str, list[float]] = {name: [] for name in (*peers, "best")}
    for network, comparison in found.items():
        ours = comparison.find(OURS)
        if ours is None:
            table.add_row(network, *["failed"])
            continue
        entries = {name: comparison.find(name) for name in (OURS, *peers)}
        cells = [
            "-" if each is None else f"{each.least * 1e3:.2f} ({each.median * 1e3:.2f})"
            for each in entries.values()
        ]
        best = comparison.best
        measured = {name: comparison.ratio(name) for name in peers if entries[name] is not None}
        if best is not None:
            measured["best"] = comparison.ratio(best.name)
        for name, ratio in measured.items():
            ratios[name].append(ratio)
        table.add_row(
            network,
            f"{ours.ready:.1f}",
            *cells,
            f"{ours.difference:.0e}",
            *[f"{measured[name]:.2f}" if name in measured else "-" for name in (*peers, "best")],
        )
    means = [f"{mean(each):.2f}" if each else "-" for each in ratios.values()]
    table.add_section()
    table.add_row("geometric mean", *[""] * (len(peers) + 3), *means)
    console.print(table)
    for network, comparison in found.items():
        for absent in comparison.absent:
            console.print(f"{network}: {absent.name} was not timed. {absent.reason}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NETWORK")
    parser.add_argument("--batch", type=int, default=1, help="of the networks of torch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.2, help="how long a burst lasts")
    parser.add_argument("--contract", help="what may happen to floats: exact, fused …")
    peers = [name for name in PEERS if name != OURS]
    parser.add_argument("--peers", type=lambda text: text.split(","), default=peers)
    parser.add_argument("--json", type=Path, help="where to write all times")
    given = parser.parse_args()
    if not set(given.peers) <= set(peers):
        parser.error(f"peers are {', '.join(peers)}; found {', '.join(given.peers)}")
    known = names(given.batch)
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"networks are {', '.join(known)}; found {', '.join(unknown)}")
    console = Console(width=None if sys.stdout.isatty() else 160)
    found: dict[str, SystemComparison] = {}
    with TemporaryDirectory() as folder:
        for name in given.names or known:
            path = Path(folder) / f"{name}.onnx"
            values = write(name, given.batch, path)
            with console.status(name) as status:
                found[name] = compare_systems(
                    path,
                    values,
                    given.peers,
                    how=PeerOptions(given.threads, given.contract),
                    rounds=given.rounds,
                    seconds=given.seconds,
                    progress=lambda word, name=name: status.update(f"{name}, {word}"),  # type: ignore[misc]  # a default binds the turn of the loop
                )
    show(console, found, given)
    if given.json is not None:
        given.json.write_text(json.dumps({name: asdict(each) for name, each in found.items()}))
    failed = [name for name, each in found.items() if each.find(OURS) is None]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
