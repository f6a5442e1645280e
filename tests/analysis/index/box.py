"""Index terms, contexts and brute force: what the tests of index arithmetic share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.analysis.index import EMPTY, Context
from plica.core.name import Name
from plica.ir.loop.scalar import (
    Add,
    And,
    Eq,
    FloorDiv,
    FloorMod,
    Le,
    Lit,
    Lt,
    Max,
    Min,
    Mul,
    Ne,
    Not,
    Or,
    Scalar,
    ScalarVar,
    Select,
    Sub,
)  # fmt: skip
from plica.ir.type.dtype import i64

X, Y, Z = VARIABLES = tuple(ScalarVar(Name(name), i64) for name in "xyz")
NUMBERS: Final = (0, 1, -1, 2, 3, 4, -2, -3, 5, 6, 8, -4, 7, 12)
Point = dict[Scalar, int]


def value(term: Scalar, point: Point) -> int:
    """A direct recursive meaning, independent of every other in the repository."""
    if isinstance(term, Lit):
        return int(term.value)
    if isinstance(term, ScalarVar):
        return point[term]
    if isinstance(term, Select):
        return value(term.then if value(term.condition, point) else term.orelse, point)
    if isinstance(term, Not):
        return 1 - value(term.value, point)
    a, b = (value(kid, point) for kid in (term.left, term.right))  # type: ignore[attr-defined]
    match term:
        case Add():
            return a + b
        case Sub():
            return a - b
        case Mul():
            return a * b
        case FloorDiv():
            return a // b if b else 0
        case FloorMod():
            return a % b if b else 0
        case Min():
            return min(a, b)
        case Max():
            return max(a, b)
        case Eq():
            return int(a == b)
        case Ne():
            return int(a != b)
        case Lt():
            return int(a < b)
        case Le():
            return int(a <= b)
        case And():
            return int(bool(a and b))
        case Or():
            return int(bool(a or b))
    raise AssertionError(term)


@st.composite
def terms(
    draw: DrawFn,
    depth: int = 3,
    variables: Sequence[Scalar] = VARIABLES,
    linear: bool = False,
    choices: bool = True,
) -> Scalar:
    """Index terms; `linear`: only in the fragment that the prover is complete for."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        if draw(st.integers(0, 3)):
            return draw(st.sampled_from(variables))
        return Lit(draw(st.sampled_from(NUMBERS)), i64)

    def sub() -> Scalar:
        return draw(terms(depth - 1, variables, linear, choices))

    def number() -> Scalar:
        of = Lit(draw(st.sampled_from(NUMBERS)), i64)
        return of if linear or draw(st.integers(0, 4)) else sub()

    kinds = ["add", "sub", "mul", "div", "mod", "div", "mod"] + ["min", "select"] * choices
    match draw(st.sampled_from(kinds)):
        case "add":
            return Add(sub(), sub())
        case "sub":
            return Sub(sub(), sub())
        case "mul":
            return Mul(number(), sub()) if draw(st.booleans()) else Mul(sub(), number())
        case "div":
            return FloorDiv(sub(), number())
        case "mod":
            return FloorMod(sub(), number())
        case "min":
            return draw(st.sampled_from((Min, Max)))(sub(), sub())
        case _:
            return Select(draw(conditions(depth - 1, variables, linear)), sub(), sub())


@st.composite
def conditions(
    draw: DrawFn, depth: int = 2, variables: Sequence[Scalar] = VARIABLES, linear: bool = False
) -> Scalar:
    """Conditions over index terms."""
    if depth <= 0 or draw(st.booleans()):
        of = terms(max(depth - 1, 0), variables, linear)
        return draw(st.sampled_from((Lt, Le, Eq, Ne)))(draw(of), draw(of))
    inner = conditions(depth - 1, variables, linear)
    match draw(st.integers(0, 4)):
        case 0 | 1:
            return And(draw(inner), draw(inner))
        case 2 | 3:
            return Or(draw(inner), draw(inner))
        case _:
            return Not(draw(inner))


@st.composite
def contexts(draw: DrawFn, variables: Sequence[ScalarVar] = VARIABLES) -> Context:
    """Loops around the term, some with symbolic extents, and sometimes a fact."""
    context = EMPTY
    for number, variable in enumerate(variables):
        if draw(st.integers(0, 2)):
            start = draw(st.sampled_from((0, 0, 0, -3, 2)))
            extent: Scalar = Lit(draw(st.sampled_from((4, 1, 2, 3, 8))), i64)
            if number and not draw(st.integers(0, 3)):
                extent = draw(st.sampled_from(variables[:number]))
            context = context.loop(variable, extent, start)
    if not draw(st.integers(0, 2)):
        context = context.where(draw(conditions(1, variables)))
    return context


@st.composite
def split_terms(draw: DrawFn) -> tuple[Scalar, Context]:
    """A flat index over three loops, taken apart by related divisors: what lowering makes."""
    extents = [draw(st.sampled_from((2, 3, 4, 1))) for _ in VARIABLES]
    starts = [draw(st.sampled_from((0, 0, 0, -1, 1))) for _ in VARIABLES]
    context = EMPTY
    for variable, extent, start in zip(VARIABLES, extents, starts, strict=True):
        context = context.loop(variable, extent, start)
    strides = [extents[1] * extents[2], extents[2], 1]
    divisors = st.sampled_from([*strides, extents[1], 2, strides[0] * 2, -extents[2], 4])

    def inner(depth: int) -> Scalar:
        if depth == 0:
            flat: Scalar = Lit(draw(st.sampled_from((0, 0, 1, -1, extents[2]))), i64)
            for variable, stride in zip(VARIABLES, strides, strict=True):
                if draw(st.integers(0, 5)):
                    flat = flat + variable * stride * draw(st.sampled_from((1, 1, 1, -1, 2)))
            return flat
        match draw(st.integers(0, 3)):
            case 0:
                return inner(depth - 1) // draw(divisors)
            case 1:
                return inner(depth - 1) % draw(divisors)
            case 2:
                return inner(depth - 1) * draw(divisors) + inner(depth - 1)
            case _:
                whole, by = inner(depth - 1), draw(divisors)
                return whole // by % draw(divisors) * by + whole % by

    return inner(draw(st.integers(1, 3))), context


def points(
    context: Context, variables: Sequence[Scalar] = VARIABLES, size: int = 4
) -> Iterator[Point]:
    """Every point of a small box, negative ones too, that the context allows."""
    facts = context.conditions()
    for numbers in itertools.product(range(-size, size + 1), repeat=len(variables)):
        point = dict(zip(variables, numbers, strict=True))
        if all(value(each, point) for each in facts):
            yield point
