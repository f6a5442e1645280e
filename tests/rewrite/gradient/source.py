"""Programs to differentiate: every part of the language."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from plica.ir.graph.module import Module
from plica.ir.text.script import from_text

HEAD: Final = """
from __future__ import annotations
import plica
from plica import op
from plica.op import nn
from plica.script import Fn, Tensor, f32, f64, i64
"""

CHOICE: Final = """
@plica.function
def main(x: Tensor[(), f64], y: Tensor[(), f64]) -> Tensor[(), f64]:
    z = x * y
    if z > 0.0:
        r = op.exp(z) * x
    else:
        r = z * z * y
    return r + x
"""
LIST: Final = """
@plica.data
class Items:
    Nil: ()
    Cons: (Tensor[(3,), f64], Items)

@plica.function
def total(l: Items, w: Tensor[(3,), f64]) -> Tensor[(), f64]:
    match l:
        case Nil(): return 0.0
        case Cons(h, t): return op.sum(op.tanh(h * w)) + total(t, w * 0.5)

@plica.function
def build(n: Tensor[(), i64], x: Tensor[(3,), f64]) -> Items:
    if n == 0:
        return Nil()
    else:
        return Cons(x * x, build(n - 1, x * 0.9))

@plica.function
def main(n: Tensor[(), i64], x: Tensor[(3,), f64], w: Tensor[(3,), f64]) -> Tensor[(), f64]:
    l = build(n, x)
    return total(l, w) * total(l, w * 0.3)
"""
TREE: Final = """
@plica.data(forall="A")
class Tree:
    Leaf: (A,)
    Node: (Tree[A], Tensor[(), i64], Tree[A])

@plica.function
def fold(
    t: Tree[tuple[Tensor[(2,), f64], Tensor[(), i64]]], w: Tensor[(2,), f64]
) -> Tensor[(2,), f64]:
    match t:
        case Leaf((x, _)): return op.tanh(x * w)
        case Node(Leaf(p), _, r): return fold(r, w) * p[0]
        case Node(l, n, r): return fold(l, w) + op.cast(n, f64) * fold(r, w)

@plica.function
def main(x: Tensor[(2,), f64], w: Tensor[(2,), f64], k: Tensor[(), i64]) -> Tensor[(), f64]:
    a = Leaf((x, k))
    b = Leaf((x * x, k))
    return op.sum(fold(Node(Node(a, k, b), k, Node(b, k, a)), w))
"""
CLOSURE: Final = """
@plica.function
def twice(f: Fn[(Tensor[(), f64],), Tensor[(), f64]], x: Tensor[(), f64]) -> Tensor[(), f64]:
    return f(f(x))

@plica.function
def main(n: Tensor[(), i64], x: Tensor[(), f64], y: Tensor[(), f64]) -> Tensor[(), f64]:
    def scale(v: Tensor[(), f64]) -> Tensor[(), f64]:
        return v * y + x
    def bend(v: Tensor[(), f64]) -> Tensor[(), f64]:
        return op.sin(v)
    if n > 0:
        g = scale
    else:
        g = bend
    return twice(g, x) * y
"""
POWER: Final = """
@plica.function
def power(x: Tensor[(), f64], n: Tensor[(), i64]) -> Tensor[(), f64]:
    if n == 0:
        return 1.0
    else:
        return x * power(x, n - 1)

@plica.function
def main(x: Tensor[(), f64], n: Tensor[(), i64]) -> Tensor[(), f64]:
    return power(x, n)
"""
TUPLE: Final = """
@plica.function
def swap(p: tuple[Tensor[(2,), f64], Tensor[(), f64]]) -> tuple[Tensor[(), f64], Tensor[(2,), f64]]:
    return (p[1], p[0])

@plica.function
def main(p: tuple[Tensor[(2,), f64], Tensor[(), i64]], s: Tensor[(), f64]) -> Tensor[(), f64]:
    q = swap((p[0], s))
    a, b = op.split(q[1] * q[0], 2)
    return op.sum(a) * s
"""
SHARED_CALL: Final = """
@plica.function
def slow(x: Tensor[(), f64], n: Tensor[(), i64]) -> Tensor[(), f64]:
    if n == 0:
        return x
    else:
        return op.sin(slow(x, n - 1))

@plica.function
def main(x: Tensor[(), f64], n: Tensor[(), i64]) -> Tensor[(), f64]:
    a = slow(x, n)
    if x > 0.5:
        r = a * x
    else:
        if x > 0.0:
            r = a + a
        else:
            r = x
    return r
