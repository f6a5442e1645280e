"""Comparison of two values under a float contract.

Integers and bools must be equal. Floats must be equal in bits up to NaN payloads (`exact`), or up
to the sign of zeros (`signless_zero`), or within a tolerance relative to the sum of magnitudes
(`fused`, `reassociates`), or also relative in max-norm (`approx`).
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import numpy as np

from plica.core import Name, Term, map_bottom_up, post_order
from plica.ir.contract import APPROX, Contract, exact, signless_zero
from plica.ir.graph.expression import Const, Var, const
from plica.ir.type import DTYPES, dtype, f64, type_of
from plica.rewrite.check.instance import Instance

SLACK = 8.0
"""Roundings per operator that a reassociating rule may add, in units of the dtype's epsilon."""


def difference(left: Any, right: Any, contract: Contract, magnitude: float) -> str | None:
    """Why two values differ under the contract, or None.

    `magnitude` is the largest sum of finite magnitudes met while computing them.
    """
    if isinstance(left, tuple) or isinstance(right, tuple):
        if not isinstance(left, tuple) or not isinstance(right, tuple) or len(left) != len(right):
            return "one side is a tuple, the other is not the like"
        reasons = (difference(a, b, contract, magnitude) for a, b in zip(left, right, strict=True))
        return next((reason for reason in reasons if reason is not None), None)
    a, b = np.asarray(left), np.asarray(right)
    if a.dtype != b.dtype:
        return f"the dtypes differ: {a.dtype} and {b.dtype}"
    if a.shape != b.shape:
        return f"the shapes differ: {a.shape} and {b.shape}"
    if not dtype(a.dtype).is_float:
        return _first(a != b, a, b)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    both_nan = np.isnan(wide_a) & np.isnan(wide_b)
    if contract <= exact:
        same_sign = np.signbit(wide_a) == np.signbit(wide_b)
        return _first(~(both_nan | ((wide_a == wide_b) & same_sign)), a, b)
    if contract <= signless_zero:
        return _first(~(both_nan | (wide_a == wide_b)), a, b)
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(wide_a - wide_b)
    # Contracts are ordered: a looser one allows what a stricter one does. The rounding of narrow
    # floats exceeds most bounds, and relative bounds are meaningless for subnormals.
    allowed = SLACK * epsilon(a.dtype) * magnitude + tiny(a.dtype)
    if contract.level == APPROX:
        finite = np.abs(wide_a[np.isfinite(wide_a)])
        allowed = max(allowed, contract.rel * max(float(finite.max(initial=0.0)), magnitude))
    # Whether NaN or infinity results may depend on the order; that one of them does may not.
    neither_finite = ~np.isfinite(wide_a) & ~np.isfinite(wide_b)
    return _first(~(neither_finite | (wide_a == wide_b) | (gap <= allowed)), a, b)


def distance(left: Any, right: Any) -> float:
    """The largest relative distance of floats in two values of one type, 0 where none differ."""
    if isinstance(left, tuple):
        return max(map(distance, left, right), default=0.0)
    a, b = np.asarray(left), np.asarray(right)
    if not a.size or not dtype(a.dtype).is_float:
        return 0.0
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        apart = np.abs(wide_a - wide_b) / np.maximum(np.abs(wide_a), np.abs(wide_b))
    return float(apart[np.isfinite(apart)].max(initial=0.0))


def epsilon(of: np.dtype[Any]) -> float:
    """The distance from 1 to the next number."""
    return {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10}.get(str(of), 2.0**-7)


def tiny(of: np.dtype[Any]) -> float:
    """The least normal number: below it precision is lost."""
    return {"float64": 2.0**-1022, "float16": 2.0**-14}.get(str(of), 2.0**-126)


def _first(wrong: Any, a: Any, b: Any) -> str | None:
    if not np.any(wrong):
        return None
    place = tuple(int(array[0]) for array in np.nonzero(np.atleast_1d(wrong)))
    here = place if a.shape else ()
    return f"element {here} is {a[here]!s} on the left and {b[here]!s} on the right"


# --- widening ----------------------------------------------------------------------------------


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
