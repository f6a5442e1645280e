"""Plots and tables of docs/measured.md, from the raw data in docs/results.

    python -m docs.draw_results              write docs/picture/results-*.svg and the tables again
    python -m docs.draw_results --measure    measure first, on this machine (some 15 minutes)

A file in docs/results holds the command, the machine, the versions and the times of one run: the
percentiles, shortest first, where a system ran more than a hundred times.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from math import log2
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

import plica
from plica.report.page import element, raw

ROOT: Final = Path(__file__).resolve().parents[1]
DATA: Final = ROOT / "docs" / "results"
PAGE: Final = ROOT / "docs" / "measured.md"
PACKAGES: Final = ("onnxruntime", "torch", "llvmlite", "onnx", "numpy")
COMMANDS: Final = {
    "operators": "benchmarks/cliffs.py --seed {seed} --n 200 --threads 1",
    "networks": "benchmarks/models.py {networks} --threads 1 --peers onnxruntime,torch",
}
NETWORKS: Final = (
    "mlp resnet18 mobilenet_v2 densenet121 inception_v3 transformer lstm_lm efficientnet convnext "
    "unet vit text decode"
)
WIDTH: Final = 720
"""Pixels of a plot."""
STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#1b2330}.axis{stroke:#8894a4;stroke-width:1}"
    ".bar{fill:#1f62ad}.peer{fill:#d9480f}.slower{fill:#c92a2a}"
    "@media(prefers-color-scheme:dark){text{fill:#e4e9f0}.bar{fill:#6fb1f2}.peer{fill:#ff922b}}"
)

Run = Mapping[str, Any]


def measure(name: str, seed: int) -> Run:
    """One run of a benchmark, with what is needed to judge it."""
    command = COMMANDS[name].format(seed=seed, networks=NETWORKS)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "times.json"
        words = [sys.executable, *command.split(), "--json", str(file)]
        subprocess.run(words, cwd=ROOT, check=True)
        times = json.loads(file.read_text(encoding="utf-8"))
    git = ["git", "rev-parse", "--short=8", "HEAD"]
    commit = subprocess.run(
        git, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    versions = {"plica": plica.__version__}
    versions |= {package: metadata.version(package) for package in PACKAGES}
    return {
        "command": f"python {command}", "commit": commit, "machine": machine(),
        "versions": versions, "times": percentiles(times),
    }  # fmt: skip


def percentiles(times: Any) -> Any:  # Any: nested lists and objects of JSON
    """Times with each list of many numbers as its 101 percentiles, in units of 10 ns."""
    if isinstance(times, dict):
        return {name: percentiles(value) for name, value in times.items()}
    if isinstance(times, list) and len(times) > 100 and isinstance(times[0], float):
        return [round(float(value), 8) for value in np.percentile(times, range(101))]
    return [percentiles(value) for value in times] if isinstance(times, list) else times


def machine() -> str:
    """The processor, as a reader would name it."""
    from plica.codegen.backend import backend_named, find_target

    of = backend_named("cpu").machine(find_target("cpu"))
    units = "with byte dot products" if of.dot else "without byte dot products"
    return f"{of.cores} hardware threads, vectors of {of.vector} bits, {units}"


def speedups(run: Run) -> list[tuple[str, float]]:
    """Operators and their speed relative to onnxruntime, slowest first."""
    rows = [(row["what"], row["ratio"]) for row in run["times"] if "ratio" in row]
    return sorted(rows, key=lambda row: row[1])


def networks(run: Run) -> dict[str, dict[str, float]]:
    """The shortest time in seconds of each system, by network."""
    return {
        network: {system["name"]: min(system["times"]) for system in comparison["timings"]}
        for network, comparison in run["times"].items()
    }


def _peers(times: Mapping[str, Mapping[str, float]]) -> list[str]:
    return sorted({system for row in times.values() for system in row} - {"plica"})


def operators_plot(run: Run) -> str:
    """One bar for each operator, sorted, on a scale of powers of two around 1."""
    ratios = [ratio for _, ratio in speedups(run)]
    low, high = -2.0, max(3.0, log2(max(ratios)))
    height, left, top = 260, 46, 12
    scale = (height - 30) / (high - low)

    def y(value: float) -> float:
        return top + (high - max(value, low)) * scale

    parts: list[raw] = [element("style", raw(STYLE))]
    for power in range(int(low), int(high) + 1):
        parts.append(element("line", x1=left, x2=WIDTH, y1=y(power), y2=y(power), class_="axis",
                             opacity=1.0 if power == 0 else 0.25))  # fmt: skip
        parts.append(element("text", f"{2.0**power:g}x", x=6, y=y(power) + 4))
    step = (WIDTH - left - 8) / len(ratios)
    for at, ratio in enumerate(ratios):
        ends = sorted((y(0), y(log2(ratio))))
        parts.append(element("rect", x=left + at * step, y=ends[0], width=max(step - 1, 1),
                             height=max(ends[1] - ends[0], 1.0),
                             class_="bar" if ratio >= 1 else "slower"))  # fmt: skip
    title = f"{len(ratios)} drawn operators, one thread: speed relative to onnxruntime"
    return _plot([*parts, element("text", title, x=left, y=height + 12)], height + 24)


def networks_plot(run: Run) -> str:
    """A bar for each network and peer: how often Plica runs while the peer runs once."""
    times = networks(run)
    peers = _peers(times)
    left, high = 130, 18
    longest = max(
        row[peer] / row["plica"] for row in times.values() for peer in peers if peer in row
    )
    scale = (WIDTH - left - 60) / longest
    parts: list[raw] = [element("style", raw(STYLE))]
    y = 10
    for network, row in times.items():
        parts.append(element("text", network, x=6, y=y + high))
        for at, peer in enumerate(peers):
            if peer not in row:
                continue
            ratio = row[peer] / row["plica"]
            parts.append(element("rect", x=left, y=y + at * high, width=ratio * scale,
                                 height=high - 4, class_="peer" if at else "bar"))  # fmt: skip
            said = f"{ratio:.2f}x {peer}"
            parts.append(element("text", said, x=left + 6, y=y + at * high + 12, style="fill:#fff"))
        y += len(peers) * high + 10
    one = left + scale
    parts.append(element("line", x1=one, x2=one, y1=4, y2=y, class_="axis"))
    title = "speed relative to each peer, one thread; the line is 1x"
    return _plot([*parts, element("text", title, x=left, y=y + 12)], y + 24)


def _plot(parts: Sequence[raw], height: float) -> str:
    return element("svg", *parts, xmlns="http://www.w3.org/2000/svg", width=WIDTH, height=height,
                   viewBox=f"0 0 {WIDTH} {height:g}", role="img") + "\n"  # fmt: skip


def operators_table(run: Run) -> str:
    """Percentiles, and what is slower than the peer."""
    rows = speedups(run)
    ratios = [ratio for _, ratio in rows]
    cuts = statistics.quantiles(ratios, n=20, method="inclusive")
    lines = [
        "| operators | 5th percentile | 10th | median | geometric mean | slower than the peer |",
        "| --- | --- | --- | --- | --- | --- |",
        f"| {len(rows)} | {cuts[0]:.2f}x | {cuts[1]:.2f}x | {statistics.median(ratios):.2f}x "
        f"| {statistics.geometric_mean(ratios):.2f}x | {sum(ratio < 1 for ratio in ratios)} |",
        "", "| slowest operators | speed |", "| --- | --- |",
        *[f"| `{what.replace('|', '/')}` | {ratio:.2f}x |" for what, ratio in rows[:5]],
    ]  # fmt: skip
    return "\n".join(lines)


def networks_table(run: Run) -> str:
    """Times, and the speed relative to each peer."""
    times = networks(run)
    peers = _peers(times)
    head = [
        "network",
        "Plica ms",
        *[f"{peer} ms" for peer in peers],
        *[f"over {peer}" for peer in peers],
    ]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for network, row in times.items():
        cells = [network, f"{row['plica'] * 1e3:.2f}"]
        cells += [f"{row[peer] * 1e3:.2f}" if peer in row else "-" for peer in peers]
        cells += [f"{row[peer] / row['plica']:.2f}x" if peer in row else "-" for peer in peers]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


PARTS: Final[dict[str, tuple[Callable[[Run], str], Callable[[Run], str]]]] = {
    "operators": (operators_plot, operators_table),
    "networks": (networks_plot, networks_table),
}
"""For each file of raw data its plot and its table."""


def section(name: str, run: Run) -> str:
    """What the page says of one run."""
    _, table = PARTS[name]
    versions = ", ".join(f"{package} {version}" for package, version in run["versions"].items())
    return (
        f"`{run['command']}`, commit {run['commit']}, {run['machine']}; {versions}. "
        f"Raw data: [{name}.json](results/{name}.json).\n\n"
        f"![{name}](picture/results-{name}.svg)\n\n{table(run)}"
    )


def written(page: str, runs: Mapping[str, Run]) -> str:
    """The page with each section between its two marks made anew."""
    for name, run in runs.items():
        start, end = f"<!-- {name} -->\n", "\n<!-- end -->"
        before, found, rest = page.partition(start)
        if not found:
            raise SystemExit(f"docs/measured.md has no line {start.strip()}.")
        page = before + start + section(name, run) + end + rest.partition(end)[2]
    return page


def stored() -> dict[str, Run]:
    """The raw data."""
    paths = sorted(DATA.glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def main() -> None:
    parser = argparse.ArgumentParser(description="Plots and tables of docs/measured.md.")
    parser.add_argument("--measure", action="store_true", help="run the benchmarks first")
    parser.add_argument("--seed", type=int, default=2, help="of the drawn operators")
    given = parser.parse_args()
    DATA.mkdir(exist_ok=True)
    for name in COMMANDS if given.measure else ():
        text = json.dumps(measure(name, given.seed))
        (DATA / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    runs = stored()
    for name, run in runs.items():
        plot, _ = PARTS[name]
        (ROOT / "docs" / "picture" / f"results-{name}.svg").write_text(plot(run), encoding="utf-8")
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), runs), encoding="utf-8")


if __name__ == "__main__":
    main()
