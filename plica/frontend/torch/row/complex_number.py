"""Rows of complex numbers, which are pairs of tensors: transforms, products, angles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from plica.frontend.complex_pair import (
    Complex,
    Way,
    divide,
    exponential,
    hypotenuse,
    multiply,
    paired,
    product_of,
    sum_of,
    transformed_along,
)
from plica.frontend.torch.dtype import part_type
from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row import create, index as choosing, reduction, shape as moving
from plica.frontend.torch.row.word import Row, casted
from plica.frontend.word import like, rank, select, shape
from plica.ir.graph.expression import Expr, const
from plica.ir.op.namespace import op
from plica.ir.type import DType, known, type_of


def is_complex(value: Any) -> bool:  # Any: an argument
    """Whether an argument is complex, or a list with something that is."""
    if isinstance(value, list):
        return any(map(is_complex, value))
    return isinstance(value, Complex | complex)


class PartNode(TorchNode):
    """A node restricted to one part of its complex arguments."""

    def dtype(self, at: int = 0) -> DType:
        """The element type of a part of the result."""
        result = self.result[at] if isinstance(self.result, list | tuple) else self.result
        return part_type(result.dtype) or super().dtype(at)

    def pair(self, name: str = "self") -> Complex:
        """An argument as a pair: a complex tensor, a real one, or a number."""
        found, of = self.argument(name), self.dtype()
        if isinstance(found, Complex):
            imag = None if found.imag is None else casted(found.imag, of)
            return Complex(casted(found.real, of), imag)
        if isinstance(found, Expr):
            return Complex(casted(found, of), None)
        number = complex(found)
        real, imag = (const(np.asarray(each, of.numpy), of) for each in (number.real, number.imag))
        return Complex(real, imag if number.imag else None)


# --- arithmetic ----------------------------------------------------------------------------------


def _add(minus: bool) -> Callable[[PartNode], Complex]:
    def row(node: PartNode) -> Complex:
        (a, b), (c, d) = node.pair(), node.pair("other")
        times = node.number("alpha")
        if times != 1:
            c, d = c * like(times, c), product_of(d, like(times, c))
        return paired(sum_of(a, c, minus), sum_of(b, d, minus))

    return row


def _chosen(node: PartNode) -> Complex:
    condition = node.x("condition")
    (a, b), (c, d) = node.pair().both(), node.pair("other").both()
    return paired(op.where(condition, a, c), op.where(condition, b, d))


def _negative(node: PartNode) -> Complex:
    real, imag = node.pair().both()
    return Complex(-real, -imag)


def _conjugate(node: PartNode) -> Complex:
    real, imag = node.pair().both()
    return Complex(real, -imag)


def _angle(node: PartNode) -> Expr:
    real, imag = node.pair().both()
    return op.arctan2(imag, real)


# --- from and to real numbers --------------------------------------------------------------------


def _as_real(node: PartNode) -> Expr:
    real, imag = node.pair().both()
    return op.stack((real, imag), axis=rank(real))


def _as_complex(node: PartNode) -> Complex:
    x = node.x()
    return Complex(*(select(x, at, rank(x) - 1) for at in (0, 1)))


def _polar(node: PartNode) -> Complex:
    size, angle = node.x("abs"), node.x("angle")
    return paired(size * op.cos(angle), size * op.sin(angle))


def _copied(node: PartNode) -> Complex:
    node.argument("dtype")
    return node.pair()


def _number(node: PartNode) -> Complex:
    node.argument("dtype")
    return Complex(*node.pair("s").both())


def _filled(node: PartNode) -> Complex:
    node.has("self"), node.has("size"), node.has("dtype")
    real, imag = node.pair("fill_value").both()
    return Complex(op.broadcast_to(real, node.shape()), op.broadcast_to(imag, node.shape()))


# --- transforms ----------------------------------------------------------------------------------


def _axes(node: PartNode, x: Expr) -> list[int]:
    return [integer % rank(x) for integer in node.integers("dim")]


def _length(node: PartNode, x: Expr, axis: int) -> int:
    if (found := known(shape(x)[axis])) is None:
        message = f"{node.kind} needs a transform whose length is a number."
        hint = "Say what the symbolic dims are: from_torch(program, dims={...})."
        node.unsupported(message, "a number", str(type_of(x)), hint)
    return found


def _scaled(node: PartNode, x: Complex, points: int, divided: bool) -> Complex:
    """A transform in torch's norm; backwards it is divided by its length already."""
    wanted = {0: 1.0, 1: 1.0 / math.sqrt(points), 2: 1.0 / points}[node.integer("normalization")]
    factor = wanted * points if divided else wanted
    if factor == 1.0:
        return x
    times = like(factor, x.real)
    return Complex(x.real * times, product_of(x.imag, times))


