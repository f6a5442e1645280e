"""Recipes followed: a constant made anew of what a model stores, by the term that says how.

A recipe is an expression over variables that are named by what they stand for, or a buffer that
stages make of such expressions (`plica.ir.graph.provenance`).  It is followed as it was the first
time, by the interpreter and by the stages that pack weights, so the bytes are those that compiling
the model would give.

>>> from plica.core.encode import to_json
>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("weight"), tensor((2,), "f32"))
>>> stored = {"weight": np.float32([1, 2]).tobytes()}
>>> np.frombuffer(followed(to_json(x + x), stored.get), np.float32)
array([2., 4.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from plica.core.diagnostic import EvaluationError, Malformed
from plica.core.encode import from_json
from plica.core.fold import map_bottom_up
from plica.core.term import LARGE, FrozenBytes, Term
from plica.ir.graph.expression import Apply, Const, Expr, Var, own_const
from plica.ir.graph.operator import find
from plica.ir.graph.provenance import made_later
from plica.ir.graph.weight_array import QUESTIONS
from plica.ir.type.infer import type_of
from plica.ir.type.term import TensorType, static_shape
from plica.runtime.late import late
from plica.schedule.hoist import PackedConstant, constants

if TYPE_CHECKING:
    from plica.ir.interpret.graph_machine import computed
else:
    computed = late("plica.ir.interpret.graph_machine:computed")

Stored: TypeAlias = Callable[[str], FrozenBytes | None]
"""What stands for the name of a variable, None where nothing does."""


def followed(text: str, stored: Stored) -> FrozenBytes | None:
    """The bytes of the constant that a recipe makes of what is stored; None where it has no value,
    or something is not there."""
    try:
        recipe = from_json(text, own=True)
        if not isinstance(recipe, PackedConstant):
            return _constant(recipe, stored).content
        whole = recipe.whole
        given = [_constant(each, stored).elements for each in whole.given]
        made = constants(whole, dict(zip(whole.numbers, given, strict=True)))
        return own_const(made[recipe.out], recipe.out.dtype).content
    except (EvaluationError, Malformed, NotStored):
        return None


def answer_to(question: str, texts: Sequence[str], stored: Stored) -> bool | None:
    """The answer to a question about what expressions make of what is stored."""
    if (asked := QUESTIONS.get(question)) is None:
        return None
    try:
        recipes = [from_json(each, own=True) for each in texts]
        return asked(*[_constant(each, stored).numpy() for each in recipes])
    except (EvaluationError, Malformed, NotStored):
        return None


class NotStored(Exception):
    """What a recipe names is not there; nobody but its reader hears of it."""


def _constant(recipe: Term, stored: Stored) -> Const:
    """The constant that an expression is; one that is made by columns is left to who reads it."""

    def filled(node: Term) -> Term:
        match node:
            case Var(name, TensorType() as of):
                if (data := stored(name.hint)) is None:
                    raise NotStored(name.hint)
                return Const(of.dtype, static_shape(of) or (), data)
            case Apply() if (record := find(node.op)) is not None and record.columns is not None:
                apart = Apply(node.op, tuple([_known(each) for each in node.args]), node.attrs)
                late = made_later(apart)
                return apart if late is None or len(late.data) < LARGE else late
        return node

    return _known(map_bottom_up(filled, recipe))


def _known(of: Term) -> Const:
    if isinstance(of, Const):
        return of
    assert isinstance(of, Expr)
    found = type_of(of)
    assert isinstance(found, TensorType)
    return own_const(np.asarray(computed(of)), found.dtype)