"""
SYMBOLIC: Final = """
@plica.function
def main(x: Tensor[("n", 3), f64], w: Tensor[(2, 3), f64], k: Tensor[(), i64]) -> Tensor[(), f64]:
    h = nn.softmax(nn.dense(x, w))
    if k > 0:
        r = op.mean(h * h)
    else:
        r = op.sum(op.slice(x, (1,), (None,)))
    return r
"""
HIGHER: Final = """
@plica.data(forall="A")
class Items:
    Nil: ()
    Cons: (A, Items[A])

@plica.function(forall="A B")
def each(f: Fn[(A,), B], l: Items[A]) -> Items[B]:
    match l:
        case Nil(): return Nil()
        case Cons(h, t): return Cons(f(h), each(f, t))

@plica.function(forall="A B")
def fold(f: Fn[(B, A), B], z: B, l: Items[A]) -> B:
    match l:
        case Nil(): return z
        case Cons(h, t): return fold(f, f(z, h), t)

@plica.function
def build(n: Tensor[(), i64], x: Tensor[(3,), f64]) -> Items[Tensor[(3,), f64]]:
    if n == 0:
        return Nil()
    else:
        return Cons(x * x, build(n - 1, x * 0.9))

@plica.function
def main(n: Tensor[(), i64], x: Tensor[(3,), f64], w: Tensor[(3, 3), f64]) -> Tensor[(), f64]:
    def cell(s: Tensor[(3,), f64], y: Tensor[(3,), f64]) -> Tensor[(3,), f64]:
        return op.tanh(nn.dense(s, w) + y)
    def less(y: Tensor[(3,), f64]) -> Tensor[(3,), f64]:
        return y * op.sum(x)
    return op.sum(fold(cell, x, each(less, build(n, x))))
"""
BATCH: Final = """
@plica.function
def main(
    x: Tensor[("n", 2, 6, 6), f64], w: Tensor[(4, 2, 3, 3), f64], k: Tensor[(3, 4), f64]
) -> Tensor[(), f64]:
    h = nn.max_pool(nn.relu(nn.conv(x, w, padding=1, strides=2)), 2, strides=1)
    p = op.mean(nn.avg_pool(h, 2, padding=1, strides=1), axis=(2, 3))
    q = nn.layer_norm(nn.dense(p, k), op.ones((3,), f64), op.zeros((3,), f64))
    r = op.concat((q, op.flip(q, (0,))), axis=1)
    return op.mean(op.square(nn.softmax(r)) * op.cumsum(r, 0))
"""
VECTOR: Final = np.array([0.1, 0.5, -0.3])
PAIR: Final = np.array([0.2, 0.7])
ROWS: Final = np.arange(12.0).reshape(4, 3) / 7
MATRIX: Final = np.arange(6.0).reshape(2, 3) / 5


def waves(*shape: int) -> np.ndarray[Any, Any]:
    """Numbers none of which is near another."""
    return np.asarray(np.sin(np.arange(float(math.prod(shape)))).reshape(shape))


# fmt: off
PROGRAMS: Final[dict[str, tuple[str, tuple[Any, ...]]]] = {
    "choice":        (CHOICE,      (0.5, 0.7)),
    "other-choice":  (CHOICE,      (-0.5, 0.7)),
    "list":          (LIST,        (3, VECTOR, np.array([1.0, 2.0, -0.4]))),
    "empty-list":    (LIST,        (0, VECTOR, VECTOR)),
    "tree":          (TREE,        (PAIR, np.array([1.1, -0.4]), 2)),
    "closure":       (CLOSURE,     (1, 0.3, 0.8)),
    "other-closure": (CLOSURE,     (0, 0.3, 0.8)),
    "recursion":     (POWER,       (1.3, 4)),
    "shared-call":   (SHARED_CALL, (0.7, 3)),
    "nested-choice": (SHARED_CALL, (0.3, 3)),
    "symbolic":      (SYMBOLIC,    (ROWS, MATRIX, 1)),
    "open-slice":    (SYMBOLIC,    (ROWS, MATRIX, 0)),
    "higher-order":  (HIGHER,      (3, VECTOR, np.arange(9.0).reshape(3, 3) / 9)),
    "open-batch":    (BATCH,       (waves(3, 2, 6, 6), waves(4, 2, 3, 3), waves(3, 4))),
}
# fmt: on


def read(text: str) -> Module:
    """A program as a module."""
    return from_text(HEAD + text)
