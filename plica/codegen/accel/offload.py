"""Offloading: a model whose integer layers run on an accelerator, from the graph to the artefact.

integer_convolutions -> layer_of -> packed -> stages          what runs where
choose -> encode                                              a program for each kind of layer

>>> from plica.codegen.accel.conv import Convolution
>>> from plica.codegen.accel.vta import vta
>>> best = choose(vta(), Convolution(32, 8, 8, 32, kernel=3, pad=1), trials=2)
>>> best.timed.cycles <= min(each.cycles for each in best.others)
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
from attrs import frozen

from plica.codegen.accel.conv import Convolution, ConvTiling, convolution
from plica.codegen.accel.cycle import Timed, simulate
from plica.codegen.accel.declaration import Accelerator
from plica.codegen.accel.device import device_of
from plica.codegen.accel.encode import show_stream, to_bytes
from plica.codegen.accel.instruction import BadInstruction, Stream
from plica.codegen.accel.layer import NOTHING, AccelLayer, Stays, layer_of
from plica.codegen.accel.mapping import FORM, Near, mapped, near, remedies
from plica.codegen.accel.packing import LayerLaunch as Packing, Packed, packed
from plica.codegen.accel.split import HostStage, flat_inputs, levels, stages
from plica.codegen.accel.stream import assure, build
from plica.codegen.accel.target import AccelTarget
from plica.codegen.accel.tiling import estimate, ranked
from plica.codegen.lower.graph_flattening import flatten_graph
from plica.core import digest
from plica.ir.graph import Expr, Module
from plica.ir.type import TensorType, infer, known, type_of
from plica.rewrite.quantise.form import IntegerConvolution, integer_convolutions
from plica.runtime.accel.artefact import (
    AccelArtefact,
    Coded,
    Cost,
    NativePart,
    ProgramLaunch,
    ProgramRun,
    Step,
)
from plica.runtime.accel.functional import MemorySpan
from plica.runtime.artefact import Artefact
from plica.runtime.error import Diagnostic, Place, UnsupportedError
from plica.runtime.interface import Interface

Array = np.ndarray[Any, Any]
Known: TypeAlias = Callable[[Convolution], ConvTiling | None]


@frozen
class Offloaded:
    """A partitioned model: stages on the processor, launches, and layers that stay."""

    source: Module
    target: AccelTarget
    graph: Packed
    stages: tuple[HostStage, ...]
    stays: tuple[Stays, ...]
    near: tuple[Near, ...] = ()

    @property
    def placement(self) -> str:
        """Which layers run where, and why; a table."""
        lines = [f"{self.target}: {len(self.graph.launches)} of "
                 f"{len(self.graph.launches) + len(self.stays)} integer layers"]  # fmt: skip
        lines += [f"  accel  {launch.layer.shape}" for launch in self.graph.launches]
        for stay in self.stays:
            shape = "x".join(map(str, stay.of.weight.shape))
            lines.append(f"  cpu    {stay.of.kind} {shape}: {stay.why}")
        lines += [f"  cpu    {each}" for each in self.near]
        return "\n".join(lines) + "\n"


def offload(module: Module, target: AccelTarget) -> Offloaded:
    """What runs where; a model with nothing for the accelerator is refused."""
    one = mapped(flatten_graph(infer(module)), target.machine)
    found = [layer_of(target.machine, layer) for layer in _layers(one)]
    layers = [each for each in found if isinstance(each, AccelLayer)]
    stays = tuple([each for each in found if isinstance(each, Stays)])
    others = near(one, {each.of.layer for each in found})
    empty = bool(stays) and all(stay.why == NOTHING for stay in stays)
    if not layers and not empty:
        message = f"No layer of this model can run on the target {str(target)!r}."
        reasons = [*(stay.why for stay in stays), *map(str, others)]
        shown = "; ".join(dict.fromkeys(reasons)) or "no convolution and no product of matrices"
        hint = remedies(others) if others else None if stays else FORM
        expected = "convolutions or products of int8, shifted and clipped"
        place = Place(node=str(target))
        raise UnsupportedError(Diagnostic("unsupported", message, place, expected, shown, hint))
    graph = packed(one.main_function(), layers)
    return Offloaded(module, target, graph, stages(graph), stays, others)


def _layers(of: Module) -> list[IntegerConvolution]:
    """The integer layers; of two terms with one result the last is taken."""
    return list({each.root: each for each in integer_convolutions(of)}.values())


def assembled(
    of: Offloaded,
    parts: Sequence[Artefact],
    interface: Interface,
    versions: tuple[tuple[str, str], ...],
    known: Known = lambda _: None,
) -> AccelArtefact:
    """The artefact; `parts` are the stages as native code, in order.

    `known` are tilings that a search has found to be good.
    """
    machine = of.target.machine
    assembly = _Assembly(of, known)
    level = levels(of.graph)
    work: list[tuple[int, int, int]] = [(stage.level, 1, at) for at, stage in enumerate(of.stages)]
    work += [(level[launch.result], 0, at) for at, launch in enumerate(of.graph.launches)]
    for _, is_stage, at in sorted(work):
        if is_stage:
            assembly.part(at, of.stages[at])
        else:
            assembly.launch(at, of.graph.launches[at])
    programs = assembly.programs
    text = "\n".join(
        f"; program {at}: {_described(of_)}\n{show_stream(machine, chosen.stream)}"
        for of_, (at, chosen) in programs.items()
    )
    return AccelArtefact(
        digest(of.source), str(of.target), machine.timing.megahertz, device_of(machine), interface,
        tuple([_coded(machine, chosen.stream) for _, chosen in programs.values()]),
        tuple(assembly.steps), tuple([assembly.results[output] for output in of.graph.outputs]),
        tuple(assembly.constants), tuple(parts), text, of.placement, versions,
    )  # fmt: skip


def tunings(of: Offloaded, known: Known = lambda _: None) -> str:
    """How each kind of layer is tiled, whether a record or a guess says so, its cycles; a table."""
    rows = {}
    for launch in of.graph.launches:
        layer = launch.layer.convolution
        good = known(layer)
        chosen = choose(of.target.machine, layer, TRIALS, good)
        tiling = chosen.tiling
        sizes = f"{tiling.height}x{tiling.width} o{tiling.outputs} i{tiling.inputs}"
        threads = f"{tiling.threads} {tiling.across}{' keep' if tiling.keep else ''}"
        why = "recorded" if tiling == good else "the best guess"
        rows[layer] = (
            f"  {launch.layer.shape}: {sizes} {threads}, {chosen.timed.cycles} cycles, {why}"
        )
    return "\n".join([f"{of.target}: {len(rows)} kinds of layers", *rows.values()]) + "\n"


def _coded(machine: Accelerator, stream: Stream) -> Coded:
    rooms = [MemorySpan(each.name, each.scope, each.at, each.elements) for each in stream.tensors]
    return Coded(to_bytes(machine, stream.code), stream.micro, tuple(rooms))


def _described(of: Convolution) -> str:
    sizes = f"{of.channels}x{of.height}x{of.width} -> {of.outputs}, {of.kernel}x{of.kernel}"
    shift = "a shift for each output" if of.each else f"shift {of.shift}"
    return f"{sizes} / {of.stride}, pad {of.pad}, {shift}, clip {of.low} to {of.high}"


class _Assembly:
    """The steps of an artefact under construction; local to `assembled`."""

    def __init__(self, of: Offloaded, known: Known) -> None:
        self.machine, self.known = of.target.machine, known
        self.steps: list[Step] = []
        self.values: dict[Expr, int] = {expr: at for at, expr in enumerate(flat_inputs(of.graph))}
        self.count = len(self.values)
        self.results: dict[Expr, int] = {}
        """What stages give: an output that is an input too is another array."""
        self.programs: dict[Convolution, tuple[int, ChosenTiling]] = {}
        self.constants: list[Array] = []

    def new(self) -> int:
        self.count += 1
        return self.count - 1

    def part(self, number: int, of: HostStage) -> None:
        """A stage: what it gives has numbers from here on."""
        takes = tuple([self.values[expr] for expr in of.inputs])
        for result in of.results:
            self.results[result] = self.new()
            self.values.setdefault(result, self.results[result])
        gives = tuple([self.results[result] for result in of.results])
        self.steps.append(NativePart(number, takes, gives))

    def launch(self, number: int, of: Packing) -> None:
        """A layer; those of one shape share their program."""
        layer = of.layer
        if layer.convolution not in self.programs:
            good = self.known(layer.convolution)
            chosen = choose(self.machine, layer.convolution, TRIALS, good)
            self.programs[layer.convolution] = len(self.programs), chosen
        program, chosen = self.programs[layer.convolution]
        held = []
        for name, array in layer.constants.items():
            held.append((name, len(self.constants)))
            self.constants.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        self.values[of.result] = self.new()
        stored = type_of(of.result)
        assert isinstance(stored, TensorType)
        timed = chosen.timed
        self.steps.append(
            ProgramLaunch(
                f"launch{number}: {layer.shape}",
                ProgramRun(program, self.values[of.data], self.values[of.result], layer.batch),
                tuple([known(size) or 0 for size in stored.shape]),
                tuple(held),
                Cost(timed.cycles, timed.turns, timed.operations, timed.moved),
            )
        )


THREADS: Final = (2, 1)
TRIALS: Final = 6  # how many tilings are simulated for each number of threads
MAX_TILINGS: Final = 100_000
"""After this many instructions no further tiling is simulated: of a machine whose elements are
small a large layer has more than that in one stream, and the guesses are in order."""


@frozen
class ChosenTiling:
    """A tiling, its stream, the timed stream, and the times of the other tilings."""

    tiling: ConvTiling
    stream: Stream
    timed: Timed
    others: tuple[Timed, ...]


@lru_cache(maxsize=256)
def choose(
    machine: Accelerator, of: Convolution, trials: int = TRIALS, known: ConvTiling | None = None
) -> ChosenTiling:
    """The best of some tilings for each number of threads, and of one that is known to be good.

    Its stream is checked.  A layer no tile of which fits is refused.
    """
    found: list[tuple[ConvTiling, Stream, Timed]] = []
    wrong: tuple[Diagnostic, ...] = ()
    guesses = [each for threads in THREADS for each in ranked(machine, of, threads, trials)]
    guesses.sort(key=lambda each: estimate(machine, of, each))
    if known is not None:
        guesses = [known, *[guess for guess in guesses if guess != known]]
    spent = 0
    for tiling in guesses:
        if spent > MAX_TILINGS:
            break
        try:
            stream = build(machine, convolution(machine, of, tiling), checked=False)
        except BadInstruction as error:  # a stride that no field holds: other tiles may do
            wrong = error.diagnostics
            continue
        spent += len(stream.code)
        found.append((tiling, stream, simulate(machine, stream)))
    if not found:
        message = f"Not even the smallest tile of this layer fits into {machine.name}."
        shown = f"{of.channels} channels of {of.height} x {of.width}, a kernel of {of.kernel}"
        place = Place(node="convolution")
        first = Diagnostic("scope-capacity", message, place, None, shown)
        raise UnsupportedError(first, *wrong)
    tiling, stream, timed = min(found, key=lambda each: each[2].cycles)
    assure(machine, stream)
    return ChosenTiling(tiling, stream, timed, tuple([each for _, _, each in found]))
