"""Sums as linear forms: the normal form of sums of products over domains of which nothing is known.

    Σ k: a[k] + b[k]          =  (Σ k: a[k]) + (Σ k: b[k])
    Σ k: c * a[k]             =  c * Σ k: a[k]                  c does not depend on k
    Σ k: (a[k] + b[k]) * d[k] =  (Σ k: a[k] * d[k]) + (Σ k: b[k] * d[k])
    select(p, a, 0)           =  select(p, 1, 0) * a

All of them hold in every commutative ring, so of integers that wrap around as well; of floats they
hold as reals.  What leaves a sum must be defined everywhere, since the sum may be empty; and what
may be undefined stays with what it is multiplied by.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs

from plica.core import Term
from plica.ir.loop import scalar as sc
from plica.ir.op.record import as_dtype
from plica.ir.type import DType
from plica.rewrite.prove.axiom import TOTAL
from plica.rewrite.prove.open_shape import AxisSet, BoundIndex, FlatIndex
from plica.rewrite.prove.open_tensor import OpenFold
from plica.rewrite.prove.rule_facts import RuleFacts

MAX_PRODUCTS: Final = 64
SPLITS: Final = "a sum of sums splits"
LEAVES: Final = "what all terms have in common leaves a sum"
SELECTS: Final = "a choice of zero is a product"
TOTAL_INTRINSICS: Final = TOTAL | {"abs", "sign", "floor", "ceil", "trunc", "round", "fma",
                                   "isnan", "isinf", "copysign"}  # fmt: skip


def linear_form(
    reading: RuleFacts, of: OpenFold, atom: Callable[[OpenFold], sc.Scalar]
) -> sc.Scalar:
    """A sum as a sum of products of factors and of sums of single products."""
    dtype = sc.dtype_of(of.body)
    products = _products(reading, of.body)
    if len(products) > MAX_PRODUCTS:
        return atom(of)
    if len(products) > 1:
        reading.use(SPLITS)
    total: sc.Scalar | None = None
    for factors in products:
        outer = [scalar for scalar in factors if is_total(reading, scalar)
                 and not depends(reading, scalar, of.gone)]  # fmt: skip
        inner = sorted((scalar for scalar in factors if scalar not in outer), key=repr)
        if any(not isinstance(scalar, sc.Lit) for scalar in outer):
            reading.use(LEAVES)
        term = atom(attrs.evolve(of, body=_product(inner, dtype)))
        for factor in outer:
            term = sc.Mul(as_dtype(factor, dtype), term)
        total = term if total is None else sc.Add(total, term)
    return sc.Lit(0, dtype) if total is None else total


def _product(factors: list[sc.Scalar], dtype: DType) -> sc.Scalar:
    scalar: sc.Scalar | None = None
    for term in factors:
        factor = as_dtype(term, dtype)
        scalar = factor if scalar is None else sc.Mul(scalar, factor)
    return sc.Lit(1, dtype) if scalar is None else scalar


def _products(reading: RuleFacts, node: sc.Scalar) -> list[list[sc.Scalar]]:
    """The products of which a scalar is the sum; the depth is that of a rule."""
    of = sc.dtype_of(node)
    match node:
        case sc.Add(left, right):
            return [*_products(reading, left), *_products(reading, right)]
        case sc.Sub(left, right) if of.kind != "uint":
            negated = [[sc.Lit(-1, of), *product] for product in _products(reading, right)]
            return [*_products(reading, left), *negated]
        case sc.Mul(left, right):
            both = itertools.product(_products(reading, left), _products(reading, right))
            return [[*first, *second] for first, second in both]
        case sc.Cast(value, dtype) if dtype.is_float and sc.dtype_of(value).is_float:
            return _products(reading, value)
        case sc.Select(condition, then, sc.Lit(0)) if is_total(reading, then):
            reading.use(SELECTS)
            inside = sc.Select(condition, sc.Lit(1, of), sc.Lit(0, of))
            return [[inside, *product] for product in _products(reading, then)]
        case sc.Lit(0):
            return []
        case sc.Lit(1):
            return [[]]
    return [[node]]


def reachable(reading: RuleFacts, term: object) -> Iterator[Term]:
    """The parts of a term, and those of what its unknown numbers stand for."""
    stack: list[Any] = [term]  # Any: terms, and tuples of them and of anything else
    seen: set[Term] = set()
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(node)
        elif isinstance(node, Term) and node not in seen:
            seen.add(node)
            yield node
            stack += (*node._children, *reading.keys.get(node, ()))


def depends(reading: RuleFacts, term: sc.Scalar, gone: AxisSet) -> bool:
    """Whether a scalar may depend on the place along some axes."""
    return any(
        isinstance(node, FlatIndex)
        or (isinstance(node, BoundIndex) and not {*gone}.isdisjoint(node.gone))
        for node in reachable(reading, term)
    )


def is_total(reading: RuleFacts, term: sc.Scalar) -> bool:
    """Whether a scalar is a number whatever its unknown numbers are, and what those stand for."""
    return not any(node in reading.opaque or _is_partial(node) for node in reachable(reading, term))


def _is_partial(node: Term) -> bool:
    """Whether an operation on reals may be undefined; on integers all are defined."""
    if isinstance(node, sc.Intrinsic):
        return node.name not in TOTAL_INTRINSICS and sc.dtype_of(node).is_float
    partial = isinstance(node, sc.Div | sc.FloorDiv | sc.FloorMod | sc.Pow)
    return partial and sc.dtype_of(node).is_float  # type: ignore[arg-type]  # narrowed by `partial`


def undefined_atoms(reading: RuleFacts) -> frozenset[sc.ScalarVar]:
    """The unknown numbers that stand for what may be undefined."""
    return frozenset(
        key for key in reading.keys
        if isinstance(key, sc.ScalarVar) and not is_total(reading, key)
    )  # fmt: skip
