"""The demonstration: the main job in one go, on a model that comes with the package.

It reads a small convolutional network written in the graph language (`cnn_script.py`), compiles
it, checks what it computes against the interpreter, times both, and prints what happened.  `study`
gives the figures as data; `show` prints them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

import numpy as np

from plica.codegen.llvm.fold import launches
from plica.ir.interpret import interpret
from plica.ir.module import Module
from plica.ir.script import as_module
from plica.pipeline import build, find_target, lower

IMAGES: Final = 8
RUNS: Final = 200
TOLERANCE: Final = 1e-5


@dataclass(frozen=True, slots=True)
class Launched:
    """One kernel launch: the operator it comes from and what it writes."""

    operator: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Study:
    """What compiling and running the model showed; times are in seconds."""

    model: str
    target: str
    functions: int
    launched: tuple[Launched, ...]
    kernels: int
    constants: int
    workspace: int
    lowering: float
    building: float
    difference: float
    interpreted: float
    run: float

    @property
    def agrees(self) -> bool:
        """Whether the native code computed what the program means."""
        return self.difference <= TOLERANCE


def study() -> Study:
    """Compile the bundled network, run it on random images beside the interpreter."""
    from plica.demo.cnn_script import cnn

    module: Module = as_module(cnn)
    target = find_target("cpu")
    start = perf_counter()
    lowered = lower(module, target=target)
    middle = perf_counter()
    executable = build(lowered, target)
    end = perf_counter()
    program = lowered.program

    random = np.random.default_rng(0)
    images = random.standard_normal((IMAGES, 1, 1, 28, 28)).astype(np.float32)
    interpret(module, images[0])  # the interpreter prepares its operators once, too
    difference, interpreted = 0.0, float("inf")
    for image in images:
        took, expected = _timed(lambda image=image: interpret(module, image))  # type: ignore[misc]  # a default binds the turn of the loop
        interpreted = min(interpreted, took)
        found = executable(image)
        difference = max(difference, float(np.abs(found - expected).max()))
    run = min(_timed(lambda: executable(images[0]))[0] for _ in range(RUNS))

    slots = [program.slots[launch.args[-1]] for launch in launches(program)]
    return Study(
        model="cnn",
        target=str(target),
        functions=len(module.functions()),
        launched=tuple(
            Launched(launch.source, slot.shape, slot.bytes)
            for launch, slot in zip(launches(program), slots, strict=True)
        ),
        kernels=len(program.kernels),
        constants=sum(slot.bytes for slot in program.space("constant")),
        workspace=lowered.plan.size,
        lowering=middle - start,
        building=end - middle,
        difference=difference,
        interpreted=interpreted,
        run=run,
    )


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = perf_counter()
    value = call()
    return perf_counter() - start, value


def show(of: Study) -> None:
    """Print a study as tables."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print(
        Text(f"{of.model}: a module of {of.functions} functions, compiled for {of.target}")
    )

    steps = Table("Step", "Operator", "Result", "Bytes", title="What runs", title_justify="left")
    for number, each in enumerate(of.launched, 1):
        shape = " x ".join(map(str, each.shape)) or "scalar"
        steps.add_row(str(number), each.operator, shape, f"{each.bytes:,}")
    console.print(steps)

    facts = Table("Fact", "Value", title="What happened", title_justify="left")
    verdict = "agrees" if of.agrees else "DIFFERS"
    for fact, value in (
        ("launches", str(len(of.launched))),
        ("distinct kernels", str(of.kernels)),
        ("weights", f"{of.constants:,} bytes"),
        ("workspace", f"{of.workspace:,} bytes"),
        ("lowering", f"{of.lowering * 1e3:.1f} ms"),
        ("native code", f"{of.building * 1e3:.1f} ms"),
        ("interpreter", f"{of.interpreted * 1e6:,.0f} µs a run"),
        ("compiled", f"{of.run * 1e6:,.0f} µs a run ({of.interpreted / of.run:.0f} times faster)"),
        ("greatest difference", f"{of.difference:.1e} on {IMAGES} images: {verdict}"),
    ):
        facts.add_row(fact, value)
    console.print(facts)


def main() -> int:
    """Run the demonstration; 0 if the compiled model computes what it means."""
    found = study()
    show(found)
    return 0 if found.agrees else 1
