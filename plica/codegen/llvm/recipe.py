"""Recipes: the order in which the parts of terms are written, worked out once.

The copies of an unrolled loop write the same terms again and again, for other values of the same
variables.  What does not depend on those is here: each part once, operands first, by number; the
literals; how the intervals of indices are found.  A term with a loop inside has no recipe: what is
written of it depends on what was checked before the loop.

>>> from plica.ir.tensor import axis
>>> i = axis("i")
>>> found = recipe((i * 4 + 1, i * 4), False)
>>> [(step.word, step.kids) for step in found.steps], found.roots
([('var', ()), ('mul', (0, 1)), ('add', (2, 3))], (4, 2))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from attrs import frozen

from plica.codegen.llvm.lane import Value, constant
from plica.codegen.llvm.scope import operands
from plica.codegen.llvm.word import literal
from plica.codegen.lower.bound import Bounds, bounds
from plica.ir.dtype import DType, f32, f64, i64
from plica.ir.scalar import (
    COMPARISON,
    Add,
    And,
    FloorDiv,
    FloorMod,
    Lit,
    Load,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    Sub,
    dtype_of,
)

Word: TypeAlias = Literal["var", "add", "sub", "mul", "load", "easy", "plain"]
"""What is done: sums and products are those of indices; what may need no instruction is easy."""


class Step(NamedTuple):
    """One part of a term: what is done with the parts of some numbers, which gives its own."""

    word: Word
    number: int
    node: Scalar
    kids: tuple[int, ...]
    dtypes: tuple[DType, ...]


@frozen(eq=False)
class Recipe:
    """The parts of some terms in order: `start` has the values of those that are literals."""

    steps: tuple[Step, ...]
    nodes: tuple[Scalar, ...]
    start: tuple[Value, ...]
    roots: tuple[int, ...]
    bounds: Bounds


_INDEX: Final[dict[type, Word]] = {Add: "add", Sub: "sub", Mul: "mul"}
_EASY: Final = (And, Or, Not, Select, *COMPARISON, FloorDiv, FloorMod, Min, Max)
_NONE: Final = Value("")


def factors(node: Scalar, fused: bool) -> tuple[Scalar, Scalar, Scalar] | None:
    """The factors and the other side of a sum or difference that may be rounded once."""
    if not fused or not isinstance(node, Add | Sub) or dtype_of(node) not in (f32, f64):
        return None
    if isinstance(node.right, Mul):
        return node.right.left, node.right.right, node.left
    if isinstance(node.left, Mul):
        return node.left.left, node.left.right, node.right
    return None


def parts(node: Scalar, fused: bool) -> tuple[Scalar, ...]:
    """The terms whose values an operation takes; three where it multiplies and adds at once."""
    product = factors(node, fused)
    return operands(node) if product is None else product


def of_literal(node: Lit) -> Value:
    """The value of a literal."""
    if node.dtype is i64:
        return constant(int(node.value))
    return Value(literal(node.value, node.dtype))


def recipe(roots: Sequence[Scalar], fused: bool) -> Recipe | None:
    """The recipe of some terms, None where a loop is inside."""
    numbers: dict[Scalar, int] = {}
    steps: list[Step] = []
    start: list[Value] = []
    stack: list[tuple[Scalar, tuple[Scalar, ...] | None]] = [(r, None) for r in reversed(roots)]
    while stack:
        node, kids = stack.pop()
        if node in numbers:
            continue
        if isinstance(node, Reduce):
            return None
        if kids is None and not isinstance(node, Lit | ScalarVar):
            kids = parts(node, fused)
            stack.append((node, kids))
            stack += [(kid, None) for kid in reversed(kids)]
            continue
        number = numbers[node] = len(numbers)
        start.append(of_literal(node) if isinstance(node, Lit) else _NONE)
        if not isinstance(node, Lit):
            below = kids or ()
            places = tuple([numbers[kid] for kid in below])
            dtypes = tuple([dtype_of(kid) for kid in below])
            steps.append(Step(_word(node), number, node, places, dtypes))
    return Recipe(
        tuple(steps),
        tuple(numbers),
        tuple(start),
        tuple([numbers[root] for root in roots]),
        bounds(_asked(roots, numbers)),
    )


def _word(node: Scalar) -> Word:
    match node:
        case ScalarVar():
            return "var"
        case Load():
            return "load"
        case Add() | Sub() | Mul() if dtype_of(node) is i64:
            return _INDEX[type(node)]
        case _:
            return "easy" if isinstance(node, _EASY) else "plain"


def _asked(roots: Sequence[Scalar], nodes: dict[Scalar, int]) -> list[Scalar]:
    """The terms whose intervals matter: indices, and what is compared or divided."""
    found = [root for root in roots if dtype_of(root) is i64]
    for node in nodes:
        if isinstance(node, Load):
            found += node.indices
        elif isinstance(node, (*COMPARISON, FloorDiv, FloorMod)):
            found += [kid for kid in operands(node) if dtype_of(kid).is_integer]
    return found
