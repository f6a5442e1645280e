"""Vectors by lane: the meaning of a vector term as one scalar term per lane.

>>> from plica.ir.type.dtype import f32, i64
>>> from plica.ir.loop.statement import Store
>>> from plica.ir.loop.scalar import Lit, Ramp
>>> from plica.ir.loop.tensor import buffer
>>> x, y = buffer("x", (4,), f32), buffer("y", (4,), f32)
>>> pair = Ramp(Lit(2, i64), Lit(1, i64), 2)
>>> lanes_of(x[pair] * 2), len(store_lanes(Store(y, (pair,), x[pair] * 2)))
(2, 4)
>>> lane(pair, 1) is Lit(2, i64) + Lit(1, i64) * Lit(1, i64)
True
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from plica.core import EvaluationError, Term, fold_into, parts_first, rebuild
from plica.ir.loop.scalar import Broadcast, Lit, Load, Ramp, Scalar, Shuffle, dtype_of
from plica.ir.loop.statement import Store

VECTORS: Final = (Ramp, Broadcast, Shuffle)


@lru_cache(maxsize=4096)
def has_vectors(root: Scalar) -> bool:
    """Whether some part of a term is a vector."""
    return any(isinstance(node, VECTORS) for node in parts_first(_parts, root))


def lanes_of(root: Scalar) -> int:
    """How many lanes a term has, 1 for a plain scalar; lanes that do not agree are an error."""
    return _count((root,))[root]


def lane(root: Scalar, number: int) -> Scalar:
    """One lane of a term, as a term without vectors."""
    return _lanes((root,), (number,))[root, number]


def store_lanes(store: Store) -> tuple[Scalar, ...]:
    """The indices and the value of a store, lane after lane."""
    parts = (*store.indices, store.value)
    if not any(has_vectors(scalar) for scalar in parts):
        return parts
    counts = _count(parts)
    places = max((counts[index] for index in store.indices), default=1)
    if counts[store.value] not in (1, places):
        raise _disagree(f"a store at {places} places of {counts[store.value]} values")
    lanes = _lanes(parts, range(places))
    return tuple([lanes[part, number] for number in range(places) for part in parts])


def _count(roots: tuple[Scalar, ...]) -> dict[Term, int]:
    counts: dict[Term, int] = {}
    for node in parts_first(_parts, *roots):
        several = sorted({counts[kid] for kid in _parts(node)} - {1})
        match node:
            case Ramp(_, _, lanes) | Broadcast(_, lanes):
                if several:
                    raise _disagree(f"a {type(node).__name__} of vectors")
                counts[node] = lanes
            case Shuffle(vectors, indices):
                total = sum(counts[vector] for vector in vectors)
                if any(not 0 <= index < total for index in indices):
                    raise _disagree(f"a shuffle of {total} lanes by {indices}")
                counts[node] = len(indices)
            case _:
                if len(several) > 1:
                    raise _disagree(f"{several[0]} and {several[1]} lanes in one operation")
                counts[node] = several[0] if several else 1
    return counts


def _lanes(roots: tuple[Scalar, ...], numbers: Iterable[int]) -> dict[tuple[Scalar, int], Scalar]:
    """Lanes of terms; each pair of a node and a lane once."""
    counts = _count(roots)
    done: dict[tuple[Scalar, int], Scalar] = {}

    def parts(of: tuple[Scalar, int]) -> list[tuple[Scalar, int]]:
        node, number = of
        if not has_vectors(node):
            return []
        if isinstance(node, Shuffle):
            return [_picked(node, number, counts)]
        return [(kid, number) for kid in _parts(node)]

    def lane(of: tuple[Scalar, int]) -> Scalar:
        node, number = of
        if not has_vectors(node):
            return node
        match node:
            case Ramp(base, stride, _):
                return done[base, number] + done[stride, number] * Lit(number, dtype_of(stride))
            case Broadcast(value, _):
                return done[value, number]
            case Shuffle():
                return done[_picked(node, number, counts)]
        kids = [done[kid, number] if isinstance(kid, Scalar) else kid for kid in node._children]
        return rebuild(node, tuple(kids))

    for number in numbers:
        for root in roots:
            fold_into(done, (root, number), parts, lane)
    return done


def _picked(node: Shuffle, number: int, counts: dict[Term, int]) -> tuple[Scalar, int]:
    left = node.indices[number if len(node.indices) > 1 else 0]
    for vector in node.vectors:
        if left < counts[vector]:
            return vector, left
        left -= counts[vector]
    raise _disagree("a shuffle of lanes that are not there")


def _parts(node: Term) -> list[Scalar]:
    if isinstance(node, Load):
        return list(node.indices)
    return [kid for kid in node._children if isinstance(kid, Scalar)]


def _disagree(found: str) -> EvaluationError:
    message = "The vectors of a term do not have lanes that fit."
    expected = "the same number of lanes in all vectors of an operation"
    return EvaluationError.of("shape-conflict", message, None, expected, found)
