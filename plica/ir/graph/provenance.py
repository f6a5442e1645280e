"""Provenance of constants: stored tensors of a model, constants derived from them, and queries
about them.

A large tensor of a model is a constant identified by its digest; a constant derived from it at
compile time has a term as its origin, its recipe. The compiler therefore acts the same for every
model with the same operators whose tensors answer its queries alike, and the artefact of one
becomes the artefact of another by re-evaluating its recipes.

Queries are rows of a table. A query does not count as inspecting the constants; the compilation
depends on its answer, which is recorded with the recipe of its subject.

>>> from plica.ir.type.dtype import f32
>>> weight = stored_const(np.ones(2048, np.float32))
>>> half = Apply("multiply", (weight, Const(f32, (), np.float32(0.5).tobytes())), ())
>>> made = derived_const(half, Const(f32, (2048,), np.full(2048, 0.5, np.float32).tobytes()))
>>> leaves_of(made) == leaves_of(weight), recipe_of(made).op
(True, 'multiply')
>>> answered("is-one-number", [made], lambda term: term.numpy())
True
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from plica.core import DeferredBytes, Name, Term, all_of, map_bottom_up, to_json
from plica.core.deferred import OBSERVED, StoredBytes, look_at, unobserved
from plica.core.term import LARGE_BYTES
from plica.ir.graph.expression import Apply, Const, Expr, Var, const
from plica.ir.graph.operator import find
from plica.ir.graph.weight_array import LIKE_NUMPY, QUESTIONS
from plica.ir.type import DType, TensorType, dtype, static_shape, tensor

if TYPE_CHECKING:
    from plica.ir.graph.plain_recipe import Step

Array: TypeAlias = "np.ndarray[Any, Any]"

STORED: Final = 4096
"""The size in bytes from which a constant of a model is identified by its digest; smaller ones
influence compilation as operators do."""

MAX_RECIPE_CHARACTERS: Final = 1 << 16
"""The maximum length of a recipe; constants with longer recipes, such as large constants the model
does not store, count as inspected (`answered`) or are stored as they are (`plica.schedule.recipe`).
"""


def stored_const(array: Array, listed: bool = True) -> Const:
    """A constant of a model, identified by its digest if it is large.

    A tensor that is not listed separately from its model counts as inspected: no other tensor can
    replace it or a tensor equal to it.
    """
    plain = const(array)
    if not isinstance(plain.data, bytes) or len(plain.data) < STORED:
        return plain
    data = StoredBytes(plain.data)
    if not listed:
        look_at(data.leaves)
    return Const(plain.dtype, plain.shape, data)


def derived_const(origin: Term, made: Const) -> Const:
    """A constant that was made of others, as their term says: it is looked at when they are."""
    leaves = leaves_of(origin)
    if not leaves:
        return made
    data = memoryview(made.content)
    return Const(made.dtype, made.shape, DeferredBytes(origin, len(data), lambda: data, leaves))


def made_later(node: Expr) -> Const | None:
    """The lazy constant that an operator computes from constants column by column."""
    if not isinstance(node, Apply) or (record := find(node.op)) is None or record.columns is None:
        return None
    with unobserved():
        args = [arg.numpy() for arg in node.args if isinstance(arg, Const)]
    if len(args) < len(node.args):
        return None
    data = record.columns(node, dict(node.attrs), *args)
    data.leaves = leaves_of(node)
    return Const(dtype(data.source.dtype), data.shape, data)


def leaves_of(of: Term) -> frozenset[str]:
    """The digests of the stored tensors that a term contains or derives constants from."""
    found: set[str] = set()
    for each in all_of(Const, of):
        if isinstance(each.data, DeferredBytes):
            found |= each.data.leaves
    return frozenset(found)


def recipe_of(of: Term) -> Term:
    """The term with each derived constant replaced by its origin, and each stored tensor by a
    variable named by its digest."""
    opened: dict[Term, Term] = {}
    stack = [of]
    while stack:
        inner = [origin for origin in _origins(stack[-1]) if origin not in opened]
        if not inner:
            opened[stack[-1]] = map_bottom_up(partial(_opened, opened), stack[-1])
            stack.pop()
        stack += inner
    return opened[of]


def _origins(of: Term) -> list[Term]:
    """The origins of the constants in a term."""
    terms = [_origin(each) for each in all_of(Const, of)]
    return [term for term in terms if term is not None]


def _origin(of: Const) -> Term | None:
    """The origin of a constant; None if it is stored or does not depend on stored tensors."""
    data = of.data
    if not isinstance(data, DeferredBytes) or not data.leaves:
        return None
    return data.origin if isinstance(data.origin, Term) else None


def _opened(origins: Mapping[Term, Term], node: Term) -> Term:
    if not isinstance(node, Const):
        return node
    if isinstance(node.data, StoredBytes):
        return Var(Name(node.data.digest), tensor(node.shape, node.dtype))
    term = _origin(node)
    return node if term is None else origins[term]


def recipe_text(of: Term) -> str:
    """The recipe of an expression, plain where numpy alone can follow it."""
    recipe = recipe_of(of)
    steps: list[Step] = []
    return to_json(recipe) if plain_steps(recipe, steps) is None else json.dumps(steps)


@dataclass(frozen=True, slots=True)
class PlainArray:
    """The result of a plain step: its number, numpy dtype and shape, and the shape of its column
    source if it is computed by columns."""

    step: int
    kind: str
    shape: tuple[int, ...]
    source: tuple[int, ...] | None = None


def plain_steps(of: Term, steps: list[Step]) -> PlainArray | None:
    """Appends the steps that compute an expression; None if numpy alone cannot."""
    made: dict[Term, PlainArray] = {}
    for node in all_of(Expr, of):
        if (found := _plain_step(node, made, len(steps))) is None:
            return None
        step, made[node] = found
        steps.append(step)
    return made.get(of)


def _plain_step(
    node: Expr, made: Mapping[Term, PlainArray], number: int
) -> tuple[Step, PlainArray] | None:
    match node:
        case Var(name, TensorType() as of) if (shape := static_shape(of)) is not None:
            made_here = PlainArray(number, of.dtype.numpy.str, shape)
            step: Step = ["stored", name.hint, made_here.kind, shape]
            return (step, made_here) if _is_of_numpy(of.dtype) else None
        case Const(of, shape):
            made_here = PlainArray(number, of.numpy.str, shape)
            step = ["given", base64.b64encode(node.content).decode(), made_here.kind, shape]
            return (step, made_here) if _is_of_numpy(of) else None
        case Apply(word, (left, right), ()) if word in LIKE_NUMPY:
            one, two = made[left], made[right]
            if one.kind != two.kind or one.kind not in _ROUNDED_ONCE:
                return None
            both = np.broadcast_shapes(one.shape, two.shape)
            return [word, one.step, two.step], PlainArray(number, one.kind, both)
        case Apply(word, (source,), attrs) if (record := find(word)) and record.columns:
            weight = made[source]
            like = record.columns(node, dict(attrs), np.empty(weight.shape, weight.kind))
            if len(like) < LARGE_BYTES or not like.words:
                return None
            array = PlainArray(number, weight.kind, like.shape, like.source.shape)
            return [like.words[0], weight.step, *like.words[1:]], array
    return None


def _is_of_numpy(of: DType) -> bool:
    """Whether numpy itself has a word for a dtype."""
    return np.dtype(of.numpy.str) == of.numpy


_ROUNDED_ONCE: Final = ("<f4", "<f8")  # dtypes in which numpy computes as the interpreter does


# --- questions ------------------------------------------------------------------------------------


def answered(
    question: str, subjects: Sequence[Expr], value_of: Callable[[Expr], Array | None]
) -> bool:
    """The answer to a question about closed terms; no where one has no value."""
    leaves = frozenset[str]().union(*map(leaves_of, subjects))
    with unobserved():
        values = [value_of(subject) for subject in subjects]
    if any(value is None for value in values):
        look_at(leaves)
        return False
    answer = QUESTIONS[question](*values)
    if leaves:
        asked = question, tuple(map(recipe_text, subjects))
        if sum(map(len, asked[1])) > MAX_RECIPE_CHARACTERS:
            look_at(leaves)
            return answer
        OBSERVED.answer(asked, answer, leaves)
    return answer
