"""Edited models: the artefact of a model made of that of another, which has other numbers.

Sharing depends on which stored tensors are equal, so the equalities among tensors must be unchanged
too. Any other difference makes the model compile from scratch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from plica.core.deferred import OBSERVED
from plica.runtime.archive import Piece
from plica.runtime.late import lazy_imports
from plica.runtime.store import ArtefactStore, is_key, key_of

with lazy_imports(__name__):  # who keeps something has them, who edits one layer needs few of them
    from plica.ir.graph.expression import Const
    from plica.ir.graph.module import Module
    from plica.ir.graph.plain_recipe import array_by
    from plica.ir.graph.provenance import leaves_of
    from plica.ir.graph.weight_array import answer_to
    from plica.pipeline.model_query import ModelQuery
    from plica.schedule.recipe import followed, packed_text

Array: TypeAlias = "np.ndarray[Any, Any]"


def keep_recipes(
    store: ArtefactStore,
    entry: str,
    module: Module,
    constants: Sequence[Const],
    pieces: Sequence[Piece],
) -> None:
    """Stores, with the artefact of a module, how its constants are derived and what that depends
    on.

    Constants are its last pieces, each behind what puts it at its place.
    """
    start = len(pieces) - 2 * len(constants)
    recipes: list[tuple[int, str]] = []
    free: set[str] = set()
    fixed: set[str] = set()
    for number, constant in enumerate(constants):
        if leaves := leaves_of(constant):
            if (text := packed_text(constant)) is None:
                fixed |= leaves
                continue
            before = pieces[: start + 2 * number + 1]
            recipes.append((sum(1 for piece in before if len(piece)), text))
            free |= leaves
    named = leaves_of(module)
    looked, answers = OBSERVED.dependence(named | free | fixed)
    note = {"recipes": recipes, "free": sorted(free - fixed - looked), "answers": answers,
            "leaves": sorted(named)}  # fmt: skip
    store.put(key_of("recipes", entry), json.dumps(note).encode())


def keep_structure(of: ModelQuery, note: Mapping[str, Any]) -> None:  # Any: JSON
    """Stores the recipe that rebuilds the artefact for a model with the same operators and other
    weights.

    The model reader inspects tensors, too, whether or not the artefact was cached.
    """
    told = of.store.get(key_of("recipes", note["entry"]))
    if told is None or (kept := _recipes(told)) is None:
        return
    digests = [tensor.digest for tensor in of.model.tensors]
    looked, answers = OBSERVED.dependence(frozenset(digests))
    free = sorted({*kept["free"]}.intersection(digests) - looked)
    if not free:
        return
    every = {json.dumps(each): None for each in (*kept["answers"], *answers)}
    whole = {**kept, "free": free, "answers": [*map(json.loads, every)], "note": note,
             "digests": digests}  # fmt: skip
    of.store.put(of.like, json.dumps(whole).encode())


def made_of_another(of: ModelQuery) -> bool:
    """Builds and records a model's artefact from that of a model with other weights; returns
    whether one exists."""
    told = of.store.get(of.like) if of.model.tensors else None
    if told is None or (kept := _recipes(told)) is None:
        return False
    match kept:
        case {"note": {"entry": str(base)} as note, "digests": [*old]} if is_key(base):
            new = [tensor.digest for tensor in of.model.tensors]
        case _:
            return False
    now = dict(zip(old, new, strict=False))
    back = dict(zip(new, old, strict=False))
    alike = len(old) == len(new) and all(
        now[a] == b and back[b] == a for a, b in zip(old, new, strict=True)
    )
    changed = {a for a, b in now.items() if a != b}
    elsewhere = {*kept["leaves"]}.difference(old)
    if not alike or not changed <= {*kept["free"]} or not elsewhere.isdisjoint(new):
        return False
    places = {tensor.digest: tensor for tensor in of.model.tensors}

    @cache
    def elements(digest: str) -> bytes | None:
        """The bytes that now replace the tensor of a digest."""
        return of.model.elements(places[now[digest]]) if digest in now else None

    for question, recipes, answer in kept["answers"]:
        if _names(changed, recipes):
            values = [_array(each, elements) for each in recipes]
            there = [value for value in values if value is not None]
            if len(there) < len(recipes) or answer_to(question, there) is not answer:
                return False
    pieces: dict[int, Piece] = {}
    for number, recipe in kept["recipes"]:
        if _names(changed, [recipe]):
            if (array := _array(recipe, elements)) is None:
                return False
            pieces[number] = array.reshape(-1).view(np.uint8).data
    entry = key_of("edited", base, of.model.digest)
    if not of.store.put_like(entry, base, pieces):
        return False
    of.store.put(of.key, json.dumps({**note, "entry": entry}).encode())
    return True


def _array(recipe: str, stored: Callable[[str], bytes | None]) -> Array | None:
    """Evaluates a recipe, with numpy alone if it is simple."""
    return (array_by if recipe.startswith("[") else followed)(recipe, stored)


def _names(digests: Set[str], recipes: Sequence[str]) -> bool:
    """Whether recipes name some stored tensor."""
    return any(digest in recipe for recipe in recipes for digest in digests)


def _recipes(told: bytes) -> dict[str, Any] | None:  # Any: JSON
    """The stored recipes, or None if the entry is malformed: digests detect damage, not
    mistakes."""
    try:
        kept = json.loads(told)
    except (ValueError, RecursionError):
        return None
    match kept:
        case {"recipes": [*recipes], "free": [*free], "answers": [*answers], "leaves": [*leaves]}:
            pass
        case _:
            return None
    good = all(_is_row(recipe, int, str) for recipe in recipes)
    good = good and all(_is_row(answer, str, list, bool) for answer in answers)
    good = good and all(isinstance(each, str) for row in answers for each in row[1])
    for digests in (free, leaves, kept.get("digests", [])):
        good = good and all(isinstance(digest, str) and is_key(digest) for digest in digests)
    return kept if good else None


def _is_row(given: object, *kinds: type) -> bool:
    if not isinstance(given, list) or len(given) != len(kinds):
        return False
    return all(isinstance(each, kind) for each, kind in zip(given, kinds, strict=True))
