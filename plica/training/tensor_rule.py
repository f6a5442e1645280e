"""Rules for whole tensors: optimisers whose update of a number depends on others of its tensor.

    adamw       by running means; weights shrink by the share `rate * decay` at each step
    muon        a matrix moves by the orthogonal factor of its momentum, other weights by AdamW
    adafactor   the mean square of the slope of a matrix is kept as one row times one column

An update is a term of the graph language, as a rule for one number is when it is read at a shape.

>>> from plica.ir.type import tensor
>>> [str(each) for each in ADAFACTOR.memory(tensor((8, 4), "f32"))]
['Tensor[(8,), f32]', 'Tensor[(4,), f32]']
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from attrs import frozen

from plica import op
from plica.ir.graph.expression import Expr
from plica.ir.type import TensorType, static_shape, type_of

Settings = Mapping[str, Expr]

NEWTON_SCHULZ: Final = (3.4445, -4.7750, 2.0315)
"""The coefficients of Muon's quintic iteration, which brings singular values near 1."""
ITERATIONS: Final = 5


@frozen(eq=False)
class TensorRule:
    """How a weight of a type changes: the types of its memory, and new values of both."""

    settings: tuple[str, ...]
    memory: Callable[[TensorType], tuple[TensorType, ...]]
    update: Callable[[Expr, Expr, Sequence[Expr], Settings], Sequence[Expr]]


def _muon_memory(of: TensorType) -> tuple[TensorType, ...]:
    return (of,) if len(of.shape) == 2 else (of, of)


def _muon(w: Expr, g: Expr, memory: Sequence[Expr], given: Settings) -> Sequence[Expr]:
    if len(memory) == 2:
        return _adamw(w, g, memory, given)
    rate, kept, sizes = given["rate"], given["momentum"], _sizes(w)
    speed = kept * memory[0] + (1.0 - kept) * g
    scale = max(1.0, sizes[0] / sizes[1]) ** 0.5
    step = orthogonal(kept * speed + (1.0 - kept) * g, sizes) * scale
    return w * (1.0 - rate * given["decay"]) - rate * step, speed


def _adamw(w: Expr, g: Expr, memory: Sequence[Expr], given: Settings) -> Sequence[Expr]:
    first, second, t = given["first"], given["second"], given["t"]
    mean = first * memory[0] + (1.0 - first) * g
    square = second * memory[1] + (1.0 - second) * (g * g)
    width = op.sqrt(square / (1.0 - op.power(second, t))) + given["small"]
    step = mean / (1.0 - op.power(first, t)) / width
    return w * (1.0 - given["rate"] * given["decay"]) - given["rate"] * step, mean, square


def orthogonal(x: Expr, sizes: tuple[int, ...]) -> Expr:
    """A matrix with the singular vectors of `x`, and singular values near 1 (Newton-Schulz)."""
    tall = sizes[0] > sizes[1]
    a, b, c = NEWTON_SCHULZ
    x = op.transpose(x, (1, 0)) if tall else x
    x = x / (op.sqrt(op.sum(x * x)) + 1e-7)
    for _ in range(ITERATIONS):
        gram = op.matmul(x, op.transpose(x, (1, 0)))
        x = a * x + op.matmul(b * gram + c * op.matmul(gram, gram), x)
    return op.transpose(x, (1, 0)) if tall else x


def _adafactor_memory(of: TensorType) -> tuple[TensorType, ...]:
    if len(of.shape) < 2:
        return (of,)
    *outer, rows, columns = of.shape
    return TensorType((*outer, rows), of.dtype), TensorType((*outer, columns), of.dtype)


def _adafactor(w: Expr, g: Expr, memory: Sequence[Expr], given: Settings) -> Sequence[Expr]:
    small, fresh = given["small"], op.power(given["t"], given["power"])  # 1 at the first step
    square = g * g
    if len(memory) == 1:
        kept = [(1.0 - fresh) * memory[0] + fresh * square]
        width = kept[0]
    else:
        row = (1.0 - fresh) * memory[0] + fresh * op.mean(square, axis=(-1,))
        column = (1.0 - fresh) * memory[1] + fresh * op.mean(square, axis=(-2,))
        kept = [row, column]
        share = row / op.maximum(op.mean(row, axis=(-1,), keepdims=True), small)
        width = op.expand_dims(share, (-1,)) * op.expand_dims(column, (-2,))
    step = g / op.sqrt(op.maximum(width, small * small))
    size = op.maximum(_length(w), given["floor"])
    rate = op.minimum(given["rate"], op.power(given["t"], -0.5)) * size
    return w - rate * (step / op.maximum(_length(step) / given["clip"], 1.0)), *kept


def _length(x: Expr) -> Expr:
    """The root of the mean square."""
    return op.sqrt(op.mean(x * x))


def _sizes(x: Expr) -> tuple[int, ...]:
    of = type_of(x)
    assert isinstance(of, TensorType)
    sizes = static_shape(of)
    assert sizes is not None
    return sizes


_ADAMW_SETTINGS: Final = ("rate", "decay", "first", "second", "small", "t")
ADAMW: Final = TensorRule(_ADAMW_SETTINGS, lambda of: (of, of), _adamw)
MUON: Final = TensorRule(("momentum", *_ADAMW_SETTINGS), _muon_memory, _muon)
ADAFACTOR: Final = TensorRule(
    ("rate", "power", "clip", "small", "floor", "t"), _adafactor_memory, _adafactor
)
