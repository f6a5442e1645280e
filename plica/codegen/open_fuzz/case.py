"""Fuzz cases for open sizes: a random module with symbolic dims, and sizes to run it at.

The module is compiled once and its code runs at each choice of sizes. It is then compiled again
with its dims renamed, because the code must not depend on what dims are called or how names sort.
"""

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
from plica.ir.graph import Function, Module, module as make_module
from plica.ir.graph.shape_specialisation import open_dims
from plica.ir.type import TensorType, dim_var, evaluate, infer

SMALL: Final = (2, 3, 4, 5, 6, 7, 8, 9)
LARGE: Final = (5, 11, 13, 16, 17, 7, 12, 9, 20)
CONTRACTS: Final = (None, "exact", "reassociates")


@frozen(eq=False)
class Case:
    """A module, the choices of sizes at which it runs (by dim name), and how it is compiled."""

    module: Module
    sizes: tuple[Mapping[str, int], ...]
    threads: int
    contract: str | None
    rotation: int  # how far dim names rotate in the renamed module; a full cycle: fresh names

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of its dims, in the order in which its inputs have them."""
        return tuple([str(dim.name) for dim in open_dims(self.module)])

    @property
    def renamed(self) -> dict[str, str]:
        """The dim names of the renamed module: rotated by `rotation`, or fresh ones."""
        names = self.dims
        if self.rotation % len(names) == 0:
            return {name: f"{name}_new" for name in names}
        return {name: names[(at + self.rotation) % len(names)] for at, name in enumerate(names)}


@st.composite
def open_cases(draw: DrawFn, most: int = 6) -> Case:
    """A module of up to `most` operators, at four or five choices of sizes.

    All dims differ in two of them and are equal in the third; some dim is 1 in the fourth and 0 in
    the fifth, which one case in three has.
    """
    module = draw(open_modules(most).filter(lambda drawn: bool(open_dims(drawn))))
    names = [str(dim.name) for dim in open_dims(module)]
    choices = [_distinct(draw, SMALL, names), _distinct(draw, LARGE, names)]
    choices.append(dict.fromkeys(names, draw(between(2, 6))))
    choices.append({**_distinct(draw, SMALL, names), pick(draw, names): 1})
    if draw(between(0, 2)) == 2:
        choices.append({**_distinct(draw, SMALL, names), pick(draw, names): 0})
    threads = draw(between(1, 2))
    return Case(module, tuple(choices), threads, pick(draw, CONTRACTS), draw(between(0, 3)))


def _distinct(draw: DrawFn, of: Sequence[int], names: Sequence[str]) -> dict[str, int]:
    """A different size for each name."""
    unused = list(of)
    sizes: dict[str, int] = {}
    for name in names:
        sizes[name] = pick(draw, unused)
        unused.remove(sizes[name])
    return sizes


def arrays_for(of: Module, sizes: Mapping[str, int], seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Random inputs of the module at these sizes; equal arguments give equal arrays."""
    random = np.random.default_rng(seed)
    numbers: dict[Term, int] = {dim_var(name): size for name, size in sizes.items()}
    arrays = []
    for param in of.main_function().params:
        assert isinstance(param.type, TensorType)
        shape = [evaluate(size, numbers) for size in param.type.shape]
        arrays.append(random.normal(size=[size or 0 for size in shape]).astype(np.float32))
    return arrays


def with_names(of: Module, names: Mapping[str, str]) -> Module:
    """The module with its dims renamed."""
    main = of.main_function()
    assert of.main is not None
    new = {dim: dim_var(Name(names[str(dim.name)])) for dim in main.dims}
    unbound = Function((), main.types, main.params, main.ret, main.body, main.attrs)
    renamed = substitute(unbound, dict(new))
    dims = tuple(new.values())
    function = Function(
        dims, renamed.types, renamed.params, renamed.ret, renamed.body, renamed.attrs
    )
    return infer(make_module({of.main: function}, of.main))
