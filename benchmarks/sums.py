"""How far long sums are off, beside numpy's.

    python benchmarks/sums.py [--most 8] [--only TEXT] [--target cpu]

For 1e3 to 1e8 terms of f32 (`--most 7`: to 1e7), random, constant, alternating and far from zero:
the error against float64 over what the terms come to without their signs, in units of 2^-24.  A row
says which limit holds for it, twice numpy's error or 4 units in the last place (8 of 2^-24), and is
marked where an error is beyond it.  `meaning` is the interpreter's, which is asked up to 1e6 terms;
`exact` is compiled code that keeps its order, and must have the same bits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import plica
from plica import op
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var
from plica.ir.graph.module import module
from plica.ir.type.term import tensor

Array = np.ndarray[Any, Any]

UNIT = 2.0**-24
LIMIT = 8.0
"""Four units in the last place, in units of 2^-24."""

INTERPRETED = 10**6
"""Terms that the interpreter is asked for, at most."""


@dataclass(frozen=True)
class SumCase:
    """Something that is a long sum: ours, numpy's, and what it is in f64 with its magnitude."""

    ours: Callable[..., Expr]
    numpy: Callable[..., Any]
    true: Callable[..., Any]
    size: Callable[..., Any]
    """What an error is measured against."""
    shapes: Callable[[int], tuple[tuple[int, ...], ...]] = lambda n: ((n,),)
    most: int = 10**8


def wide(x: Array) -> Array:
    return x.astype(np.float64)


def softmax(x: Array) -> Any:
    e = np.exp(x - x.max())
    return e / e.sum()


def normal(x: Array) -> Any:
    away = x - x.mean(-1, keepdims=True)
    return away / np.sqrt((away * away).mean(-1, keepdims=True) + x.dtype.type(1e-5))


def near_one(x: Array) -> Any:
    return x * np.float32(2.0**-21) + np.float32(1)  # the power of two is no rounding


CASES: dict[str, SumCase] = {
    "sum": SumCase(
        op.sum, np.sum, lambda x: x.sum(dtype="f8"), lambda x: np.abs(x).sum(dtype="f8")
    ),
    "mean": SumCase(
        op.mean, np.mean, lambda x: x.mean(dtype="f8"), lambda x: np.abs(x).mean(dtype="f8")
    ),
    "sum of columns": SumCase(
        lambda x: op.sum(x, axis=(0,)), lambda x: x.sum(0), lambda x: wide(x).sum(0),
        lambda x: np.abs(wide(x)).sum(0), lambda n: ((n, 8),), 10**6,
    ),
    "norm": SumCase(
        lambda x: op.sqrt(op.sum(op.square(x))), np.linalg.norm,
        lambda x: np.sqrt(np.square(wide(x)).sum()), lambda x: np.sqrt(np.square(wide(x)).sum()),
        most=10**7,
    ),
    "deviation": SumCase(
        op.std, np.std, lambda x: wide(x).std(), lambda x: np.sqrt(np.square(wide(x)).mean()),
        most=10**7,
    ),
    "softmax": SumCase(
        op.nn.softmax, softmax, lambda x: softmax(wide(x)), lambda x: softmax(wide(x)).max(),
        most=10**6,
    ),
    "layer norm": SumCase(
        lambda x: op.nn.layer_norm(x, _ones(x), _zeros(x)), normal, lambda x: normal(wide(x)),
        lambda x: max(float(np.abs(normal(wide(x))).max()), 1.0), lambda n: ((2, n),), 10**6,
    ),
    "product": SumCase(
        lambda x: op.prod(x * 2.0**-21 + 1.0), lambda x: np.prod(near_one(x)),
        lambda x: np.prod(wide(near_one(x))), lambda x: np.prod(wide(near_one(x))), most=10**4,
    ),
    "dot": SumCase(
        op.matmul, np.matmul, lambda x, y: np.dot(wide(x), wide(y)),
        lambda x, y: np.dot(np.abs(wide(x)), np.abs(wide(y))), lambda n: ((n,), (n,)), 10**7,
    ),
    "matmul": SumCase(
        op.matmul, np.matmul, lambda x, y: wide(x) @ wide(y),
        lambda x, y: np.abs(wide(x)) @ np.abs(wide(y)), lambda n: ((6, n), (n, 40)), 10**5,
    ),
}  # fmt: skip


def _ones(x: Expr) -> Expr:
    return op.ones_like(op.max(x, axis=(0,)))


def _zeros(x: Expr) -> Expr:
    return op.zeros_like(op.max(x, axis=(0,)))


def _alternating(shape: tuple[int, ...]) -> Array:
    found = np.full(shape, 0.1, np.float32)
    found.reshape(-1)[1::2] *= -1
    return found


DATA: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
    "random": lambda random, shape: random.random(shape, np.float32),
    "normal": lambda random, shape: random.standard_normal(shape, np.float32),
    "constant": lambda random, shape: np.full(shape, 0.1, np.float32),
    "alternating": lambda random, shape: _alternating(shape),
    "shifted": lambda random, shape: (
        random.standard_normal(shape, np.float32) * np.float32(0.1) + np.float32(1e4)
    ),
}


def compiled(case: SumCase, shapes: tuple[tuple[int, ...], ...]) -> Any:
    """A module."""
    params = tuple(Var(Name("x", at), tensor(shape, "f32")) for at, shape in enumerate(shapes))
    name = Var(Name("main"), None)
    return module({name: Function((), (), params, None, case.ours(*params))}, name)


def rows(most: int, only: str, target: str) -> Iterator[tuple[str, str, int, dict[str, float]]]:
    """Each case: its name, the data, the number of terms, and errors by who made them."""
    for name, case in CASES.items():
        if only not in name:
            continue
        for power in range(3, most + 1):
            n = 10**power
            if n > case.most:
                continue
            shapes = case.shapes(n)
            of = compiled(case, shapes)
            exes = {
                "exact": plica.compile(of, target=target, contract="exact", cache=False),
                "default": plica.compile(of, target=target, cache=False),
            }
            for kind, make in DATA.items():
                random = np.random.default_rng(power)
                xs = [make(random, shape) for shape in shapes]
                with np.errstate(all="ignore"):
                    true, size = case.true(*xs), case.size(*xs)

                    def off(got: Any, true: Any = true, size: Any = size) -> float:
                        return float(np.max(np.abs(np.asarray(got, "f8") - true) / size) / UNIT)

                    errors = {"numpy": off(case.numpy(*xs))}
                    if n <= INTERPRETED:
                        errors["meaning"] = off(plica.interpret(of, *xs))
                    errors |= {who: off(exe(*xs)) for who, exe in exes.items()}
                yield name, kind, n, errors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=8, help="the power of ten of most terms")
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--target", default="cpu")
    given = parser.parse_args()
    beyond = 0
    who = ("numpy", "meaning", "exact", "default")
    print(
        f"{'what':16}{'data':13}{'terms':>7}" + "".join(f"{each:>10}" for each in (*who, "limit"))
    )
    for name, kind, n, errors in rows(given.most, given.only, given.target):
        limit = max(2 * errors["numpy"], LIMIT)
        bad = any(not errors[each] <= limit for each in who[1:] if each in errors)
        beyond += bad
        cells = "".join(f"{errors[each]:10.2f}" if each in errors else " " * 10 for each in who)
        print(f"{name:16}{kind:13}{n:7.0e}{cells}{limit:10.2f}{' *' if bad else ''}", flush=True)
    print(f"{beyond} beyond the limit")
    return int(beyond > 0)


if __name__ == "__main__":
    sys.exit(main())
