"""Recipe evaluation: a constant recomputed from a model's stored tensors, by its recipe term.

>>> from plica.core.encode import to_json
>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("weight"), tensor((2,), "f32"))
>>> stored = {"weight": np.float32([1, 2]).tobytes()}
>>> followed(to_json(x + x), stored.get)
array([2., 4.], dtype=float32)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from plica.core.diagnostic import EvaluationError, Malformed
from plica.core.encode import from_json, to_json
from plica.core.fold import map_bottom_up
from plica.core.term import LARGE_BYTES, FrozenBytes, Term
from plica.ir.graph import provenance
from plica.ir.graph.expression import Apply, Const, Expr, Var, own_const
from plica.ir.graph.operator import find
from plica.ir.graph.plain_recipe import Step, order_data
from plica.ir.loop import Buffer, loads
from plica.ir.type import TensorType, static_shape, type_of
from plica.runtime.late import lazy_imports
from plica.schedule.hoist import PackedConstant, constants, copied, put_by_columns, shape_of

with lazy_imports(__name__):
    from plica.ir.interpret.graph_machine import computed

Array: TypeAlias = "np.ndarray[Any, Any]"
Stored: TypeAlias = Callable[[str], FrozenBytes | None]
"""Returns the bytes of a variable name, or None."""


def followed(text: str, stored: Stored) -> Array | None:
    """The array of a recipe over stored tensors; None if it has no value, or a tensor is
    missing."""
    try:
        recipe = from_json(text, own=True)
        if not isinstance(recipe, PackedConstant):
            return _constant(recipe, stored).numpy()
        whole = recipe.whole
        given = [_constant(expr, stored).elements for expr in whole.given]
        made = constants(whole, dict(zip(whole.numbers, given, strict=True)))
        return own_const(made[recipe.out], recipe.out.dtype).numpy()
    except (EvaluationError, Malformed, NotStored):
        return None


def packed_text(of: Const) -> str | None:
    """The recipe of a possibly packed constant, in plain form if numpy suffices; None if it is too
    long."""
    recipe, steps = provenance.recipe_of(of), list[Step]()
    if not isinstance(recipe, PackedConstant):
        text = provenance.recipe_text(of)
    else:
        text = json.dumps(steps) if _is_plain(recipe, steps) else to_json(recipe)
    return text if len(text) <= provenance.MAX_RECIPE_CHARACTERS else None


def _is_plain(recipe: PackedConstant, steps: list[Step]) -> bool:
    """Appends the steps of a packed constant, for `constants`; returns whether they are
    complete."""
    whole = recipe.whole
    held: dict[Buffer, provenance.PlainArray] = {}
    read = {load.buffer for stage in whole.before for load in loads(stage)}
    for number, given in zip(whole.numbers, whole.given, strict=True):
        if (buffer := whole.inputs[number]) not in read:
            continue
        plain_array, shape = provenance.plain_steps(given, steps), shape_of(buffer)
        if plain_array is None or plain_array.kind != buffer.dtype.numpy.str:
            return False
        held[buffer] = plain_array
        if plain_array.shape != shape:
            held[buffer] = provenance.PlainArray(len(steps), plain_array.kind, shape)
            steps.append(["reshape", plain_array.step, shape])
    for stage in whole.before:
        later = {buffer: of.source for buffer, of in held.items() if of.source is not None}
        if (put := put_by_columns(stage, later)) is not None:
            load, at, order = put
            step: Step = ["columns", held[load.buffer].step, at, *order_data(order)]
        elif (copy := copied(stage)) is not None:
            load, order = copy
            step = ["copy", held[load.buffer].step, *order_data(order)]
        else:
            return False
        if stage.out.dtype is not load.buffer.dtype:
            return False
        held[stage.out] = provenance.PlainArray(
            len(steps), held[load.buffer].kind, shape_of(stage.out)
        )
        steps.append(step)
        if stage.out is recipe.out:
            return True
    return False


class NotStored(Exception):
    """A tensor named by a recipe is missing; caught by its reader."""


def _constant(recipe: Term, stored: Stored) -> Const:
    """The constant that an expression is; one that is made by columns is left to who reads it."""

    def filled(node: Term) -> Term:
        match node:
            case Var(name, TensorType() as of):
                if (data := stored(name.hint)) is None:
                    raise NotStored(name.hint)
                return Const(of.dtype, static_shape(of) or (), data)
            case Apply() if (record := find(node.op)) is not None and record.columns is not None:
                apart = Apply(node.op, tuple([_known(arg) for arg in node.args]), node.attrs)
                late = provenance.made_later(apart)
                return apart if late is None or len(late.data) < LARGE_BYTES else late
        return node

    return _known(map_bottom_up(filled, recipe))


def _known(of: Term) -> Const:
    if isinstance(of, Const):
        return of
    assert isinstance(of, Expr)
    found = type_of(of)
    assert isinstance(found, TensorType)
    return own_const(np.asarray(computed(of)), found.dtype)
