"""Accelerator layers: which integer layers an accelerator can run, and how they are laid out.

`layer_of(machine, layer)` takes an integer convolution or dense layer of the graph. It returns an
`AccelLayer` (sizes rounded up to whole blocks of the matrix unit, layouts of input and output,
packed weights), or `Stays` with the reason why the layer runs on the processor: an epilogue that
the machine lacks, unknown sizes, mostly padding, groups, dilation, or tiles beyond its memory.

>>> import numpy as np
>>> from plica.codegen.accel.vta import vta
>>> from plica.core.name import Name
>>> from plica.ir.type.dtype import i32
>>> from plica.ir.graph.expression import Function, Var, const
>>> from plica.ir.graph.module import module
>>> from plica.ir.op.convolution import conv
>>> from plica.ir.op.elementwise import cast
>>> from plica.ir.type.term import tensor
>>> from plica.rewrite.quantise.form import integer_convolutions, integer_layer
>>> x, main = Var(Name("x"), tensor((1, 16, 4, 4), "i8")), Var(Name("main"), None)
>>> w = const(np.ones((8, 16, 3, 3), np.int8))
>>> y = integer_layer(conv(cast(x, i32), cast(w, i32), padding=1), None, 4, 0, 127)
>>> (found,) = integer_convolutions(module({main: Function((), (), (x,), None, y)}, main))
>>> layer = layer_of(vta(), found)
>>> layer.shape, layer.constants["w"].shape, layer.before
('16x4x4 -> 8, 3x3', (1, 1, 3, 3, 16, 16), 'NCHW16c')
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np
from attrs import frozen

from plica.codegen.accel.conv import Convolution, finish_of, pack_outputs, pack_weight
from plica.codegen.accel.declaration import Accelerator
from plica.codegen.accel.epilogue import epilogue
from plica.codegen.accel.tiling import tilings
from plica.codegen.accel.units import MachineUnits, units_of
from plica.ir.loop.layout import Layout, show_layout
from plica.ir.type import TensorType, known, type_of
from plica.rewrite.quantise.form import IntegerConvolution

Array = np.ndarray[Any, Any]

MIN_USEFUL_FRACTION: Final = 0.5
"""Layers with more padding than this in the rows or channels of a block stay on the processor."""

NOTHING: Final = "there is nothing to compute"  # the reason for a layer with an empty input


@frozen
class Stays:
    """A layer that runs on the processor, and why."""

    of: IntegerConvolution
    why: str


@frozen(eq=False, slots=False)
class AccelLayer:
    """A layer that runs on an accelerator.

    It runs `batch` times per call, each time on as many images as the matrix unit has rows.
    """

    of: IntegerConvolution
    convolution: Convolution
    batch: int
    units: MachineUnits
    pad: int = 0  # padding that the processor adds on every side, where the machine cannot pad

    @property
    def is_dense(self) -> bool:
        return self.of.kind == "dense"

    @property
    def before(self) -> str:
        """The layout of its input as text, as in NCHW16c."""
        return show_layout(self.layout, "NC" if self.is_dense else "NCHW")

    @property
    def layout(self) -> Layout:
        """The layout of its input."""
        return self.units.data_layout(self._letters)

    @property
    def after(self) -> Layout:
        """The layout of its output."""
        return self.units.result_layout(self._letters)

    @property
    def _letters(self) -> str:
        return "CN" if self.is_dense else "NCHW"

    @property
    def shape(self) -> str:
        """Its sizes as text, as in `16x4x4 -> 8, 3x3`."""
        channels, outputs = self.of.weight.shape[1], self.of.weight.shape[0]
        of = self.convolution
        given = type_of(self.of.data)
        assert isinstance(given, TensorType)  # `layer_of` has seen its sizes
        images = known(given.shape[0]) or 0
        if self.is_dense:
            return f"{images}x{channels} -> {outputs}, dense"
        step = f" / {of.stride}" if of.stride > 1 else ""
        many = f"{images} x " if images > 1 else ""
        height, width = of.height - 2 * self.pad, of.width - 2 * self.pad
        sizes = f"{channels}x{height}x{width} -> {outputs}"
        return f"{many}{sizes}, {of.kernel}x{of.kernel}{step}"

    @cached_property
    def constants(self) -> Mapping[str, Array]:
        """Weights and epilogue parameters in blocks, by their names in the instruction stream."""
        of, machine = self.convolution, self.units.machine
        weight = self.of.weight.reshape(*self.of.weight.shape[:2], of.kernel, of.kernel)
        wide = np.zeros((of.outputs, of.channels, of.kernel, of.kernel), np.int8)
        wide[: weight.shape[0], : weight.shape[1]] = weight
        shifts = np.array(self.of.shifts, np.int32)
        values = {"b": self.of.bias, "n": shifts, "l": np.array([of.low]), "h": np.array([of.high])}
        found = {"w": pack_weight(machine, wide)}
        for step in finish_of(self.units, of):
            if (given := values.get(step.tensor)) is not None:
                found[step.tensor] = pack_outputs(machine, _filled(given, of.outputs))
        return found


def _filled(given: Array, count: int) -> Array:
    """One number per output: a scalar is repeated, a vector is padded with zeros."""
    array = np.zeros(count, np.int32)
    array[: given.size if given.size > 1 else count] = given
    return array


def layer_of(machine: Accelerator, of: IntegerConvolution) -> AccelLayer | Stays:
    """The layer as the machine runs it, or why it stays on the processor."""
    units = units_of(machine)
    missing = epilogue(units, of.bias is not None, of.shift, of.low, of.high)
    if isinstance(missing, str):
        return Stays(of, f"{machine.name} has {missing}")
    given = type_of(of.data)
    assert isinstance(given, TensorType)  # an integer layer reads one
    sizes = [known(size) for size in given.shape]
    numbers = [size for size in sizes if size]
    if 0 in sizes:
        return Stays(of, NOTHING)
    if len(numbers) < len(sizes):
        return Stays(of, "its sizes are not known")
    rows, depth, channels = units.rows, units.depth, of.weight.shape[1]
    share = numbers[0] / _rounded_up(numbers[0], rows)
    if share < MIN_USEFUL_FRACTION:
        return Stays(of, f"a batch of {numbers[0]} fills {share:.0%} of {rows} rows")
    share = channels / _rounded_up(channels, depth)
    few_channels = (
        f"{channels} channels fill {share:.0%} of a block of {depth}"
        if share < MIN_USEFUL_FRACTION
        else None
    )
    if of.kind == "dense":
        if len(numbers) != 2:
            return Stays(of, "its input is not a matrix")
        if few_channels is not None:
            return Stays(of, few_channels)
        convolution = _sized(of, units, (1, -(-numbers[0] // rows)))
        return _if_fits(machine, AccelLayer(of, convolution, 1, units))
    if len(numbers) != 4 or of.weight.ndim != 4:
        return Stays(of, "it does not have two spatial axes")
    if of.groups != 1:
        return Stays(of, f"it has {of.groups} groups")
    if any(each != 1 for each in of.dilation):
        return Stays(of, "its kernel is dilated")
    pads = {each for side in of.padding for each in side}
    if of.weight.shape[2] != of.weight.shape[3] or len(set(of.strides)) > 1 or len(pads) > 1:
        return Stays(of, "its kernel, strides or padding are not square")
    kernel, pad = int(of.weight.shape[2]), pads.pop()
    if pad >= kernel:
        return Stays(of, "it pads as much as its kernel, or more")
    if few_channels is not None:
        return Stays(of, few_channels)
    batch, _, height, width = numbers
    pad_before = 0 if units.data.can_pad else pad
    plane = (height + 2 * pad_before, width + 2 * pad_before)
    convolution = _sized(of, units, plane, kernel, pad - pad_before)
    return _if_fits(machine, AccelLayer(of, convolution, -(-batch // rows), units, pad_before))


def _rounded_up(size: int, block: int) -> int:
    """The size, rounded up to whole blocks."""
    return -(-size // block) * block


def _sized(
    of: IntegerConvolution,
    units: MachineUnits,
    plane: tuple[int, int],
    kernel: int = 1,
    pad: int = 0,
) -> Convolution:
    """The convolution that the machine runs, with channels rounded up to whole blocks."""
    outputs = _rounded_up(of.weight.shape[0], units.columns)
    channels = _rounded_up(of.weight.shape[1], units.depth)
    stride = of.strides[0] if of.strides else 1
    return Convolution(
        channels, *plane, outputs, kernel, stride, pad, of.shift or 0, of.bias is not None,
        of.low, of.high, of.shift is None,
    )  # fmt: skip


def _if_fits(machine: Accelerator, layer: AccelLayer) -> AccelLayer | Stays:
    if not tilings(machine, layer.convolution, 1):
        return Stays(layer.of, "not even its smallest tile fits into the scopes")
    return layer
