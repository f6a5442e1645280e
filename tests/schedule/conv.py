"""Convolutions to schedule: padding, the convolution, and what is fused after it."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from plica.ir.loop.scalar import And, Buffer, Lit, Lt, Max, Not, Scalar, ScalarVar, Select, lit
from plica.ir.loop.statement import Alloc, For, Kernel, Stmt, Store, block, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dim import dim
from plica.ir.type.dtype import f32, i64


@frozen
class Layer:
    """A convolution of images: size, channels in and out, window, stride."""

    size: int
    inputs: int
    outputs: int
    window: int
    stride: int

    def small(self, part: int = 16) -> Layer:
        """A layer like this one that the interpreter runs in no time."""
        size = max(self.size // 14, self.window)
        channels = max(self.inputs // part, 1), max(self.outputs // part, 1)
        return Layer(size, *channels, self.window, self.stride)


# fmt: off
RESNET18: Final = (
    Layer(224,   3,  64, 7, 2), Layer(56,  64,  64, 3, 1), Layer(56,  64,  64, 1, 1),
    Layer( 56,  64, 128, 3, 2), Layer(56,  64, 128, 1, 2), Layer(28, 128, 128, 3, 1),
    Layer( 28, 128, 256, 3, 2), Layer(28, 128, 256, 1, 2), Layer(14, 256, 256, 3, 1),
    Layer( 14, 256, 512, 3, 2), Layer(14, 256, 512, 1, 2), Layer( 7, 512, 512, 3, 1),
)
# fmt: on


def conv2d(layer: Layer, *, relu: bool = True) -> Kernel:
    """A padded convolution, with a relu after it where that is asked for."""
    margin = layer.window // 2
    wide = layer.size + 2 * margin
    out = (layer.size + 2 * margin - layer.window) // layer.stride + 1
    x = buffer("X", (1, layer.inputs, layer.size, layer.size), f32)
    w = buffer("W", (layer.outputs, layer.inputs, layer.window, layer.window), f32)
    y = buffer("Y", (1, layer.outputs, out, out), f32)
    padded = buffer("padded", (1, layer.inputs, wide, wide), f32)
    sums = buffer("sums", (1, layer.outputs, out, out), f32) if relu else y
    body = seq(
        _pad(x, padded, margin, layer.size),
        _convolution(padded, w, sums, layer),
        *([_relu(sums, y)] if relu else []),
    )
    if relu:
        body = Alloc(sums, body)
    return Kernel((), (x, w, y), 2, Alloc(padded, body))


def _nest(name: str, extents: tuple[int, ...], inside: Stmt) -> Stmt:
    for at in reversed(range(len(extents))):
        inside = For(axis(f"{name}{at}"), dim(extents[at]), "serial", inside)
    return inside


def _axes(name: str, count: int) -> tuple[ScalarVar, ...]:
    return tuple(axis(f"{name}{at}") for at in range(count))


def _sizes(of: Buffer) -> tuple[int, ...]:
    return tuple(int(each.value) for each in of.shape if isinstance(each, Lit))


def _pad(x: Buffer, out: Buffer, margin: int, size: int) -> Stmt:
    v = _axes("vp", 4)
    rows = v[2] - margin, v[3] - margin
    value = x[v[0], v[1], rows[0], rows[1]]
    if margin:
        value = Select(_within(rows, size), value, lit(0, f32))
    extents = _sizes(out)
    return _nest(
        "p", extents, block("pad", v, extents, "ssss", _axes("p", 4), Store(out, v, value))
    )


def _within(rows: tuple[Scalar, Scalar], size: int) -> Scalar:
    zero, end = Lit(0, i64), Lit(size, i64)
    low = And(Not(Lt(rows[0], zero)), Not(Lt(rows[1], zero)))
    return And(low, And(Lt(rows[0], end), Lt(rows[1], end)))


def _convolution(x: Buffer, w: Buffer, out: Buffer, layer: Layer) -> Stmt:
    v = _axes("vc", 7)
    n, o, i, j, c, di, dj = v
    term = x[n, c, i * layer.stride + di, j * layer.stride + dj] * w[o, c, di, dj]
    extents = (*_sizes(out), *_sizes(w)[1:])
    start = Store(out, v[:4], lit(0, f32))
    update = Store(out, v[:4], out[v[:4]] + term)
    inside = block("conv", v, extents, "ssssrrr", _axes("c", 7), update, start)
    return _nest("c", extents, inside)


def _relu(x: Buffer, out: Buffer) -> Stmt:
    v, extents = _axes("vr", 4), _sizes(out)
    body = Store(out, v, Max(x[v], lit(0, f32)))
    return _nest("r", extents, block("relu", v, extents, "ssss", _axes("r", 4), body))
