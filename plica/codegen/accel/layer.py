"""Layers: which integer layers of a graph an accelerator takes, and what it is given for them.

>>> import numpy as np
>>> from plica.codegen.accel.vta import vta
>>> from plica.core.name import Name
>>> from plica.ir.dtype import i32
>>> from plica.ir.graph import Function, Var, const
>>> from plica.ir.module import module
>>> from plica.ir.op.convolution import conv
>>> from plica.ir.op.elementwise import cast
>>> from plica.ir.type import tensor
>>> from plica.rewrite.quantise.form import integer_convolutions, integer_layer
>>> x, main = Var(Name("x"), tensor((1, 16, 4, 4), "i8")), Var(Name("main"), None)
>>> w = const(np.ones((8, 16, 3, 3), np.int8))
>>> y = integer_layer(conv(cast(x, i32), cast(w, i32), padding=1), None, 4, 0, 127)
>>> (found,) = integer_convolutions(module({main: Function((), (), (x,), None, y)}, main))
>>> layer = layer_of(vta(), found)
>>> layer.shape, layer.constants["w"].shape, layer.before
('16x4x4 -> 8, 3x3', (1, 1, 3, 3, 16, 16), 'NCHW16c')

Channels are filled up to whole blocks: with zeros in the weights, so that what is added is nothing.
A layer most of whose products would be such zeros (the three channels of an image) stays on the
processor, and so does one that the machine's instructions cannot express; `layer_of` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np
from attrs import frozen

from plica.codegen.accel.conv import Convolution
from plica.codegen.accel.declaration import Machine
from plica.codegen.accel.tiling import tilings
from plica.ir.dim import known
from plica.ir.infer import type_of
from plica.ir.layout import Layout, read_layout
from plica.ir.type import TensorType
from plica.rewrite.quantise.form import IntegerConvolution

Array = np.ndarray[Any, Any]

LEAST: Final = 0.5
"""The share of a layer's products that must be of the model's own numbers."""

NOTHING: Final = "there is nothing to compute"
"""Why a layer of no images stays."""


@frozen
class Stays:
    """A layer that the processor does, and why."""

    of: IntegerConvolution
    why: str


@frozen(eq=False, slots=False)
class Layer:
    """A layer that an accelerator does; `batch` times for each call."""

    of: IntegerConvolution
    convolution: Convolution
    batch: int
    block: int

    @property
    def is_dense(self) -> bool:
        return self.of.kind == "dense"

    @property
    def before(self) -> str:
        """The layout of what it reads and writes, as a word."""
        return f"CN{self.block}c" if self.is_dense else f"NCHW{self.block}c"

    @property
    def layout(self) -> Layout:
        """The same."""
        return read_layout(self.before, "NC" if self.is_dense else "NCHW")

    @property
    def shape(self) -> str:
        """Its sizes, for people."""
        channels, outputs = self.of.weight.shape[1], self.of.weight.shape[0]
        of = self.convolution
        if self.is_dense:
            return f"{of.width}x{channels} -> {outputs}, dense"
        step = f" / {of.stride}" if of.stride > 1 else ""
        many = f"{self.batch} x " if self.batch > 1 else ""
        sizes = f"{channels}x{of.height}x{of.width} -> {outputs}"
        return f"{many}{sizes}, {of.kernel}x{of.kernel}{step}"

    @cached_property
    def constants(self) -> Mapping[str, Array]:
        """The tensors that are known now, by the names of the stream, in blocks."""
        of, n = self.convolution, self.block
        weight = self.of.weight.reshape(*self.of.weight.shape[:2], of.kernel, of.kernel)
        wide = np.zeros((of.outputs, of.channels, of.kernel, of.kernel), np.int8)
        wide[: weight.shape[0], : weight.shape[1]] = weight
        found = {"w": _packed(wide, n)}
        if self.of.bias is not None:
            found["b"] = _filled(self.of.bias, of.outputs)
        if of.each:
            found["n"] = _filled(np.array(self.of.shifts, np.int32), of.outputs)
        return found


def _packed(weight: Array, n: int) -> Array:
    o, c, k, _ = weight.shape
    return np.ascontiguousarray(
        weight.reshape(o // n, n, c // n, n, k, k).transpose(0, 2, 4, 5, 1, 3)
    )


def _filled(given: Array, count: int) -> Array:
    found = np.zeros(count, np.int32)
    found[: given.size] = given
    return found


def layer_of(machine: Machine, of: IntegerConvolution) -> Layer | Stays:
    """The layer as the machine does it, or why it does not."""
    n = machine.scope("inp").shape[-1]
    given = type_of(of.data)
    assert isinstance(given, TensorType)  # an integer layer reads one
    sizes = [known(size) for size in given.shape]
    numbers = [size for size in sizes if size]
    if 0 in sizes:
        return Stays(of, NOTHING)
    if len(numbers) < len(sizes):
        return Stays(of, "its sizes are not known")
    if machine.scope("inp").shape[0] != 1:
        return Stays(of, "the machine computes several rows at once")
    channels = of.weight.shape[1]
    if of.kind == "dense":
        if len(numbers) != 2:
            return Stays(of, "what it reads is no matrix")
        found = _sized(of, n, (1, numbers[0]))
        return _if_fits(machine, Layer(of, found, 1, n))
    if len(numbers) != 4 or of.weight.ndim != 4:
        return Stays(of, "it has not two spatial axes")
    if of.groups != 1:
        return Stays(of, f"it has {of.groups} groups")
    if any(each != 1 for each in of.dilation):
        return Stays(of, "its kernel is dilated")
    pads = {each for side in of.padding for each in side}
    if of.weight.shape[2] != of.weight.shape[3] or len(set(of.strides)) > 1 or len(pads) > 1:
        return Stays(of, "its kernel, strides or padding are no squares")
    kernel, pad = int(of.weight.shape[2]), pads.pop()
    if pad >= kernel:
        return Stays(of, "it pads as much as its kernel, or more")
    share = channels / (-(-channels // n) * n)
    if share < LEAST:
        return Stays(of, f"{channels} channels fill {share:.0%} of a block of {n}")
    batch, _, height, width = numbers
    found = _sized(of, n, (height, width), kernel, pad)
    return _if_fits(machine, Layer(of, found, batch, n))


def _sized(
    of: IntegerConvolution, n: int, plane: tuple[int, int], kernel: int = 1, pad: int = 0
) -> Convolution:
    """The layer as the machine sees it, channels filled up to whole blocks of n."""
    outputs, channels = (-(-size // n) * n for size in of.weight.shape[:2])
    stride = of.strides[0] if of.strides else 1
    return Convolution(
        channels, *plane, outputs, kernel, stride, pad, of.shift or 0, of.bias is not None,
        of.low, of.high, of.shift is None,
    )  # fmt: skip


def _if_fits(machine: Machine, layer: Layer) -> Layer | Stays:
    if not tilings(machine, layer.convolution, 1):
        return Stays(layer.of, "not even its smallest tile fits into the scopes")
    return layer
