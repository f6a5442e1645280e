"""Points: the exact value of an index term at many integer points at once.

>>> from plica.ir.type.dim import dim_var
>>> x = dim_var("x")
>>> values(x // 4 * 10 + x % -4, {x: np.array([-5, 0, 5])}).tolist()
[-21, 0, 7]

Arrays are int64 if every intermediate value fits, and Python integers otherwise: nothing wraps.
Terms other than arithmetic and logic are atoms and need a value, like variables.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from plica.core import CompilerBug, fold_into, parts_first, reached, rebuild
from plica.ir.loop import scalar as sc
from plica.ir.type import bool_, i64

Values = np.ndarray[Any, np.dtype[Any]]  # int64, object or bool, one value a point
Point = Mapping[sc.Scalar, int]

OPERATIONS: Final[dict[type[sc.Scalar], Callable[..., Values]]] = {
    sc.Add: operator.add, sc.Sub: operator.sub, sc.Mul: operator.mul,
    sc.FloorDiv: lambda a, b: _divided(operator.floordiv, a, b),
    sc.FloorMod: lambda a, b: _divided(operator.mod, a, b),
    sc.Min: np.minimum, sc.Max: np.maximum, sc.Select: np.where,
    sc.Eq: lambda a, b: _bools(a == b), sc.Ne: lambda a, b: _bools(a != b),
    sc.Lt: lambda a, b: _bools(a < b), sc.Le: lambda a, b: _bools(a <= b),
    sc.And: operator.and_, sc.Or: operator.or_, sc.Not: operator.invert,
}  # fmt: skip
"""What each operation does to the values of its parts."""

STRUCTURE: Final = frozenset((sc.Lit, *OPERATIONS))
_LIMIT: Final = 1 << 62


def is_structure(node: object) -> bool:
    """Whether a node is arithmetic or logic of index terms, and not an atom."""
    if not isinstance(node, sc.Scalar) or type(node) not in STRUCTURE:
        return False
    if isinstance(node, sc.Eq | sc.Ne | sc.Lt | sc.Le):
        return sc.dtype_of(node.left) is i64
    return sc.dtype_of(node) in (i64, bool_)


def structure_parts(node: sc.Scalar) -> list[sc.Scalar]:
    """What arithmetic or logic is made of; an atom has no parts."""
    return [k for k in node._children if isinstance(k, sc.Scalar)] if is_structure(node) else []


def structure_nodes(*roots: sc.Scalar) -> Iterator[sc.Scalar]:
    """Each node of arithmetic or logic in some terms, once."""
    return filter(is_structure, reached(structure_parts, *roots))


def innermost(wanted: Callable[[sc.Scalar], bool], roots: Iterable[sc.Scalar]) -> sc.Scalar | None:
    """A node of the structure of terms that is wanted and has no other inside it."""
    seen: set[sc.Scalar] = set()
    for root in roots:
        stack: list[tuple[sc.Scalar, bool]] = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                return node  # the first to be left: everything inside was seen and is none
            if node in seen or not is_structure(node):
                continue
            seen.add(node)
            if wanted(node):
                stack.append((node, True))
            stack += [(part, False) for part in structure_parts(node)]
    return None


def replaced(
    term: sc.Scalar,
    changed: Mapping[sc.Scalar, sc.Scalar],
    parts: Callable[[sc.Scalar], Sequence[sc.Scalar]] = structure_parts,
) -> sc.Scalar:
    """`term` with some subterms replaced everywhere."""
    return replacing(changed, parts)(term)


def replacing(
    changed: Mapping[sc.Scalar, sc.Scalar],
    parts: Callable[[sc.Scalar], Sequence[sc.Scalar]] = structure_parts,
) -> Callable[[sc.Scalar], sc.Scalar]:
    """The function that replaces some subterms everywhere; what terms share is replaced once."""
    memo = dict(changed)

    def rebuilt(node: sc.Scalar) -> sc.Scalar:
        if not parts(node):
            return node
        kids = [memo[kid] if isinstance(kid, sc.Scalar) else kid for kid in node._children]
        return rebuild(node, tuple(kids))

    return lambda term: fold_into(memo, term, parts, rebuilt)


def atoms(*terms: sc.Scalar) -> tuple[sc.Scalar, ...]:
    """The atoms of index terms, in order of first occurrence."""
    order = parts_first(structure_parts, *terms)
    return tuple([node for node in order if not is_structure(node)])


def value(term: sc.Scalar, point: Mapping[sc.Scalar, int]) -> int:
    """The value at one point; a bool is 0 or 1."""
    arrays = {atom: np.array([given], dtype=object) for atom, given in point.items()}
    return int(values(term, arrays)[0])


def values(term: sc.Scalar, arrays: Mapping[sc.Scalar, Values]) -> Values:
    """The values of a term, one for each point."""
    return all_values((term,), arrays)[0]


def all_values(terms: Iterable[sc.Scalar], arrays: Mapping[sc.Scalar, Values]) -> list[Values]:
    """The values of several terms, shared parts computed once."""
    wanted = tuple(terms)
    size = max((len(array) for array in arrays.values()), default=1)
    order = parts_first(structure_parts, *wanted)
    exact = not _fits(order, arrays)
    memo: dict[sc.Scalar, Values] = {}
    for node in order:
        if isinstance(node, sc.Lit):
            kind = np.bool_ if node.dtype is bool_ else object if exact else np.int64
            memo[node] = np.full(size, node.value, dtype=kind)
        elif is_structure(node):
            memo[node] = OPERATIONS[type(node)](*[memo[kid] for kid in structure_parts(node)])
        elif node in arrays:
            array = arrays[node]
            memo[node] = array.astype(object) if exact and array.dtype != np.bool_ else array
        else:
            raise CompilerBug(f"No value was given for {node!r}.")
    return [memo[term] for term in wanted]


def _fits(order: list[sc.Scalar], arrays: Mapping[sc.Scalar, Values]) -> bool:
    """Whether no value can leave int64: the greatest magnitude of each node, from below."""
    size: dict[sc.Scalar, int] = {}
    for node in order:
        match node:
            case _ if not is_structure(node):
                array = arrays.get(node)
                if array is None or array.dtype == np.bool_ or not len(array):
                    size[node] = 1
                else:
                    size[node] = max(abs(int(array.min())), abs(int(array.max())))
            case sc.Lit(value):
                size[node] = abs(int(value))
            case sc.Add(a, b) | sc.Sub(a, b):
                size[node] = size[a] + size[b]
            case sc.Mul(a, b):
                size[node] = size[a] * size[b]
            case sc.FloorDiv(a, _):
                size[node] = size[a] + 1
            case sc.FloorMod(_, b):
                size[node] = size[b]
            case sc.Min(a, b) | sc.Max(a, b) | sc.Select(_, a, b):
                size[node] = max(size[a], size[b])
            case _:
                size[node] = 1
        if size[node] >= _LIMIT:
            return False
    return True


def _bools(of: Any) -> Values:
    return np.asarray(of, dtype=np.bool_)


def _divided(divide: Callable[[Values, Values], Values], a: Values, b: Values) -> Values:
    """A quotient rounded down or its remainder, and 0 by zero."""
    zero = b == 0
    if not zero.any():
        return divide(a, b)
    return np.where(zero, 0, divide(a, np.where(zero, 1, b)))
