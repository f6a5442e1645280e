"""Points: the exact value of an index term at many integer points at once.

>>> from plica.ir.type.dim import dim_var
>>> x = dim_var("x")
>>> values(x // 4 * 10 + x % -4, {x: np.array([-5, 0, 5])}).tolist()
[-21, 0, 7]

The arrays are int64 where every intermediate value fits, and Python's integers otherwise: nothing
wraps.  What is neither arithmetic nor logic is an atom, and needs a value like a variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from plica.core.diagnostic import CompilerBug
from plica.ir.loop.scalar import (
    Add,
    And,
    Eq,
    FloorDiv,
    FloorMod,
    Le,
    Lit,
    Lt,
    Max,
    Min,
    Mul,
    Ne,
    Not,
    Or,
    Scalar,
    Select,
    Sub,
    dtype_of,
)
from plica.ir.type.dtype import bool_, i64

Values = np.ndarray[Any, np.dtype[Any]]  # int64, object or bool, one value a point
Point = Mapping[Scalar, int]

STRUCTURE: Final = (
    Lit, Add, Sub, Mul, FloorDiv, FloorMod, Min, Max, Select, Eq, Ne, Lt, Le, And, Or, Not,
)  # fmt: skip
_LIMIT: Final = 1 << 62


def is_structure(node: object) -> bool:
    """Whether a node is arithmetic or logic of index terms, and not an atom."""
    if not isinstance(node, STRUCTURE):
        return False
    if isinstance(node, Eq | Ne | Lt | Le):
        return dtype_of(node.left) is i64
    return dtype_of(node) in (i64, bool_)


def atoms(*terms: Scalar) -> tuple[Scalar, ...]:
    """The atoms of index terms, in order of first occurrence."""
    found: dict[Scalar, None] = {}
    seen: set[Scalar] = set()
    stack = list(reversed(terms))
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if is_structure(node):
            stack += [kid for kid in reversed(node._children) if isinstance(kid, Scalar)]
        else:
            found[node] = None
    return tuple(found)


def value(term: Scalar, point: Mapping[Scalar, int]) -> int:
    """The value at one point; a bool is 0 or 1."""
    arrays = {atom: np.array([given], dtype=object) for atom, given in point.items()}
    return int(values(term, arrays)[0])


def values(term: Scalar, arrays: Mapping[Scalar, Values]) -> Values:
    """The values of a term, one for each point."""
    return all_values((term,), arrays)[0]


def all_values(terms: Iterable[Scalar], arrays: Mapping[Scalar, Values]) -> list[Values]:
    """The values of several terms, shared parts computed once."""
    wanted = tuple(terms)
    size = max((len(array) for array in arrays.values()), default=1)
    order = _post_order(wanted)
    exact = not _fits(order, arrays)
    memo: dict[Scalar, Values] = {}
    for node in order:
        if is_structure(node):
            memo[node] = _apply(node, memo, size, exact)
        elif node in arrays:
            array = arrays[node]
            memo[node] = array.astype(object) if exact and array.dtype != np.bool_ else array
        else:
            raise CompilerBug(f"No value was given for {node!r}.")
    return [memo[term] for term in wanted]


def _post_order(terms: tuple[Scalar, ...]) -> list[Scalar]:
    done: set[Scalar] = set()
    found: list[Scalar] = []
    stack: list[tuple[Scalar, bool]] = [(term, False) for term in reversed(terms)]
    while stack:
        node, leaving = stack.pop()
        if leaving:
            found.append(node)
        elif node not in done:
            done.add(node)
            stack.append((node, True))
            if is_structure(node):
                stack += [(k, False) for k in reversed(node._children) if isinstance(k, Scalar)]
    return found


def _fits(order: list[Scalar], arrays: Mapping[Scalar, Values]) -> bool:
    """Whether no value can leave int64: the greatest magnitude of each node, from below."""
    size: dict[Scalar, int] = {}
    for node in order:
        match node:
            case _ if not is_structure(node):
                array = arrays.get(node)
                if array is None or array.dtype == np.bool_ or not len(array):
                    size[node] = 1
                else:
                    size[node] = max(abs(int(array.min())), abs(int(array.max())))
            case Lit(value):
                size[node] = abs(int(value))
            case Add(a, b) | Sub(a, b):
                size[node] = size[a] + size[b]
            case Mul(a, b):
                size[node] = size[a] * size[b]
            case FloorDiv(a, _):
                size[node] = size[a] + 1
            case FloorMod(_, b):
                size[node] = size[b]
            case Min(a, b) | Max(a, b) | Select(_, a, b):
                size[node] = max(size[a], size[b])
            case _:
                size[node] = 1
        if size[node] >= _LIMIT:
            return False
    return True


def _apply(node: Scalar, memo: Mapping[Scalar, Values], size: int, exact: bool) -> Values:
    match node:
        case Lit(value, dtype):
            if dtype is bool_:
                return np.full(size, value, dtype=np.bool_)
            return np.full(size, value, dtype=object if exact else np.int64)
        case Add(a, b):
            return memo[a] + memo[b]
        case Sub(a, b):
            return memo[a] - memo[b]
        case Mul(a, b):
            return memo[a] * memo[b]
        case FloorDiv(a, b):
            return _divided(memo[a], memo[b], remainder=False)
        case FloorMod(a, b):
            return _divided(memo[a], memo[b], remainder=True)
        case Min(a, b):
            return np.minimum(memo[a], memo[b])
        case Max(a, b):
            return np.maximum(memo[a], memo[b])
        case Select(condition, a, b):
            return np.where(memo[condition], memo[a], memo[b])
        case Eq(a, b):
            return _bools(memo[a] == memo[b])
        case Ne(a, b):
            return _bools(memo[a] != memo[b])
        case Lt(a, b):
            return _bools(memo[a] < memo[b])
        case Le(a, b):
            return _bools(memo[a] <= memo[b])
        case And(a, b):
            return memo[a] & memo[b]
        case Or(a, b):
            return memo[a] | memo[b]
        case Not(a):
            return ~memo[a]
        case _:
            raise CompilerBug(f"{node!r} has no value.")


def _bools(of: Any) -> Values:
    return np.asarray(of, dtype=np.bool_)


def _divided(a: Values, b: Values, *, remainder: bool) -> Values:
    """Floor division, and 0 by zero."""
    zero = b == 0
    if not zero.any():
        return a % b if remainder else a // b
    safe = np.where(zero, 1, b)
    result = a % safe if remainder else a // safe
    return np.where(zero, 0, result)
