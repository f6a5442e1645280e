"""Widening: an instance with every float in f64, to tell overflow from a wrong rule."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import numpy as np

from plica.core import Name, Term, map_bottom_up, post_order
from plica.ir.graph.expression import Const, Var, const
from plica.ir.type import DTYPES, f64, type_of
from plica.rewrite.check.instance import Instance

T = TypeVar("T", bound=Term)
NARROW: Final[frozenset[Term]] = frozenset(
    each for each in DTYPES if each.is_float and each is not f64
)


def widened(made: Instance) -> Instance | None:
    """The instance in f64, or None if nothing in it is narrower."""
    term = in_f64(made.term)
    if term is made.term:
        return None
    inputs = tuple((in_f64(var), array_in_f64(value)) for var, value in made.inputs)
    return Instance(term, inputs, tuple(var for var, _ in inputs))


def in_f64(term: T) -> T:
    """The term with every float in f64, its constants and the types of its variables included."""
    constants = {
        node: const(array_in_f64(node.numpy()), f64)
        for node in post_order(term)
        if isinstance(node, Const) and node.dtype in NARROW
    }
    # Constants go first: their bytes change with their dtype.
    marks: dict[Term, Term] = {
        node: Var(Name(f"constant {i}"), type_of(node)) for i, node in enumerate(constants)
    }
    marked = map_bottom_up(lambda node: marks.get(node, node), term)
    wide = map_bottom_up(_widen, marked)
    back = {map_bottom_up(_widen, marks[node]): new for node, new in constants.items()}
    return map_bottom_up(lambda node: back.get(node, node), wide)


def array_in_f64(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array in f64 if its elements are narrower floats."""
    narrow = value.dtype in {each.numpy for each in DTYPES if each in NARROW}
    return value.astype(np.float64) if narrow else value


def _widen(node: Term) -> Term:
    return f64 if node in NARROW else node
