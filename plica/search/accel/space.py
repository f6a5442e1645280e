"""Spaces of an accelerator: the tilings of a layer that fit its machine, as traces.

    Sketch   = a number of threads, the axis they share out, whether weights stay
    decision = rows, columns, blocks of outputs and blocks of inputs of a tile

>>> from plica.codegen.accel.vta import osdi
>>> of = Convolution(32, 6, 6, 64, kernel=3, pad=1)
>>> space = layer_space(osdi(), of)
>>> [each.name for each in space.sketches]
['1 height', '1 height keep', '2 outputs', '2 height', '2 height keep']
>>> tiling_of(space, space.default)
ConvTiling(height=6, width=6, outputs=4, inputs=2, threads=1, across='height', keep=False)
"""

from __future__ import annotations

from typing import Any, Final, get_args

from attrs import frozen

from plica.codegen.accel.conv import Across, Convolution, ConvTiling
from plica.codegen.accel.declaration import Accelerator
from plica.codegen.accel.tiling import estimate, tilings
from plica.codegen.accel.units import units_of
from plica.core import CompilerBug, digest
from plica.ir.loop.stages import Stages, from_kernel
from plica.ir.loop.statement import Kernel
from plica.ir.text.script import from_text
from plica.runtime.error import Diagnostic, Place, UnsupportedError
from plica.schedule import bind, block, do, loops, reorder, sample_tuple, split, trace_of
from plica.schedule.do import Body
from plica.schedule.form import Facts
from plica.schedule.instruction import Decision, Sampling
from plica.schedule.trace import Trace
from plica.search.space import Point, Sketch, Space, sketch

THREADS: Final = (1, 2)

_LAYER: Final = """
import plica
from plica.script import Buffer, block, grid, i8, i32, init

@plica.kernel
def layer(
    x: Buffer[({ci}, {tall}, {wide}, {d}), i8],
    w: Buffer[({co}, {ci}, {r}, {r}, {n}, {d}), i8],
    y: Buffer[({co}, {oh}, {ow}, {n}), i32],
):
    for o, h, v, k, i, j, a, b in grid({co}, {oh}, {ow}, {ci}, {r}, {r}, {n}, {d}):
        with block("y", spatial=(o, h, v, a), reduce=(k, i, j, b)):
            with init():
                y[o, h, v, a] = 0
            y[o, h, v, a] += i32(x[k, h * {s} + i, v * {s} + j, b]) * i32(w[o, k, i, j, a, b])
"""


def layer_kernel(machine: Accelerator, of: Convolution) -> Kernel:
    """The scheduled kernel: the sums of one row of a layer, over blocks."""
    units = units_of(machine)
    d, n = units.depth, units.columns
    text = _LAYER.format(
        d=d, n=n, ci=-(-of.channels // d), co=-(-of.outputs // n), r=of.kernel, s=of.stride,
        oh=of.out_height, ow=of.out_width,
        tall=(of.out_height - 1) * of.stride + of.kernel,
        wide=(of.out_width - 1) * of.stride + of.kernel,
    )  # fmt: skip
    kernel = from_text(text).values[0]
    assert isinstance(kernel, Kernel)
    return kernel


@do
def tiled(tiles: tuple[Decision, ...], threads: int, across: Across) -> Body:
    """Outer loops over tiles, inner loops over their elements; one of the outer loops is shared by
    threads."""
    o, h, v, k, i, j, a, b = yield loops((yield block("y")))
    height, width, outputs, inputs = yield sample_tuple(tiles)
    o0, o1 = yield split(o, (None, outputs))
    h0, h1 = yield split(h, (None, height))
    v0, v1 = yield split(v, (None, width))
    k0, k1 = yield split(k, (None, inputs))
    shared: tuple[Any, ...] = ()  # Any: a handle
    if threads > 1 and across == "outputs":
        o0, *shared = yield split(o0, (None, threads))
    elif threads > 1:
        h0, *shared = yield split(h0, (None, threads))
    yield reorder(o0, h0, v0, *shared, k0, o1, k1, i, j, h1, v1, a, b)
    for each in shared:
        yield bind(each, "virtual")


def layer_space(machine: Accelerator, of: Convolution) -> Space:
    """The tilings of a layer, with sketches and decisions ordered by estimated cost."""
    kernel = layer_kernel(machine, of)
    kinds: dict[tuple[int, Across, bool], list[ConvTiling]] = {}
    for threads in THREADS:
        for tiling in tilings(machine, of, threads):
            kinds.setdefault((threads, tiling.across, tiling.keep), []).append(tiling)
    if not kinds:
        message = f"Not even the smallest tile of this layer fits into {machine.name}."
        place = Place(node="convolution")
        raise UnsupportedError(Diagnostic("scope-capacity", message, place, None, str(of)))
    found: list[tuple[float, Sketch]] = []
    for (threads, across, keep), members in kinds.items():
        guesses = {_sizes(member): estimate(machine, of, member) for member in members}
        best = min(guesses, key=lambda each: (guesses[each], each))
        schedule = tiled(tuple(sorted(guesses)), threads, across)
        trace = trace_of(schedule, kernel, decisions={SAMPLED: best})
        name = f"{threads} {across}{' keep' if keep else ''}"
        found.append((guesses[best], sketch(name, kernel, trace)))
    return Space(tuple([each for _, each in sorted(found, key=lambda pair: pair[0])]))


SAMPLED: Final = 2  # the number of the step that decides on a tile


def _sizes(of: ConvTiling) -> Decision:
    return of.height, of.width, of.outputs, of.inputs


def tiling_of(space: Space, point: Point) -> ConvTiling:
    """The tiling of a point."""
    if (conv_tiling := decided(space.sketches[point.sketch].name, space.trace(point))) is None:
        raise CompilerBug("a space of tilings has a trace that decides on none")
    return conv_tiling


def decided(form: str, trace: Trace) -> ConvTiling | None:
    """The tiling of a trace with the given sketch name, or None if it is not of this space."""
    numbers = [n for n, step in enumerate(trace.steps) if isinstance(step.instruction, Sampling)]
    words = form.split()
    shared = [arg for arg in get_args(Across) if arg in words[1:2]]
    if len(numbers) != 1 or not shared or not words[0].isdecimal():
        return None
    sizes = trace.decisions()[numbers[0]]
    if len(sizes) != 4 or min(sizes) < 1:
        return None
    height, width, outputs, inputs = sizes
    return ConvTiling(height, width, outputs, inputs, int(words[0]), shared[0], "keep" in words[2:])


@frozen(eq=False)
class LayerTask:
    """A layer to be tuned for a machine: a piece of work, as the loop of tuning sees it."""

    machine: Accelerator
    of: Convolution
    name: str = "layer"
    weight: int = 1

    @property
    def stages(self) -> Stages:
        return from_kernel(layer_kernel(self.machine, self.of))

    @property
    def facts(self) -> Facts:
        """The weights are constant, and the order of sums is kept."""
        return Facts((False, True))

    @property
    def key(self) -> str:
        """The digest of the layer: its kernel and epilogue."""
        after = f"{self.of.pad} {self.of.bias} {self.of.each} {self.of.shift > 0}"
        return f"{digest(layer_kernel(self.machine, self.of))}/{after}"
