"""Networks of bytes on microcontrollers: what they take of flash and memory, and if they are right.

    python benchmarks/micro.py [ds_cnn ...] [--core cortex-m7] [--image 96] [--json FILE]

Every network is quantised, compiled for the core, run on its board in QEMU, and compared with the
same module on this processor.  *bound* is the most that inputs and outputs of kernels take at once,
which no arena goes below; *ram* is all static memory and the bound of the stack beside it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

import plica
from plica.frontend.zoo import ds_cnn, mlp, mobilenet, resnet
from plica.frontend.zoo.layer import sizes
from plica.ir.graph.module import Module
from plica.runtime.artefact import StoredAllocation

NETWORKS: Final[dict[str, Callable[[int], Module]]] = {
    "mlp": lambda image: mlp((64, 96, 10)),
    "ds_cnn": lambda image: ds_cnn(),
    "resnet18_eighth": lambda image: resnet(18, image=image, width=0.125, classes=10),
    "mobilenet_v2": lambda image: mobilenet(2, image=image),
}
SAMPLES: Final = 4


def arena_bound(plan: tuple[StoredAllocation, ...]) -> int:
    """The most bytes that are needed at once; what is a view of another takes none."""
    own = [each for each in plan if each.view_of is None and each.in_place_of is None]
    moments = sorted({each.born for each in own})
    return max(
        [sum(each.size for each in own if each.born <= at <= each.last) for at in moments],
        default=0,
    )


def tried(name: str, core: str, image: int) -> dict[str, Any]:
    """A row of the table."""
    network = NETWORKS[name](image)
    (x,) = network.main_function().params
    samples = np.random.default_rng(0).standard_normal((SAMPLES, *sizes(x)), np.float32)
    integers = plica.quantise(network, samples)
    begin = perf_counter()
    made = plica.compile(integers, target=f"micro:{core}", cache=False)
    found = np.asarray(made(samples[0]))
    seconds = perf_counter() - begin
    here = np.asarray(plica.compile(integers, threads=1, cache=False)(samples[0]))
    size = {words[0]: int(words[1]) for words in map(str.split, made.source("size").splitlines())}
    bound = arena_bound(made.artefact.plan)
    apart = float(np.abs(found - here).max() / max(1e-9, float(np.abs(here).max())))
    row = {"network": name, "core": core, "flash": size["flash"], "ram": size["ram"]}
    return {**row, "bound": bound, "ratio": size["ram"] / max(1, bound), "apart": apart,
            "seconds": seconds, "report": made.source("size")}  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    parser.add_argument("--core", default="cortex-m7")
    parser.add_argument("--image", type=int, default=96)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = [tried(name, given.core, given.image) for name in given.names]
    table = Table("network", "core", "flash", "ram", "arena bound", "ram / bound", "apart", "s")
    for each in rows:
        table.add_row(
            each["network"], each["core"], f"{each['flash']:,}", f"{each['ram']:,}",
            f"{each['bound']:,}", f"{each['ratio']:.3f}", f"{each['apart']:.1e}",
            f"{each['seconds']:.1f}",
        )  # fmt: skip
    console = Console(width=120)
    console.print(table)
    for each in rows:
        console.print(each["network"], each["report"], highlight=False)
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
