"""Cases: a program with open sizes, and several choices of sizes to run its one code at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.core import Name, Term, substitute
from plica.ir.generate.choice import between, pick
from plica.ir.generate.opened import open_modules
from plica.ir.graph import Function, Module, module
from plica.ir.graph.shape_specialisation import open_dims
from plica.ir.type import TensorType, dim_var, evaluate, infer

SMALL: Final = (2, 3, 4, 5, 6, 7, 8, 9)
LARGE: Final = (5, 11, 13, 16, 17, 7, 12, 9, 20)
CONTRACTS: Final = (None, "exact", "reassociates")
MOST_ELEMENTS: Final = 200_000
"""Of one tensor of a program: programs that grow faster are no better cases."""


@frozen(eq=False)
class Case:
    """A module, the sizes of its dims, by name, at which it runs, and how it is compiled."""

    module: Module
    sizes: tuple[Mapping[str, int], ...]
    threads: int
    contract: str | None
    turn: int  # by how many places the names of its dims go round in a second module

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of its dims, in the order in which its inputs have them."""
        return tuple([str(dim.name) for dim in open_dims(self.module)])

    @property
    def renamed(self) -> dict[str, str]:
        """What its dims are called in the second module: each as another, or all anew."""
        names = self.dims
        if self.turn % len(names) == 0:
            return {name: f"{name}_new" for name in names}
        return {name: names[(at + self.turn) % len(names)] for at, name in enumerate(names)}


@st.composite
def open_cases(draw: DrawFn, most: int = 6) -> Case:
    """A module of up to a given number of operators, at four or five choices of sizes.

    In two of them all dims differ, in one they are equal, in one some dim is 1.
    """
    made = draw(open_modules(most).filter(lambda each: bool(open_dims(each))))
    names = [str(dim.name) for dim in open_dims(made)]
    choices = [_distinct(draw, SMALL, names), _distinct(draw, LARGE, names)]
    choices.append(dict.fromkeys(names, draw(between(2, 6))))
    choices.append({**_distinct(draw, SMALL, names), pick(draw, names): 1})
    if draw(between(0, 2)) == 2:
        choices.append({**_distinct(draw, SMALL, names), pick(draw, names): 0})
    threads = draw(between(1, 2))
    return Case(made, tuple(choices), threads, pick(draw, CONTRACTS), draw(between(0, 3)))


def _distinct(draw: DrawFn, of: Sequence[int], names: Sequence[str]) -> dict[str, int]:
    left = list(of)
    found: dict[str, int] = {}
    for name in names:
        found[name] = pick(draw, left)
        left.remove(found[name])
    return found


def arrays_for(of: Module, sizes: Mapping[str, int], seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Inputs at some sizes, the same each time."""
    random = np.random.default_rng(seed)
    numbers: dict[Term, int] = {dim_var(name): size for name, size in sizes.items()}
    found = []
    for param in of.main_function().params:
        assert isinstance(param.type, TensorType)
        shape = [evaluate(scalar, numbers) for scalar in param.type.shape]
        found.append(random.normal(size=[each or 0 for each in shape]).astype(np.float32))
    return found


def with_names(of: Module, names: Mapping[str, str]) -> Module:
    """The module with its dims called otherwise."""
    main = of.main_function()
    assert of.main is not None
    new = {dim: dim_var(Name(names[str(dim.name)])) for dim in main.dims}
    inside = Function((), main.types, main.params, main.ret, main.body, main.attrs)
    named = substitute(inside, dict(new))
    dims = tuple(new.values())
    whole = Function(dims, named.types, named.params, named.ret, named.body, named.attrs)
    return infer(module({of.main: whole}, of.main))
