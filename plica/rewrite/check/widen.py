"""Widening: an instance with every float in f64, to tell overflow from a wrong rule."""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np

from plica.core.fold import map_bottom_up, post_order
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.dtype import bf16, f16, f32, f64
from plica.ir.graph import Const, Expr, Var, const
from plica.ir.infer import type_of
from plica.rewrite.check.instance import Instance

NARROW: Final[frozenset[Term]] = frozenset({f16, bf16, f32})


def widened(made: Instance) -> Instance | None:
    """The instance in f64, None where nothing in it is narrower."""
    constants = {
        node: const(_wide(node.numpy()), f64)
        for node in post_order(made.term)
        if isinstance(node, Const) and node.dtype in NARROW
    }

    def widen(node: Term) -> Term:
        return f64 if node in NARROW else node

    # Constants go first: their bytes change with their dtype.
    marks: dict[Term, Term] = {
        node: Var(Name(f"constant {i}"), type_of(node)) for i, node in enumerate(constants)
    }
    marked = map_bottom_up(lambda node: marks.get(node, node), made.term)
    wide = map_bottom_up(widen, marked)
    if wide is made.term:
        return None
    back = {map_bottom_up(widen, marks[node]): new for node, new in constants.items()}
    term = map_bottom_up(lambda node: back.get(node, node), wide)
    inputs = tuple(
        (cast(Var, map_bottom_up(widen, var)), _wide(value)) for var, value in made.inputs
    )
    return Instance(cast(Expr, term), inputs)


def _wide(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    narrow = value.dtype in {each.numpy for each in (f16, bf16, f32)}
    return value.astype(np.float64) if narrow else value
