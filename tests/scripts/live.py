"""Functions and data types of the graph language, as a user writes them."""

from __future__ import annotations

import numpy as np
import plica
from plica import op
from plica.op import nn
from plica.script import Fn, Tensor, const, data, f32, i64

WEIGHTS = np.arange(6, dtype=np.float32).reshape(2, 3)
SCALE = 2.5
AXES = (0,)
Row = Tensor[(3,), f32]


@plica.function
def is_even(n: i64) -> bool:
    """Forward references work: is_odd is defined below."""
    if n == 0:
        return bool(True)
    return is_odd(n - 1)


@plica.function
def is_odd(n: i64) -> bool:
    return bool(False) if n == 0 else is_even(n - 1)


@plica.data(forall="A")
class List:
    Nil: ()
    Cons: (A, List[A])


@plica.function(forall="A B")
def fold(f: Fn[(B, A), B], start: B, xs: List[A]) -> B:
    match xs:
        case Nil():
            return start
        case Cons(head, tail):
            return fold(f, f(start, head), tail)


probe = plica.extern("probe", Fn[(Tensor[("n",), f32],), Tensor[("n",), f32]])


@plica.function(attrs={"inline": True})
def layer(x: Row) -> Tensor[(2,), f32]:
    return nn.relu(WEIGHTS @ x) * SCALE


@plica.function
def total(xs: List[Row]) -> Row:
    return fold(lambda a, b: a + b, const([0.0, 0.0, 0.0], f32), xs)


@plica.function
def both(x: Row, xs: List[Row]) -> tuple[Tensor[(2,), f32], f32, Row]:
    y = layer(probe(x))
    z = op.sum(y, axis=AXES)
    return y, z, total(List.Cons(x, xs))


@plica.function
def wrong(x: Row) -> Row:
    y = nn.rleu(x)
    return yy


def local_types():
    """A data type and functions inside a function."""

    @plica.data
    class Shape:
        Dot: ()
        Line: (f32,)

    @plica.function
    def length(s: Shape) -> f32:
        match s:
            case Dot():
                return f32(0.0)
            case Line(size):
                return size

    return length


def closed_over(k):
    """What a function closes over is a constant in it."""

    @plica.function
    def scaled(x: f32) -> f32:
        return x * k

    return scaled


@plica.function
def with_constants(x: Tensor[(2,), f32]):
    return x + const([1.0, 2.0], f32) + data("0000000000", (2,), f32)
