"""The demonstration: the main job in one go, on two networks that come with the package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

from attrs import evolve

from plica.bench.peer import PEERS, PeerOptions, difference
from plica.bench.sample import sample
from plica.frontend.onnx.origin import OnnxReading, read_onnx
from plica.frontend.zoo import mobilenet, resnet
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.pipeline import target_of
from plica.report.study import Study, compiled, examine
from plica.runtime.port import Array

TIMED_RUNS: Final = 10
TOLERANCE: Final = 1e-4
STEPS: Final = 6  # what is told of while one network is shown

NETWORKS: Final[dict[str, Callable[[], Module]]] = {
    "resnet18": partial(resnet, 18),
    "mobilenet_v2": partial(mobilenet, 2),
}
SMALL: Final[dict[str, Callable[[], Module]]] = {
    "resnet18": partial(resnet, 18, image=32, width=0.125, classes=10),
    "mobilenet_v2": partial(mobilenet, 2, image=32, width=0.125, classes=10),
}
"""The same networks, narrow and for small images: they take seconds."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One network: what was found, and how it compares; times in seconds."""

    study: Study
    reference: str
    difference: float
    least: float
    peer: float | None  # the time of the reference, where it is another compiled system

    @property
    def agrees(self) -> bool:
        """Whether the native code computed what the network means."""
        return self.difference <= TOLERANCE


def show_network(
    name: str,
    make: Callable[[], Module],
    threads: int = 1,
    progress: Callable[[str], None] = lambda word: None,
) -> Shown:
    """Compile a network, check it, time it."""
    progress("making the weights")
    read = OnnxReading(make(), {})
    with TemporaryDirectory() as folder:
        path: Path | None = None
        if find_spec("onnx") is not None:  # then it goes the way of every model: from a file
            from onnx import save

            from plica.frontend.onnx.writer import to_onnx

            path = Path(folder) / f"{name}.onnx"
            save(to_onnx(read.module), path)
            read = read_onnx(path)
        progress("compiling")
        model = compiled(name, read, target_of("cpu"), threads=threads)
        arrays = sample(model.executable.inputs)
        progress("checking")
        peer = None
        if path is not None and find_spec("onnxruntime") is not None:
            reference, system = "onnxruntime", PEERS["onnxruntime"]
            run = system.prepare(path, arrays, PeerOptions(threads))
            expected: Sequence[Array] = list(run())
            peer = run
        else:
            reference, expected = "the interpreter", [interpret(read.module, *arrays)]
        found = model.executable(*arrays)
        apart = difference(found if isinstance(found, tuple) else (found,), expected)
        progress("timing")
        mine: list[float] = []
        theirs: list[float] = []
        for _ in range(TIMED_RUNS):  # in turns, so that what else the machine does meets both
            mine += _times(lambda: model.executable(*arrays))
            theirs += [] if peer is None else _times(peer)
        # One measurement, shown in the terminal and on the page.
        study = evolve(examine(model, progress=progress), run=min(mine))
    return Shown(study, reference, apart, min(mine), min(theirs) if theirs else None)


def _times(call: Callable[[], object]) -> list[float]:
    call()  # the caches are its own again
    found: list[float] = []
    for _ in range(3):
        start = perf_counter()
        call()
        found.append(perf_counter() - start)
    return found
