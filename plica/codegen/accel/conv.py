"""Convolutions and dense layers of int8 as flows: tile sizes and thread counts are data.

    for each tile of the result:
      for each part of the input channels:
        load the input tile and the weights; the first time, acc := 0; multiply
      shift, clip, store

>>> from plica.codegen.accel.vta import osdi
>>> shape = Convolution(channels=32, height=6, width=6, outputs=32, kernel=3, pad=1, shift=8)
>>> flow = convolution(osdi(), shape, ConvTiling(height=3, width=6, outputs=2, inputs=1, threads=2))
>>> [each.name for each in flow.tiles]
['data', 'weight', 'sums']

Which operations do this, and how large an element is, `units_of` finds in the declaration of a
machine.  Input and result are blocked: `[channels / k, height, width, m, k]` for elements of m rows
(images of a batch) by k; weights are `[outputs / n, channels / k, kernel, kernel, n, k]`.
`pack_input`, `pack_weight`, `unpack_output` make these of plain arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from attrs import frozen

from plica.codegen.accel.declaration import Accelerator
from plica.codegen.accel.epilogue import EpilogueStep, epilogue
from plica.codegen.accel.flow import (
    NO_PADS,
    ZERO,
    Flow,
    Loop,
    Memory,
    Steps,
    Stmt,
    Threads,
    Tile,
    Touch,
    Transfer,
    Work,
)
from plica.codegen.accel.units import MachineUnit, MachineUnits, Role, units_of
from plica.ir.loop.scalar import Max, Min, Scalar, index
from plica.ir.loop.tensor import axis
from plica.runtime.error import Diagnostic, Place, UnsupportedError

Array = np.ndarray[Any, Any]
Across: TypeAlias = Literal["outputs", "height"]


@frozen
class Convolution:
    """`clip((conv(x, w) + b) >> shift)`, with int8 operands and i32 sums and b.

    With `each`, every output has its own shift, which is passed like b.
    """

    channels: int
    height: int
    width: int
    outputs: int
    kernel: int = 1
    stride: int = 1
    pad: int = 0
    shift: int = 8
    bias: bool = False
    low: int = -128
    high: int = 127
    each: bool = False

    @property
    def out_height(self) -> int:
        return (self.height + 2 * self.pad - self.kernel) // self.stride + 1

    @property
    def out_width(self) -> int:
        return (self.width + 2 * self.pad - self.kernel) // self.stride + 1


@frozen
class ConvTiling:
    """The sizes of a tile: rows, columns, blocks of result channels, blocks of input channels.

    Threads process neighbouring tiles across the result's channels or rows. If the weights of a
    tile's channels fit together and `keep` is set, they are loaded once for all rows.
    """

    height: int
    width: int
    outputs: int
    inputs: int
    threads: int = 1
    across: Across = "height"
    keep: bool = False


@lru_cache(maxsize=256)
def finish_of(units: MachineUnits, of: Convolution) -> tuple[EpilogueStep, ...]:
    """The epilogue of a convolution; refuses those the machine cannot compute."""
    steps = epilogue(units, of.bias, None if of.each else of.shift, of.low, of.high)
    if isinstance(steps, str):
        message = f"The accelerator {units.machine.name} has {steps}."
        raise _refused(message, steps, "a bias, a shift and clips that the machine can do")
    return steps


def convolution(machine: Accelerator, of: Convolution, tiling: ConvTiling) -> Flow:
    """The flow of a convolution; sizes the machine cannot do are refused."""
    units = units_of(machine)
    _check(of, tiling, units)
    steps = finish_of(units, of)
    ci, co = -(-of.channels // units.depth), -(-of.outputs // units.columns)
    oh, ow = of.out_height, of.out_width
    th, tw = min(tiling.height, oh), min(tiling.width, ow)
    to, ti = min(tiling.outputs, co), min(tiling.inputs, ci)
    kk, s = of.kernel * of.kernel, of.stride
    down = 1 if of.kernel == 1 else s  # rows that no element needs are not loaded
    tall = (th - 1) * down + of.kernel
    wide = (tw - 1) * s + of.kernel
    keep = tiling.keep and ti == ci and tiling.across == "height"

    x = Memory("x", units.data.scope.name, ci * of.height * of.width)
    w = Memory("w", units.weight.scope.name, co * ci * kk)
    y = Memory("y", units.result.scope.name, co * oh * ow)
    data = Tile("data", units.data.scope.name, ti * tall * wide)
    weight = Tile("weight", units.weight.scope.name, to * ti * kk, not keep)
    sums = Tile("sums", units.sums.name, to * th * tw)
    names = [each.tensor for each in steps if each.tensor]
    outside = {name: Memory(name, units.sums.name, co) for name in names}
    inside_of = {name: Tile(f"{name}_tile", units.sums.name, to) for name in names}

    o, h, v, k, thread, c = (axis(word) for word in ("o", "h", "v", "k", "thread", "c"))
    counts = {"outputs": -(-co // to), "height": -(-oh // th)}
    tile: dict[str, Scalar] = {"outputs": o, "height": h}
    tile[tiling.across] = tile[tiling.across] * tiling.threads + thread
    counts[tiling.across] = -(-counts[tiling.across] // tiling.threads)

    # The remainder of a tile at the edge; empty if a thread has no tile.
    o0, h0, v0, k0 = tile["outputs"] * to, tile["height"] * th, v * tw, k * ti
    os, hs = _left(o0, to, co), _left(h0, th, oh)
    vs, ks = _left(v0, tw, ow), _left(k0, ti, ci)
    some = Min(os, index(1)) * Min(hs, index(1))

    top, left = h0 * s - of.pad, v0 * s - of.pad
    above, before = Max(-top, ZERO), Max(-left, ZERO)
    first, column = Max(top, ZERO), Max(left, ZERO)
    if down < s:
        tall_now, below, rows = hs, ZERO, hs
    else:
        tall_now = (hs - 1) * s + of.kernel
        below = Max(top + tall_now - of.height, ZERO)
        rows = tall_now - above - below
    wide_now = (vs - 1) * s + of.kernel
    after = Max(left + wide_now - of.width, ZERO)
    columns = wide_now - before - after

    load = units.data.move.name
    fetch: Stmt
    if of.kernel == 1 and s == 1 and of.pad == 0 and tw == ow:
        plane = index(of.height * of.width)
        at = (k0 * of.height + h0) * of.width
        fetch = Transfer(load, data, ZERO, x, at, ks * some, hs * of.width, plane)
    else:
        here = Min(Max(ks - c, ZERO), index(1)) * some
        at = ((k0 + c) * of.height + first) * of.width + column
        step = index(of.width * (s if down < s else 1))
        pads = NO_PADS if of.pad == 0 else (above, below, before, after)
        sram = c * tall_now * wide_now
        fetch = Loop(c, ti, Transfer(load, data, sram, x, at, rows * here, columns, step, pads))
    whole = os if keep else os * Min(hs, index(1))
    at = (o0 * ci + k0) * kk
    weigh = Transfer(units.weight.move.name, weight, ZERO, w, at, whole, ks * kk, index(ci * kk))

    area = hs * vs
    multiply = _work(
        units.multiply,
        (os, ks, index(of.kernel), index(of.kernel), hs, vs),
        {
            "sums": Touch(sums, ZERO, (area, ZERO, ZERO, ZERO, vs, index(1))),
            "data": Touch(
                data,
                ZERO,
                (ZERO, tall_now * wide_now, wide_now, index(1), wide_now * down, index(s)),
            ),
            "weight": Touch(
                weight, ZERO, (ks * kk, index(kk), index(of.kernel), index(1), ZERO, ZERO)
            ),
        },
    )

    # Sums are cleared next to the first multiplication, not before the loads: so a thread waits for
    # its last store only in its turn, while others multiply.
    once = Max(1 - k, ZERO)
    every: dict[Role, Touch] = {"sums": Touch(sums, ZERO, (area, vs, index(1)))}
    clear = _work(units.clear, (os * once, hs, vs), every)

    finish: list[Stmt] = []
    for each in steps:
        if not each.tensor:
            given = ((each.unit.immediate, each.number),)
            finish.append(_work(each.unit, (os, hs, vs), every, given))
            continue
        assert units.load_sums is not None  # `epilogue` has seen to it
        tile_of, memory = inside_of[each.tensor], outside[each.tensor]
        get = units.load_sums.name
        finish.append(Transfer(get, tile_of, ZERO, memory, o0, Min(hs, index(1)), os, os))
        of_output = Touch(tile_of, ZERO, (index(1), ZERO, ZERO))
        finish.append(_work(each.unit, (os, hs, vs), {**every, "tensor": of_output}))
    put = units.result.move.name
    store: Stmt
    if tw == ow:
        at = (o0 * oh + h0) * ow
        store = Transfer(put, sums, ZERO, y, at, os, hs * ow, index(oh * ow), ())
    else:
        here = Min(Max(os - c, ZERO), index(1))
        at = ((o0 + c) * oh + h0) * ow + v0
        store = Loop(c, to, Transfer(put, sums, c * area, y, at, hs * here, vs, index(ow), ()))

    loads = (fetch,) if keep else (weigh, fetch)
    part = Steps((*loads, clear, multiply))
    inside: Stmt = Steps((Loop(k, -(-ci // ti), part), *finish, store))
    columns_of = -(-ow // tw)
    if tiling.threads > 1:
        body: Stmt = Loop(v, columns_of, Threads(thread, tiling.threads, inside))
    else:
        body = Loop(v, columns_of, Loop(thread, 1, inside))
    body = Loop(h, counts["height"], body)
    if keep:
        body = Steps((Loop(k, 1, weigh), body))
    tensors = (x, w, *outside.values(), y)
    tiles = (data, weight, sums, *inside_of.values())
    return Flow(tensors, tiles, Loop(o, counts["outputs"], body))


def _work(
    unit: MachineUnit,
    extents: tuple[Scalar, ...],
    touches: Mapping[Role, Touch],
    given: tuple[tuple[str, int], ...] = (),
) -> Work:
    return Work(unit.name, extents, tuple(touches[role] for role in unit.roles), given)


def _left(start: Scalar, size: int, whole: int) -> Scalar:
    """The remainder of the size for a tile that begins at `start`."""
    return Max(Min(index(size), whole - start), ZERO)


def _check(of: Convolution, tiling: ConvTiling, units: MachineUnits) -> None:
    sizes = (tiling.height, tiling.width, tiling.outputs, tiling.inputs, tiling.threads)
    if min(of.channels, of.height, of.width, of.outputs, of.stride, of.kernel, *sizes) < 1:
        raise _refused("Sizes of a convolution and of its tiles are positive.", str((of, tiling)))
    if tiling.across not in get_args(Across):
        message = "Threads work across the result's channels or its rows."
        raise _refused(message, repr(tiling.across), " or ".join(get_args(Across)))
    if not 0 <= of.shift < 32:  # of the 32 bits of a sum
        raise _refused("A shift is to the right, by less than 32 bits.", str(of.shift), "0 to 31")
    if of.pad < 0:
        raise _refused("A convolution pads with nothing or more.", str(of.pad))
    if of.pad >= of.kernel:
        raise _refused("A convolution pads less than its kernel.", f"{of.pad} for {of.kernel}")
    if not -128 <= of.low <= of.high <= 127:
        raise _refused("What is kept of the sums are bytes.", f"{of.low} to {of.high}")
    if min(of.out_height, of.out_width) < 1:
        raise _refused("The kernel is larger than its input.", str(of))
    if of.pad and not units.data.can_pad:
        message = f"{units.data.move.name} of {units.machine.name} cannot pad."
        raise _refused(message, f"a padding of {of.pad}", "data that is padded already")
    if of.channels % units.depth or of.outputs % units.columns:
        found, (k, n) = f"{of.channels} to {of.outputs}", (units.depth, units.columns)
        blocks = f"{n}" if k == n else f"{k}, outputs in blocks of {n}"
        raise _refused(f"Channels come in blocks of {blocks}.", found)


def _refused(message: str, found: str, expected: str | None = None) -> UnsupportedError:
    return UnsupportedError(
        Diagnostic("unsupported", message, Place(node="convolution"), expected, found)
    )


def pack_input(machine: Accelerator, array: Array) -> Array:
    """`[channels, height, width]`, or as many images as an element has rows, in blocks."""
    side = units_of(machine).data
    images = array if array.ndim == 4 else array[None]
    packed = units_of(machine).data_layout("NCHW").pack(images)
    return np.asarray(packed[0], side.scope.dtype.numpy)


def pack_weight(machine: Accelerator, array: Array) -> Array:
    """`[outputs, channels, kernel, kernel]` in blocks of both."""
    units = units_of(machine)
    o, c, k, _ = array.shape
    blocks = array.reshape(
        o // units.columns, units.columns, c // units.depth, units.depth, k, k
    ).transpose(0, 2, 4, 5, 1, 3)
    if units.weight.axes == "kn":
        blocks = blocks.swapaxes(-1, -2)
    return np.ascontiguousarray(blocks.astype(units.weight.scope.dtype.numpy))


def pack_outputs(machine: Accelerator, array: Array) -> Array:
    """A number for each output, as elements of sums: the same in all rows."""
    units = units_of(machine)
    blocks = array.reshape(-1, 1, units.columns).repeat(units.rows, 1)
    if units.result.axes == "nm":
        blocks = blocks.swapaxes(-1, -2)
    return np.ascontiguousarray(blocks.astype(units.sums.dtype.numpy))


def unpack_output(machine: Accelerator, of: Convolution, array: Array) -> Array:
    """The result as `[outputs, height, width]`, with the rows of its elements in front if many."""
    units = units_of(machine)
    layout = units.result_layout("NCHW")
    shape = (units.rows, of.outputs, of.out_height, of.out_width)
    blocks = [block for _, block in layout.axes if block]
    stored = (1, of.outputs // units.columns, of.out_height, of.out_width, *blocks)
    found = layout.unpack(array.reshape(stored), shape)
    return found if units.rows > 1 else found[0]


def reference(
    of: Convolution, x: Array, w: Array, b: Array | None = None, shifts: Array | None = None
) -> Array:
    """The reference of a convolution, in integer arithmetic."""
    padded = np.pad(x.astype(np.int64), ((0, 0), (of.pad, of.pad), (of.pad, of.pad)))
    sums = np.zeros((of.outputs, of.out_height, of.out_width), np.float64)
    s = of.stride
    for i in range(of.kernel):
        for j in range(of.kernel):
            part = padded[:, i : i + s * of.out_height : s, j : j + s * of.out_width : s]
            part = part[:, : of.out_height, : of.out_width].astype(np.float64)
            # Exact: int8 products summed over channels stay far below 2 ** 53.
            sums += np.tensordot(w[:, :, i, j].astype(np.float64), part, 1)
    whole = sums.astype(np.int64) + (0 if b is None else b.reshape(-1, 1, 1))
    moved = whole >> (of.shift if shifts is None else shifts.reshape(-1, 1, 1))
    array: Array = np.clip(moved, of.low, of.high).astype(np.int8)
    return array
