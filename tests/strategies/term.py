"""Terms of any grammar, and a small grammar with every kind of field and binder for core."""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.core.name import Name
from plica.core.term import Term
from plica.ir.generate.builder import types
from plica.ir.generate.choice import names
from plica.ir.generate.definition import modules
from plica.ir.generate.scalar import computes, index_terms, kernels, scalars
from plica.ir.type.dtype import f32


@frozen(eq=False)
class Ref(Term):
    """A variable of the toy language; `kind` tells variables of one name apart."""

    variable = True
    name: Name
    kind: int = 0


@frozen(eq=False)
class Leaf(Term):
    """Plain data of every kind a term may hold."""

    value: bool | int | float | str | bytes | tuple[int | str, ...] | None


@frozen(eq=False)
class Pair(Term):
    """Two terms."""

    left: Toy
    right: Toy


@frozen(eq=False)
class Many(Term):
    """Any number of terms, and a label."""

    label: str
    items: tuple[Toy, ...]


@frozen(eq=False)
class Mixed(Term):
    """Terms somewhere inside plain data, as attributes are; and one that may be absent."""

    values: tuple[tuple[str, Any], ...]
    maybe: Toy | None = None


@frozen(eq=False)
class Bind(Term):
    """Variables bound in the body, not in the values: a parallel let."""

    binds = (("vars", ("body",)),)
    vars: tuple[Ref, ...]
    values: tuple[Toy, ...]
    body: Toy


@frozen(eq=False)
class Fix(Term):
    """A variable bound in the value too: a recursive let."""

    binds = (("var", ("value", "body")),)
    var: Ref
    value: Toy
    body: Toy


Toy: TypeAlias = Ref | Leaf | Pair | Many | Mixed | Bind | Fix

PLAIN: st.SearchStrategy[Any] = st.one_of(
    st.integers(-2, 2), st.booleans(), st.sampled_from((0.0, -0.0, 1.0, float("nan"))),
    st.binary(min_size=8, max_size=8).map(lambda raw: struct.unpack("<d", raw)[0]),
    st.sampled_from(("", "a", "é")), st.binary(max_size=3), st.none(),
    st.lists(st.one_of(st.integers(-1, 1), st.sampled_from("ab")), max_size=2).map(tuple),
    st.sampled_from((2**64, -(2**70))),
)  # fmt: skip


def toy_vars() -> st.SearchStrategy[Ref]:
    """Few variables, so that they meet."""
    return st.builds(Ref, st.sampled_from((Name("x"), Name("y"), Name("x", 1))), st.integers(0, 1))


@st.composite
def toys(draw: DrawFn, depth: int = 4) -> Toy:
    """Terms of the toy language: shadowing, capture and sharing are common."""
    pool: list[Toy] = [draw(toy_vars())]

    def some() -> Toy:
        return draw(st.sampled_from(pool[::-1]))

    for _ in range(draw(st.integers(0, 3 * depth))):
        match draw(st.sampled_from(("pair", "leaf", "var", "many", "mixed", "bind", "fix"))):
            case "leaf":
                pool.append(Leaf(draw(PLAIN)))
            case "var":
                pool.append(draw(toy_vars()))
            case "many":
                items = tuple(some() for _ in range(draw(st.integers(0, 3))))
                pool.append(Many(draw(st.sampled_from("ab")), items))
            case "mixed":
                values = (("k", (some(), 1)), ("l", draw(PLAIN)))
                pool.append(Mixed(values, some() if draw(st.booleans()) else None))
            case "bind":
                vars = tuple(draw(st.lists(toy_vars(), max_size=2, unique=True)))
                pool.append(Bind(vars, tuple(some() for _ in vars), some()))
            case "fix":
                pool.append(Fix(draw(toy_vars()), some(), some()))
            case _:
                pool.append(Pair(some(), some()))
    return pool[-1]


def terms() -> st.SearchStrategy[Term]:
    """Terms of every grammar of this project."""
    found: list[st.SearchStrategy[Any]] = [
        toys(), index_terms(), scalars(f32), types(), computes(), kernels(), modules(depth=1),
        names().map(Ref),
    ]  # fmt: skip
    return st.one_of(found)