def _of_real(node: PartNode) -> Complex:
    x = Complex(casted(node.x(), node.dtype()), None)
    axes, half = _axes(node, x.real), node.flag("onesided")
    points = 1
    for at, axis in enumerate(reversed(axes)):
        length = _length(node, x.real, axis)
        bins = length // 2 + 1 if half and at == 0 else length
        x = transformed_along(node, x, axis, bins=bins, length=length, way="forwards")
        points *= length
    return _scaled(node, x, points, divided=False)


def _of_complex(node: PartNode) -> Complex:
    x, forwards = node.pair(), node.flag("forward")
    points = 1
    for axis in _axes(node, x.real):
        length = _length(node, x.real, axis)
        way: Way = "forwards" if forwards else "backwards"
        x = transformed_along(node, x, axis, bins=length, length=length, way=way)
        points *= length
    return _scaled(node, x, points, divided=not forwards)


def _to_real(node: PartNode) -> Expr:
    x, last = node.pair(), node.integer("last_dim_size")
    *others, axis = _axes(node, x.real)
    points = last
    for each in others:
        length = _length(node, x.real, each)
        x = transformed_along(node, x, each, bins=length, length=length, way="backwards")
        points *= length
    there, half = _length(node, x.real, axis), last // 2 + 1
    if there > half:  # what is beyond half a spectrum says nothing new
        x = Complex(*(op.slice(expr, (0,), (half,), None, (axis,)) for expr in x.both()))
    found = transformed_along(node, x, axis, bins=last, length=last, way="real")
    return _scaled(node, found, points, divided=True).real


# fmt: off
COMPLEX: Final[Mapping[str, Callable[[PartNode], Expr | Complex]]] = {
    "mul.Tensor":              lambda node: multiply(node.pair(), node.pair("other")),
    "add.Tensor":              _add(minus=False),
    "sub.Tensor":              _add(minus=True),
    "div.Tensor":              lambda node: divide(node.pair(), node.pair("other")),
    "where.self":              _chosen,
    "neg.default":             _negative,
    "_conj.default":           _conjugate,
    "conj_physical.default":   _conjugate,
    "exp.default":             lambda node: exponential(node.pair()),
    "abs.default":             lambda node: hypotenuse(*node.pair().both()),
    "angle.default":           _angle,
    "view_as_real.default":    _as_real,
    "view_as_complex.default": _as_complex,
    "complex.default":         lambda node: paired(node.x("real"), node.x("imag")),
    "polar.default":           _polar,
    "_to_copy.default":        _copied,
    "scalar_tensor.default":   _number,
    "full.default":            _filled,
    "full_like.default":       _filled,
    "_fft_r2c.default":        _of_real,
    "_fft_c2c.default":        _of_complex,
    "_fft_c2r.default":        _to_real,
}
# fmt: on

_SUMS: Final = ("sum.dim_IntList", "cumsum.default", "mean.default", "mean.dim")
_CHOICES: Final = ("index.Tensor", "index_select.default", "gather.default")
PARTWISE: Final = {
    **moving.TABLE,
    "copy.default": create.TABLE["copy.default"],
    **{name: choosing.TABLE[name] for name in _CHOICES},
    **{name: reduction.TABLE[name] for name in _SUMS},
}
"""Rows that do with each part of complex numbers what they do with numbers."""


def on_parts(row: Row, node: Callable[[int], PartNode]) -> Expr | Complex | list[Complex]:
    """A row's results for both parts; `node` returns the node of one.

    Where the result is real, second parts are left out, as torch does.
    """
    made: list[Any] = []
    for at in (0, 1):
        here = node(at)
        made.append(row(here))
        here.finish()
        if isinstance(made[0], Expr) and part_type(here.result.dtype) is None:
            return made[0]
    if isinstance(made[0], Expr):
        return Complex(*made)
    return [Complex(*each) for each in zip(*made, strict=True)]


_SAME: Final = ("index", "indices")
"""Tensors that say which elements are meant: they are the same for both parts."""


def part_of(name: str, value: Any, at: int) -> Any:  # Any: an argument
    """A part of an argument: 0 for the imaginary part of a real one; sizes and indices are
    shared."""
    if name in _SAME:
        return value
    if isinstance(value, list):
        return [part_of(name, each, at) for each in value]
    if isinstance(value, Expr):
        value = Complex(value, None)
    if isinstance(value, Complex):
        return value.both()[at]
    if name == "value":  # what a border holds
        return (complex(value).real, complex(value).imag)[at]
    return value
